"""
Secrets: a text that masks itself, and the masking of what leaves the process.

A value that must not be shown is a `Secret` from the moment it is read: its `str`, `repr` and formatting are `***`, so a log
line, an error or a traceback cannot show it. `Masker` knows the plain texts that were handed out, and takes them out of
anything that is about to leave: events, spool, session directory, logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

MASK = "***"
MINIMUM_LENGTH = 4
"""Shorter secrets are masked where they stand as a whole value only: taking every `a` out of a text would hide all of it."""


class Secret:
    """A text that shows itself to who asks for it by name, and to nobody else."""

    __slots__ = ("_plain",)

    def __init__(self, plain: str) -> None:
        self._plain = plain

    def reveal(self) -> str:
        """The plain text; for the call that needs it, never to be stored."""
        return self._plain

    def __str__(self) -> str:
        return MASK

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return MASK

    def __bool__(self) -> bool:
        return bool(self._plain)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._plain == other._plain

    def __hash__(self) -> int:
        return hash(self._plain)

    def __reduce__(self) -> str:
        raise TypeError("a secret is not pickled")


class Masker:
    """Takes known secrets out of texts and values."""

    def __init__(self, secrets: Iterable[str | Secret] = ()) -> None:
        self._plain: set[str] = set()
        for secret in secrets:
            self.learn(secret)

    def learn(self, secret: str | Secret) -> None:
        """From now on this text is masked, in every line of it as well as whole."""
        plain = secret.reveal() if isinstance(secret, Secret) else secret
        for part in (plain, *plain.splitlines()):
            if part.strip():
                self._plain.add(part)

    def text(self, text: str) -> str:
        """A text without the secrets; longer ones first, so that one inside another leaves nothing behind."""
        if not self._plain:
            return text
        if text in self._plain:
            return MASK
        for plain in sorted(self._plain, key=len, reverse=True):
            if len(plain) >= MINIMUM_LENGTH and plain in text:
                text = text.replace(plain, MASK)
        return text

    def value(self, value: Any) -> Any:
        """A JSON-like value without the secrets, in keys too; the value itself is left as it is."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Secret):
            return MASK
        if isinstance(value, Mapping):
            return {self.value(k): self.value(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(v) for v in value]
        return value

    @property
    def is_idle(self) -> bool:
        """It knows no secret, so there is nothing to take out."""
        return not self._plain

    def __iter__(self) -> Iterator[str]:
        return iter(self._plain)


def mask_url(url: str) -> str:
    """A URL without the password in it; of a user name alone too, for tokens stand there."""
    scheme, mark, rest = url.partition("://")
    if not mark:
        return url
    host, slash, path = rest.partition("/")
    _, colon, port = host.rpartition("]")[2].partition(":")
    if "@" not in host and colon and not port.isdecimal():
        # no port: a password with a slash in it, and its end comes later
        host, slash, path = rest, "", ""
    _, at, host_only = host.rpartition("@")
    return f"{scheme}://{MASK}@{host_only}{slash}{path}" if at else url
