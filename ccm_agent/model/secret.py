"""
Secrets: a text type with a masked form, and a masker for all output of the process.

A value that must not be shown is a `Secret` as soon as it is read. Its `str`, `repr` and formatting are `***`,
so a log line, an error or a traceback cannot show it. A `Masker` stores the plain texts and removes them from
all output: events, spool, session directory, logs.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from threading import Lock
from typing import Any

from ccm_agent.model.formats.escapes import views
from ccm_agent.model.formats.patterns import lazy_pattern
from ccm_agent.model.formats.urls import MASK as MASK
from ccm_agent.model.formats.urls import looks_secret as looks_secret
from ccm_agent.model.formats.urls import mask_url as mask_url
from ccm_agent.model.formats.urls import mask_urls as mask_urls
from ccm_agent.model.formats.urls import secrets_of_url as secrets_of_url

MINIMUM_LENGTH = 4
"""
Shorter secrets are masked only as a whole value or line, because masking every `a` would make a text
unreadable.
"""

_QUOTING = lazy_pattern(r"\\(.)|['\"]", re.DOTALL)

_CUT_LIMIT = 4096
"""The maximum length of the end of a secret that the masker detects at the start of a truncated text."""

_EVERYBODYS = frozenset({"true", "false", "null", "none", "yes", "no", "on", "off"})
"""Common words that are never treated as secrets."""


class Secret:
    """A secret text: its `repr` is masked, and only `reveal()` returns it."""

    __slots__ = ("_plain",)

    def __init__(self, plain: str) -> None:
        self._plain = plain

    def reveal(self) -> str:
        """Return the plain text. Pass it on to the call that needs it; do not store it."""
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
        raise TypeError("a secret cannot be pickled")


class OpenedSecret:
    """
    A secret that was opened.

    Attributes:
        value: The plain value.
        revision: The revision of the secret.
    """

    __slots__ = ("revision", "value")

    def __init__(self, value: Secret, revision: int) -> None:
        self.value = value
        self.revision = revision


class Masker:
    """
    Masks known secrets in texts and values, also in escaped form: see `escapes`.

    Other threads may use the search patterns concurrently, so patterns are replaced and never modified.

    Args:
        secrets: The initial secrets.
        teaches: Another masker that also receives all secrets of this one: the process's masker, for its log.
        limit: The number of texts to keep, newest first; 0 keeps all.
    """

    def __init__(
        self, secrets: Iterable[str | Secret] = (), *, teaches: Masker | None = None, limit: int = 0
    ) -> None:
        self._plain: dict[str, bool] = {}
        self._numbers: frozenset[float] = frozenset()
        self._sought: tuple[_Sought, _Sought] | None = None
        self._teaches = teaches
        self._limit = limit
        self._lock = Lock()
        for secret in secrets:
            self.learn(secret)

    def learn(self, secret: str | Secret | float, *, is_certain: bool = True) -> None:
        """
        Add a secret to mask, as a whole and line by line.

        Args:
            secret: A text, or a number.
            is_certain: Whether the value was declared secret. Otherwise it may be an ordinary word and is not
                masked in resource names.
        """
        plain = secret.reveal() if isinstance(secret, Secret) else secret
        if not isinstance(plain, str) and (isinstance(plain, bool) or len(str(plain)) < MINIMUM_LENGTH):
            return  # a boolean, or a short number
        if self._teaches is not None:
            self._teaches.learn(secret, is_certain=is_certain)
        with self._lock:
            if not isinstance(plain, str):
                self._numbers |= {plain}
                plain = str(plain)
            for part in _parts(plain):
                was = self._plain.pop(part, None)
                self._plain[part] = bool(was) or is_certain
                if was is None or (is_certain and not was):
                    self._sought = None
            while self._limit and len(self._plain) > self._limit:
                del self._plain[next(iter(self._plain))]

    def text(self, text: str, *, is_cut: bool = False) -> str:
        """
        Mask the secrets in a text, and the secret parts of URLs.

        Args:
            text: The text.
            is_cut: Whether the beginning was cut off. If so, the text may begin with the end of a secret.
        """
        return self._masked(text, 0, is_cut=is_cut)

    def name(self, text: str) -> str:
        """Mask a name or reference. Only certain secrets are masked, so names stay readable."""
        return self._masked(text, 1)

    def value(self, value: Any, *, is_name: bool = False) -> Any:
        """
        Return a copy of a JSON-like value with the secrets masked, also in keys.

        Args:
            value: The value.
            is_name: Whether to mask texts as `name` does.
        """
        if isinstance(value, str):
            return self.name(value) if is_name else self.text(value)
        if isinstance(value, Secret):
            return MASK
        if isinstance(value, Mapping):
            return {self.value(k, is_name=is_name): self.value(v, is_name=is_name) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(v, is_name=is_name) for v in value]
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value in self._numbers:
            return MASK
        return value

    @property
    def is_idle(self) -> bool:
        """Whether the masker has no secrets. If so, only URLs are masked."""
        return not self._plain

    def _masked(self, text: str, which: int, *, is_cut: bool = False) -> str:
        if self._plain and text:
            sought = self._look_for()[which]
            if text in sought.whole:
                return MASK
            spans = sought.cut_off(text) if is_cut else []
            for view in views(text) if sought.forms else ():
                spans += [view.span(*found) for found in sought.find(view.text)]
            text = _without(text, spans)
            if sought.short:
                text = sought.short.sub(MASK, text)
        return mask_urls(text)

    def _look_for(self) -> tuple[_Sought, _Sought]:
        """Build the search patterns for texts and for names."""
        with self._lock:
            if self._sought is None:
                certain = [plain for plain, is_certain in self._plain.items() if is_certain]
                self._sought = _Sought(list(self._plain)), _Sought(certain)
            return self._sought


class _Sought:
    """The search patterns of a masker: plain texts, and encoded forms that do not use escapes."""

    def __init__(self, plain: list[str]) -> None:
        self.whole = frozenset(plain)
        self.long = [one for one in plain if len(one) >= MINIMUM_LENGTH]
        self.forms = list(dict.fromkeys(form for one in self.long for form in (one, *_encoded(one))))
        short = [re.escape(one) for one in plain if len(one) < MINIMUM_LENGTH]
        self.short = re.compile(rf"(?m)^({'|'.join(short)})[ \t]*$") if short else None

    def find(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the start and end of each match; matches may overlap."""
        for form in [one for one in self.forms if one in text]:
            at = text.find(form)
            while at >= 0:
                yield at, at + len(form)
                at = text.find(form, at + 1)

    def cut_off(self, text: str) -> list[tuple[int, int]]:
        """Return the longest end of a secret with which a text begins, as a span."""
        longest = min(max(map(len, self.long), default=0) - 1, len(text), _CUT_LIMIT)
        for size in range(longest, MINIMUM_LENGTH - 1, -1):
            if any(len(one) > size and one.endswith(text[:size]) for one in self.long):
                return [(0, size)]
        return []


