"""
Shorten events to the size limit of the bus. An event is never refused because of its size, because it would
block all later events.

Large and less important parts are shortened first: output, then the texts of a diff, the output of checks,
properties and status, messages, and errors. The event lists the shortened fields.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ccm_agent.model.formats.json_text import encode_message
from ccm_agent.model.outcome import FailedResource, SessionSummary, TransactionEvent
from ccm_agent.model.resource_diff import shortened
from ccm_agent.model.wire import EVENT_LIMIT_BYTES

MARK = "…(cut)"
_SHORT = 2048
"""The length in characters to which long texts are first shortened; later steps are shorter."""

_OUTPUTS = (48 * 1024, 24 * 1024, 8 * 1024)
"""Lengths in characters that are tried for the output before anything else is shortened."""


def encode_event(event: TransactionEvent, limit_bytes: int = EVENT_LIMIT_BYTES) -> bytes:
    """Encode an event as JSON of at most `limit_bytes`; its `cut` lists the shortened fields."""
    body = encode_message(event)
    if len(body) <= limit_bytes:
        return body
    for length in _OUTPUTS:
        shorter = _with_cut(event, "output", length)
        if shorter is not event and len(body := encode_message(shorter)) <= limit_bytes:
            return body
    for length in _OUTPUTS if event.diff is not None else ():
        event = _with_cut(event, "output", _SHORT)
        if (shorter := _with_short_diff(event, length)) is not event:
            event = shorter
            if len(body := encode_message(event)) <= limit_bytes:
                return body
    for length in (_SHORT, _SHORT // 8, 0):
        event = _with_short_diff(event, length)
        for field in ("output", "health_check", "properties", "status", "noop_message", "error"):
            event = _with_cut(event, field, length)
            body = encode_message(event)
            if len(body) <= limit_bytes:
                return body
    bare = msgspec.structs.replace(
        event,
        properties={},
        status={},
        error=[text[:200] for text in event.error[:3]],
        unmet_requirements=event.unmet_requirements[:10],
        health_check=[],
        diff=None,
        name=event.name[:500],
        alias=event.alias[:500],
        parent=event.parent[:500],
        triggered_by=event.triggered_by[:500],
        cut=sorted({*event.cut, "name", "unmet_requirements"}),
    )
    return encode_message(bare)


def encode_summary(summary: SessionSummary, limit_bytes: int = EVENT_LIMIT_BYTES) -> bytes:
    """Encode a summary as JSON of at most `limit_bytes`: the output of failed resources is shortened first, then their errors."""
    body = encode_message(summary)
    for length in (_SHORT, _SHORT // 8, 0):
        if len(body) <= limit_bytes:
            return body
        failed = [
            FailedResource(
                resource=one.resource[:500],
                error=[_tail(text, max(length, 200)) for text in one.error[:5]],
                code=one.code,
                output=_tail(one.output, length),
            )
            for one in summary.failed
        ]
        summary = msgspec.structs.replace(summary, failed=failed, reason=_head(summary.reason, 2000))
        body = encode_message(summary)
    if len(body) > limit_bytes:
        body = encode_message(msgspec.structs.replace(summary, failed=summary.failed[:5], data_revisions={}))
    return body


def _with_cut(event: TransactionEvent, field: str, length: int) -> TransactionEvent:
    value = getattr(event, field)
    short = _tail(value, length) if field == "output" else _shortened(value, length)
    if short == value:
        return event
    return msgspec.structs.replace(event, **{field: short, "cut": sorted({*event.cut, field})})


def _with_short_diff(event: TransactionEvent, length: int) -> TransactionEvent:
    short = shortened(event.diff, length) if event.diff is not None else None
    if short == event.diff:
        return event
    return msgspec.structs.replace(event, diff=short, cut=sorted({*event.cut, "diff"}))


def _shortened(value: Any, length: int) -> Any:
    """Shorten all long texts, lists and mappings in a JSON-like value; Structs become mappings."""
    if isinstance(value, str):
        return _head(value, length)
    if isinstance(value, msgspec.Struct):
        if hasattr(value, "output"):
            return msgspec.structs.replace(value, output=_head(value.output, length))
        return _shortened(msgspec.to_builtins(value), length)
    many = max(length // 16, 2)
    if isinstance(value, dict):
        return {_head(str(key), 200): _shortened(one, length) for key, one in list(value.items())[:many]}
    if isinstance(value, (list, tuple)):
        return [_shortened(one, length) for one in value[:many]]
    return value


def _head(text: str, length: int) -> str:
    return text if len(text) <= length + len(MARK) else text[:length] + MARK


def _tail(text: str, length: int) -> str:
    """Return the end of a text, because the last output of a failed command is the most useful."""
    return text if len(text) <= length + len(MARK) else MARK + text[len(text) - length :]
