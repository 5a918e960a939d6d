"""The JSON documents that `ccm` prints with `--json`, except records: their classes and schemas."""

from __future__ import annotations

import typing
from typing import Any

from docstrings import first_sentence
from tables import plain, table


def documents() -> dict[str, tuple[str, Any]]:
    """Return the command and the type of each document, by the name of its schema."""
    from ccm_agent.agent.desired.loop import ConvergenceResult
    from ccm_agent.app_policy import PolicyExplanation
    from ccm_agent.cli import output_types as shown
    from ccm_agent.resources.catalog import Catalog

    found: dict[str, tuple[str, Any]] = {
        "ccm_agent_status": ("ccm agent status", shown.AgentStatus),
        "ccm_agent_run_once": ("ccm agent run-once", list[ConvergenceResult]),
        "ccm_agent_disable": ("ccm agent disable", shown.DisableOutput),
        "ccm_agent_enable": ("ccm agent enable", shown.EnableOutput),
        "ccm_agent_policy_test": ("ccm agent policy test", PolicyExplanation),
        "ccm_import": ("ccm import", shown.ImportOutput),
        "ccm_join": ("ccm join", shown.JoinOutput),
        "ccm_leave": ("ccm leave", shown.LeaveOutput),
        "ccm_registration_query": ("ccm registration query", list[shown.RegisteredService]),
        "ccm_registration_watch": ("ccm registration watch", shown.RegistrationChangeOutput),
    }
    for kind in Catalog().all():
        if kind.can_status:
            metadata = typing.get_type_hints(kind.state).get("metadata", kind.state)
            found[f"ccm_status_{kind.name}"] = (f"ccm status {kind.name}", metadata)
    return found


def ccm_json() -> str:
    """Return a description of each document, with its command."""
    rows = []
    for command, kind in documents().values():
        is_list = typing.get_origin(kind) is list
        sentence = plain(first_sentence(typing.get_args(kind)[0] if is_list else kind))
        rows.append([f"`{command}`", f"{'A list. Each item: ' if is_list else ''}{sentence}"])
    return table(["Command", "Document"], rows)
