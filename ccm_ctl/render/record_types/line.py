"""The fields that many records share, and the base of all records of `ccmctl --json`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

Text = str | None
Node = Annotated[str, Meta(description="Name of the node.")]
Run = Annotated[str, Meta(description="Id of the run.")]
OneRun = Annotated[Text, Meta(description="Id of the run.")]
Time = Annotated[datetime, Meta(tz=True)] | None
Count = int | None
Flag = bool | None
Texts = list[str] | None
Reasons = dict[str, int] | None
Verdict = Annotated[
    Text,
    Meta(
        description="Result of verifying signatures: `verified`, `provisional`, `unsigned`, `gap` or `forged`."
    ),
]
Machine = Annotated[Text, Meta(description="Machine id of the host.")]
Started = Annotated[Time, Meta(description="When the agent started.")]
WrittenBy = Annotated[Text, Meta(description="The operator who wrote or removed it.")]
Unverified = Annotated[Text, Meta(description="Why its signature is not valid. Missing if it is valid.")]
WrittenAt = Annotated[Time, Meta(description="When it was written or removed.")]
Message = Annotated[Text, Meta(description="The reason that the operator gave.")]
Revision = Annotated[Count, Meta(description="Its revision.")]
Requester = Annotated[Text, Meta(description="The operator who started it.")]
RequesterMessage = Annotated[Text, Meta(description="The requester's reason.")]
Origin = Annotated[Text, Meta(description="Name of the schedule or assignment.")]
Manifest = Annotated[Text, Meta(description="Name of the manifest.")]
Reason = Annotated[Text, Meta(description="The reason.")]
ReasonCode = Annotated[Text, Meta(description="Error code of the reason.")]
Removed = Annotated[Flag, Meta(description="Whether it was removed.")]
Targets = Annotated[Texts, Meta(description="Selectors; a node that matches any of them is targeted.")]
Where = Annotated[Text, Meta(description="The expression that must also be true for a node.")]


class Line(Struct, frozen=True, kw_only=True, tag_field="record", omit_defaults=True):
    """A line of `ccmctl --json`; `record` is its kind."""
