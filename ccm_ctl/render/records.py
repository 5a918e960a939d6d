"""Describe runs from their records, for several commands and pages."""

from __future__ import annotations

from typing import Any

from ccm_agent.clikit.text import short_id
from ccm_agent.model.records.run_records import UNDO, RunRecord


def title_of(record: RunRecord) -> str:
    """
    Describe a run in a few words. For an undo, use the ID of the undone run, because the name in the record can be any text.
    """
    undone = str(record.request.get("undo", "")) if record.action == UNDO else ""
    return f"{record.action} {short_id(undone) if undone else record.name}"


def run_fields(record: RunRecord) -> dict[str, Any]:
    """Return the request of a run as record fields, for programs and for the pages of the dashboard."""
    return {
        "run": record.run,
        "action": record.action,
        "name": record.name,
        "requester": record.requester,
        "time": record.time,
        "targets": record.targets,
        "where": record.where or None,
        "message": record.message or None,
        "nodes": record.nodes,
        "offline": record.offline,
    }
