"""Format small pieces of text: make untrusted text safe to print, fold names, and format numbers and times."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime

from ccm_agent.model.formats.patterns import lazy_pattern
from ccm_agent.model.ids import natural as natural
from ccm_agent.model.ids import short_id as short_id
from ccm_agent.model.ids import short_ids as short_ids

_UNPRINTABLE = lazy_pattern(
    # C0 except tab and newline, DEL and C1; characters that change the writing direction; other line separators
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_COLOR = lazy_pattern(r"(\x1b\[(?:0|1|3[0-7]|9[0-7])(?:;(?:1|3[0-7]|9[0-7]))*m)")
"""The color sequences of `paint` and rich. They do not hide or move text."""
_NUMBERED = lazy_pattern(r"(?P<before>.*?)(?P<number>\d+)(?P<after>\D*)")


AHEAD_S = 60.0
"""A moment that is at most this far in the future is shown as now, because clocks differ by seconds."""


def safe(text: str) -> str:
    """
    Return untrusted text without terminal control sequences.

    Control characters are shown as their codes (`\\x1b`), so a node's text can neither move the cursor nor hide a line.
    """
    if text.isprintable():  # such a text contains no match of _UNPRINTABLE
        return text
    text = text.replace("\r\n", "\n")
    return _UNPRINTABLE.sub(
        lambda found: f"\\x{ord(found[0]):02x}" if ord(found[0]) < 256 else f"\\u{ord(found[0]):04x}", text
    )


def safe_drawn(text: str, *, color: bool) -> str:
    """
    Return text for a terminal in which only our own colors are interpreted.

    Drawing code makes untrusted text safe before painting it. This function is a second line of defense.
    """
    if not color:
        return safe(text)
    parts = _COLOR.split(text)
    return "".join(part if place % 2 else safe(part) for place, part in enumerate(parts))


def safe_json(text: str) -> str:
    """
    Return equivalent JSON that contains no terminal control characters.

    JSON escapes the characters below U+0020. Terminals also interpret U+009B as an escape, and line readers interpret U+2028 as
    the end of a line.
    """
    return text if text.isascii() and "\x7f" not in text else _UNPRINTABLE.sub(_json_escape, text)


def _json_escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def one_line(text: str) -> str:
    """Return a text as one safe line."""
    return " ".join(safe(text).split())


def shortened(text: str, limit: int) -> str:
    """Shorten a text to at most `limit` characters. A longer text ends after a whole word, with ` …`."""
    if len(text) <= limit:
        return text
    head, gap, _ = text[: limit - 1].rpartition(" ")
    return f"{head.rstrip(' ,;:')} …" if gap else f"{text[: limit - 1]}…"


def ended(text: str) -> str:
    """Add a period to a sentence. Other endings, such as an ellipsis or a question mark, are kept."""
    return text if text.endswith(("…", "?", "!")) else f"{text.rstrip('.')}."


def plural(count: int, word: str) -> str:
    """Format a count with its noun: `1 node`, `2 nodes`."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def counted(numbers: Mapping[str, int]) -> str:
    """Format counts: `2 changed, 1 failed`. Keeps the order and leaves out zeros; "" if there are none."""
    return ", ".join(f"{number} {word}" for word, number in numbers.items() if number)


def fold_names(names: Iterable[str], most: int = 8) -> str:
    """
    Format names of nodes compactly: `db1, web[1-3,7].example.net`.

    Names that differ only in their last number are folded. Leading zeros are kept. If there are more than `most` groups, only the
    number of the remaining groups is shown.
    """
    numbered: dict[tuple[str, str], list[str]] = {}
    plain: list[str] = []
    for name in sorted(set(names), key=natural):
        host, dot, domain = name.partition(".")
        found = _NUMBERED.fullmatch(host) if host else None
        if found is None:
            plain.append(name)
            continue
        numbered.setdefault((found["before"], found["after"] + dot + domain), []).append(found["number"])
    groups: dict[tuple[str, str, int], list[int]] = {}
    for (before, after), numbers in numbered.items():
        padded = {len(number) for number in numbers if number.startswith("0")}
        for number in numbers:
            width = len(number) if len(number) in padded else 0
            groups.setdefault((before, after, width), []).append(int(number))
    folded = plain + [
        f"{before}{_ranges(numbers, width)}{after}" for (before, after, width), numbers in groups.items()
    ]
    folded.sort(key=natural)
    if len(folded) > most:
        return ", ".join(folded[:most]) + f" and {len(folded) - most} more"
    return ", ".join(folded)


def _ranges(numbers: list[int], width: int) -> str:
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    texts = ["-".join(f"{number:0{width}d}" for number in part) for part in parts]
    return texts[0] if len(numbers) == 1 else f"[{','.join(texts)}]"


def span(seconds: float) -> str:
    """Format a duration compactly, in a form that options accept: `12ms`, `4.2s`, `42s`, `3m20s`, `2h5m`, `4d3h`."""
    if seconds < 0.9995:
        return f"{max(round(seconds * 1000), 0)}ms"
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    for size, unit, smaller, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size}{unit}" + (f"{rest}{small}" if rest else "")
    return f"{whole}s"


def ago(moment: datetime | None, now: datetime) -> str:
    """
    Format the time since a moment, to the second; "" if there is no moment.

    A moment from another machine's clock may be in the future. If it is more than AHEAD_S ahead, the text says so, because one of
    the clocks is wrong.
    """
    if moment is None:
        return ""
    seconds = (now - moment).total_seconds()
    if seconds < -AHEAD_S:
        return f"{span(-seconds)} in the future"
    return f"{span(max(seconds, 0))} ago" if seconds >= 1 else "just now"


def lasting(moment: datetime | None, now: datetime) -> str:
    """Format the time since something began: ` for 12m`; "" if it has just begun or the time is unknown."""
    seconds = (now - moment).total_seconds() if moment else 0
    return f" for {span(seconds)}" if seconds >= 1 else ""


def clock(moment: datetime | None) -> str:
    """Format a moment in RFC 3339, UTC, to the second, in a form that options accept; "" if there is no moment."""
    from ccm_agent.model.formats.moments import format_moment

    return "" if moment is None else format_moment(moment)


def size(count: int) -> str:
    """Format a number of bytes compactly."""
    if count < 1024:
        return f"{count} B"
    value, units = float(count), iter(("KiB", "MiB", "GiB", "TiB"))
    unit = "B"
    while value >= 1024 and (unit := next(units, "")):
        value /= 1024
    return f"{value:.1f} {unit}"
