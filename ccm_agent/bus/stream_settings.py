"""
Compares the settings of a stream on the broker with those of `ccmctl init`.

`bus.layout` uses it to update streams, and `ccmctl doctor` to report changed settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

_NANOSECONDS = 1_000_000_000
_LIMITS = ("max_age", "max_bytes", "max_msg_size", "max_msgs_per_subject", "duplicate_window")


class WantedStream(Struct, frozen=True):
    """
    A stream, bucket or object store of the layout.

    Attributes:
        name, kind: See `LayoutChange`.
        config: The configuration in the form of the broker's API; a value of None removes a field.
        settled: Fields that are set on creation and not changed later.
        formerly: Limits that an earlier version of this program set. No operator chose these, so `make` lowers them.
    """

    name: str
    kind: str
    config: dict[str, Any]
    settled: tuple[str, ...] = ()
    formerly: Mapping[str, int] = {}


class Difference(Struct, frozen=True, kw_only=True):
    """
    A setting of a stream that differs from that of `ccmctl init`.

    Attributes:
        field: The name of the setting in the broker's API.
        has, wanted: The current and the wanted value, as text.
        is_kept: Whether `make` keeps it, because it is a limit that an operator raised.
    """

    field: str
    has: str
    wanted: str
    is_kept: bool = False


def differences(found: Mapping[str, Any], wanted: WantedStream) -> list[Difference]:
    """
    Compare a stream's configuration with the wanted one.

    Args:
        found: The configuration in the form of the broker's API.
        wanted: One entry of `plan`.
    """
    differing = []
    for field, value in wanted.config.items():
        has = found.get(field)
        if has == value or (not has and not value) or field in wanted.settled:
            continue
        is_chosen = wanted.formerly.get(field) != has
        is_kept = field in _LIMITS and isinstance(has, int) and _is_larger(has, value) and is_chosen
        differing.append(
            Difference(field=field, has=_shown(field, has), wanted=_shown(field, value), is_kept=is_kept)
        )
    return differing


def merged(found: dict[str, Any], wanted: WantedStream) -> tuple[dict[str, Any], list[str], list[str]]:
    """Return the configuration to store, and texts that describe the changes and the differences that are kept."""
    differing = differences(found, wanted)
    config = found | {one.field: wanted.config[one.field] for one in differing if not one.is_kept}
    changes = [f"{one.field} {one.has} → {one.wanted}" for one in differing if not one.is_kept]
    kept = [f"{one.field} stays {one.has} ({one.wanted} was requested)" for one in differing if one.is_kept]
    return config, changes, kept


def _is_larger(has: int, value: int) -> bool:
    """Whether one limit is larger than another; 0 and -1 mean no limit."""
    return has <= 0 or has > value


def _shown(field: str, value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and field in ("max_age", "duplicate_window"):
        return f"{value / _NANOSECONDS:g} s" if value > 0 else "unlimited"
    return str(value)
