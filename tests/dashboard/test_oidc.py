"""Signing in with a real OpenID Connect provider and its password form, in a real browser."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

import playwright
import pytest
from msgspec import Struct
from playwright.sync_api import Browser, BrowserContext, Page, expect

from ccm_ctl.dashboard.access import Access, DashboardUser, Right
from ccm_ctl.dashboard.oidc_settings import read_settings
from tests.dashboard.conftest import Site, context_of, looks_well_everywhere, serious
from tests.support.fleet import manifest

TOP = Path(__file__).resolve().parents[2]
PACKAGES = TOP / ".cache/openid-provider"
NODE = Path(playwright.__file__).parent / "driver/node"
"""Playwright brings its own Node.js."""

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(180),
    pytest.mark.skipif(
        not (PACKAGES / "installed.json").exists(),
        reason="no OpenID Connect provider: run .ci/fetch-openid-provider",
    ),
]

SECRET = "a secret of the client: 100%"
USERS = {
    "ann": {"password": "ann's", "claims": {"preferred_username": "ann", "groups": ["operators", "staff"]}},
    "bob": {"password": "bob's", "claims": {"preferred_username": "bob", "groups": ["staff"]}},
    "eve": {"password": "eve's", "claims": {"preferred_username": "<b>eve</b>", "groups": ["guests"]}},
    # the name of the operator who serves the dashboard
    "tester": {"password": "t", "claims": {"preferred_username": "tester", "groups": ["operators"]}},
}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Provider:
    """oidc-provider as a process."""

    def __init__(self, port: int, dashboard: str) -> None:
        self.issuer = f"http://127.0.0.1:{port}"
        client = {
            "client_id": "board",
            "client_secret": SECRET,
            "redirect_uris": [f"{dashboard}/sign-in/callback"],
            "scope": "openid profile email groups",
        }
        settings = json.dumps({"port": port, "client": client, "users": USERS})
        script = Path(__file__).parent / "openid/provider.mjs"
        self.process = subprocess.Popen(
            [NODE, script, PACKAGES, settings], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


class Signing(Struct):
    """A dashboard, the provider of its users, and the file that says so."""

    site: Site
    provider: Provider
    settings: Path

    @property
    def address(self) -> str:
        return self.site.address


@contextlib.contextmanager
def signing_in(site: Site, folder: Path) -> Iterator[Signing]:
    port, own = free_port(), free_port()
    provider = Provider(port, f"http://127.0.0.1:{own}")
    (folder / "secret").write_text(SECRET)
    (folder / "secret").chmod(0o600)
    settings = folder / "oidc.yaml"
    settings.write_text(
        f"issuer: {provider.issuer}\nclient_id: board\nclient_secret_file: secret\n"
        "scopes: [openid, profile, groups]\nrights: {act: [operators], read: [staff]}\n"
    )
    settings.chmod(0o644)
    served = Site(site.fleet)
    try:
        served.serve("--oidc", str(settings), "--allow-actions", port=own)
        yield Signing(served, provider, settings)
        served.stop()
    finally:
        provider.stop()


@pytest.fixture(scope="module")
def signing(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Signing]:
    with signing_in(site, tmp_path_factory.mktemp("oidc")) as made:
        yield made


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    with context_of(browser) as opened:
        yield opened


def sign_in(page: Page, signing: Signing, name: str, path: str = "/") -> None:
    """Go to a page, and sign in with the form of the provider."""
    page.goto(signing.address + path)
    page.get_by_role("link", name="Sign in with 127.0.0.1").press("Enter")
    fill(page, name)


def fill(page: Page, name: str, password: str = "") -> None:
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(password or USERS[name]["password"])
    page.get_by_role("button", name="Continue").press("Enter")


def test_a_user_signs_in_with_the_password_of_the_provider(context: BrowserContext, signing: Signing) -> None:
    page = context.new_page()
    sign_in(page, signing, "bob", "/?where=Facts.role%20%3D%3D%20%22db%22")

    expect(page.locator(".user")).to_have_text("bob")
    assert page.locator(".user").get_attribute("title") == f"may view · {signing.provider.issuer}#id-of-bob"
    assert page.url == f"{signing.address}/?where=Facts.role%20%3D%3D%20%22db%22"
    expect(page.locator(".heat-map .body [role=row]")).to_have_count(1)
    cookies = {one["name"]: (one["httpOnly"], one["sameSite"]) for one in context.cookies(signing.address)}
    port = urlsplit(signing.address).port
    assert {name: of for name, of in cookies.items() if name.startswith("ccm-")} == {
        f"ccm-{port}": (True, "Strict")
    }


def test_a_wrong_password_signs_nobody_in(context: BrowserContext, signing: Signing) -> None:
    page = context.new_page()
    page.goto(f"{signing.address}/sign-in")
    fill(page, "ann", "wrong")

    expect(page.get_by_text("wrong password")).to_be_visible()
    assert context.request.get(f"{signing.address}/api/session").status == 401


def test_a_user_without_a_group_is_told_so(context: BrowserContext, signing: Signing) -> None:
    page = context.new_page()
    sign_in(page, signing, "eve")

    expect(page.get_by_role("alert")).to_have_text(
        f"{urlsplit(signing.provider.issuer).netloc} recognizes you as _b_eve__b_, but none of your `groups` grants access here; "
        "ask the operator of this dashboard"
    )
    assert serious(page) == []
    assert context.request.get(f"{signing.address}/api/session").status == 401
    # the provider knows the browser as eve, and asks all the same
    page.get_by_role("link", name="Sign in again").press("Enter")
    fill(page, "bob")
    expect(page.locator(".user")).to_have_text("bob")


def test_axe_finds_nothing_serious_where_users_sign_in(context: BrowserContext, signing: Signing) -> None:
    page = context.new_page()
    page.goto(signing.address)
    expect(page.get_by_role("link", name="Sign in with")).to_be_visible()

    looks_well_everywhere(page)


def paused_rollout(site: Site, name: str) -> str:
    """A rollout that failed on its first node, and waits."""
    path = site.fleet.write(f"{name}/manifest.yaml", manifest(("exec", name, {"command": "false"})))
    done = site.fleet.ctl("apply", path, "-t", "role=web,node=web*", "--batch", "1", "--yes", "--json")
    return done.run


@pytest.fixture(scope="module")
def rollout(site: Site) -> str:
    return paused_rollout(site, "signed")


def test_a_user_who_may_look_is_offered_no_action(
    context: BrowserContext, signing: Signing, rollout: str
) -> None:
    page = context.new_page()
    sign_in(page, signing, "bob", f"/runs/{rollout}")

    expect(page.locator(".tag.phase")).to_have_text("paused")
    expect(page.get_by_role("group", name="Actions")).to_have_count(0)
    session = context.request.get(f"{signing.address}/api/session").json()
    forced = context.request.post(
        f"{signing.address}/api/runs/{rollout}/abort",
        headers={"Origin": signing.address, "X-CCM-Action": session["action"]},
        data={},
    )
    assert (forced.status, "can only view" in forced.text()) == (403, True)


@pytest.mark.parametrize("name", ["ann", "tester"])
def test_an_action_is_recorded_with_issuer_and_subject(
    context: BrowserContext, signing: Signing, name: str
) -> None:
    run = paused_rollout(signing.site, f"of-{name}")
    page = context.new_page()
    sign_in(page, signing, name, f"/runs/{run}")
    page.get_by_role("button", name="Abort …").press("Enter")
    page.get_by_label("Why").fill("wrong version")
    page.get_by_role("button", name="Abort the rollout").press("Enter")

    expect(page.locator(".tag.phase")).to_have_text("aborted")
    said = f"{name} [{signing.provider.issuer}#id-of-{name}] (dashboard of tester): wrong version"
    expect(page.locator(".card .problem")).to_contain_text(said)


def test_a_page_of_another_server_cannot_act(context: BrowserContext, signing: Signing, rollout: str) -> None:
    own = context.new_page()
    sign_in(own, signing, "ann", f"/runs/{rollout}")
    expect(own.locator(".tag.phase")).to_have_text("paused")
    other = context.new_page()
    # a page of the same host, for which browsers send the cookie: only its origin and its ignorance of the session stop it
    other.goto(f"{signing.provider.issuer}/password/none")
    asked: list[str] = []
    other.on("request", lambda one: asked.append(one.method) if "/abort" in one.url else None)
    sent = "url => fetch(url, {method: 'POST', mode: 'no-cors', credentials: 'include', body: '{}'}).then(() => 1, () => 0)"
    other.evaluate(sent, f"{signing.address}/api/runs/{rollout}/abort")

    assert asked == ["POST"]
    own.reload()
    expect(own.locator(".tag.phase")).to_have_text("paused")


def test_signing_out_ends_the_session(context: BrowserContext, signing: Signing) -> None:
    page = context.new_page()
    sign_in(page, signing, "bob")
    expect(page.locator(".user")).to_have_text("bob")
    kept = context.cookies(signing.address)
    page.get_by_role("button", name="Sign out").press("Enter")

    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert context.request.get(f"{signing.address}/api/fleet").status == 401
    context.add_cookies(kept)  # type: ignore[arg-type]
    assert context.request.get(f"{signing.address}/api/fleet").status == 401


def test_an_expired_session_leads_to_the_provider_and_back(context: BrowserContext, signing: Signing) -> None:
    page = context.new_page()
    sign_in(page, signing, "bob", "/runs")
    expect(page.locator(".user")).to_have_text("bob")
    [state] = signing.site.fleet.directory.rglob("dashboard.key")
    digest = read_settings(signing.settings)[0].digest
    earlier = Access(
        state.read_bytes(), "tester", {}, lambda: time.time() - 9 * 3600, may_act=True, provider=digest
    )
    user = DashboardUser(name="bob", right=Right.READ, identity="x#y")
    current, past = (
        Access(state.read_bytes(), "tester", {}, time.time, may_act=True, provider=digest).sign_in_as(
            user, 60
        ),
        earlier.sign_in_as(user, 8 * 3600),
    )
    name = f"ccm-{urlsplit(signing.address).port}"
    context.add_cookies([{"name": name, "value": current, "url": signing.address}])
    assert context.request.get(f"{signing.address}/api/session").status == 200
    # this page also reads the runs by itself, and would end the session before the link is pressed
    page.route("**/api/runs**", lambda route: route.abort())
    context.add_cookies([{"name": name, "value": past, "url": signing.address}])
    page.get_by_role("link", name="Assignments").press("Enter")

    expect(page.get_by_role("alert")).to_have_text("The session has ended.")
    # the provider still knows the browser
    page.get_by_role("link", name="Sign in with").press("Enter")
    expect(page.locator(".user")).to_have_text("bob")
    assert page.url == f"{signing.address}/assignments"


def test_a_forged_state_is_refused(context: BrowserContext, signing: Signing) -> None:
    page = context.new_page()
    page.goto(f"{signing.address}/sign-in")
    page.goto(f"{signing.address}/sign-in/callback?code=a&state={'0' * 64}")

    expect(page.get_by_role("alert")).to_contain_text("this sign-in was not begun in this browser")
    page.get_by_role("link", name="Sign in again").press("Enter")
    fill(page, "bob")
    expect(page.locator(".user")).to_have_text("bob")


def test_a_code_is_accepted_once_and_in_one_browser(
    browser: Browser, context: BrowserContext, signing: Signing
) -> None:
    page, back = context.new_page(), list[str]()
    page.on("request", lambda one: back.append(one.url) if "/sign-in/callback" in one.url else None)
    page.goto(f"{signing.address}/sign-in")
    begun = context.cookies(signing.address)
    fill(page, "ann")
    expect(page.locator(".user")).to_have_text("ann")
    [callback] = back
    context.clear_cookies()
    context.add_cookies(begun)  # type: ignore[arg-type]

    page.goto(callback)
    expect(page.get_by_role("alert")).to_contain_text("the provider did not accept the code")
    with context_of(browser) as other:
        theirs = other.new_page()
        theirs.goto(callback)
        expect(theirs.get_by_role("alert")).to_contain_text("this sign-in was not begun in this browser")
    assert context.request.get(f"{signing.address}/api/session").status == 401


def test_an_id_token_of_another_sign_in_is_refused(context: BrowserContext, signing: Signing) -> None:
    page = context.new_page()
    begun = context.request.get(f"{signing.address}/sign-in", max_redirects=0)
    parts = urlsplit(begun.headers["location"])
    query = {name: values[0] for name, values in parse_qs(parts.query).items()} | {"nonce": "another"}
    page.goto(urlunsplit(parts._replace(query=urlencode(query))))
    fill(page, "ann")

    expect(page.get_by_role("alert")).to_have_text("the id token belongs to another sign-in")
    assert context.request.get(f"{signing.address}/api/session").status == 401


def test_without_the_provider_a_page_says_so_and_sessions_go_on(
    context: BrowserContext, site: Site, tmp_path: Path
) -> None:
    with signing_in(site, tmp_path) as signing:
        page = context.new_page()
        sign_in(page, signing, "bob")
        expect(page.locator(".user")).to_have_text("bob")
        begun = context.request.get(f"{signing.address}/sign-in", max_redirects=0)
        state = parse_qs(urlsplit(begun.headers["location"]).query)["state"][0]
        signing.provider.stop()

        page.goto(f"{signing.address}/runs")
        expect(page.locator(".user")).to_have_text("bob")
        back = urlencode({"code": "a-code", "state": state, "iss": signing.provider.issuer})
        page.goto(f"{signing.address}/sign-in/callback?{back}")
        expect(page.get_by_role("alert")).to_contain_text("no connection")
        assert "a-code" not in page.content()
        assert SECRET not in page.content()
        page.goto(signing.address)
        expect(page.locator(".user")).to_have_text("bob")
