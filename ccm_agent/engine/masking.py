"""
Removes secrets from events before they leave this process.

Secrets are masked for every output: session directory, `--events`, log and bus. For the bus, long and private fields are also
shortened: `content` to its digest and size, `environment` to the names of its variables.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import compress
from typing import Any

import msgspec

from ccm_agent.hiera.secret_keys import is_secret_setting, named_secrets
from ccm_agent.model import codec
from ccm_agent.model.errors import DocumentError
from ccm_agent.model.formats.patterns import lazy_pattern
from ccm_agent.model.health import HealthCheck
from ccm_agent.model.outcome import OUTPUT_TAIL, TransactionEvent
from ccm_agent.model.resource import CommonProperties
from ccm_agent.model.resource_diff import ResourceDiff
from ccm_agent.model.secret import (
    MASK,
    Masker,
    Secret,
    looks_secret,
    mask_url,
    secrets_of_url,
)
from ccm_agent.resources.contract import AnyType, ResolvedResource

PLAIN_HEADERS = frozenset(
    {"accept", "accept-encoding", "accept-language", "content-length", "content-type", "host", "user-agent"}
)
"""Request headers whose values are not secret."""

PLAIN_VARIABLES = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "LANG", "LANGUAGE", "TZ", "TERM"),
        *("TMPDIR", "TEMP", "TMP", "EDITOR", "PAGER", "HOSTNAME", "DISPLAY", "XDG_RUNTIME_DIR", "NO_COLOR"),
        *("DEBIAN_FRONTEND", "DEBIAN_PRIORITY", "NEEDRESTART_MODE", "NEEDRESTART_SUSPEND", "SYSTEMD_PAGER"),
    }
)
"""Environment variables whose values are not secret, in addition to `LC_…`. Masking them would make output unreadable."""

_VALUE = r"""'(?P<{0}1>[^']*)'|"(?P<{0}2>[^"]*)"|(?P<{0}3>[^\s'"$`-][^\s'"]*)"""
_ARGUMENT = lazy_pattern(
    rf"(?<![\w.-])-{{0,2}}(?P<name>[A-Za-z_][\w.-]{{0,63}})=(?:{_VALUE.format('a')})"
    rf"|(?<![^\s'\"])--(?P<option>[A-Za-z][\w.-]{{0,63}})[ \t]+(?:{_VALUE.format('b')})"
)
"""`--password=x`, `PGPASSWORD=x` or `--password x` in a command."""

_VALUE_GROUPS = ("a1", "a2", "a3", "b1", "b2", "b3")

_DIGEST = lazy_pattern(r"(?i)\b[0-9a-f]{32,128}\b")

HIDDEN = "hidden: the resource is `sensitive`"

_REFERENCES = frozenset({"require", "rescue", "subscribe", "before", "notify"})

_IDENTITY = frozenset({"name", "alias", "ensure", "provider", "type", "protocol"}) | _REFERENCES
"""The fields that identify a resource, and its references to other resources."""

_SHOWN = _IDENTITY | {"timestamp", "tags"}
"""The fields of a `sensitive` resource that are shown."""


def register_secrets(
    masker: Masker, kind: AnyType, wanted: CommonProperties, pending: Collection[str] = ()
) -> None:
    """
    Add the secrets among a resource's properties to a masker.

    Args:
        masker: Receives the secrets.
        kind, wanted: The type of the resource and its properties.
        pending: Fields that still contain templates, so their secrets are not known yet.
    """
    rules = kind.rules
    for field in rules.sensitive:
        for text in _texts(getattr(wanted, field, None)) if field not in pending else ():
            masker.learn(text)
    for field in rules.publish_names:
        for text in _texts(getattr(wanted, field, None)) if field not in pending else ():
            _learn_variable(masker, text)
    for field in rules.commands:
        for text in _texts(getattr(wanted, field, None)) if field not in pending else ():
            _learn_arguments(masker, text)
    if "name" not in pending and rules.commands:
        _learn_arguments(masker, wanted.name)
    given = _given_fields(wanted)
    for field, value in given.items():
        if isinstance(value, dict) and field not in pending:
            _learn_named(masker, value)
    for field, value in _with_urls(kind, given):
        for text in _texts(value) if field not in pending else ():
            _learn_urls(masker, text)


def register_manifest_secrets(masker: Masker, resources: Iterable[ResolvedResource]) -> None:
    """Add the secrets of all resources of a manifest to a masker. Must be called before a resource's name is shown anywhere."""
    for declared in resources:
        register_secrets(masker, declared.kind, declared.wanted, declared.pending)
        register_check_secrets(masker, declared.wanted)


def register_check_secrets(masker: Masker, wanted: CommonProperties) -> None:
    """Add the secrets in a resource's health checks to a masker."""
    for check in wanted.health_checks:
        register_rule_secrets(masker, check)


