"""
The shape of each record that `ccm apply --json`, `ccm ensure --json` and `ccm lint --json` print, from which the schema is
generated.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from ccm_agent.model.outcome import SessionSummary, TransactionEvent


class HostLine(Struct, frozen=True, kw_only=True, tag_field="record", omit_defaults=True):
    """A line of `ccm apply --json`, `ccm ensure --json` or `ccm lint --json`; `record` is its kind."""


class HostEventLine(HostLine, frozen=True, kw_only=True, tag="event", omit_defaults=True):
    """The outcome of a resource."""

    event: Annotated[TransactionEvent, Meta(description="The event, as an agent publishes it.")]


class HostEndLine(HostLine, frozen=True, kw_only=True, tag="end", omit_defaults=True):
    """The last record of a command that ran."""

    exit: Annotated[int, Meta(description="The exit code of the command.")]
    summary: Annotated[
        SessionSummary | None, Meta(description="Totals of all resources; in `ccm apply`.")
    ] = None


class HostErrorLine(HostLine, frozen=True, kw_only=True, tag="error", omit_defaults=True):
    """The command could not run, or stopped early."""

    code: Annotated[str, Meta(description="The error code.")]
    message: Annotated[str, Meta(description="The error, as a sentence.")]


class LintPlace(Struct, frozen=True, kw_only=True):
    """The position of a finding in a manifest."""

    source: Annotated[str, Meta(description="The file, as given on the command line.")]
    line: Annotated[int, Meta(description="Line, from 1; 0 if unknown.")]
    column: Annotated[int, Meta(description="Column, from 1; 0 if unknown.")]
    path: Annotated[str, Meta(description="The path of the value, such as `$.ccm.resources[0].file`.")]


class HostFindingLine(HostLine, frozen=True, kw_only=True, tag="finding", omit_defaults=True):
    """A finding of `ccm lint` in a manifest."""

    manifest: Annotated[str, Meta(description="The file, as given on the command line.")]
    level: Annotated[
        Literal["error", "warning"],
        Meta(description="An error makes the manifest invalid; a warning is a likely mistake."),
    ]
    rule: Annotated[str, Meta(description="The code of the rule, such as `unknown-property`.")]
    message: Annotated[str, Meta(description="The problem and its solution.")]
    place: Annotated[LintPlace, Meta(description="The position.")]
    can_fix: Annotated[bool, Meta(description="Whether `ccm lint --fix` fixes it.")]


HOST_RECORDS = HostEventLine | HostEndLine | HostFindingLine | HostErrorLine
"""All kinds of records."""
