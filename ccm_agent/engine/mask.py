"""
What of an event leaves this process, and in which shape.

Secrets are masked before anybody outside sees an event: session directory, `--events`, log, bus. On the bus long and private
fields become what identifies them: `content` its digest and size, `environment` the names in it.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from ccm_agent.model.health import HealthCheck
from ccm_agent.model.outcome import TransactionEvent
from ccm_agent.model.resource import CommonProperties
from ccm_agent.model.secret import MASK, Masker, Secret, mask_url
from ccm_agent.resources.contract import AnyType

PLAIN_HEADERS = frozenset(
    {"accept", "accept-encoding", "accept-language", "content-length", "content-type", "host", "user-agent"}
)
"""Request headers whose values are no secrets."""


def learn(masker: Masker, kind: AnyType, wanted: CommonProperties) -> None:
    """Let a masker know the secrets among a resource's properties."""
    for field in kind.secret:
        for text in _texts(getattr(wanted, field, None)):
            masker.learn(text)
    for field in kind.urls:
        for text in _texts(getattr(wanted, field, None)):
            _learn_url(masker, text)


def learn_checks(masker: Masker, wanted: CommonProperties) -> None:
    """The same of the secrets in a resource's health checks."""
    for check in wanted.health_checks:
        learn_rules(masker, check)


def learn_rules(masker: Masker, check: HealthCheck) -> None:
    """Passwords, URL credentials and header values of a health check's `http` rules."""
    rules = check.goss_rules.get("http") if isinstance(check.goss_rules, dict) else None
    for url, body in rules.items() if isinstance(rules, dict) else ():
        _learn_url(masker, str(url))
        if not isinstance(body, dict):
            continue
        for key in ("url", "proxy"):
            for text in _texts(body.get(key)):
                _learn_url(masker, text)
        for text in _texts(body.get("password")):
            masker.learn(text)
        for text in _texts(body.get("request-headers")):
            name, _, value = text.partition(": ")
            if name.lower() not in PLAIN_HEADERS:
                masker.learn(value)


def masked(event: TransactionEvent, kind: AnyType, masker: Masker) -> TransactionEvent:
    """The event without secrets: in its properties, its state, its errors and the output that it quotes."""
    event.properties = masked_properties(kind, event.properties)
    if masker.is_idle:
        return event
    event.error = [masker.text(text) for text in event.error]
    event.output = masker.text(event.output)
    event.properties = masker.value(msgspec.to_builtins(event.properties))
    event.status = masker.value(msgspec.to_builtins(event.status))
    event.health_check = [
        msgspec.structs.replace(one, output=masker.text(one.output)) for one in event.health_check
    ]
    event.noop_message = masker.text(event.noop_message)
    return event


def for_bus(event: TransactionEvent, kind: AnyType) -> TransactionEvent:
    """A copy of a masked event in the shape that travels: long and private fields shortened to what identifies them."""
    if not kind.digested and not kind.names_only:
        return event
    values = msgspec.to_builtins(event.properties)
    for field in kind.digested:
        value = values.get(field)
        if value is not None and value != {} and value != MASK:
            data = (
                value.encode()
                if isinstance(value, str)
                else msgspec.json.encode(value, order="deterministic")
            )
            values[field] = f"sha256:{hashlib.sha256(data).hexdigest()} ({len(data)} bytes)"
    for field in kind.names_only:
        if isinstance(items := values.get(field), list):
            values[field] = [str(item).partition("=")[0] for item in items]
    return msgspec.structs.replace(event, properties=values)


def masked_properties(kind: AnyType, wanted: Any) -> Any:
    """A type's properties with its secret fields masked, and credentials out of its URLs."""
    if not kind.secret and not kind.urls:
        return wanted
    changes: dict[str, Any] = {}
    for field in kind.secret:
        if value := getattr(wanted, field):
            changes[field] = _masked_value(value)
    for field in kind.urls:
        value = getattr(wanted, field)
        if isinstance(value, str) and (shown := mask_url(value)) != value:
            changes[field] = shown
    return msgspec.structs.replace(wanted, **changes) if changes else wanted


def _masked_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _masked_value(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_masked_value(one) for one in value]
    return MASK if value else value


def _texts(value: Any) -> list[str]:
    """Every text in a value."""
    if isinstance(value, Secret):
        return [value.reveal()]
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for one in value.values() for text in _texts(one)]
    if isinstance(value, list):
        return [text for one in value for text in _texts(one)]
    return []


def _learn_url(masker: Masker, url: str) -> None:
    if "@" not in url:
        return
    from urllib.parse import unquote, urlsplit

    try:
        password = urlsplit(url).password
    except ValueError:
        return
    if password:
        masker.learn(password)
        masker.learn(unquote(password))
