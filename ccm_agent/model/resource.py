"""
Types common to all resources: properties, control, values of `ensure` and `type#name` references.

Each type's properties extend `CommonProperties`, and its current state extends `CommonState`. Field names are
those of Choria CCM's manifests and events.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from ccm_agent.model.formats.field_rules import Extension, LimitsResource, Untemplated
from ccm_agent.model.formats.patterns import lazy_pattern
from ccm_agent.model.health import HealthCheck, HealthResult
from ccm_agent.model.records.registration import RegistrationEntry

PRESENT = "present"
ABSENT = "absent"

FOR_EACH = "for_each"

MANIFEST_ONLY = ("rescue", "before", "notify", FOR_EACH)
"""Properties that are only meaningful in a manifest, not for a single resource."""

REFERENCE = lazy_pattern(r"(?P<type>[a-z][a-z0-9_]*)#(?P<name>.+)", re.DOTALL)
"""A reference to a resource by name or alias: `type#name`."""


class Control(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, rename={"if_": "if"}
):
    """
    Conditions for managing a resource on this node, and the number of nodes that change it at the same
    time.
    """

    if_: Annotated[str, Meta(description="Manage the resource only if this expression is true.")] = ""
    unless: Annotated[str, Meta(description="Skip the resource if this expression is true.")] = ""
    slots: Annotated[
        str,
        Meta(
            description="NAME/COUNT: change the resource on at most COUNT nodes of the fleet at a time. "
            "Requires a broker."
        ),
    ] = ""
    slots_wait: Annotated[
        str, Meta(description="How long to wait for a slot before the resource fails. Default: `10m`.")
    ] = ""


class Retry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The retries of a failing resource."""

    tries: Annotated[
        int,
        Meta(
            description="Maximum attempts, at most 100. Default: 3.",
            extra_json_schema={"minimum": 1, "maximum": 100},
        ),
    ] = 3
    every: Annotated[
        str, Meta(description="Time between attempts, such as `10s`, at most `1h`. Default: `5s`.")
    ] = "5s"
    until: Annotated[
        str,
        Meta(
            description="An expression that must be true after a change; otherwise the attempt fails. It can use "
            "`result.ensure`, `result.output` and `result.exit_code`."
        ),
    ] = ""


class CommonProperties(Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """
    Properties of every resource type.

    Mutable by design, because deferred templates are rendered into it after `control` is evaluated.
    """

    name: Annotated[str, Meta(description="The resource's name, unique within its type.")]
    alias: Annotated[str, Meta(description="Alternative name that other resources can refer to.")] = ""
    ensure: Annotated[str, Meta(description="The desired state.")] = ""
    provider: Annotated[str, Meta(description="Use this provider instead of detecting one.")] = ""
    health_checks: Annotated[list[HealthCheck], Meta(description="Checks that run after the resource.")] = []
    require: Annotated[
        list[str],
        Meta(description="Resources (`type#name`) that must not have failed for this one to be managed."),
    ] = []
    rescue: Annotated[
        list[str],
        Extension,
        Meta(
            description="Earlier resources (`type#name`) of this manifest. This resource is managed only if one of them failed, "
            "also when `fail_on_error` ends the run."
        ),
    ] = []
    before: Annotated[
        list[str],
        Extension,
        Meta(
            description="Later resources (`type#name`) of this manifest that require this one, as if each had it in `require`."
        ),
    ] = []
    notify: Annotated[
        list[str],
        Extension,
        Meta(
            description="Later resources (`type#name`) of this manifest that are refreshed when this one changes, as if each had "
            "it in `subscribe`."
        ),
    ] = []
    for_each: Annotated[
        str | list[Any] | dict[str, Any] | None,
        Extension,
        Meta(
            description="Create one resource for each element of this list, or of the list that an expression returns. "
            "Expressions use the element as `item`; for a mapping, `item.key` and `item.value`."
        ),
    ] = None
    control: Annotated[
        Control | None, Untemplated, Meta(description="Conditions under which the resource is managed.")
    ] = None
    ignore: Annotated[
        list[str],
        Extension,
        Meta(
            description="Properties that are set when the resource is created. Afterwards they are neither compared "
            "nor changed."
        ),
    ] = []
    timeout: Annotated[
        str,
        LimitsResource,
        Extension,
        Meta(
            description="Time limit for reading and changing the resource, such as `5m`. After that its programs are killed "
            "and it fails."
        ),
    ] = ""
    retry: Annotated[
        Retry | None,
        Extension,
        Meta(
            description="Try again if the resource fails: `{tries: 3, every: 10s}`. Health checks have their own retries."
        ),
    ] = None
    tags: Annotated[
        list[str], Extension, Meta(description="Tags by which `--tags` and `--skip-tags` select resources.")
    ] = []
    sensitive: Annotated[
        bool,
        Extension,
        Meta(
            description="Hide the values, output, errors and diffs of the resource in all reports, and keep no undo for it."
        ),
    ] = False
    register_when_stable: Annotated[
        list[RegistrationEntry], Meta(description="Service entries to publish while the resource is stable.")
    ] = []


class CommonState(Struct, kw_only=True):
    """
    The current state of a resource, with the outcome that the flow adds.

    Attributes:
        protocol: `io.choria.ccm.v1.resource.<type>.state`.
        type: The resource type.
        name: The resource's name.
        ensure: The current state as a value of `ensure`; for a package, its version.
        timestamp: The time at which the state was read.
        changed, refreshed, stable, noop, noop_message: The outcome; see TransactionEvent.
    """

    protocol: str
    type: str
    name: str
    ensure: str
    timestamp: datetime | None = None
    changed: bool = False
    refreshed: bool = False
    stable: bool = False
    noop: bool = False
    noop_message: str = ""
    health_check: HealthResult | None = None


class Reference(Struct, frozen=True):
    """A parsed `type#name`."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}#{self.name}"


def parse_reference(text: str) -> Reference | None:
    """Parse `type#name`; None for any other text."""
    found = REFERENCE.fullmatch(text)
    return Reference(found["type"], found["name"]) if found else None
