"""The manifest document as written, with Choria CCM's keys. Its resources are not decoded."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from ccm_agent.model.formats.field_rules import Extension


class CcmSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The `ccm` key of a manifest."""

    resources: Annotated[Any, Meta(description="The resources, in the order in which they are applied.")] = (
        None
    )
    resources_jet_file: Annotated[
        str,
        Meta(description="A Jet template next to the manifest that produces the list of resources instead."),
    ] = ""
    fail_on_error: Annotated[bool, Meta(description="Stop at the first resource that fails.")] = False
    prune: Annotated[
        Literal["off", "plan", "apply"],
        Extension,
        Meta(
            description="What happens to resources that earlier runs created and that are no longer in the manifest: `apply` "
            "removes them, `plan` lists them. Default: `off`."
        ),
    ] = "off"
    max_prune: Annotated[
        int,
        Extension,
        Meta(
            description="If a run would remove more resources than this, it removes nothing and fails. Default: 10.",
            ge=0,
        ),
    ] = 10
    pre_message: Annotated[str, Meta(description="Logged before the first resource.")] = ""
    post_message: Annotated[str, Meta(description="Logged after the last resource.")] = ""


class Manifest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A manifest. Other top-level keys cause a warning unless they begin with `x-`."""

    ccm: Annotated[CcmSection, Meta(description="The resources and how to apply them.")]
    data: Annotated[Any, Meta(description="Hiera data that the resources look up.")] = None
    hierarchy: Annotated[
        Any, Meta(description="The order and method of merging overrides into the data.")
    ] = None
    overrides: Annotated[Any, Meta(description="Data for each entry of the hierarchy.")] = None
