"""Signing in with OpenID Connect, with a provider that lies, hangs, or changes its keys. `tests/dashboard` has a real one."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import aiohttp
import pytest
from aiohttp import web

from ccm_agent.model.secret import Secret
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.dashboard.access import Access, Right
from ccm_ctl.dashboard.middleware import FORGERY_HEADER
from ccm_ctl.dashboard.oidc_pages import OidcPages
from ccm_ctl.dashboard.oidc_provider import AGAIN_S, FRESH_S, OidcProvider
from ccm_ctl.dashboard.oidc_settings import OidcSettings
from ccm_ctl.dashboard.server import Dashboard, DashboardOptions
from tests.contract.dashboard.test_actions import PATH, start_rollout
from tests.support.certificates import make_certificates
from tests.support.controller import NOW, FakeNode, fleet_on
from tests.support.openid import HandMadeProvider

SECRET = "the secret: of + the client"
WELL_KNOWN = "/.well-known/openid-configuration"


class Board:
    """A dashboard whose users sign in at a provider, and a browser of sorts."""

    def __init__(
        self,
        address: str,
        provider: HandMadeProvider,
        broker: MemoryBroker,
        connector: aiohttp.BaseConnector | None = None,
    ) -> None:
        self.address = address
        self.provider = provider
        self.broker = broker
        self.http = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.CookieJar(unsafe=True))

    async def get(self, path: str) -> tuple[int, str, str]:
        """Status, text and target of an answer."""
        async with self.http.get(self.address + path, allow_redirects=False) as answer:
            return answer.status, await answer.text(), answer.headers.get("Location", "")

    async def begin(self, path: str = "/") -> tuple[str, dict[str, str]]:
        """Where the dashboard sends a browser, and what an honest provider sends back."""
        status, text, target = await self.get(f"/sign-in?{urlencode({'next': path})}")
        assert status == 303, text
        query = {name: values[0] for name, values in parse_qs(urlsplit(target).query).items()}
        back = {"code": self.provider.code_for(target), "state": query["state"], "iss": self.provider.issuer}
        return target, back

    async def finish(self, **back: str) -> tuple[int, str, str]:
        """Come back from the provider."""
        return await self.get(f"/sign-in/callback?{urlencode(back)}")

    async def sign_in(self, path: str = "/") -> tuple[int, str, str]:
        """The whole way."""
        _, back = await self.begin(path)
        return await self.finish(**back)

    async def session(self) -> Any:
        """What a page learns about its session."""
        return json.loads((await self.get("/api/session"))[1])


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@contextlib.asynccontextmanager
async def board(
    clock: Clock | None = None,
    *,
    tls: ssl.SSLContext | None = None,
    names: tuple[str, ...] = (),
    connector: aiohttp.BaseConnector | None = None,
    provider_tls: ssl.SSLContext | None = None,
    **changed: Any,
) -> AsyncIterator[Board]:
    clock = clock or Clock()
    async with HandMadeProvider().serving(provider_tls) as hand_made:
        rights = {Right.ACT: ["admins"], Right.READ: ["staff"]}
        settings = OidcSettings(
            **{"issuer": hand_made.issuer, "client_id": "board", "rights": rights, **changed}
        )
        provider = OidcProvider(settings, Secret(SECRET), clock)
        broker = MemoryBroker(now=lambda: NOW)
        for node in (FakeNode("web1", {"role": "web"}), FakeNode("db1", {"role": "db"}, is_present=False)):
            await node.begin(broker)
        access = Access(b"k" * 32, "op", {}, clock, may_act=True, provider=settings.digest)
        options = DashboardOptions(
            listen="127.0.0.1",
            port=0,
            names=("localhost",) if tls else names,
            tls=tls,
            access=access,
            explain=lambda _: {},
            pages=(OidcPages(provider),),
        )
        async with Dashboard(fleet_on(MemoryBus(broker, "op")), options).serving() as address:
            made = Board(address, hand_made, broker, connector)
            async with made.http:
                yield made


async def test_a_user_of_the_provider_signs_in_and_comes_to_the_page() -> None:
    async with board() as site:
        before = await site.session()
        target, back = await site.begin("/nodes/web1?tab=facts")
        status, _, page = await site.finish(**back)
        session = await site.session()

    query = {name: values[0] for name, values in parse_qs(urlsplit(target).query).items()}
    assert before["provider"] == urlsplit(site.provider.issuer).netloc
    assert target.startswith(f"{site.provider.issuer}/authorize?")
    assert (query["response_type"], query["client_id"], query["code_challenge_method"]) == (
        "code",
        "board",
        "S256",
    )
    assert query["redirect_uri"] == f"{site.address}/sign-in/callback"
    assert (status, page) == (303, "/nodes/web1?tab=facts")
    assert (session["name"], session["right"]) == ("ann", "read")
    assert session["identity"] == f"{site.provider.issuer}#7"


async def test_the_secret_goes_to_the_token_endpoint_only() -> None:
    async with board() as site:
        target, back = await site.begin()
        await site.finish(**back)

    [form] = site.provider.forms
    word, _, said = form["authorization"].partition(" ")
    assert (word, base64.b64decode(said).decode()) == ("Basic", "board:the+secret%3A+of+%2B+the+client")
    assert "client_secret" not in form
    assert "secret" not in target


async def test_a_provider_without_basic_authentication_gets_the_secret_in_the_form() -> None:
    async with board() as site:
        site.provider.metadata = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
        await site.sign_in()

    [form] = site.provider.forms
    assert (form["client_id"], form["client_secret"], form["authorization"]) == ("board", SECRET, "")


async def test_the_cookies_cannot_be_read_by_scripts() -> None:
    async with board() as site:
        _, back = await site.begin()
        begun = {cookie.key: (cookie["samesite"], cookie["httponly"]) for cookie in site.http.cookie_jar}
        await site.finish(**back)
        done = {cookie.key: (cookie["samesite"], cookie["httponly"]) for cookie in site.http.cookie_jar}

    port = urlsplit(site.address).port
    assert begun == {f"ccm-{port}-sign-in": ("Lax", True)}
    assert done == {f"ccm-{port}": ("Strict", True)}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"state": "0" * 64}, id="another state"),
        pytest.param({"state": ""}, id="no state"),
        pytest.param({"state": "ü"}, id="a state that is not ASCII"),
    ],
)
async def test_a_forged_state_signs_nobody_in(change: dict[str, str]) -> None:
    async with board() as site:
        _, back = await site.begin()
        status, text, _ = await site.finish(**{**back, **change})
        session = await site.session()

    assert (status, site.provider.forms) == (400, [])
    assert "this sign-in was not begun in this browser" in text
    assert session["code"] == "dashboard.signed_out"


async def test_a_link_that_another_browser_began_signs_nobody_in() -> None:
    async with board() as site:
        _, back = await site.begin()
        site.http.cookie_jar.clear()
        status, text, _ = await site.finish(**back)
        await site.begin()
        again, _, _ = await site.finish(**back)

    assert (status, again, site.provider.forms) == (400, 400, [])
    assert "this sign-in was not begun in this browser" in text


async def test_a_code_works_once() -> None:
    async with board() as site:
        _, back = await site.begin()
        kept = {cookie.key: cookie.value for cookie in site.http.cookie_jar}
        first, _, _ = await site.finish(**back)
        later, _, _ = await site.finish(**back)
        site.http.cookie_jar.clear()
        site.http.cookie_jar.update_cookies(kept)
        stolen, text, _ = await site.finish(**back)

    assert (first, later, stolen) == (303, 400, 400)
    assert "did not accept the code" in text
    assert "<b>" not in text


async def test_a_code_of_another_sign_in_is_refused() -> None:
    async with board() as site:
        _, other = await site.begin()
        _, back = await site.begin()
        status, text, _ = await site.finish(**{**back, "code": other["code"]})

    assert (status, "did not accept the code" in text) == (400, True)


async def test_a_sign_in_that_took_too_long_begins_again() -> None:
    clock = Clock()
    async with board(clock) as site:
        _, back = await site.begin("/runs")
        clock.now += 601
        status, text, _ = await site.finish(**back)

    assert (status, "within the last 10 minutes" in text) == (400, True)


@pytest.mark.parametrize(
    ("claims", "problem"),
    [
        ({"nonce": "0" * 64}, "belongs to another sign-in"),
        ({"aud": "other"}, "for another client"),
        ({"iss": "https://evil.example"}, "from another issuer"),
        ({"exp": 1}, "has expired"),
    ],
)
async def test_an_id_token_that_does_not_fit_signs_nobody_in(claims: dict[str, Any], problem: str) -> None:
    async with board() as site:
        site.provider.claims |= claims
        status, text, _ = await site.sign_in()
        session = await site.session()

    assert (status, problem in text, session["code"]) == (400, True, "dashboard.signed_out")


@pytest.mark.parametrize("issuer", ["https://evil.example", ""])
async def test_an_answer_of_another_provider_is_refused(issuer: str) -> None:
    async with board() as site:
        _, back = await site.begin()
        status, text, _ = await site.finish(**{**back, "iss": issuer})
        _, bare = await site.begin()
        del bare["iss"]
        without, _, _ = await site.finish(**bare)

    assert (status, without, site.provider.forms) == (400, 400, [])
    assert "is from another provider" in text


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        ("access_denied", "access_denied"),
        ("<script>alert(1)</script>", "an error"),
        ("call-now-0100", "an error"),
    ],
)
async def test_a_refusal_of_the_provider_is_shown_without_its_text(error: str, shown: str) -> None:
    async with board() as site:
        _, back = await site.begin()
        status, text, _ = await site.finish(
            state=back["state"], iss=back["iss"], error=error, error_description="call-now-0100"
        )

    assert (status, f"did not sign you in: {shown}<" in text) == (400, True)
    assert "call-now" not in text
    assert "<script" not in text


async def test_a_user_without_a_right_is_told_so() -> None:
    async with board() as site:
        site.provider.claims = {"groups": ["guests"], "preferred_username": "<img src=x>"}
        status, text, _ = await site.sign_in("/runs")
        session = await site.session()

    assert (status, session["code"]) == (403, "dashboard.signed_out")
    assert "recognizes you as _img src_x_, but none of your `groups` grants access here" in text
    assert 'href="/sign-in?next=%2Fruns&amp;again=1"' in text


async def test_another_user_signs_in_after_one_without_a_right() -> None:
    async with board() as site:
        usual, _ = await site.begin()
        _, _, again = await site.get("/sign-in?next=%2Fruns&again=1")

    assert "prompt=" not in usual
    assert "&prompt=login" in again


async def test_groups_that_are_not_in_the_id_token_are_asked_for() -> None:
    async with board() as site:
        site.provider.claims = {}
        site.provider.about = {"sub": "7", "groups": ["admins"], "preferred_username": "eve"}
        await site.sign_in()
        session = await site.session()

    assert (session["name"], session["right"]) == ("ann", "act")


async def test_groups_of_another_user_are_refused() -> None:
    async with board() as site:
        site.provider.claims = {}
        site.provider.about = {"sub": "8", "groups": ["admins"]}
        status, text, _ = await site.sign_in()

    assert (status, "answered about another user" in text) == (400, True)


async def test_a_new_key_of_the_provider_is_read_and_a_withdrawn_one_forgotten() -> None:
    clock = Clock()
    async with board(clock) as site:
        before = site.provider.key
        first, _, _ = await site.sign_in()
        clock.now += AGAIN_S + 1
        site.provider.rotate("two")
        second, _, _ = await site.sign_in()
        site.provider.key = before
        clock.now += AGAIN_S + 1
        published = site.provider.asked.count("/keys")
        site.provider.answers["/keys"] = keys_without(before.kid)
        old, text, _ = await site.sign_in()

    assert (first, second, published, old) == (303, 303, 2, 400)
    assert "a key that the provider does not publish" in text


def keys_without(name: str) -> Any:
    async def answer(_: web.Request) -> web.Response:
        key = {"kty": "EC", "kid": f"not {name}", "crv": "P-256", "x": "", "y": ""}
        return web.json_response({"keys": [key, {"kty": "new"}, {}]})

    return answer


async def test_tokens_of_unknown_keys_do_not_make_the_dashboard_flood_the_provider() -> None:
    async with board() as site:
        await site.sign_in()
        site.provider.answers["/keys"] = keys_without("one")
        site.provider.rotate("two")
        for _ in range(5):
            await site.sign_in()

    assert site.provider.asked.count("/keys") == 1


async def test_keys_that_cannot_be_read_are_asked_for_again_after_a_while() -> None:
    clock = Clock()
    async with board(clock) as site:
        site.provider.answers["/keys"] = status_of(503)
        down = [await site.sign_in() for _ in range(5)]
        del site.provider.answers["/keys"]
        clock.now += AGAIN_S - 1
        early, _, _ = await site.sign_in()
        asked = site.provider.asked.count("/keys")
        clock.now += 1
        later, _, _ = await site.sign_in()

    assert ([status for status, _, _ in down], early, asked, later) == ([502] * 5, 502, 1, 303)
    assert all("the request for its key set failed with HTTP status 503" in text for _, text, _ in down)


async def test_the_keys_are_read_again_after_an_hour() -> None:
    clock = Clock()
    async with board(clock) as site:
        await site.sign_in()
        clock.now = site.provider.now = clock.now + FRESH_S + 1
        site.provider.answers["/keys"] = keys_without("one")
        status, _, _ = await site.sign_in()

    assert (status, site.provider.asked.count(WELL_KNOWN)) == (400, 2)


def status_of(status: int, **headers: str) -> Any:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, headers=headers, text="{}")

    return answer


async def huge(request: web.Request) -> web.StreamResponse:
    """64 MiB, if all of it is taken."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    with contextlib.suppress(ConnectionError):
        for _ in range(1024):
            await response.write(b" " * (64 << 10))
    return response