def register_rule_secrets(masker: Masker, check: HealthCheck) -> None:
    """
    Add passwords, URL credentials and header values of a health check's `http` rules to a masker.

    Rules may be a single text that a template has rendered. Text that is not YAML contains no rules, and the error about it
    does not quote the text.
    """
    parsed = _parsed_rules(check.goss_rules)
    rules = parsed.get("http") if isinstance(parsed, dict) else None
    for url, body in rules.items() if isinstance(rules, dict) else ():
        _learn_urls(masker, str(url))
        if not isinstance(body, dict):
            continue
        for key in ("url", "proxy"):
            for text in _texts(body.get(key)):
                _learn_urls(masker, text)
        for text in _texts(body.get("password")):
            masker.learn(text)
        for text in _texts(body.get("request-headers")):
            name, _, value = text.partition(": ")
            if name.lower() not in PLAIN_HEADERS:
                masker.learn(value)


def _parsed_rules(rules: Any) -> Any:
    if not isinstance(rules, str) or "http" not in rules:
        return rules
    try:
        return codec.decode_document(rules)
    except DocumentError:
        return None


def mask_event(
    event: TransactionEvent, kind: AnyType, masker: Masker, *, hides_digests: bool = False
) -> TransactionEvent:
    """
    Mask secrets in an event: in its properties, state, errors, output and names.

    In `content`, only values that are certainly secret are masked, because `content` is not sent over the bus. Use
    `hides_digests` if the resource contains a sealed secret, because the digest of a short secret could reveal it.
    """
    if hides_digests:
        event.status = _without_digests(msgspec.to_builtins(event.status))
        if event.diff is not None:
            event.diff = msgspec.convert(_without_digests(msgspec.to_builtins(event.diff)), ResourceDiff)
    if getattr(event.properties, "sensitive", False):
        _hide(event)
    else:
        event.properties = mask_properties(kind, event.properties)
    if masker.is_idle and not _may_quote_url(_told(event)):
        return event
    event.error = [masker.text(text) for text in event.error]
    event.output = masker.text(event.output, is_cut="output" in event.cut or len(event.output) >= OUTPUT_TAIL)
    event.noop_message = masker.text(event.noop_message)
    event.unknown = masker.text(event.unknown)
    event.health_check = [
        msgspec.structs.replace(one, name=masker.name(one.name), output=masker.text(one.output))
        for one in event.health_check
    ]
    for field in ("name", "alias", "requested_ensure", "final_ensure", "triggered_by", "parent"):
        setattr(event, field, masker.name(getattr(event, field)))
    event.unmet_requirements = [masker.name(one) for one in event.unmet_requirements]
    event.refresh_pending = [masker.name(one) for one in event.refresh_pending]
    if masker.is_idle:
        return event
    plain = _IDENTITY | kind.rules.publish_digest
    event.properties = _masked_fields(event.properties, plain, masker)
    event.status = _masked_fields(event.status, _IDENTITY, masker)
    return event


def _hide(event: TransactionEvent) -> None:
    """Hide all fields of a `sensitive` resource except its identity, its outcome and the code of its error."""
    event.properties, event.status = _hidden(event.properties), _hidden(event.status)
    event.error = [HIDDEN] if event.error else []
    event.output = MASK if event.output else ""
    event.noop_message = MASK if event.noop_message else ""
    event.unknown = HIDDEN if event.unknown else ""
    event.health_check = [
        msgspec.structs.replace(one, output=MASK if one.output else "") for one in event.health_check
    ]
    event.diff = ResourceDiff(why=HIDDEN) if event.diff is not None else None


def _hidden(found: Any) -> Any:
    values = msgspec.to_builtins(found)
    if not isinstance(values, dict):
        return values
    return {
        key: value if key in _SHOWN or isinstance(value, bool) else _masked_value(value)
        for key, value in values.items()
    }