def is_common_word(plain: str) -> bool:
    """Whether a text is an ordinary word that is never masked."""
    return plain.strip().lower() in _EVERYBODYS


def _parts(plain: str) -> Iterator[str]:
    """Yield a secret and its lines, without common words."""
    if plain.strip() and not is_common_word(plain):
        yield plain
    lines = plain.splitlines()
    for line in lines if len(lines) > 1 or plain.strip() != plain else ():
        bare = line.strip()
        if len(bare) >= MINIMUM_LENGTH and bare.lower() not in _EVERYBODYS:
            yield from dict.fromkeys((line, bare))


def _encoded(plain: str) -> Iterator[str]:
    """Yield a text in base64 (at each alignment), in hexadecimal digits, and as an unquoted shell word."""
    read = _QUOTING.sub(lambda found: found[1] or "", plain)
    if read != plain and len(read) >= MINIMUM_LENGTH:
        yield read
    raw = plain.encode(errors="surrogateescape")
    yield raw.hex()
    yield raw.hex().upper()
    for before in range(3):
        coded = base64.b64encode(b"\0" * before + raw)
        # characters that also contain bits of adjacent bytes are unknown
        form = coded[-(-8 * before // 6) : 8 * (before + len(raw)) // 6].decode()
        if len(form) >= MINIMUM_LENGTH:
            yield form
            if "+" in form or "/" in form:
                yield form.replace("+", "-").replace("/", "_")


def _without(text: str, spans: list[tuple[int, int]]) -> str:
    """Replace parts of a text with masks; overlapping parts are merged."""
    if not spans:
        return text
    parts: list[str] = []
    at = 0
    covered = 0
    for begin, end in sorted(spans):
        if begin > covered or not parts:
            parts += (text[at:begin], MASK)
        covered = at = max(covered, end)
    return "".join([*parts, text[at:]])
