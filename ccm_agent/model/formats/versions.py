"""
Compare package versions by the rules of dpkg, of rpm, and of CCM for other package managers.

Pure functions on text. Each returns -1, 0 or 1 if the first version is older, equal or newer.
"""

from __future__ import annotations

import re
from functools import cmp_to_key
from itertools import zip_longest

from ccm_agent.model.errors import PropertyError

_EPOCH_MAX = 2**63 - 1

# A Debian version. The upstream part may contain dashes. The part after the last dash is the revision, which may be empty.
_DEBIAN = re.compile(r"(?:([0-9]+):)?([A-Za-z0-9.+~-]+?)(?:-([A-Za-z0-9.+~]*))?", re.ASCII)
_DEBIAN_PAIR = re.compile(r"([^0-9]*)([0-9]*)")

_RPM_SEPARATORS = re.compile(r"[^A-Za-z0-9~^]*")
_RPM_SEGMENT = re.compile(r"[0-9]+|[A-Za-z]+")

_PLAIN_TOKEN = re.compile(r"-|\.|[0-9]+|[^-.0-9]+")


def compare_debian(left: str, right: str) -> int:
    """
    Compare as `dpkg --compare-versions` does: epoch, upstream version, revision; `~` sorts before the end of the text.

    Raises:
        PropertyError: One of the texts is not a Debian version.

    Source: Debian Policy Manual, 5.6.12; deb-version(7).
    """
    left_epoch, left_upstream, left_revision = _debian_parts(left)
    right_epoch, right_upstream, right_revision = _debian_parts(right)
    return (
        _sign(left_epoch, right_epoch)
        or _compare_debian_part(left_upstream, right_upstream)
        or _compare_debian_part(left_revision, right_revision)
    )


def _debian_parts(version: str) -> tuple[int, str, str]:
    match = _DEBIAN.fullmatch(version)
    epoch = int(match[1] or "0") if match and len(match[1] or "") <= len(str(_EPOCH_MAX)) else -1
    if match is None or not 0 <= epoch <= _EPOCH_MAX:
        raise PropertyError(
            f"{version!r} is not a Debian version: it is [epoch:]upstream[-revision] of letters, digits and . + ~ -"
        )
    return epoch, match[2], match[3] or ""


def _compare_debian_part(left: str, right: str) -> int:
    pairs = zip_longest(_DEBIAN_PAIR.findall(left), _DEBIAN_PAIR.findall(right), fillvalue=("", ""))
    for (left_text, left_digits), (right_text, right_digits) in pairs:
        order = _compare_debian_text(left_text, right_text) or _compare_digits(left_digits, right_digits)
        if order:
            return order
    return 0


def _compare_debian_text(left: str, right: str) -> int:
    for a, b in zip_longest(left, right, fillvalue=""):
        order = _sign(_debian_rank(a), _debian_rank(b))
        if order:
            return order
    return 0


def _debian_rank(char: str) -> int:
    """Return the sort rank of a character: tilde, the end, letters, other characters."""
    if char == "~":
        return -1
    if not char:
        return 0
    return ord(char) if char.isalpha() else ord(char) + 256


def compare_rpm(left: str, right: str) -> int:
    """
    Compare `[epoch:]version[-release]` as rpm does. A missing epoch is 0, `~` sorts before the end, and `^`
    directly after the end.

    The release is compared only if both versions have a release: `1.0` matches any release of 1.0.

    Source: rpm-version(7), lib/rpmvercmp.c of rpm.
    """
    left_epoch, left_version, left_release = _rpm_parts(left)
    right_epoch, right_version, right_release = _rpm_parts(right)
    order = _compare_rpm_part(left_epoch, right_epoch) or _compare_rpm_part(left_version, right_version)
    if order or left_release is None or right_release is None:
        return order
    return _compare_rpm_part(left_release, right_release)