async def deep(_: web.Request) -> web.Response:
    return web.Response(text="[" * 100_000, content_type="application/json")


async def hanging(_: web.Request) -> web.Response:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.parametrize(
    ("path", "begins"), [(WELL_KNOWN, False), ("/keys", True), ("/token", True), ("/userinfo", True)]
)
@pytest.mark.parametrize(
    ("special", "problem"),
    [
        pytest.param(status_of(500), "HTTP status 500", id="fails"),
        pytest.param(
            status_of(302, Location="http://127.0.0.1:1/"), "redirects to another address", id="redirects"
        ),
        pytest.param(huge, "more than 256 KiB", id="is huge"),
        pytest.param(deep, "is not valid", id="is nested deeply"),
        pytest.param(hanging, "no answer within", id="hangs"),
        pytest.param(
            status_of(200, **{"X-Long": "x" * 20_000}), "the connection broke off", id="has a huge header"
        ),
    ],
)
async def test_a_provider_that_answers_nonsense_is_a_page_and_not_a_session(
    path: str, begins: bool, special: Any, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccm_ctl.dashboard.oidc_provider.ANSWER_S", 0.5)
    async with board() as site:
        site.provider.claims = {}
        site.provider.answers[path] = special
        status, text, _ = await (site.sign_in() if begins else site.get("/sign-in"))
        session = await site.session()

    assert (status, session["code"]) == (502, "dashboard.signed_out")
    assert problem in text
    assert "Sign in again" in text
    assert SECRET not in text
    assert "code-" not in text


@pytest.mark.parametrize(
    ("metadata", "problem"),
    [
        ({"issuer": "https://login.example.net"}, "of another issuer"),
        ({"token_endpoint": "http://login.example.net/token"}, "an address that is not https://"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "an address that is not https://"),
        ({"jwks_uri": "file:///etc/passwd"}, "an address that is not https://"),
        ({"userinfo_endpoint": "https://me@evil.example/"}, "an address that is not https://"),
        ({"jwks_uri": None}, "its discovery document is not valid"),
    ],
)
async def test_a_discovery_document_that_leads_elsewhere_is_refused(metadata: Any, problem: str) -> None:
    async with board() as site:
        site.provider.metadata = metadata
        status, text, _ = await site.get("/sign-in")

    assert (status, problem in text) == (502, True)


async def test_a_provider_that_is_down_is_asked_again_after_a_while() -> None:
    clock = Clock()
    async with board(clock) as site:
        site.provider.answers[WELL_KNOWN] = status_of(503)
        down = [(await site.get("/sign-in"))[0] for _ in range(5)]
        del site.provider.answers[WELL_KNOWN]
        clock.now += AGAIN_S + 1
        status, _, _ = await site.get("/sign-in")

    assert (down, status, site.provider.asked.count(WELL_KNOWN)) == ([502] * 5, 303, 2)


@pytest.mark.parametrize(
    "wanted",
    [
        "https://evil.example/",
        "//evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "/\t/evil.example",
        "/\r\nSet-Cookie: a=b",
        "javascript:alert(1)",
        "evil",
        "/nodes/ü",
        "/api/session",
        "/sign-in",
        "/" + "x" * 2000,
    ],
)
async def test_a_link_to_sign_in_leads_nowhere_else(wanted: str) -> None:
    async with board() as site:
        status, _, page = await site.sign_in(wanted)

    assert (status, page) == (303, "/")


async def test_over_tls_the_cookies_are_sent_over_tls_only(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    served.load_cert_chain(made.cert, made.key)
    trusting = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=made.ca))
    async with board(tls=served, connector=trusting) as site:
        _, back = await site.begin()
        begun = list(site.http.cookie_jar)
        status, _, _ = await site.finish(**back)
        done = list(site.http.cookie_jar)

    port = urlsplit(site.address).port
    assert (status, site.address) == (303, f"https://localhost:{port}")
    assert [(one.key, one["secure"], one["httponly"], one["samesite"]) for one in (*begun, *done)] == [
        (f"__Host-ccm-{port}-sign-in", True, True, "Lax"),
        (f"__Host-ccm-{port}", True, True, "Strict"),
    ]


