"""
A value in HashiCorp Vault or OpenBao: a field of a secret in a version 2 KV engine.

Credentials come from the environment or from files named there. A token from a login is revoked after use. Redirects are not
followed, because the token would be sent to the new address. Messages contain neither parts of a response nor credentials.

Source: https://developer.hashicorp.com/vault/api-docs, pages `secret/kv/kv-v2`, `auth/approle`, `auth/jwt` and `auth/token`.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import Struct

from ccm_agent.model.errors import InputError, UsageError
from ccm_agent.model.formats.safe_urls import is_safe_url
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.secret import Secret
from ccm_ctl.fleet.http_problems import describe_http_problem
from ccm_ctl.secret_sources.contract import (
    SourceDeniedError,
    SourceMissingError,
    SourceUnreachableError,
)
from ccm_ctl.secret_sources.decrypted import DOCUMENT_LIMIT_BYTES, read_limited, text_at

if TYPE_CHECKING:
    import aiohttp

    from ccm_ctl.secret_sources.contract import SourceRequest

ANSWER_S = 15.0
"""The time limit for a complete response, in seconds. Vault itself waits up to 90 s for its storage."""

_TOKEN = re.compile(r"[\x21-\x7e]{1,8192}")
"""The characters and the length that are allowed in a header."""


class _Auth(Struct):
    client_token: str


class _Login(Struct):
    auth: _Auth


class _Metadata(Struct):
    deletion_time: str = ""
    destroyed: bool = False


class _Version(Struct):
    data: dict[str, Any] | None = None
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class _Read(Struct):
    data: _Version | None = None


class _Method(Struct):
    """
    A login method, which returns a token.

    Attributes:
        mount: The mount path of the method.
        credentials: The required credentials, by name.
    """

    mount: str
    credentials: dict[str, Secret]


class VaultField:
    """
    A field of a secret.

    Raises:
        InputError: The path, the address or the credentials are missing or cannot be used.
    """

    def __init__(self, request: SourceRequest) -> None:
        environ = request.environ
        address = environ.get("VAULT_ADDR", "").rstrip("/")
        if not address:
            raise UsageError("--from vault: needs the address of Vault or OpenBao in VAULT_ADDR")
        if not is_safe_url(address):
            raise UsageError(
                "VAULT_ADDR must be an https:// URL without user and query; http:// only on this host"
            )
        mount, _, path = request.place.partition("/")
        parts = [mount, "data", *path.split("/")]
        if not request.field or not path or any(part in ("", ".", "..") for part in parts):
            raise UsageError("--from vault: needs the form vault:MOUNT/PATH#FIELD")
        if request.identity:
            raise UsageError("--identity is for age: and sops: only")
        self._request = request
        self._address = address
        self._host = urlsplit(address).netloc
        self._path = "/".join(quote(part, safe="") for part in parts)
        self._namespace = environ.get("VAULT_NAMESPACE", "")

    async def read(self) -> Secret:
        """See `ValueSource`."""
        token, login = await asyncio.to_thread(_credentials, self._request.environ)
        async with self._connected() as http:
            if login is None:
                return await self._value(http, token)
            token = await self._log_in(http, login)
            try:
                return await self._value(http, token)
            finally:
                # if the token cannot be revoked, it expires by itself
                with contextlib.suppress(InputError):
                    await self._ask(http, "POST", "auth/token/revoke-self", token)

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[aiohttp.ClientSession]:
        from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector

        tls = await asyncio.to_thread(_tls, self._request.environ.get("VAULT_CACERT", ""))
        async with ClientSession(
            connector=TCPConnector(ssl=tls),
            cookie_jar=DummyCookieJar(),
            timeout=ClientTimeout(total=ANSWER_S),
            auto_decompress=False,
            trust_env=True,
        ) as http:
            yield http

    async def _log_in(self, http: aiohttp.ClientSession, login: _Method) -> Secret:
        body = msgspec.json.encode({name: one.reveal() for name, one in login.credentials.items()})
        status, body = await self._ask(http, "POST", f"auth/{login.mount}/login", None, body)
        if status in (400, 401, 403):
            raise self._denied("it does not accept the login credentials")
        if status == 404:
            raise self._denied(f"no login method is mounted at `{login.mount}`; see VAULT_AUTH_PATH")
        self._check_status(status)
        try:
            return _token_in(body)
        except msgspec.MsgspecError:
            raise self._unusable("its answer is not a valid login response") from None

    async def _value(self, http: aiohttp.ClientSession, token: Secret) -> Secret:
        status, body = await self._ask(http, "GET", self._path, token)
        shown = self._request.shown
        if status in (401, 403):
            raise self._denied(f"the token is not valid, or may not read {self._request.place}")
        if status == 404:
            if _is_deleted(body):
                raise SourceMissingError(f"{self._host}: {shown}: its newest version was deleted")
            raise SourceMissingError(
                f"{self._host}: {shown}: there is no such path, or its engine is not KV version 2"
            )
        self._check_status(status)
        try:
            data = _data_in(body)
        except msgspec.MsgspecError:
            raise self._unusable("its answer is not from a KV engine of version 2") from None
        return text_at(data, self._request)

    def _check_status(self, status: int) -> None:
        """
        Check that a response is a success.

        Raises:
            SourceUnreachableError: The response is not a success.
        """
        if 300 <= status < 400:
            raise self._unusable("it redirects to another address; set VAULT_ADDR to the active server")
        if status == 503:
            raise self._unusable("it is sealed or in maintenance")
        if status == 429:
            raise self._unusable("it has too many requests; try again later")
        if status != 200:
            raise self._unusable(f"it answered with HTTP status {status}")

    async def _ask(
        self,
        http: aiohttp.ClientSession,
        method: str,
        path: str,
        token: Secret | None,
        body: bytes | None = None,
    ) -> tuple[int, bytes]:
        """
        Send a request, and return the status and the body of the response.

        Raises:
            SourceUnreachableError: There is no response, or the response is too large.
        """
        from aiohttp import ClientError
        from yarl import URL

        headers = {"Accept-Encoding": "identity", "User-Agent": "ccmctl", "X-Vault-Request": "true"}
        if token is not None:
            headers["X-Vault-Token"] = token.reveal()
        if self._namespace:
            headers["X-Vault-Namespace"] = self._namespace
        url = URL(f"{self._address}/v1/{path}", encoded=True)
        received = bytearray()
        try:
            async with http.request(method, url, data=body, headers=headers, allow_redirects=False) as answer:
                async for chunk in answer.content.iter_chunked(16 << 10):
                    received += chunk
                    if len(received) > DOCUMENT_LIMIT_BYTES:
                        raise self._unusable(f"its answer has more than {DOCUMENT_LIMIT_BYTES >> 10} KiB")
                return answer.status, bytes(received)
        except TimeoutError:
            raise self._unusable(f"no answer within {ANSWER_S:g} s") from None
        except (ClientError, ValueError, OSError) as err:
            # do not show the error's own text, because it may contain a header
            raise self._unusable(describe_http_problem(err) or "the connection broke off") from None

    def _unusable(self, why: str) -> SourceUnreachableError:
        return SourceUnreachableError(f"{self._host}: {why}")

    def _denied(self, why: str) -> SourceDeniedError:
        return SourceDeniedError(f"{self._host}: {why}")


def _token_in(body: bytes) -> Secret:
    """
    Return the token that a login issued.

    Raises:
        msgspec.MsgspecError: There is no token, or its characters are not allowed in a header.
    """
    token = Secret(decode_foreign(body, _Login).auth.client_token)
    if not _TOKEN.fullmatch(token.reveal()):
        raise msgspec.ValidationError("it is not a token")
    return token


def _data_in(body: bytes) -> dict[str, Any]:
    """
    Return the fields of the newest version of the secret.

    Raises:
        msgspec.MsgspecError: The response has an unexpected form.
    """
    version = decode_foreign(body, _Read).data
    if version is None or version.data is None:
        raise msgspec.ValidationError("it has no data")
    return version.data


def _is_deleted(body: bytes) -> bool:
    """
    Whether a version was deleted or destroyed. If so, the response has metadata although its status is that of a missing secret.
    """
    try:
        version = decode_foreign(body, _Read).data
    except msgspec.MsgspecError:
        return False
    return version is not None and (version.metadata.destroyed or bool(version.metadata.deletion_time))


def _tls(ca_file: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file or None)
    except (OSError, ssl.SSLError):
        raise InputError(f"VAULT_CACERT: {ca_file} is not a PEM file of certificates") from None


def _credentials(environ: Mapping[str, str]) -> tuple[Secret, _Method | None]:
    """
    Return a token, or a login method. Blocking, because credentials may be in files.

    Raises:
        InputError: There are no credentials, or some of them cannot be used.
    """
    if token := environ.get("VAULT_TOKEN"):
        return _checked("VAULT_TOKEN", token), None
    if role_id := environ.get("VAULT_ROLE_ID"):
        credentials = {"role_id": _checked("VAULT_ROLE_ID", role_id)}
        # some roles do not require a secret ID
        if secret_id := environ.get("VAULT_SECRET_ID"):
            credentials["secret_id"] = _checked("VAULT_SECRET_ID", secret_id)
        elif file := environ.get("VAULT_SECRET_ID_FILE"):
            credentials["secret_id"] = _in_file("VAULT_SECRET_ID_FILE", file)
        return Secret(""), _Method(_mount(environ, "approle"), credentials)
    if file := environ.get("VAULT_JWT_FILE"):
        credentials = {"jwt": _in_file("VAULT_JWT_FILE", file)}
        if role := environ.get("VAULT_ROLE"):
            credentials["role"] = Secret(role)
        return Secret(""), _Method(_mount(environ, "jwt"), credentials)
    raise InputError(
        "--from vault: needs VAULT_TOKEN, VAULT_ROLE_ID with VAULT_SECRET_ID or VAULT_SECRET_ID_FILE, or VAULT_JWT_FILE"
    )


def _mount(environ: Mapping[str, str], usual: str) -> str:
    mount = environ.get("VAULT_AUTH_PATH", "").strip("/") or usual
    return "/".join(quote(part, safe="") for part in mount.split("/"))


def _in_file(name: str, path: str) -> Secret:
    return _checked(name, read_limited(path).decode("ascii", "replace").strip())


def _checked(name: str, text: str) -> Secret:
    """
    Check the characters of a credential, and return it.

    Raises:
        InputError: The credential has characters that are not allowed.
    """
    if not _TOKEN.fullmatch(text):
        raise InputError(f"{name}: empty, or contains characters that are not allowed in a credential")
    return Secret(text)
