"""
The functions that `@validate` can apply to a value: those of Choria's validator library, as predicates on a text.

In that library, a value that is not an IP address, hostname or safe text ends the whole expression with an
error. `isIPv4(value) || isIPv6(value)` is therefore never true for IPv6 there. Here the functions return false,
and operators combine them as documented.
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
    """Whether a value is an IPv4 or IPv6 address, without zone or prefix length."""
    return _address(value) is not None


def is_ipv4(value: str) -> bool:
    """Whether a value is an IPv4 address, including the IPv4-mapped form `::ffff:1.2.3.4`."""
    address = _address(value)
    return isinstance(address, ipaddress.IPv4Address)


def is_ipv6(value: str) -> bool:
    """Whether a value is an IPv6 address that does not map an IPv4 address."""
    return isinstance(_address(value), ipaddress.IPv6Address)


def is_int(value: str) -> bool:
    """Whether a value is a whole number of any size in decimal digits, with or without a sign."""
    return _INT.fullmatch(value) is not None


def is_float(value: str) -> bool:
    """Whether a value is a decimal number, with or without a fraction and an exponent, or infinity."""
    return _FLOAT.fullmatch(value) is not None


def is_duration(value: str) -> bool:
    """Whether a value contains durations, such as `1h30m`, `3d` or `about 10s`; `0` needs no unit."""
    if value == "0":
        return True
    parts = _DURATION_PART.findall(value)
    return bool(parts) and all(
        _NUMBER.fullmatch(number) and unit in _DURATION_UNITS for number, unit in parts
    )


def is_shell_safe(value: str) -> bool:
    """
    Whether a value contains no character that starts, joins or redirects commands in a shell. Quotes, globs
    and backslashes are accepted.
    """
    return not _UNSAFE.intersection(value.strip())


def is_hostname(value: str) -> bool:
    """Whether a value consists of one or more labels of RFC 1123, without a dot at the end."""
    return len(value) <= _MAX_NAME and all(_LABEL.fullmatch(label) for label in value.split("."))


def is_fqdn(value: str) -> bool:
    """
    Whether a value consists of two or more labels of RFC 1123, and the last one begins with a letter. It
    may end with a dot.
    """
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
"""The predicates, by their names in expressions."""


@functools.lru_cache(maxsize=1)
def validator_functions() -> dict[str, Callable[..., bool]]:
    """
    Return the functions of an expression about a value: those of `CLAIMS`, and `isRegex(value, pattern)` with RE2 patterns.

    They raise an ExpressionError for values that are not text.
    """
    functions: dict[str, Callable[..., bool]] = {
        name: _on_text(name, claim) for name, claim in CLAIMS.items()
    }
    return functions | {"isRegex": _is_regex, "is_regex": _is_regex}


def _on_text(name: str, claim: Callable[[str], bool]) -> Callable[..., bool]:
    def call(value: object, /) -> bool:
        if not isinstance(value, str):
            raise ExpressionError(f"{name} needs text")
        return claim(value)

    return call


def _is_regex(value: object, pattern: object, /) -> bool:
    from ccm_agent.templates.regex import PatternError, compile_pattern

    if not isinstance(value, str) or not isinstance(pattern, str):
        raise ExpressionError("isRegex needs text and a pattern")
    try:
        return compile_pattern(pattern).matches(value)
    except PatternError as err:
        raise ExpressionError(f"`{pattern}` is not a valid pattern: {err}") from err