def _rpm_parts(version: str) -> tuple[str, str, str | None]:
    epoch, colon, rest = version.partition(":")
    if not colon or (epoch and not _is_number(epoch)):
        epoch, rest = "0", version
    name, dash, release = rest.rpartition("-")
    return (epoch or "0", name, release) if dash else (epoch or "0", rest, None)


def _compare_rpm_part(left: str, right: str) -> int:
    if left == right:
        return 0
    i = j = 0
    while True:
        i, j = _skip_separators(left, i), _skip_separators(right, j)
        a, b = left[i : i + 1], right[j : j + 1]
        if "~" in (a, b) or "^" in (a, b):
            if a != b:
                return _rpm_mark_order(a, b)
            i, j = i + 1, j + 1
            continue
        if not a or not b:
            return _sign(bool(a), bool(b))
        order, i, j = _compare_rpm_segment(left, i, right, j)
        if order:
            return order


def _skip_separators(text: str, position: int) -> int:
    match = _RPM_SEPARATORS.match(text, position)
    return match.end() if match else position


def _rpm_mark_order(left: str, right: str) -> int:
    """Compare two positions if at least one is a mark, in the order `~`, end, `^`, anything else."""
    ranks = {"~": 0, "": 1, "^": 2}
    return _sign(ranks.get(left, 3), ranks.get(right, 3))


def _compare_rpm_segment(left: str, i: int, right: str, j: int) -> tuple[int, int, int]:
    a, b = _RPM_SEGMENT.match(left, i), _RPM_SEGMENT.match(right, j)
    if a is None or b is None:
        return _sign(a is not None, b is not None), i, j
    numeric = a[0].isdigit(), b[0].isdigit()
    if numeric[0] != numeric[1]:
        order = 1 if numeric[0] else -1  # a number is newer than a word
    elif numeric[0]:
        order = _compare_digits(a[0], b[0])
    else:
        order = _sign(a[0], b[0])
    return order, a.end(), b.end()


def compare_plain(left: str, right: str, *, lenient: bool = False) -> int:
    """
    Compare as CCM does for unknown package managers: parts between dots and dashes, numbers by value.

    A dash is older than anything. A dot is older than anything except a dash. A number with a leading zero is
    compared as text, and text is compared case-insensitively. If all parts are equal, the texts are compared.
    Epochs and tildes have no meaning.

    Args:
        left: A version.
        right: Another version.
        lenient: Whether to ignore each trailing `.0` before the first dash: 1.0.0 then equals 1.

    Source: the design of CCM's dnf provider, "Version Comparison"; Puppet's versioncmp.
    """
    if lenient:
        left, right = _without_trailing_zeroes(left), _without_trailing_zeroes(right)
    for a, b in zip(_PLAIN_TOKEN.findall(left), _PLAIN_TOKEN.findall(right), strict=False):
        order = _compare_plain_token(a, b)
        if order:
            return order
    return _sign(left, right)


def _without_trailing_zeroes(version: str) -> str:
    head, dash, tail = version.partition("-")
    while head.endswith(".0"):
        head = head[:-2]
    return head + dash + tail


def _compare_plain_token(left: str, right: str) -> int:
    if left == right:
        return 0
    for separator in ("-", "."):
        if left == separator:
            return -1
        if right == separator:
            return 1
    if _is_number(left) and _is_number(right) and left[0] != "0" and right[0] != "0":
        return _compare_digits(left, right)
    return _sign(left.upper(), right.upper())


def _is_number(token: str) -> bool:
    return token.isascii() and token.isdigit()


def _compare_digits(left: str, right: str) -> int:
    """Compare digits of any length by value; an empty text is zero."""
    left, right = left.lstrip("0"), right.lstrip("0")
    return _sign(len(left), len(right)) or _sign(left, right)


def _sign(left: str | int, right: str | int) -> int:
    return (left > right) - (left < right)  # type: ignore[operator]


debian_key = cmp_to_key(compare_debian)
"""A key to sort Debian versions by, oldest first."""

rpm_key = cmp_to_key(compare_rpm)
"""A key to sort rpm versions by, oldest first."""
