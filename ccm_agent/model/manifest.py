"""The manifest document as written: Choria CCM's keys, resources still raw."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct


class CcmSection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The `ccm` key of a manifest."""

    resources: Annotated[Any, Meta(description="The resources, in the order in which they are applied.")] = (
        None
    )
    resources_jet_file: Annotated[
        str, Meta(description="A Jet template beside the manifest that gives the list of resources instead.")
    ] = ""
    fail_on_error: Annotated[bool, Meta(description="Stop at the first resource that fails.")] = False
    pre_message: Annotated[str, Meta(description="Logged before the first resource.")] = ""
    post_message: Annotated[str, Meta(description="Logged after the last resource.")] = ""


class Manifest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A manifest. Other top-level keys are warned about unless they begin with `x-`."""

    ccm: Annotated[CcmSection, Meta(description="What to manage.")]
    data: Annotated[Any, Meta(description="Hiera data that the resources look up.")] = None
    hierarchy: Annotated[
        Any, Meta(description="In which order, and how, overrides are merged into the data.")
    ] = None
    overrides: Annotated[Any, Meta(description="Data by hierarchy entry.")] = None
