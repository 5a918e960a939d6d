"""Vault and OpenBao: a server that speaks AppRole, JWT and KV version 2 as documented, and its failures."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from msgspec import Struct

from ccm_agent.model.errors import InputError, UsageError
from ccm_ctl.secret_sources import vault
from tests.support.certificates import make_certificates
from tests.support.secret_sources import VALUE, failure_of, read_value

ROLE_ID, SECRET_ID, TOKEN, JWT = "role-4711", "secret-id-0815", "hvs.CAESIJ-token", "eyJh.eyJz.c2ln"
HIDDEN = (VALUE, SECRET_ID, TOKEN, JWT)
SOURCE = "vault:kv/apps/db#password"

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Asked(Struct, frozen=True):
    """A request that the server got."""

    method: str
    path: str
    token: str = ""
    body: Any = None


class VaultServer:
    """
    A server with one secret, `apps/db` in the engine `kv`.

    Attributes:
        asked: The requests.
        answers: What a path is answered with instead.
        environ: Where it is, for its clients.
    """

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.answers: dict[str, Answer] = {}
        self.environ: dict[str, str] = {}
        self.namespaces: set[str] = set()
        self.data: object = {"password": VALUE, "port": 5432, "nested": {"a": VALUE}, "empty": None}

    @contextlib.asynccontextmanager
    async def serving(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[VaultServer]:
        """Serve on this host within the block."""
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
            address = f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
            self.environ = {"VAULT_ADDR": address, "VAULT_ROLE_ID": ROLE_ID, "VAULT_SECRET_ID": SECRET_ID}
            yield self
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        token = request.headers.get("X-Vault-Token", "")
        body = await request.json() if request.can_read_body else None
        self.asked.append(Asked(request.method, request.path, token, body))
        self.namespaces.add(request.headers.get("X-Vault-Namespace", ""))
        if request.headers.get("X-Vault-Request") != "true":
            return errors(400, "missing required header")
        if special := self.answers.get(request.path):
            return await special(request)
        match request.method, request.path:
            case "POST", "/v1/auth/approle/login" if body == {"role_id": ROLE_ID, "secret_id": SECRET_ID}:
                return login_answer(TOKEN)
            case "POST", "/v1/auth/gh/login" if body == {"jwt": JWT, "role": "fleet"}:
                return login_answer(TOKEN)
            case "POST", "/v1/auth/approle/login":
                return errors(400, "invalid role or secret ID")
            case "GET" | "POST", _ if token != TOKEN:
                return errors(403, "permission denied")
            case "POST", "/v1/auth/token/revoke-self":
                return web.Response(status=204)
            case "GET", "/v1/kv/data/apps/db":
                return web.json_response({"data": {"data": self.data, "metadata": METADATA}})
        return errors(404)


METADATA = {"created_time": "2026-11-28T00:00:00Z", "deletion_time": "", "destroyed": False, "version": 3}


def errors(status: int, *texts: str) -> web.Response:
    return web.json_response({"errors": list(texts)}, status=status)


def login_answer(token: object) -> web.Response:
    auth = {"client_token": token, "accessor": "a", "policies": ["default"], "lease_duration": 1200}
    return web.json_response({"auth": {**auth, "renewable": True}, "warnings": None})


def always(answer: Callable[[], web.StreamResponse]) -> Answer:
    async def give(request: web.Request) -> web.StreamResponse:
        del request
        return answer()

    return give


def text(body: str | bytes, status: int = 200, **headers: str) -> Answer:
    raw = body if isinstance(body, bytes) else body.encode()
    return always(lambda: web.Response(body=raw, status=status, headers=headers))


def json_body(body: object, status: int = 200) -> Answer:
    return text(json.dumps(body), status)


@pytest.fixture
async def server() -> AsyncIterator[VaultServer]:
    async with VaultServer().serving() as one:
        yield one


async def test_value_is_read_with_approle_and_the_token_is_revoked(server: VaultServer) -> None:
    assert await read_value(SOURCE, server.environ) == VALUE

    assert server.asked == [
        Asked("POST", "/v1/auth/approle/login", "", {"role_id": ROLE_ID, "secret_id": SECRET_ID}),
        Asked("GET", "/v1/kv/data/apps/db", TOKEN),
        Asked("POST", "/v1/auth/token/revoke-self", TOKEN),
    ]


async def test_secret_id_comes_from_a_file_without_its_last_newline(
    server: VaultServer, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text(f"{SECRET_ID}\n")
    environ = {
        "VAULT_ADDR": server.environ["VAULT_ADDR"] + "/",
        "VAULT_ROLE_ID": ROLE_ID,
        "VAULT_SECRET_ID_FILE": str(tmp_path / "secret"),
    }

    assert await read_value("vault:kv/apps/db#nested.a", environ) == VALUE


async def test_value_is_read_with_a_jwt_in_a_namespace(server: VaultServer, tmp_path: Path) -> None:
    (tmp_path / "jwt").write_text(JWT)
    environ = {
        "VAULT_ADDR": server.environ["VAULT_ADDR"],
        "VAULT_NAMESPACE": "team/a",
        "VAULT_AUTH_PATH": "gh/",
        "VAULT_JWT_FILE": str(tmp_path / "jwt"),
        "VAULT_ROLE": "fleet",
    }

    assert await read_value(SOURCE, environ) == VALUE
    assert server.namespaces == {"team/a"}


async def test_token_of_the_operator_is_used_and_not_revoked(server: VaultServer) -> None:
    environ = {**server.environ, "VAULT_TOKEN": TOKEN}

    assert await read_value(SOURCE, environ) == VALUE
    assert server.asked == [Asked("GET", "/v1/kv/data/apps/db", TOKEN)]


async def test_path_is_one_path_of_the_engine(server: VaultServer) -> None:
    error = await failure_of("vault:kv/a%2f..?x/b c#password", server.environ, hidden=HIDDEN)

    assert error.code == "secret.source_missing"
    assert [one.path for one in server.asked][1] == "/v1/kv/data/a%2f..?x/b c"


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(text("", 204), id="done"),
        pytest.param(json_body({"errors": ["batch tokens cannot be revoked"]}, 400), id="refused"),
        pytest.param(text(bytes(2 << 20)), id="too large"),
    ],
)
async def test_token_that_cannot_be_revoked_is_no_failure(server: VaultServer, answer: Answer) -> None:
    server.answers["/v1/auth/token/revoke-self"] = answer

    assert await read_value(SOURCE, server.environ) == VALUE


READ_FAILURES = [
    pytest.param(text(b"x" * (1 << 20) + b"y"), "unreachable", "more than 1024 KiB", id="huge body"),
    pytest.param(text("", 307, Location="http://127.0.0.1:1/v1"), "unreachable", "redirects", id="redirect"),
    pytest.param(text("", 301, Location="/v1/kv/data/apps/db"), "unreachable", "redirects", id="to itself"),
    pytest.param(json_body({"errors": ["1 error: " + VALUE]}, 403), "denied", "may not read", id="403"),
    pytest.param(json_body({"errors": []}, 401), "denied", "may not read", id="401"),
    pytest.param(json_body({"errors": []}, 404), "missing", "no such path", id="404"),
    pytest.param(text("<html>" + VALUE, 404), "missing", "no such path", id="404 of another server"),
    pytest.param(
        json_body({"data": {"data": None, "metadata": {**METADATA, "deletion_time": "2026-01-01"}}}, 404),
        "missing",
        "its newest version was deleted",
        id="deleted version",
    ),
    pytest.param(
        json_body({"data": {"data": None, "metadata": {**METADATA, "destroyed": True}}}, 404),
        "missing",
        "its newest version was deleted",
        id="destroyed version",
    ),
    pytest.param(json_body({"errors": ["Vault is sealed"]}, 503), "unreachable", "sealed", id="sealed"),
    pytest.param(json_body({"errors": []}, 429), "unreachable", "too many requests", id="rate limit"),
    pytest.param(json_body({"errors": [VALUE]}, 500), "unreachable", "HTTP status 500", id="500"),
    pytest.param(text(""), "unreachable", "not from a KV engine", id="empty body"),
    pytest.param(text("", 204), "unreachable", "HTTP status 204", id="no content"),
    pytest.param(text(VALUE), "unreachable", "not from a KV engine", id="not JSON"),
    pytest.param(text(b"\xff\xfe"), "unreachable", "not from a KV engine", id="not UTF-8"),
    pytest.param(text("[" * 100_000), "unreachable", "not from a KV engine", id="deep nesting"),
    pytest.param(json_body([VALUE]), "unreachable", "not from a KV engine", id="a list"),
    pytest.param(json_body({"data": VALUE}), "unreachable", "not from a KV engine", id="data is a text"),
    pytest.param(
        json_body({"data": {"data": [VALUE]}}),
        "unreachable",
        "not from a KV engine",
        id="fields are a list",
    ),
    pytest.param(
        json_body({"data": {"password": VALUE}}), "unreachable", "not from a KV engine", id="KV version 1"
    ),
    pytest.param(
        json_body({"data": {"data": {"user": VALUE}, "metadata": METADATA}}),
        "missing",
        "no such value",
        id="no field",
    ),
    pytest.param(
        json_body({"data": {"data": {"password": [VALUE]}, "metadata": METADATA}}),
        "invalid",
        "not text",
        id="field is a list",
    ),
    pytest.param(
        json_body({"data": {"data": {"password": None}, "metadata": METADATA}}),
        "invalid",
        "not text",
        id="field is null",
    ),
]


@pytest.mark.parametrize(("answer", "code", "said"), READ_FAILURES)
async def test_answer_that_has_no_value_is_a_code_and_shows_nothing(
    server: VaultServer, answer: Answer, code: str, said: str
) -> None:
    server.answers["/v1/kv/data/apps/db"] = answer

    error = await failure_of(SOURCE, server.environ, hidden=HIDDEN)

    assert (error.code, said in str(error)) == (f"secret.source_{code}", True), error
    assert server.asked[-1] == Asked("POST", "/v1/auth/token/revoke-self", TOKEN)
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        pytest.param(json_body({"errors": ["invalid role or secret ID"]}, 400), "denied", id="400"),
        pytest.param(json_body({"errors": ["permission denied"]}, 403), "denied", id="403"),
        pytest.param(json_body({"errors": ["no handler for route"]}, 404), "denied", id="not mounted"),
        pytest.param(json_body({"errors": ["Vault is sealed"]}, 503), "unreachable", id="sealed"),
        pytest.param(text("", 307, Location="https://vault.example/v1"), "unreachable", id="redirect"),
        pytest.param(json_body({"auth": None}), "unreachable", id="no auth"),
        pytest.param(json_body({}), "unreachable", id="another answer"),
        pytest.param(always(lambda: login_answer(7)), "unreachable", id="token is a number"),
        pytest.param(always(lambda: login_answer("")), "unreachable", id="token is empty"),
        pytest.param(
            always(lambda: login_answer(f"{TOKEN}\r\nX-Evil: 1")), "unreachable", id="newline in token"
        ),
        pytest.param(always(lambda: login_answer("é" * 20)), "unreachable", id="token is not ASCII"),
        pytest.param(always(lambda: login_answer("x" * 9000)), "unreachable", id="token is too long"),
    ],
)
async def test_login_without_a_usable_token_reads_nothing(
    server: VaultServer, answer: Answer, code: str
) -> None:
    server.answers["/v1/auth/approle/login"] = answer

    error = await failure_of(SOURCE, server.environ, hidden=HIDDEN)

    assert error.code == f"secret.source_{code}"
    assert len(server.asked) == 1


async def test_wrong_secret_id_is_denied_and_not_shown(server: VaultServer) -> None:
    environ = {**server.environ, "VAULT_SECRET_ID": "wrong-4711-one"}

    error = await failure_of(SOURCE, environ, hidden=[*HIDDEN, "wrong-4711-one"])

    assert error.code == "secret.source_denied"


@pytest.mark.parametrize("path", ["/v1/auth/approle/login", "/v1/kv/data/apps/db"])
@pytest.mark.parametrize("begins", [False, True])
async def test_server_that_hangs_is_not_waited_for(
    server: VaultServer, monkeypatch: pytest.MonkeyPatch, path: str, begins: bool
) -> None:
    async def hang(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        if begins:
            await response.prepare(request)
            await response.write(b'{"data": ')
        await asyncio.Event().wait()
        return response

    server.answers[path] = hang
    monkeypatch.setattr(vault, "ANSWER_S", 0.3)

    error = await failure_of(SOURCE, server.environ, hidden=HIDDEN)

    assert (error.code, "no answer within" in str(error)) == ("secret.source_unreachable", True)


async def test_server_that_breaks_off_is_unreachable(server: VaultServer) -> None:
    async def break_off(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    server.answers["/v1/kv/data/apps/db"] = break_off

    error = await failure_of(SOURCE, server.environ, hidden=HIDDEN)

    assert (error.code, "broke off" in str(error)) == ("secret.source_unreachable", True)


async def test_compressed_answer_is_not_unpacked(server: VaultServer) -> None:
    import gzip

    body = gzip.compress(json.dumps({"data": {"data": {"password": VALUE}}}).encode())
    server.answers["/v1/kv/data/apps/db"] = text(body, **{"Content-Encoding": "gzip"})

    error = await failure_of(SOURCE, server.environ, hidden=HIDDEN)

    assert error.code == "secret.source_unreachable"


async def test_no_server_is_unreachable() -> None:
    environ = {"VAULT_ADDR": "http://127.0.0.1:1", "VAULT_TOKEN": TOKEN}

    error = await failure_of(SOURCE, environ, hidden=HIDDEN)

    assert (error.code, "no connection" in str(error)) == ("secret.source_unreachable", True)


async def test_certificate_is_verified_with_that_of_the_settings(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.cert, made.key)

    async with VaultServer().serving(context) as server:
        strange = await failure_of(SOURCE, server.environ, hidden=HIDDEN)
        assert server.asked == []
        value = await read_value(SOURCE, {**server.environ, "VAULT_CACERT": made.ca})
        no_file = await failure_of(SOURCE, {**server.environ, "VAULT_CACERT": made.key}, hidden=HIDDEN)

    assert (strange.code, "certificate is not valid" in str(strange)) == ("secret.source_unreachable", True)
    assert value == VALUE
    assert "VAULT_CACERT" in str(no_file)


@pytest.mark.parametrize(
    "address",
    [
        pytest.param("", id="none"),
        pytest.param("http://vault.example:8200", id="no TLS"),
        pytest.param("https://user:s3cr3t@vault.example", id="a password"),
        pytest.param("https://vault.example?x=s3cr3t", id="a query"),
        pytest.param("vault.example:8200", id="no scheme"),
    ],
)
async def test_address_that_would_leak_the_token_is_refused(address: str) -> None:
    error = await failure_of(SOURCE, {"VAULT_ADDR": address, "VAULT_TOKEN": TOKEN}, hidden=["s3cr3t", TOKEN])

    assert isinstance(error, UsageError)
    assert "VAULT_ADDR" in str(error)


@pytest.mark.parametrize(
    "place",
    [
        "vault:kv#password",
        "vault:kv/#password",
        "vault:/db#password",
        "vault:kv/../sys/raw#password",
        "vault:kv/./db#password",
        "vault:kv//db#password",
        "vault:kv/apps/db",
    ],
)
async def test_path_of_another_form_is_refused(server: VaultServer, place: str) -> None:
    error = await failure_of(place, server.environ, hidden=HIDDEN)

    assert isinstance(error, UsageError)
    assert server.asked == []


@pytest.mark.parametrize(
    "environ",
    [
        pytest.param({}, id="none"),
        pytest.param({"VAULT_SECRET_ID": SECRET_ID}, id="half"),
        pytest.param({"VAULT_TOKEN": f"{TOKEN}\nX-Evil: 1"}, id="a line break"),
        pytest.param({"VAULT_JWT_FILE": "/nonexistent"}, id="a missing file"),
        pytest.param({"VAULT_ROLE_ID": ROLE_ID, "VAULT_SECRET_ID_FILE": "/dev/null"}, id="an empty file"),
        pytest.param({"VAULT_JWT_FILE": "/dev/zero"}, id="an endless file"),
    ],
)
async def test_credentials_that_cannot_be_used_are_not_sent(
    server: VaultServer, environ: dict[str, str]
) -> None:
    error = await failure_of(SOURCE, {"VAULT_ADDR": server.environ["VAULT_ADDR"], **environ}, hidden=HIDDEN)

    assert isinstance(error, InputError)
    assert server.asked == []
