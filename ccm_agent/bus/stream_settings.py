"""
What differs between the settings of a stream on the broker and those that `ccmctl init` asks for.

`bus.layout` uses it to update streams, and `ccmctl doctor` to report what was altered.
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
        name, kind: As of Made.
        config: As the broker's API words it; a value of None removes a field.
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
    A setting of a stream that is not what `ccmctl init` asks for.

    Attributes:
        field: Its name in the broker's API.
        has, wanted: Its two values, as text.
        is_kept: It is a limit that an operator raised, so `make` leaves it.
    """

    field: str
    has: str
    wanted: str
    is_kept: bool = False


def differences(found: Mapping[str, Any], wanted: WantedStream) -> list[Difference]:
    """
    Compare a stream's configuration with the wanted one.

    Args:
        found: The configuration, as the broker's API words it.
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
    """The configuration to store, and in words what changes and what is kept although it differs."""
    differing = differences(found, wanted)
    config = found | {one.field: wanted.config[one.field] for one in differing if not one.is_kept}
    changes = [f"{one.field} {one.has} → {one.wanted}" for one in differing if not one.is_kept]
    kept = [f"{one.field} stays {one.has} ({one.wanted} was requested)" for one in differing if one.is_kept]
    return config, changes, kept


def _is_larger(has: int, value: int) -> bool:
    """0 and -1 mean that there is no limit."""
    return has <= 0 or has > value


def _shown(field: str, value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and field in ("max_age", "duplicate_window"):
        return f"{value / _NANOSECONDS:g} s" if value > 0 else "unlimited"
    return str(value)
