"""
Access to the dashboard: authentication, and the right to view or act.

A browser signs in with a token or through an OpenID Connect provider (`oidc_pages`). The token is the one-use token in the
printed address, or a token from a file. The browser then gets a cookie that scripts cannot read. The cookie is signed with a key
that is stored on disk, so browsers stay signed in when the dashboard restarts.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import secrets
import stat
from collections import OrderedDict
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path

import msgspec
from msgspec import Struct

from ccm_agent.model.errors import InputError
from ccm_ctl.dashboard.private_files import read_private_text

SESSION_S = 12 * 3600
"""The length of a session, in seconds: one working day. A browser must then sign in again."""

ONE_USE_S = 15 * 60
"""A sign-in address expires if it is not opened within this many seconds, because it remains visible in the terminal."""

TOKEN_CHARACTERS = 24
"""The minimum length of a token in a file. Tokens must be long because clients can try any number of them."""

ENDED_LIMIT = 10_000
"""The maximum number of signed-out sessions that are remembered. The oldest is forgotten first."""

KEY_BYTES = 32
_NAME = re.compile(r"[\w.@-]{1,64}")


class Right(StrEnum):
    """The actions that a browser may perform."""

    READ = "read"
    ACT = "act"


class DashboardUser(Struct, frozen=True, kw_only=True):
    """
    A signed-in user.

    Attributes:
        name: The operator's name, a name from the tokens file, or the name from the OpenID Connect provider.
        right: The user's right.
        identity: `ISSUER#SUBJECT` for a user of an OpenID Connect provider, or "" for other users.
    """

    name: str
    right: Right
    identity: str = ""

    @property
    def on_record(self) -> str:
        """The name in records of actions. It includes the identity, because users may choose their name at the provider."""
        return f"{self.name} [{self.identity}]" if self.identity else self.name


class _Session(Struct, frozen=True, kw_only=True):
    """
    The content of a cookie.

    Attributes:
        name, right, identity: The user.
        until: The end of the session, in seconds since 1970.
        token: The digest of the token, or "" for the printed address or a provider.
        provider: The digest of the provider's settings, or "" for a token.
        nonce: A random text that makes each session unique.
    """

    name: str
    right: Right
    until: int
    identity: str = ""
    token: str = ""
    provider: str = ""
    nonce: str = ""


class Access:
    """
    Signs browsers in and verifies their cookies.

    Args:
        key: The key that signs cookies.
        operator: The name of a user who opens the printed address.
        tokens: Users by the digest of their token. If empty, only the printed address signs in.
        now: Returns seconds since 1970.
        may_act: Whether users with the right to act can use it. If not, all users can only view.
        provider: The digest of the provider's settings. Sessions from different settings are not valid.
    """

    def __init__(
        self,
        key: bytes,
        operator: str,
        tokens: Mapping[str, DashboardUser],
        now: Callable[[], float],
        *,
        may_act: bool,
        provider: str = "",
    ) -> None:
        self.may_act = may_act
        self.now = now
        self._key = key
        self._operator = operator
        self._tokens = tokens
        self._provider = provider
        self._one_use: dict[str, float] = {}
        self._ended: OrderedDict[str, None] = OrderedDict()

    def new_address_token(self) -> str:
        """Create a token for one sign-in within ONE_USE_S. Earlier tokens become invalid."""
        token = secrets.token_urlsafe(32)
        self._one_use = {_digest(token): self.now() + ONE_USE_S}
        return token

    def sign_in(self, token: str) -> str | None:
        """Return the cookie for a token, or None if the token is unknown, used or expired."""
        digest = _digest(token)
        until = self._one_use.pop(digest, None)
        if until is not None and self.now() <= until:
            right = Right.ACT if self.may_act else Right.READ
            return self._cookie(DashboardUser(name=self._operator, right=right), SESSION_S)
        user = self._tokens.get(digest)
        return self._cookie(user, SESSION_S, token=digest) if user is not None else None

    def sign_in_as(self, user: DashboardUser, session_s: float) -> str:
        """Return the cookie for a user whom the OpenID Connect provider has authenticated."""
        return self._cookie(user, min(session_s, SESSION_S), provider=self._provider)

    def sign_out(self, cookie: str) -> None:
        """End the session of a cookie. Copies of the cookie also become invalid."""
        if self._session_of(cookie) is not None:
            self._ended[_digest(cookie)] = None
            while len(self._ended) > ENDED_LIMIT:
                self._ended.popitem(last=False)

    def user_of(self, cookie: str) -> DashboardUser | None:
        """
        Return the user of a cookie. None: the cookie is not valid or has expired, or its token or provider is no longer accepted.
        """
        session = self._session_of(cookie)
        if session is None:
            return None
        right = session.right
        if session.token:
            user = self._tokens.get(session.token)
            if user is None:
                return None
            right = user.right
        if session.provider != (self._provider if session.identity else ""):
            return None
        if not self.may_act:
            right = Right.READ
        return DashboardUser(name=session.name, right=right, identity=session.identity)

    def _session_of(self, cookie: str) -> _Session | None:
        content = self.unseal("session", cookie)
        try:
            session = msgspec.json.decode(content or b"", type=_Session)
        except (ValueError, msgspec.MsgspecError):
            return None
        has_ended = session.until < self.now() or _digest(cookie) in self._ended
        return None if has_ended else session

    def seal(self, purpose: str, content: bytes) -> str:
        """
        Return a signed text with the content. Only this dashboard can create such a text, but anyone who has it can read the
        content.
        """
        body = base64.urlsafe_b64encode(content).decode()
        return f"{body}.{self._signature(purpose, body)}"

    def unseal(self, purpose: str, text: str) -> bytes | None:
        """Return the content of a text that `seal` created for the same purpose, or None if the text is not valid."""
        body, _, signature = text.partition(".")
        if not self._is_signed(purpose, body, signature):
            return None
        try:
            return base64.urlsafe_b64decode(body)
        except ValueError:
            return None

    def derive(self, purpose: str, text: str) -> str:
        """Derive 64 characters from a text. They cannot be computed without this dashboard's key."""
        return self._signature(purpose, text)

    def forgery_token(self, cookie: str) -> str:
        """Return the token that pages of this dashboard send with each action. Pages of other origins cannot read it."""
        return self._signature("action", cookie)

    def is_genuine(self, cookie: str, token: str) -> bool:
        """Whether an action was sent by a page of this dashboard."""
        return self._is_signed("action", cookie, token)

    def _cookie(self, user: DashboardUser, session_s: float, *, token: str = "", provider: str = "") -> str:
        session = _Session(
            name=user.name,
            right=user.right,
            until=int(self.now() + session_s),
            identity=user.identity,
            token=token,
            provider=provider,
            nonce=secrets.token_hex(8),
        )
        return self.seal("session", msgspec.json.encode(session))

    def _is_signed(self, purpose: str, text: str, signature: str) -> bool:
        # a header may contain bytes that are not UTF-8, which aiohttp represents as surrogates
        said = signature.encode(errors="surrogateescape")
        return hmac.compare_digest(said, self._signature(purpose, text).encode())

    def _signature(self, purpose: str, text: str) -> str:
        content = f"{purpose}:{text}".encode(errors="surrogateescape")
        return hmac.new(self._key, content, hashlib.sha256).hexdigest()


