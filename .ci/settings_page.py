"""The settings of the agent's configuration file, in Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from docstrings import attributes
from tables import plain, table, type_words


def settings() -> str:
    """Return each setting: its key, after the keys of the mapping or list that contains it."""
    from ccm_agent.agent.state.settings import AgentConfig
    from ccm_agent.bus.signatures.trust import Signer

    schema = msgspec.json.schema(AgentConfig)
    definitions = schema["$defs"]
    for name, text in attributes(Signer).items():
        definitions["Signer"]["properties"][name].setdefault("description", text)
    rows = _rows(definitions["AgentConfig"], definitions, "")
    return table(["Setting", "Type", "Default", "Meaning"], list(rows))


def _rows(definition: Mapping[str, Any], others: dict[str, Any], above: str) -> Iterator[list[str]]:
    for name, field in definition["properties"].items():
        key, meaning = f"{above}{name}", plain(field["description"])
        if below := next(_references(field), ""):
            is_list = field.get("type") == "array"
            yield [f"`{key}`", "list of mappings" if is_list else "mapping", "", meaning]
            yield from _rows(others[below.rpartition("/")[2]], others, f"{key}[]." if is_list else f"{key}.")
        else:
            is_required = name in definition.get("required", ())
            default = "required" if is_required else _default(field.get("default"))
            yield [f"`{key}`", type_words(field, others), default, meaning]


def _references(field: Mapping[str, Any]) -> Iterator[str]:
    """Return the structures that a field can contain."""
    if "$ref" in field:
        yield field["$ref"]
    for one in (*field.get("anyOf", ()), *filter(None, [field.get("items")])):
        yield from _references(one)


def _default(value: Any) -> str:
    return (
        ""
        if value is None or value in ("", [], ())
        else f"`{value if isinstance(value, str) else json.dumps(value)}`"
    )
