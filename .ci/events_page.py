"""The events of sessions and agents, in Markdown: the fields from the classes, their meanings from docstrings."""

from __future__ import annotations

from typing import Any

import msgspec
from docstrings import attributes, first_sentence
from tables import field_table, plain, table, type_words

AGENT_EVENTS = {
    "startup": "The agent started. `details`: version, machine, public key and certificate.",
    "shutdown": "The agent stopped. `details`: version.",
    "drift": "A run corrected resources that were changed outside of manifests. `details`: run, manifest, count, resources.",
    "refused": "The node refused a request or a document. `details`: what it refused, and the run if there is one.",
    "lost_events": "Events were dropped because the spool was full. `details`: their number and places.",
    "duplicate": "Another agent uses the identity of this node, or no longer does. `details`: machine, started, duplicate.",
    "disabled": "An operator disabled the node. `details`: until when, by whom and why.",
    "enabled": "The node is enabled again. `details`: by whom and why, if an operator did it.",
    "converge": "An operator asked the node to converge now. `details`: by whom and why.",
    "locked": "An operator locked resources. `details`: the resources, until when, by whom and why.",
    "unlocked": "An operator unlocked resources. `details`: the resources, by whom and why.",
    "decision": "The node's decision about a request. `details`: run, action, scope, state, code, "
    "name and key of the operator, number, and the link of the decision before it.",
    "key": "The node signs its events with another key or certificate from here on. `details`: public key and certificate.",
}
"""The meaning of each word in `io.choria.ccm.v1.agent.WORD`."""

EVERY_EVENT = {
    "protocol": "The kind of the message: the title of its section.",
    "event_id": "A KSUID; ids of one process increase in the order of the events.",
    "timestamp": "When the event was created, by the node's clock.",
    "node": "The node.",
    "run": "The run; empty for a local apply.",
    "number": "Position in the run, from 1; 0 for a local apply.",
}
"""Fields with the same meaning in every event. If a docstring contains more, it is shown with its event."""


def events() -> str:
    """Return each event with its fields, then the structures in these fields, then the words of agents."""
    from ccm_agent.model import health, outcome, resource_diff, wire

    sections = {
        outcome.SESSION_START: outcome.SessionStart,
        outcome.TRANSACTION_EVENT: outcome.TransactionEvent,
        outcome.SESSION_SUMMARY: outcome.SessionSummary,
        wire.SESSION_PROGRESS: wire.Progress,
        f"{wire.PROTOCOL}.agent.WORD": wire.AgentEvent,
        "A failed resource": outcome.FailedResource,
        "A health check": health.HealthResult,
        "A diff": resource_diff.ResourceDiff,
        "A property in a diff": resource_diff.PropertyChange,
        "A file in a diff": resource_diff.FileDiff,
    }
    every = [(f"`{name}`", plain(text)) for name, text in EVERY_EVENT.items()]
    parts = [table(["Field", "Meaning"], every)]
    for title, kind in sections.items():
        shared = [f"`{name}`" for name in _shared(kind)]
        also = f" Also {', '.join(shared)}." if shared else ""
        parts += [f"### {title}", plain(first_sentence(kind)) + also, _fields(kind)]
    words = [(f"`{word}`", plain(text)) for word, text in AGENT_EVENTS.items()]
    return "\n\n".join([*parts, "### Words of agents", table(["Word", "Meaning"], words)])


def _shared(kind: type[msgspec.Struct]) -> list[str]:
    return [name for name in kind.__struct_fields__ if name in EVERY_EVENT and name not in attributes(kind)]


def _fields(kind: type[msgspec.Struct]) -> str:
    schema: dict[str, Any] = msgspec.json.schema(kind)
    definitions = schema["$defs"]
    texts, shared = attributes(kind), _shared(kind)
    properties = definitions[kind.__name__]["properties"]
    names = {field.encode_name: field.name for field in msgspec.structs.fields(kind)}
    rows = [
        [f"`{written}`", type_words(field, definitions), plain(texts[names[written]])]
        for written, field in properties.items()
        if names[written] not in shared
    ]
    return field_table(rows)
