"""
Password fields of /etc/shadow: hashes, locks and expiry.

Source: shadow(5), crypt(5), usermod(8) about `-L`.
"""

from __future__ import annotations

import re
from datetime import date

NEVER = "never"
LOCKED_DAY = 1
"""The day of expiry of a locked account, as usermod(8) recommends: an empty field or 0 would be ambiguous."""

LENGTH = 1000

_EPOCH = date(1970, 1, 1).toordinal()
_LAST_DAY = date(9999, 12, 31).toordinal() - _EPOCH
_HASH = re.compile(r"!{0,2}\$[a-z0-9]{1,10}\$[A-Za-z0-9./=,$+-]{12,}", re.ASCII)
_NONE = re.compile(r"[!*]{1,2}")


def is_hash(field: str) -> bool:
    """Whether a text is a crypt(5) hash, which may be locked, or means that there is no password (`*` or `!`)."""
    return len(field) <= LENGTH and bool(_HASH.fullmatch(field) or _NONE.fullmatch(field))


def has_password(field: str) -> bool:
    """Whether a field contains a hash, also a locked one."""
    return field.lstrip("!") not in ("", "*")


def locks_of(field: str) -> int:
    """Return how many marks lock the hash in a field; 0 if it is not locked or there is none."""
    return len(field) - len(field.lstrip("!")) if has_password(field) else 0


def is_same(wanted: str, found: str) -> bool:
    """
    Whether a field is as wanted. A hash that is wanted without a lock may be locked: that is another property.

    A field without a hash only has to be one that no password matches.
    """
    if not has_password(wanted):
        return found != "" and not has_password(found)
    return wanted == (found if wanted.startswith("!") else found.lstrip("!"))


def day_of(field: str) -> str:
    """Return the expiration date of a field in /etc/shadow, which counts days since 1970; "never" if it is empty."""
    if not (field.isascii() and field.isdigit()) or int(field) > _LAST_DAY:
        return NEVER
    return date.fromordinal(_EPOCH + int(field)).isoformat()


def is_expired_by_lock(expires: str) -> bool:
    """Whether a date of expiry is one that locks an account."""
    return expires in _LOCK_DAYS


_LOCK_DAYS = frozenset({day_of("0"), day_of(str(LOCKED_DAY))})
