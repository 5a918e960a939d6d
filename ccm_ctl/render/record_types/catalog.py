"""
All records of `ccmctl --json`. Their schema and the reference page are generated from this list.

Commands print them with `Terminal.record(NodeLine, node=…)`. The Struct names the record, and the type checker compares the
fields with it. Scripts rely on the records, so fields are added but never changed.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import msgspec

from ccm_ctl.render.record_types.access import JoinLine, SignerLine, TokenLine
from ccm_ctl.render.record_types.administration import (
    CheckResultLine,
    ChecksLine,
    ErrorLine,
    LeftLine,
    MadeLine,
    NotificationRuleLine,
)
from ccm_ctl.render.record_types.assignments import AssignmentLine, BundleLine, StandingLine
from ccm_ctl.render.record_types.audit import AuditAuthorLine, AuditLine, VerificationLine
from ccm_ctl.render.record_types.data import DocumentLine, ExplainedLine
from ccm_ctl.render.record_types.impact import ImpactLine, ImpactSummaryLine
from ccm_ctl.render.record_types.nodes import (
    FactsLine,
    GroupLine,
    ImportLine,
    LockLine,
    NodeLine,
    ReplyLine,
    SiteLine,
    SlotLine,
)
from ccm_ctl.render.record_types.past import DifferenceLine, SessionLine, StateLine
from ccm_ctl.render.record_types.runs import (
    EndLine,
    EventLine,
    OutputLine,
    ResultLine,
    RolloutLine,
    RolloutServerLine,
    RunLine,
    ScheduledStartLine,
    ScheduleLine,
)
from ccm_ctl.render.record_types.secrets import SecretLine, SecretNodeLine, SecretRevisionLine
from ccm_ctl.render.record_types.why import WhyLine

RECORDS: tuple[type[msgspec.Struct], ...] = (
    RunLine,
    EventLine,
    ResultLine,
    EndLine,
    RolloutLine,
    RolloutServerLine,
    OutputLine,
    GroupLine,
    SecretLine,
    SecretRevisionLine,
    SecretNodeLine,
    SlotLine,
    ImpactLine,
    ImpactSummaryLine,
    NodeLine,
    SiteLine,
    ReplyLine,
    LockLine,
    FactsLine,
    ImportLine,
    DocumentLine,
    MadeLine,
    SignerLine,
    TokenLine,
    JoinLine,
    BundleLine,
    ScheduleLine,
    ScheduledStartLine,
    AssignmentLine,
    StandingLine,
    WhyLine,
    ExplainedLine,
    LeftLine,
    CheckResultLine,
    ChecksLine,
    VerificationLine,
    AuditLine,
    AuditAuthorLine,
    NotificationRuleLine,
    SessionLine,
    StateLine,
    DifferenceLine,
    ErrorLine,
)
"""All kinds of records, in the order of the reference."""


def record_schema() -> dict[str, Any]:
    """
    Return the JSON Schema of a record.

    A field that is None is not printed, so null is not in the schema of a field whose default is None.
    """
    schema = msgspec.json.schema(functools.reduce(operator.or_, RECORDS))
    for name in {kind.__name__ for record in RECORDS for kind in record.__mro__} & schema["$defs"].keys():
        fields = schema["$defs"][name]["properties"]
        optional = [each for each in fields if fields[each].get("default", "") is None]
        fields |= {each: _without_null(fields[each]) for each in optional}
    return schema


def _without_null(field: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in field.items() if key not in ("default", "anyOf")}
    kinds = [kind for kind in field.get("anyOf", ()) if kind != {"type": "null"}]
    return {**kept, **kinds[0]} if len(kinds) == 1 else {**kept, "anyOf": kinds} if kinds else kept
