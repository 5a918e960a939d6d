"""
What `@validate` may ask of a value: the functions of Choria's validator library, as pure claims about a text.

There a value that is not an IP address, hostname or safe text ends the whole expression with an error, so that
`isIPv4(value) || isIPv6(value)` is never true for IPv6. Here they say false, and operators combine them as documented.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from collections.abc import Callable

from ccm_agent.model.errors import ExpressionError

_INT = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?(?:inf|Inf|(?:[0-9]++(?:\.[0-9]*)?|\.[0-9]+)(?:[eEp][+-]?[0-9]+)?)")
_DURATION_PART = re.compile(r"[-+]?(?<![0-9.])([0-9.]++)([a-zA-Z]+)")
_DURATION_UNITS = frozenset({"ns", "us", "ms", "s", "m", "h", "d", "D", "w", "W", "M", "y", "Y"})
_NUMBER = re.compile(r"[0-9]++(?:\.[0-9]*)?|\.[0-9]+")
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_UNSAFE = frozenset("`$;|&><()\n")
_MAX_NAME = 253  # RFC 1123, section 2.1


def is_ip(value: str) -> bool:
    """An IPv4 or IPv6 address, without zone or prefix length."""
    return _address(value) is not None


def is_ipv4(value: str) -> bool:
    """An IPv4 address; one written as IPv6 (`::ffff:1.2.3.4`) is one too."""
    address = _address(value)
    return isinstance(address, ipaddress.IPv4Address)


def is_ipv6(value: str) -> bool:
    """An IPv6 address that does not map an IPv4 one."""
    return isinstance(_address(value), ipaddress.IPv6Address)


def is_int(value: str) -> bool:
    """A whole number of any size in decimal digits, with or without a sign."""
    return _INT.fullmatch(value) is not None


def is_float(value: str) -> bool:
    """A decimal number, with or without a fraction and an exponent, or infinity."""
    return _FLOAT.fullmatch(value) is not None


def is_duration(value: str) -> bool:
    """A text with durations in it, such as `1h30m`, `3d` or `about 10s`; `0` needs no unit."""
    if value == "0":
        return True
    parts = _DURATION_PART.findall(value)
    return bool(parts) and all(
        _NUMBER.fullmatch(number) and unit in _DURATION_UNITS for number, unit in parts
    )


def is_shell_safe(value: str) -> bool:
    """No character in it starts, joins or redirects commands in a shell. Quotes, globs and backslashes pass."""
    return not _UNSAFE.intersection(value.strip())


def is_hostname(value: str) -> bool:
    """Labels of RFC 1123, one or more, without a dot at the end."""
    return len(value) <= _MAX_NAME and all(_LABEL.fullmatch(label) for label in value.split("."))


def is_fqdn(value: str) -> bool:
    """Two labels of RFC 1123 or more, the last beginning with a letter; a dot may stand at the end."""
    name = value.removesuffix(".")
    last = name.rpartition(".")[2]
    return "." in name and last[:1].isalpha() and is_hostname(name)


def _address(value: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    if "%" in value:
        return None
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


CLAIMS: dict[str, Callable[[str], bool]] = {
    "isIP": is_ip,
    "is_ip": is_ip,
    "isIPv4": is_ipv4,
    "is_ipv4": is_ipv4,
    "isIPv6": is_ipv6,
    "is_ipv6": is_ipv6,
    "isInt": is_int,
    "is_int": is_int,
    "isFloat": is_float,
    "is_float": is_float,
    "isDuration": is_duration,
    "is_duration": is_duration,
    "isShellSafe": is_shell_safe,
    "is_shellsafe": is_shell_safe,
    "isHostname": is_hostname,
    "is_hostname": is_hostname,
    "isFQDN": is_fqdn,
    "is_fqdn": is_fqdn,
}
"""By the names that an expression calls them by."""


@functools.lru_cache(maxsize=1)
def validator_functions() -> dict[str, Callable[..., bool]]:
    """
    The functions of an expression about a value: those of `CLAIMS`, and `isRegex(value, pattern)` with patterns of RE2.

    They raise an ExpressionError for anything but text.
    """
    functions: dict[str, Callable[..., bool]] = {
        name: _on_text(name, claim) for name, claim in CLAIMS.items()
    }
    return functions | {"isRegex": _is_regex, "is_regex": _is_regex}


def _on_text(name: str, claim: Callable[[str], bool]) -> Callable[..., bool]:
    def call(value: object, /) -> bool:
        if not isinstance(value, str):
            raise ExpressionError(f"{name} needs a text")
        return claim(value)

    return call


def _is_regex(value: object, pattern: object, /) -> bool:
    from ccm_agent.templates.regex import PatternError, compile_pattern

    if not isinstance(value, str) or not isinstance(pattern, str):
        raise ExpressionError("isRegex needs a text and a pattern")
    try:
        return compile_pattern(pattern).matches(value)
    except PatternError as err:
        raise ExpressionError(f"`{pattern}` is not a valid pattern: {err}") from err
