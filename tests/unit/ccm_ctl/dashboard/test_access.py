"""Signing in: tokens, cookies, rights."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from ccm_agent.model.errors import InputError
from ccm_ctl.dashboard.access import (
    ONE_USE_S,
    SESSION_S,
    Access,
    DashboardUser,
    Right,
    read_or_make_key,
    read_tokens,
)
from ccm_ctl.dashboard.id_token import SignInError
from ccm_ctl.dashboard.oidc_pages import problem_page

KEY = b"k" * 32
TOKEN = "0123456789abcdef0123456789abcdef"


class Now:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.seconds = 1_000_000.0

    def __call__(self) -> float:
        return self.seconds


def an_access(now: Now, *, tokens: dict[str, DashboardUser] | None = None, may_act: bool = True) -> Access:
    return Access(KEY, "op", tokens or {}, now, may_act=may_act)


def written(tmp_path: Path, text: str, mode: int = 0o600) -> Path:
    path = tmp_path / "tokens"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_the_printed_token_signs_in_once() -> None:
    access = an_access(Now())
    token = access.new_address_token()

    cookie = access.sign_in(token)

    assert cookie is not None
    assert access.user_of(cookie) == DashboardUser(name="op", right=Right.ACT)
    assert access.sign_in(token) is None


def test_the_printed_token_expires() -> None:
    now = Now()
    access = an_access(now)
    token = access.new_address_token()
    now.seconds += ONE_USE_S + 1

    assert access.sign_in(token) is None


def test_a_session_expires() -> None:
    now = Now()
    access = an_access(now)
    cookie = access.sign_in(access.new_address_token()) or ""
    now.seconds += SESSION_S + 2

    assert access.user_of(cookie) is None


def test_a_restarted_dashboard_with_the_same_key_knows_the_session() -> None:
    now = Now()
    before = an_access(now)
    cookie = before.sign_in(before.new_address_token()) or ""

    assert an_access(now).user_of(cookie) == DashboardUser(name="op", right=Right.ACT)
    assert Access(b"x" * 32, "op", {}, now, may_act=True).user_of(cookie) is None


def test_without_actions_a_session_only_reads() -> None:
    now = Now()
    before = an_access(now)
    cookie = before.sign_in(before.new_address_token()) or ""

    assert an_access(now, may_act=False).user_of(cookie) == DashboardUser(name="op", right=Right.READ)


def test_a_changed_cookie_is_refused() -> None:
    access = an_access(Now())
    body, _, signature = (access.sign_in(access.new_address_token()) or "").partition(".")
    said = json.loads(base64.urlsafe_b64decode(body)) | {"name": "root"}
    forged = base64.urlsafe_b64encode(json.dumps(said).encode()).decode()

    assert access.user_of(f"{forged}.{signature}") is None
    assert access.user_of("") is None
    assert access.user_of("ä.ö") is None


def test_an_action_is_genuine_with_the_token_of_its_own_session_only() -> None:
    access = an_access(Now())
    mine, other = ((access.sign_in(access.new_address_token()) or "") for _ in range(2))

    assert access.is_genuine(mine, access.forgery_token(mine))
    assert not access.is_genuine(mine, access.forgery_token(other))
    assert not access.is_genuine(mine, "")


def test_a_user_whose_token_left_the_file_is_signed_out(tmp_path: Path) -> None:
    now = Now()
    tokens = read_tokens(written(tmp_path, f"# team\nann act {TOKEN}\nbob read {TOKEN}x  # temporary\n"))
    cookie = an_access(now, tokens=tokens).sign_in(f"{TOKEN}x") or ""

    assert an_access(now, tokens=tokens).user_of(cookie) == DashboardUser(name="bob", right=Right.READ)
    assert an_access(now).user_of(cookie) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("ann act", "NAME RIGHT TOKEN", id="a word is missing"),
        pytest.param(f"ann admin {TOKEN}", "NAME RIGHT TOKEN", id="an unknown right"),
        pytest.param(f"a<b act {TOKEN}", "NAME RIGHT TOKEN", id="a name with markup"),
        pytest.param("ann act short", "fewer than 24 characters", id="a token that can be guessed"),
        pytest.param("# nothing\n", "has no tokens", id="no line"),
    ],
)
def test_a_file_that_is_not_a_file_of_tokens_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        read_tokens(written(tmp_path, text))


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="chmod 600"):
        read_tokens(written(tmp_path, f"ann act {TOKEN}\n", 0o640))


def test_the_key_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    key = read_or_make_key(tmp_path / "state")

    assert read_or_make_key(tmp_path / "state") == key
    assert len(key) == 32
    assert (tmp_path / "state/dashboard.key").stat().st_mode & 0o777 == 0o600


def test_a_key_that_others_could_read_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "dashboard.key"
    path.write_bytes(KEY)
    path.chmod(0o644)

    assert read_or_make_key(tmp_path) != KEY


@pytest.mark.parametrize("cookie", ["\udcff.\udcff", "a.\udcff", "\udcff", "ü.ü"])
def test_a_cookie_of_bytes_that_are_not_text_is_refused(cookie: str) -> None:
    access = an_access(Now())

    assert access.user_of(cookie) is None
    assert not access.is_genuine(cookie, cookie)


def test_a_session_of_a_provider_ends_when_its_settings_change() -> None:
    now = Now()
    user = DashboardUser(name="ann", right=Right.ACT, identity="https://login.example.net#7")

    def access(provider: str) -> Access:
        return Access(KEY, "op", {}, now, may_act=True, provider=provider)

    cookie = access("one").sign_in_as(user, 3600)

    assert [access(provider).user_of(cookie) for provider in ("one", "two", "")] == [user, None, None]


def test_a_session_of_a_provider_is_at_most_as_long_as_any() -> None:
    now = Now()
    access = Access(KEY, "op", {}, now, may_act=True, provider="one")
    user = DashboardUser(name="ann", right=Right.READ, identity="https://login.example.net#7")
    cookie = access.sign_in_as(user, 1e9)
    now.seconds += SESSION_S + 2

    assert access.user_of(cookie) is None


def test_the_page_of_a_problem_escapes_what_it_says() -> None:
    page = problem_page(SignInError("<script>alert(1)</script>"), '/"><script>')

    assert "<script" not in (page.text or "")
    assert "&lt;script&gt;alert(1)" in (page.text or "")
