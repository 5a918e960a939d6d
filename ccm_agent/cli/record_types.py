"""
The shape of each record that `ccm apply --json` and `ccm ensure --json` print, from which the schema is generated.

Nothing imports this module at run time.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from ccm_agent.model.outcome import SessionSummary, TransactionEvent


class HostLine(Struct, frozen=True, kw_only=True, tag_field="record", omit_defaults=True):
    """A line of `ccm apply --json` or `ccm ensure --json`; `record` is its kind."""


class HostEventLine(HostLine, frozen=True, kw_only=True, tag="event", omit_defaults=True):
    """The outcome of a resource."""

    event: Annotated[TransactionEvent, Meta(description="The event, as an agent publishes it.")]


class HostEndLine(HostLine, frozen=True, kw_only=True, tag="end", omit_defaults=True):
    """The last record of a command that ran."""

    exit: Annotated[int, Meta(description="The exit code of the command.")]
    summary: Annotated[
        SessionSummary | None, Meta(description="The numbers of all resources; in `ccm apply`.")
    ] = None


class HostErrorLine(HostLine, frozen=True, kw_only=True, tag="error", omit_defaults=True):
    """The command could not run, or did not come to its end."""

    code: Annotated[str, Meta(description="The error code.")]
    message: Annotated[str, Meta(description="The error, as a sentence.")]


HOST_RECORDS = HostEventLine | HostEndLine | HostErrorLine
"""All of them."""
