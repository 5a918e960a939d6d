"""Writes a loaded manifest as a document that can be read and applied again: `ccm apply --render`."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET

from ccm_agent.engine import masking
from ccm_agent.engine.load import ResolvedManifest
from ccm_agent.model.codec import encode_yaml
from ccm_agent.model.resource import FOR_EACH
from ccm_agent.model.secret import Masker
from ccm_agent.resources.contract import ResolvedResource
from ccm_agent.templates.scan import as_template


def render_plan(loaded: ResolvedManifest, masker: Masker | None = None) -> str:
    """
    Return the manifest as one document without hierarchy, messages or a final newline.

    Deferred fields are kept as written, and secrets are masked. Rendered texts that look like templates are escaped, so that
    applying the document has the same effect.

    Args:
        loaded: The manifest.
        masker: Masks the secrets in the data. None if the data contain no secrets.
    """
    masker = masker if masker is not None else Masker()
    shown: list[tuple[ResolvedResource, dict[str, Any]]] = []
    masking.register_manifest_secrets(masker, loaded.resources)
    for declared in loaded.resources:
        shown.append((declared, msgspec.to_builtins(masking.mask_properties(declared.kind, declared.wanted))))
    section = {
        "fail_on_error": loaded.fail_on_error,
        "resources": [
            {declared.kind.name: [_entry(declared, masker.value(properties), masker)]}
            for declared, properties in shown
        ],
    }
    return encode_yaml({"ccm": section, "data": _as_template(masker.value(loaded.data))}).rstrip("\n")


def _entry(declared: ResolvedResource, properties: dict[str, Any], masker: Masker) -> dict[str, Any]:
    """Return a resource as an entry of a list, with its name as the key."""
    kind = declared.kind
    as_written = {*kind.rules.untemplated, *declared.pending}
    shown = {
        key: value if key in as_written else _as_template(value, keys=key in kind.rules.templated_keys)
        for key, value in properties.items()
    }
    for check, written in zip(
        shown.get("health_checks", ()), properties.get("health_checks", ()), strict=True
    ):
        check.update({key: rules for key, rules in written.items() if key == "goss_rules"})
    if declared.pending and declared.item is not UNSET:
        # the deferred fields need the item; everything else is rendered
        shown[FOR_EACH] = [_as_template(masker.value(msgspec.to_builtins(declared.item)))]
    name = shown.pop("name")
    return {name: shown}


def _as_template(value: Any, *, keys: bool = False) -> Any:
    """Escape the texts in a value, so that rendering returns them unchanged."""
    if isinstance(value, str):
        return as_template(value)
    if isinstance(value, list):
        return [_as_template(one) for one in value]
    if isinstance(value, dict):
        return {as_template(key) if keys else key: _as_template(one) for key, one in value.items()}
    return value
