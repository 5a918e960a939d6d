"""
Durations as people write them, with Go's units and the units that Choria's programs add (`d`, `w`, `M`, `y`).

`1h30m`, `1.5s`, `2d`, `-10m`. A month is always 30 days and a year 365 days.
"""

from __future__ import annotations

from ccm_agent.model.errors import DocumentError
from ccm_agent.model.formats.patterns import lazy_pattern

_UNIT_S = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86_400.0,
    "D": 86_400.0,
    "w": 7 * 86_400.0,
    "W": 7 * 86_400.0,
    "M": 30 * 86_400.0,
    "y": 365 * 86_400.0,
    "Y": 365 * 86_400.0,
}
_BETWEEN_PARTS = lazy_pattern(r"(?<=[a-zA-Zµμ])\s+(?=[0-9.])")
_PART = lazy_pattern(r"(?<![0-9.])([0-9]++(?:\.[0-9]*+)?|\.[0-9]++)([a-zA-Zµμ]+)")


def parse_duration(text: str) -> float:
    """
    Return the seconds of a duration; `0` needs no unit.

    Raises:
        DocumentError: The text is not a duration; the message shows the syntax.
    """
    written = _BETWEEN_PARTS.sub("", text.strip())
    digits = written.removeprefix("-").removeprefix("+")
    if digits == "0":
        return 0.0
    parts = _PART.findall(digits)
    if not parts or "".join(number + unit for number, unit in parts) != digits:
        raise DocumentError(
            f"`{text}` is not a duration: write a number and a unit, such as 30s, 5m or 1h30m"
        )
    seconds = 0.0
    for number, unit in parts:
        if unit not in _UNIT_S:
            raise DocumentError(f"`{text}`: unknown unit `{unit}`; use ns, us, ms, s, m, h, d, w, M or y")
        seconds += float(number) * _UNIT_S[unit]
    return -seconds if written.startswith("-") else seconds


def format_duration(seconds: float) -> str:
    """Format a duration as a short whole number in the largest possible unit: `5m`, `90s`, `250ms`."""
    if seconds <= 0:
        return "0s" if seconds == 0 else f"-{format_duration(-seconds)}"
    if seconds < 1:
        return f"{seconds * 1000:g}ms"
    for unit in ("d", "h", "m"):
        if seconds % _UNIT_S[unit] == 0:
            return f"{seconds / _UNIT_S[unit]:g}{unit}"
    return f"{seconds:g}s"


def go_duration(seconds: float) -> str:
    """Format a duration like Go, for the broker and other Choria programs: `10m0s`, `1.5s`, `250ms`."""
    sign, left = ("-" if seconds < 0 else ""), round(abs(seconds) * 1e9)
    if left < 1_000_000_000:
        for unit, size in (("ms", 1_000_000), ("µs", 1000), ("ns", 1)):
            if left >= size:
                return f"{sign}{_plain(left, size)}{unit}"
        return "0s"
    minutes, left = divmod(left, 60_000_000_000)
    hours, minutes = divmod(minutes, 60)
    larger = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{sign}{larger}{_plain(left, 1_000_000_000)}s"


def _plain(count: int, size: int) -> str:
    whole, rest = divmod(count, size)
    decimals = f"{rest:0{len(str(size)) - 1}d}".rstrip("0")
    return f"{whole}.{decimals}" if decimals else str(whole)