async def test_a_provider_is_trusted_with_the_certificates_of_the_settings_only(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    served.load_cert_chain(made.cert, made.key)
    async with board(provider_tls=served, ca_file=made.ca) as site:
        known, _, _ = await site.sign_in()
    async with board(provider_tls=served) as site:
        unknown, text, _ = await site.get("/sign-in")

    assert (known, unknown, "its TLS certificate is not valid" in text) == (303, 502, True)


async def test_without_tls_another_host_cannot_sign_in() -> None:
    async with board(names=("ops.example.net",)) as site:
        port = urlsplit(site.address).port
        headers = {"Host": f"ops.example.net:{port}"}
        async with site.http.get(
            f"http://127.0.0.1:{port}/sign-in", headers=headers, allow_redirects=False
        ) as answer:
            text = await answer.text()

    assert (answer.status, "signing in needs TLS" in text) == (400, True)


async def test_an_action_is_recorded_with_issuer_and_subject() -> None:
    async with board() as site:
        store = await start_rollout(site)  # type: ignore[arg-type]
        site.provider.claims = {"groups": ["admins"], "preferred_username": "op"}
        await site.sign_in()
        session = await site.session()
        headers = {"Origin": site.address, FORGERY_HEADER: session["action"]}
        async with site.http.post(site.address + PATH, headers=headers, data="{}") as answer:
            status = answer.status
        state, _ = await store.need(PATH.split("/")[3])

    assert (status, state.by) == (200, f"op [{site.provider.issuer}#7] (dashboard of op)")


async def test_a_user_who_may_only_read_does_not_act() -> None:
    async with board() as site:
        await start_rollout(site)  # type: ignore[arg-type]
        await site.sign_in()
        session = await site.session()
        headers = {"Origin": site.address, FORGERY_HEADER: session["action"]}
        async with site.http.post(site.address + PATH, headers=headers, data="{}") as answer:
            said = await answer.json()

    assert (answer.status, said["error"].startswith("this user can only view")) == (403, True)


async def test_a_session_ends_when_the_settings_say() -> None:
    clock = Clock()
    async with board(clock, session="30m") as site:
        await site.sign_in()
        clock.now += 1799
        during = await site.session()
        clock.now += 2
        after = await site.session()

    assert (during.get("name"), after["code"]) == ("ann", "dashboard.signed_out")


async def test_a_copy_of_the_cookie_is_worth_nothing_after_signing_out() -> None:
    async with board() as site:
        await site.sign_in()
        kept = {cookie.key: cookie.value for cookie in site.http.cookie_jar}
        async with site.http.delete(
            site.address + "/api/session", headers={"Origin": site.address}
        ) as answer:
            status = answer.status
        site.http.cookie_jar.update_cookies(kept)
        session = await site.session()

    assert (status, session["code"]) == (200, "dashboard.signed_out")


async def test_another_site_signs_nobody_out() -> None:
    async with board() as site:
        await site.sign_in()
        headers = {"Origin": "https://evil.example"}
        async with site.http.delete(site.address + "/api/session", headers=headers) as answer:
            status = answer.status
        session = await site.session()

    assert (status, session["name"]) == (403, "ann")