def _without_digests(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_digests(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_without_digests(one) for one in value]
    return MASK if isinstance(value, str) and _DIGEST.search(value) else value


def _told(event: TransactionEvent) -> str:
    """Return the joined texts of an event, without its properties and state."""
    checks = [text for one in event.health_check for text in (one.name, one.output)]
    names = (event.name, event.alias, event.parent, event.triggered_by, *event.unmet_requirements)
    names = (*names, *event.refresh_pending)
    return "\n".join((*names, event.output, event.noop_message, event.unknown, *event.error, *checks))


def _masked_fields(found: Any, plain: frozenset[str], masker: Masker) -> Any:
    """Mask properties or a state. In the `plain` fields, only values that are certainly secret are masked."""
    values = msgspec.to_builtins(found)
    if not isinstance(values, dict):
        return masker.value(values)
    return {
        key: masker.value(value, is_name=True) if key in plain else masker.value(value)
        for key, value in values.items()
    }


def shorten_for_bus(event: TransactionEvent, kind: AnyType) -> TransactionEvent:
    """Return a copy of a masked event for the bus: long and private fields are shortened to a digest or to names."""
    rules = kind.rules
    if not rules.publish_digest and not rules.publish_names:
        return event
    values = msgspec.to_builtins(event.properties)
    for field in rules.publish_digest:
        value = values.get(field)
        if value is not None and value != {} and value != MASK:
            data = (
                value.encode()
                if isinstance(value, str)
                else msgspec.json.encode(value, order="deterministic")
            )
            values[field] = f"sha256:{hashlib.sha256(data).hexdigest()} ({len(data)} bytes)"
    for field in rules.publish_names:
        if isinstance(items := values.get(field), list):
            values[field] = [str(item).partition("=")[0] for item in items]
    return msgspec.structs.replace(event, properties=values)


def mask_properties(kind: AnyType, wanted: Any) -> Any:
    """Return properties with sensitive fields masked and URLs without credentials."""
    changes: dict[str, Any] = {}
    for field in kind.rules.sensitive:
        if value := getattr(wanted, field):
            changes[field] = _masked_value(value)
    for field, value in _with_urls(kind, _given_fields(wanted)):
        is_url = field in kind.rules.urls and isinstance(value, str)
        shown = mask_url(value) if is_url else Masker().value(msgspec.to_builtins(value))
        if shown != value:
            changes[field] = shown
    return msgspec.structs.replace(wanted, **changes) if changes else wanted


def _masked_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _masked_value(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_masked_value(one) for one in value]
    return MASK if value else value


def _texts(value: Any) -> list[str]:
    """Return every text in a value."""
    if isinstance(value, Secret):
        return [value.reveal()]
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for one in value.values() for text in _texts(one)]
    if isinstance(value, list):
        return [text for one in value for text in _texts(one)]
    return []


def _learn_variable(masker: Masker, text: str) -> None:
    """Add the value of `NAME=value` to the masker. Only the name shows whether the value is a secret or an ordinary word."""
    name, _, value = text.partition("=")
    if name in PLAIN_VARIABLES or name.startswith("LC_"):
        return
    masker.learn(value, is_certain=looks_secret(name))
    _learn_urls(masker, value)


_AUTHORIZATION = lazy_pattern(r"(?i)authorization:\s{0,8}(?:basic|bearer|token)\s{1,8}([^\s\"']{1,4096})")
"""The credentials in a header, as in `curl -H 'Authorization: Bearer x'`."""

_USER_PASSWORD = lazy_pattern(r"(?:^|\s)(?:-u|--user)[ =]{0,8}[\"']?[^\s:\"']{1,100}:([^\s\"']{1,4096})")
"""The password in `curl -u user:password`."""


def _learn_arguments(masker: Masker, command: str) -> None:
    """
    Add the secrets in a command: values of options and variables such as `--password=x`, of a header, or of `-u user:password`.
    """
    for pattern in (_AUTHORIZATION, _USER_PASSWORD):
        for match in pattern.finditer(command):
            masker.learn(match[1])
    for found in _ARGUMENT.finditer(command):
        value = next(filter(None, (found[group] for group in _VALUE_GROUPS)), "")
        if not value.startswith(("$", "`")) and is_secret_setting(found["name"] or found["option"], value):
            masker.learn(value)


def _learn_named(masker: Masker, values: dict[str, Any]) -> None:
    """Add the values of a mapping property, such as the data of a child manifest, by the same rules as for data."""
    for value, is_own in named_secrets(values):
        masker.learn(value, is_certain=is_own)


def _learn_urls(masker: Masker, text: str) -> None:
    for secret in secrets_of_url(text):
        masker.learn(secret)


def _given_fields(wanted: Any) -> dict[str, Any]:
    """Return the fields that have a value. Most fields of a resource have none, so they are left out without a loop."""
    names = compress(wanted.__struct_fields__, msgspec.structs.astuple(wanted))
    return {name: getattr(wanted, name) for name in names}


def _with_urls(kind: AnyType, given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the fields that may contain a URL, with their values. Whole documents and masked fields are left out."""
    rules = kind.rules
    for field, value in given.items():
        is_left_out = field in rules.publish_digest or field in rules.sensitive
        if not is_left_out and _may_quote_url(value):
            yield field, value


def _may_quote_url(value: Any) -> bool:
    if isinstance(value, str):
        return "=" in value or "://" in value
    if isinstance(value, dict):
        return any(map(_may_quote_url, value.values()))
    return isinstance(value, list) and any(map(_may_quote_url, value))
