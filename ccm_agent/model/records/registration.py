"""
Service registration: the entries that stable resources publish, in Choria CCM's format.

Cluster, service, protocol, address and port identify an entry. Its other fields may change with each
registration. The same rules apply to entries from manifests and from the bus, because templates turn entries
that other nodes wrote into configuration.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from ccm_agent.model.errors import DocumentError, Place, PropertyError, ProtocolError
from ccm_agent.model.formats.durations import go_duration, parse_duration
from ccm_agent.model.formats.patterns import lazy_pattern
from ccm_agent.model.formats.untrusted_json import decode_foreign

NEVER = "never"
"""A TTL value: the entry does not expire."""

REGISTER, REMOVE = "register", "remove"
"""The actions of a change of an entry."""

MAX_PORT = 65_535
MAX_PRIORITY = 255
MAX_TTL_S = 100_000 * 86_400
"""The maximum TTL, slightly less than the longest duration of Go."""

ANNOTATIONS_LIMIT_BYTES = 64 << 10
"""Limit of all annotation keys and values of an entry that is read, in bytes."""

_PORT_RULE = f"must be a whole number from 1 to {MAX_PORT}"
_PRIORITY_RULE = f"must be a whole number from 1 to {MAX_PRIORITY}"
_TTL_RULE = f"must be at least 1s and at most {MAX_TTL_S // 86_400} days, or `{NEVER}`"

NAMES = ("cluster", "protocol", "service")

_NAME = lazy_pattern(r"[a-zA-Z][a-zA-Z\d_-]*", re.ASCII)
_LABEL = lazy_pattern(r"[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)
_CONTROL = lazy_pattern(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = lazy_pattern(rf"{_OCTET}(?:\.{_OCTET}){{3}}")
_FNV_OFFSET, _FNV_PRIME, _64_BITS = 0xCBF29CE484222325, 0x100000001B3, (1 << 64) - 1
_SCRAPE = "prometheus.io/scrape"


class RegistrationEntry(Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """One instance of a service that clients can find."""

    cluster: Annotated[str, Meta(description="Cluster the service belongs to.")]
    service: Annotated[str, Meta(description="Service name.")]
    protocol: Annotated[str, Meta(description="Protocol that the service uses.")]
    address: Annotated[str, Meta(description="Address of the instance.")]
    port: Annotated[int | str | None, Meta(description="Port number, or a template that returns one.")] = None
    priority: Annotated[int, Meta(description="Priority among instances; 1 to 255, lower is preferred.")] = 0
    annotations: Annotated[dict[str, str], Meta(description="Annotations of the instance.")] = {}
    ttl: Annotated[str | None, Meta(description="Lifetime of the entry without renewal, or `never`.")] = None


class RegistrationChange(Struct, frozen=True, kw_only=True):
    """
    A change of an entry.

    Attributes:
        action: REGISTER for a new or renewed entry, REMOVE for a removed entry.
        entry: The last known content of the entry.
        reason: Why the entry was removed: the broker's reason `MaxAge`, `Remove` or `Purge`, or `Gone` without one.
    """

    action: str
    entry: RegistrationEntry
    reason: str = ""


def check_entry(entry: RegistrationEntry) -> None:
    """
    Refuse an entry that cannot be published.

    Raises:
        PropertyError: With the path of the invalid field, such as `$.port`.
    """
    for field in NAMES:
        _require(
            _NAME.fullmatch(getattr(entry, field)),
            field,
            "must begin with a letter, and contain only letters, digits, _ and -",
        )
    _require(_is_address(entry.address), "address", "must be an IP address such as 10.0.0.5 or 2001:db8::5")
    is_port = entry.port is None or (_is_whole(entry.port) and 1 <= int(entry.port) <= MAX_PORT)
    _require(is_port, "port", _PORT_RULE)
    _require(1 <= entry.priority <= MAX_PRIORITY, "priority", _PRIORITY_RULE)
    words = (*entry.annotations, *entry.annotations.values())
    # a line break in an annotation would add a line to generated configuration (YAML has several line break
    # characters)
    _require(not any(map(_CONTROL.search, words)), "annotations", "must not contain control characters")
    try:
        seconds = ttl_s(entry.ttl)
    except DocumentError as err:
        raise PropertyError(f"`ttl`: {err.message}, or `{NEVER}`", place=Place(path="$.ttl")) from err
    is_time = seconds is None or 1 <= seconds <= MAX_TTL_S
    _require(is_time, "ttl", _TTL_RULE)


def ttl_s(ttl: str | None) -> float | None:
    """
    Return the lifetime of an entry in seconds; None if it has no TTL or never expires.

    Raises:
        DocumentError: The TTL is not a duration.
    """
    return None if not ttl or ttl == NEVER else parse_duration(ttl)


def ttl_text(ttl: str | None) -> str:
    """Format a TTL for the broker and Choria CCM: `10m0s`, `never`; "" without a TTL."""
    seconds = ttl_s(ttl)
    return go_duration(seconds) if seconds is not None else ttl or ""


def instance_of(entry: RegistrationEntry) -> str:
    """
    Return the last token of an entry's subject: the FNV-1a hash of its identifying fields, with the port
    formatted as in Go.
    """
    port = "%!d(<nil>)" if entry.port is None else str(entry.port)
    number = _FNV_OFFSET
    for byte in f"{entry.cluster}{entry.service}{entry.protocol}{entry.address}{port}".encode():
        number = (number ^ byte) * _FNV_PRIME & _64_BITS
    return f"{number:016x}"


def encode_entry(entry: RegistrationEntry) -> bytes:
    """Encode an entry for the bus."""
    return msgspec.json.encode(entry_document(entry))


def entry_document(entry: RegistrationEntry) -> dict[str, Any]:
    """Return an entry as plain values, with the keys in Choria CCM's order."""
    document: dict[str, Any] = {
        field: getattr(entry, field)
        for field in ("cluster", "service", "protocol", "address", "port", "priority")
    }
    if entry.annotations:
        document["annotations"] = dict(sorted(entry.annotations.items()))
    if entry.ttl:
        document["ttl"] = ttl_text(entry.ttl)
    return document


