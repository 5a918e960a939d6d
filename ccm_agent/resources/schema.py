"""
JSON Schemas of resource types and of the manifest, generated from the types' Structs.

Manifests contain templates, and unquoted YAML may contain numbers in place of texts. The schemas accept the same values as the
engine, so that an editor does not report errors in a valid manifest. They leave out rules that only the engine can check, such
as the format of a version.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ccm_agent.model.manifest import Manifest
from ccm_agent.model.resource import MANIFEST_ONLY, CommonProperties
from ccm_agent.resources.contract import AnyType

DIALECT = "https://json-schema.org/draft/2020-12/schema"
ID_PREFIX = "https://ccm-fleet.github.io/ccm-fleet/schemas/v1/"
"""The beginning of the `$id` of every schema, which is its URL on the documentation site."""
TEMPLATE = {"type": "string", "pattern": r"(\{\{|\$\{)", "description": "A template that renders the value."}
LITERAL = frozenset(CommonProperties.__struct_fields__) - {"health_checks", "register_when_stable"}
"""Common properties that are never templates, or that accept only texts."""


def properties_schema(kind: AnyType) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the schema of a type's properties without `name`, and the definitions that the schema refers to."""
    (schema,), definitions = msgspec.json.schema_components([kind.properties], ref_template="#/$defs/{name}")
    own = definitions.pop(schema["$ref"].rpartition("/")[2])
    fields = {
        name: _loosened(field, name in LITERAL | kind.rules.untemplated)
        for name, field in own["properties"].items()
    }
    if kind.ensure:
        fields["ensure"] = {**fields["ensure"], "enum": list(kind.ensure)}
        if not kind.default_ensure:
            fields["ensure"].pop("default", None)
    for other, name in kind.rules.aliases.items():
        fields[other] = fields[name]
    if kind.default_ensure:
        fields["ensure"] = {**fields["ensure"], "default": kind.default_ensure}
    for name in kind.rules.sensitive & kind.command.hidden:
        fields[name] = {**fields[name], "writeOnly": True}  # `ccmctl ensure` does not have a flag for it
    fields.pop("name")
    body = {
        "title": kind.name,
        "description": kind.summary,
        "type": "object",
        "properties": fields,
        "additionalProperties": False,
    }
    if not kind.default_ensure:
        body["required"] = ["ensure"]
    return body, definitions


def type_schema(kind: AnyType) -> dict[str, Any]:
    """Return the schema of one resource with its name, as `ccm ensure api pipe` and `ccmctl ensure` send it."""
    body, definitions = properties_schema(kind)
    for field in MANIFEST_ONLY:
        del body["properties"][field]
    name = {"type": "string", "description": _description(kind, "name")}
    return {
        "$schema": DIALECT,
        "$id": f"{ID_PREFIX}resource_{kind.name}.json",
        **body,
        "properties": {"name": name, **body["properties"]},
        "required": ["name", *body.get("required", [])],
        "$defs": definitions,
    }


def manifest_schema(kinds: Sequence[AnyType]) -> dict[str, Any]:
    """Return the schema of a manifest with resources of these types."""
    (schema,), definitions = msgspec.json.schema_components([Manifest], ref_template="#/$defs/{name}")
    manifest = definitions.pop(schema["$ref"].rpartition("/")[2])
    section = definitions["CcmSection"]
    section["properties"]["resources"] = {
        "description": section["properties"]["resources"]["description"],
        "type": "array",
        "minItems": 1,
        "items": {"$ref": "#/$defs/resource"},
    }
    for name in ("data", "overrides", "hierarchy"):
        manifest["properties"][name] = {**manifest["properties"][name], "type": "object"}
        manifest["properties"][name].pop("default", None)
    entries = {}
    for kind in kinds:
        body, own = properties_schema(kind)
        definitions.update(own)
        definitions[f"{kind.name}_properties"] = {k: v for k, v in body.items() if k != "required"}
        definitions[kind.name] = _forms(kind, body)
        entries[kind.name] = {"$ref": f"#/$defs/{kind.name}"}
    definitions["resource"] = {
        "description": "A resource type and its resources.",
        "type": "object",
        "properties": entries,
        "additionalProperties": False,
        "minProperties": 1,
    }
    return {
        "$schema": DIALECT,
        "$id": f"{ID_PREFIX}manifest.json",
        "title": "Manifest",
        "description": "A Choria CCM manifest, with the extensions of this project.",
        "type": "object",
        "properties": manifest["properties"],
        "required": ["ccm"],
        "patternProperties": {"^x-": {"description": "Ignored; for YAML anchors."}},
        "additionalProperties": False,
        "$defs": dict(sorted(definitions.items())),
    }


def _forms(kind: AnyType, body: dict[str, Any]) -> dict[str, Any]:
    """Return both forms of a type's entry: a list of named resources, or a single resource with a `name`."""
    named = {"type": "string", "description": _description(kind, "name")}
    return {
        "description": kind.summary,
        "oneOf": [
            {
                "type": "array",
                "items": {
                    "type": "object",
                    "additionalProperties": {
                        "anyOf": [{"$ref": f"#/$defs/{kind.name}_properties"}, {"type": "null"}]
                    },
                    "minProperties": 1,
                    "maxProperties": 1,
                },
            },
            {
                "type": "object",
                "properties": {"name": named, **body["properties"]},
                "required": ["name", *body.get("required", [])],
                "additionalProperties": False,
            },
        ],
    }


def _loosened(field: dict[str, Any], is_literal: bool) -> dict[str, Any]:
    """Extend a field's schema to accept a template, and a number or boolean in place of a text."""
    if field.get("type") == "string":
        return {**field, "type": ["string", "number", "boolean", "null"]}
    if is_literal:
        return field
    words: dict[str, Any] = {key: field[key] for key in ("description", "default") if key in field}
    rest = {key: value for key, value in field.items() if key not in words}
    choices = rest["anyOf"] if set(rest) == {"anyOf"} else [rest]
    if {"type": "null"} not in choices:
        choices = [*choices, {"type": "null"}]
    return {**words, "anyOf": [*choices, TEMPLATE]}


def _description(kind: AnyType, name: str) -> str:
    schema = msgspec.json.schema_components([kind.properties])[1][kind.properties.__name__]
    return str(schema["properties"][name].get("description", ""))
