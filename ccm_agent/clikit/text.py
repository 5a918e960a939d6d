"""Small pieces of text: what came from a node made safe to print, names folded, numbers and times as people read them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime

from ccm_agent.model.formats.patterns import lazy_pattern
from ccm_agent.model.ids import natural as natural
from ccm_agent.model.ids import short_id as short_id
from ccm_agent.model.ids import short_ids as short_ids

_UNPRINTABLE = lazy_pattern(
    # C0 but tab and newline, DEL and C1; then what turns the direction of writing, and what else ends a line
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_COLOR = lazy_pattern(r"(\x1b\[(?:0|1|3[0-7]|9[0-7])(?:;(?:1|3[0-7]|9[0-7]))*m)")
"""What `paint` and rich write for COLORS: none of them hides a text or moves it."""
_NUMBERED = lazy_pattern(r"(?P<before>.*?)(?P<number>\d+)(?P<after>\D*)")


AHEAD_S = 60.0
"""A moment that is at most this far in the future is shown as now: clocks differ by seconds."""


def safe(text: str) -> str:
    """
    A text that came over the bus, without anything that a terminal would obey.

    Control characters are shown as their code (`\\x1b`), so that what a node said can neither move the cursor nor hide a line.
    """
    if text.isprintable():  # nothing that _UNPRINTABLE has is
        return text
    text = text.replace("\r\n", "\n")
    return _UNPRINTABLE.sub(
        lambda found: f"\\x{ord(found[0]):02x}" if ord(found[0]) < 256 else f"\\u{ord(found[0]):04x}", text
    )


def safe_drawn(text: str, *, color: bool) -> str:
    """
    Text for a terminal in which nothing but our own colors is obeyed.

    Who draws makes safe what came from elsewhere, before it is painted; this is for what was forgotten there.
    """
    if not color:
        return safe(text)
    parts = _COLOR.split(text)
    return "".join(part if place % 2 else safe(part) for place, part in enumerate(parts))


def safe_json(text: str) -> str:
    """
    JSON that says the same in words that no terminal obeys.

    JSON escapes what is below a space; of the rest a terminal takes U+009B for an escape as well, and a reader of lines
    U+2028 for the end of one.
    """
    return text if text.isascii() and "\x7f" not in text else _UNPRINTABLE.sub(_json_escape, text)


def _json_escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def one_line(text: str) -> str:
    """A text as one safe line."""
    return " ".join(safe(text).split())


def shortened(text: str, limit: int) -> str:
    """A text of at most `limit` characters; a longer one ends after a whole word, with ` …`."""
    if len(text) <= limit:
        return text
    head, gap, _ = text[: limit - 1].rpartition(" ")
    return f"{head.rstrip(' ,;:')} …" if gap else f"{text[: limit - 1]}…"


def ended(text: str) -> str:
    """A sentence with its period; a text that was shortened keeps its ellipsis as its end, and a question its mark."""
    return text if text.endswith(("…", "?", "!")) else f"{text.rstrip('.')}."


def plural(count: int, word: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def counted(numbers: Mapping[str, int]) -> str:
    """`2 changed, 1 failed`: in the order given, without what there is none of; "" when there is nothing."""
    return ", ".join(f"{number} {word}" for word, number in numbers.items() if number)


def fold_names(names: Iterable[str], most: int = 8) -> str:
    """
    Names of nodes in little space: `db1, web[1-3,7].example.net`.

    What differs only in its last number is folded; numbers written with leading zeros keep them. Above `most` groups the rest
    is counted.
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
    """A duration in little space, as options take it: `12ms`, `4.2s`, `42s`, `3m20s`, `2h5m`, `4d3h`."""
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
    How long ago something was, to the second; "" when it never was.

    By another machine's clock it may be in the future. That is shown above AHEAD_S, because one of the clocks is wrong.
    """
    if moment is None:
        return ""
    seconds = (now - moment).total_seconds()
    if seconds < -AHEAD_S:
        return f"{span(-seconds)} in the future"
    return f"{span(max(seconds, 0))} ago" if seconds >= 1 else "just now"


def lasting(moment: datetime | None, now: datetime) -> str:
    """For how long something has been so: ` for 12 min`; "" when it began a moment ago or the time is unknown."""
    seconds = (now - moment).total_seconds() if moment else 0
    return f" for {span(seconds)}" if seconds >= 1 else ""


def clock(moment: datetime | None) -> str:
    """A moment in RFC 3339, UTC, to the second, as options take it; "" when there is none."""
    from ccm_agent.model.formats.moments import format_moment

    return "" if moment is None else format_moment(moment)


def size(count: int) -> str:
    """A number of bytes in little space."""
    if count < 1024:
        return f"{count} B"
    value, units = float(count), iter(("KiB", "MiB", "GiB", "TiB"))
    unit = "B"
    while value >= 1024 and (unit := next(units, "")):
        value /= 1024
    return f"{value:.1f} {unit}"
