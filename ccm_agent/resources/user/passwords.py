"""
Interprets fields of /etc/shadow: password hashes, locks and expiry dates.

Source: shadow(5), crypt(5), usermod(8) about `-L`.
"""

from __future__ import annotations

import re
from datetime import date

NEVER = "never"
LOCKED_DAY = 1
"""The expiry day of a locked account, as usermod(8) recommends. An empty field or 0 would be ambiguous."""

LENGTH = 1000

_EPOCH = date(1970, 1, 1).toordinal()
_LAST_DAY = date(9999, 12, 31).toordinal() - _EPOCH
_HASH = re.compile(r"!{0,2}\$[a-z0-9]{1,10}\$[A-Za-z0-9./=,$+-]{12,}", re.ASCII)
_NONE = re.compile(r"[!*]{1,2}")


def is_hash(field: str) -> bool:
    """Whether a text is a crypt(5) hash, possibly locked, or a marker that disables the password (`*` or `!`)."""
    return len(field) <= LENGTH and bool(_HASH.fullmatch(field) or _NONE.fullmatch(field))


def has_password(field: str) -> bool:
    """Whether a field contains a hash. The hash may be locked."""
    return field.lstrip("!") not in ("", "*")


def locks_of(field: str) -> int:
    """Return the number of lock markers before the hash in a field; 0 if it is not locked or there is no hash."""
    return len(field) - len(field.lstrip("!")) if has_password(field) else 0


def is_same(wanted: str, found: str) -> bool:
    """
    Whether a field has the desired value. If the desired hash is not locked, the current hash may be locked, because locks are a
    separate property.

    If no hash is desired, any field without a usable hash is accepted.
    """
    if not has_password(wanted):
        return found != "" and not has_password(found)
    return wanted == (found if wanted.startswith("!") else found.lstrip("!"))


def day_of(field: str) -> str:
    """Return the date for an expiry field in /etc/shadow, which contains days since 1970; "never" if it is empty."""
    if not (field.isascii() and field.isdigit()) or int(field) > _LAST_DAY:
        return NEVER
    return date.fromordinal(_EPOCH + int(field)).isoformat()


def is_expired_by_lock(expires: str) -> bool:
    """Whether this type locks an account with this expiry date."""
    return expires in _LOCK_DAYS


_LOCK_DAYS = frozenset({day_of("0"), day_of(str(LOCKED_DAY))})
