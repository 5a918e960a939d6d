"""A loaded manifest as a document that people can read: `ccm apply --render`."""

from __future__ import annotations

from typing import Any

import msgspec

from ccm_agent.engine import mask
from ccm_agent.engine.load import Loaded
from ccm_agent.model.codec import encode_yaml
from ccm_agent.model.secret import Masker


def render_plan(loaded: Loaded) -> str:
    """
    The manifest as one document, hierarchy and messages left out, without a final newline.

    Fields whose templates wait for their resource's turn stand as written, secrets are masked.
    """
    masker = Masker()
    resources: list[dict[str, Any]] = []
    for declared in loaded.resources:
        mask.learn(masker, declared.kind, declared.wanted)
        shown = mask.masked_properties(declared.kind, declared.wanted)
        properties = msgspec.to_builtins(shown)
        name = properties.pop("name")
        resources.append({declared.kind.name: [{name: properties}]})
    section: dict[str, Any] = {"fail_on_error": loaded.fail_on_error, "resources": resources}
    return encode_yaml(masker.value({"ccm": section, "data": loaded.data})).rstrip("\n")
