"""
Who may see the dashboard, and who may act.

A browser signs in with a token: the one-use token of the printed address, or one of the tokens in a file. It gets a cookie that
scripts cannot read. The cookie is signed with a key that is stored on disk, so browsers stay signed in when the dashboard is
restarted.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import secrets
import stat
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ccm_agent.model.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SESSION_S = 12 * 3600
"""A browser signs in again after this time: one working day."""

ONE_USE_S = 15 * 60
"""A sign-in address expires when it was not opened within this time; terminals keep what they showed."""

TOKEN_CHARACTERS = 24
"""The fewest characters of a token in a file. A client that can reach the dashboard may guess tokens without limit."""

KEY_BYTES = 32
_NAME = re.compile(r"[\w.@-]{1,64}")


class Right(StrEnum):
    """What a browser may do."""

    READ = "read"
    ACT = "act"


class DashboardUser(Struct, frozen=True, kw_only=True):
    """A user who is signed in."""

    name: str
    right: Right


class _Session(Struct, frozen=True, kw_only=True):
    """The content of a cookie: the user, the end (seconds since 1970), and the digest of the token; "": the printed address."""

    name: str
    right: Right
    until: int
    token: str = ""
    nonce: str = ""


class Access:
    """
    Signs browsers in, and recognizes their cookies.

    Args:
        key: Signs cookies.
        operator: The name of a user who opens the printed address.
        tokens: Users by the digest of their token; empty: only the printed address signs in.
        may_act: Users with the right to act have it; otherwise all of them only read.
        now: Seconds since 1970.
    """

    def __init__(
        self,
        key: bytes,
        operator: str,
        tokens: Mapping[str, DashboardUser],
        now: Callable[[], float],
        *,
        may_act: bool,
    ) -> None:
        self.may_act = may_act
        self._key = key
        self._operator = operator
        self._tokens = tokens
        self._now = now
        self._one_use: dict[str, float] = {}

    def new_address_token(self) -> str:
        """A token that signs in once, within ONE_USE_S. Earlier ones are void."""
        token = secrets.token_urlsafe(32)
        self._one_use = {_digest(token): self._now() + ONE_USE_S}
        return token

    def sign_in(self, token: str) -> str | None:
        """The cookie for a token; None: it is not known, was used, or has expired."""
        digest = _digest(token)
        until = self._one_use.pop(digest, None)
        if until is not None and self._now() <= until:
            right = Right.ACT if self.may_act else Right.READ
            return self._cookie(DashboardUser(name=self._operator, right=right), "")
        user = self._tokens.get(digest)
        return self._cookie(user, digest) if user is not None else None

    def user_of(self, cookie: str) -> DashboardUser | None:
        """The user of a cookie; None: it was not made here, has expired, or its token is no longer in the file."""
        body, _, signature = cookie.partition(".")
        if not self._is_signed("session", body, signature):
            return None
        try:
            session = msgspec.json.decode(base64.urlsafe_b64decode(body), type=_Session)
        except (ValueError, msgspec.MsgspecError):
            return None
        if session.until < self._now():
            return None
        right = session.right
        if session.token:
            user = self._tokens.get(session.token)
            if user is None:
                return None
            right = user.right
        if not self.may_act:
            right = Right.READ
        return DashboardUser(name=session.name, right=right)

    def forgery_token(self, cookie: str) -> str:
        """The token that a page sends with each action. A page of another origin cannot read it."""
        return self._signature("action", cookie)

    def is_genuine(self, cookie: str, token: str) -> bool:
        """The action comes from a page of this dashboard."""
        return self._is_signed("action", cookie, token)

    def _cookie(self, user: DashboardUser, token: str) -> str:
        session = _Session(
            name=user.name,
            right=user.right,
            until=int(self._now()) + SESSION_S,
            token=token,
            nonce=secrets.token_hex(8),
        )
        body = base64.urlsafe_b64encode(msgspec.json.encode(session)).decode()
        return f"{body}.{self._signature('session', body)}"

    def _is_signed(self, purpose: str, text: str, signature: str) -> bool:
        # a header may hold bytes that are not UTF-8, which aiohttp gives as surrogates
        said = signature.encode(errors="surrogateescape")
        return hmac.compare_digest(said, self._signature(purpose, text).encode())

    def _signature(self, purpose: str, text: str) -> str:
        content = f"{purpose}:{text}".encode(errors="surrogateescape")
        return hmac.new(self._key, content, hashlib.sha256).hexdigest()


def read_tokens(path: Path) -> dict[str, DashboardUser]:
    """
    The users in a file of tokens, by the digest of the token. A line is `NAME RIGHT TOKEN`; `#` begins a comment.

    Raises:
        InputError: Other users can read the file, or a line is not like that.
    """
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="utf-8")
    except OSError as err:
        raise InputError(f"{path}: cannot be read: {err.strerror}") from err
    except UnicodeDecodeError as err:
        raise InputError(f"{path}: not a text file") from err
    if stat.S_IMODE(mode) & 0o077:
        raise InputError(f"{path}: other users can read it; `chmod 600 {path}`")
    users: dict[str, DashboardUser] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 3 or not _NAME.fullmatch(words[0]) or words[1] not in set(Right):
            raise InputError(f"{path}:{number}: a line is NAME RIGHT TOKEN, where RIGHT is read or act")
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
    """The key in the state directory, made if there is none. If it cannot be stored, a key for this process only."""
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