def decode_entry(body: bytes) -> RegistrationEntry:
    """
    Decode a published entry; unknown fields are ignored.

    Raises:
        ProtocolError: The body is not an entry, or violates the rules for entries.
    """
    try:
        raw = decode_foreign(body, dict[str, Any])
        known = {name: raw[name] for name in RegistrationEntry.__struct_fields__ if raw.get(name) is not None}
        for name in ("port", "priority"):
            if isinstance(known.get(name), float) and known[name].is_integer():
                known[name] = int(known[name])
        if "ttl" in known:
            known["ttl"] = _read_ttl(known["ttl"])
        entry = msgspec.convert(known, RegistrationEntry)
        check_entry(entry)
    except (msgspec.MsgspecError, PropertyError, ValueError, OverflowError) as err:
        raise ProtocolError(f"an invalid entry: {err}") from err
    size = sum(len(key) + len(value) for key, value in entry.annotations.items())
    if size > ANNOTATIONS_LIMIT_BYTES:
        raise ProtocolError(f"an entry with annotations of {size} characters, which is too many")
    return entry


def sort_key(entry: RegistrationEntry) -> tuple[str, int]:
    """Return the sort key of lookup results: address as text, then port as a number."""
    return entry.address, int(entry.port or 0)


def prometheus_file_sd(entries: Sequence[RegistrationEntry]) -> str:
    """
    Return the entries as a file for Prometheus's file-based service discovery, with one group for each
    cluster, service and protocol.

    Entries without a port are omitted. Entries without the annotation `prometheus.io/scrape: "true"` are also
    omitted, unless the service or protocol is named `prometheus`. The labels of a group are those of its first
    entry. Source: https://prometheus.io/docs/prometheus/latest/configuration/configuration/#file_sd_config
    """
    groups: dict[tuple[str, str, str], dict[str, Any]] = {}
    for entry in entries:
        if not entry.port or not _is_scraped(entry):
            continue
        group = groups.setdefault(
            (entry.cluster, entry.service, entry.protocol), {"labels": _labels(entry), "targets": []}
        )
        host = f"[{entry.address}]" if ":" in entry.address else entry.address
        group["targets"].append(f"{host}:{entry.port}")
    # Go's JSON writer sorts the keys of maps, and escapes HTML's special characters
    text = msgspec.json.format(msgspec.json.encode(list(groups.values())), indent=2).decode()
    for mark in "<>&\u2028\u2029":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return text


def _is_scraped(entry: RegistrationEntry) -> bool:
    default = "true" if "prometheus" in (entry.service, entry.protocol) else ""
    return entry.annotations.get(_SCRAPE, default) == "true"


def _labels(entry: RegistrationEntry) -> dict[str, str]:
    labels = {"cluster": entry.cluster, "service": entry.service, "protocol": entry.protocol}
    for key, value in entry.annotations.items():
        if value and not key.startswith("__") and _LABEL.fullmatch(key):
            labels[key] = value
    return dict(sorted(labels.items()))


def _is_address(text: str) -> bool:
    if _IPV4.fullmatch(text):  # most addresses are IPv4, and a registry has tens of thousands
        return True
    from ipaddress import ip_address

    try:
        ip_address(text)
    except ValueError:
        return False
    return "%" not in text  # an IPv6 zone is only valid on one host


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _read_ttl(value: object) -> str | None:
    """Decode a TTL: text, or nanoseconds from older writers."""
    if isinstance(value, str):
        return value or None
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return go_duration(value / 1e9)
    raise ValueError("its `ttl` is neither text nor a number")


def _require(holds: object, field: str, rule: str) -> None:
    if not holds:
        raise PropertyError(f"`{field}` of a registration {rule}", place=Place(path=f"$.{field}"))
