"""The JSON documents that `ccm` prints with `--json`, apart from records: their classes, and their fields in Markdown."""

from __future__ import annotations

import typing
from typing import Any

import msgspec
from docstrings import attributes, first_sentence
from tables import plain, table, type_words


def documents() -> dict[str, tuple[str, Any]]:
    """The command and the type of each document, by the name of its schema."""
    from ccm_agent.agent.desired.loop import ConvergenceResult
    from ccm_agent.app_policy import PolicyExplanation
    from ccm_agent.cli import output_types as shown
    from ccm_agent.resources.catalog import Catalog

    found: dict[str, tuple[str, Any]] = {
        "ccm_agent_status": ("ccm agent status", shown.AgentStatus),
        "ccm_agent_run_once": ("ccm agent run-once", list[ConvergenceResult]),
        "ccm_agent_disable": ("ccm agent disable", shown.DisableOutput),
        "ccm_agent_enable": ("ccm agent enable", shown.EnableOutput),
        "ccm_agent_policy_test": ("ccm agent policy test", PolicyExplanation),
        "ccm_registration_query": ("ccm registration query", list[shown.RegisteredService]),
        "ccm_registration_watch": ("ccm registration watch", shown.RegistrationChangeOutput),
    }
    for kind in Catalog().all():
        if kind.can_status:
            metadata = typing.get_type_hints(kind.state).get("metadata", kind.state)
            found[f"ccm_status_{kind.name}"] = (f"ccm status {kind.name}", metadata)
    return found


def ccm_json() -> str:
    """Each document: the command, the schema, and the fields."""
    parts = []
    for name, (command, kind) in documents().items():
        is_list = typing.get_origin(kind) is list
        item = typing.get_args(kind)[0] if is_list else kind
        lead = f"{'A list. Each item: ' if is_list else ''}{plain(first_sentence(item))}"
        parts += [f"### {command}", f"{lead} Schema: `schemas/v1/{name}.json`.", _fields(item)]
    return "\n\n".join(parts)


def _fields(kind: type[msgspec.Struct]) -> str:
    schema: dict[str, Any] = msgspec.json.schema(kind)
    definition = schema["$defs"][kind.__name__]
    texts = attributes(kind)
    rows = []
    for name, field in definition["properties"].items():
        words = type_words(field, schema["$defs"]) + ("" if name in definition.get("required", ()) else "?")
        rows.append([f"`{name}`", words, plain(field.get("description") or texts[name])])
    return table(["Field", "Type", "Meaning"], rows)