def read_tokens(path: Path) -> dict[str, DashboardUser]:
    """
    Return the users in a file of tokens, by the digest of the token. A line has the form `NAME RIGHT TOKEN`, and `#` begins a
    comment.

    Raises:
        InputError: Other users can read the file, or a line does not have this form.
    """
    text = read_private_text(path)
    users: dict[str, DashboardUser] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 3 or not _NAME.fullmatch(words[0]) or words[1] not in set(Right):
            raise InputError(f"{path}:{number}: a line must be NAME RIGHT TOKEN, where RIGHT is read or act")
        name, right, token = words
        if len(token) < TOKEN_CHARACTERS:
            raise InputError(
                f"{path}:{number}: the token has fewer than {TOKEN_CHARACTERS} characters; "
                "`openssl rand -hex 32` makes one"
            )
        users[_digest(token)] = DashboardUser(name=name, right=Right(right))
    if not users:
        raise InputError(f"{path}: has no tokens; add a line NAME RIGHT TOKEN, where RIGHT is read or act")
    return users


def read_or_make_key(directory: Path) -> bytes:
    """
    Return the key in the state directory. A missing key is created. If it cannot be stored, it is used only by this process.
    """
    path = directory / "dashboard.key"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(number, "r+b") as file:
            found = os.fstat(file.fileno())
            is_ours = found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o077
            key = file.read(KEY_BYTES) if is_ours else b""
            if len(key) == KEY_BYTES:
                return key
            key = secrets.token_bytes(KEY_BYTES)
            if is_ours:
                file.seek(0)
                file.write(key)
            return key
    except OSError:
        return secrets.token_bytes(KEY_BYTES)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
