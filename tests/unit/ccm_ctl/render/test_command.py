"""How the results of one command on many nodes are folded and counted."""

from __future__ import annotations

import pytest

from ccm_agent.clikit.table import Style
from ccm_agent.model.wire import NodeState
from ccm_ctl.render.command import command_report, command_result
from ccm_ctl.render.output import IN_FULL
from tests.support.controller import event


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (NodeState.LOST, "no sign of life for 60 s"),
        (NodeState.FAILED, "a health check failed"),
        (NodeState.STOPPED, ""),
    ],
)
def test_nodes_are_counted_by_the_states_that_all_other_commands_show(state: NodeState, reason: str) -> None:
    done = event("uptime", 2, type="exec", output="up\n", exit_code=0)
    results = {
        "web1": command_result(NodeState.CHANGED, "", {2: done}),
        "web2": command_result(state, reason, {2: done}),
    }

    shown = command_report("exec uptime", results, 1.0, "3HAAgFJsaaaaaaaaaaaaaaaaaaa", Style())

    why = f": {reason}" if reason else ""
    assert shown == (
        "web1\n"
        "  │ up\n"
        "\n"
        f"web2: {state}{why}\n"
        "  │ up\n"
        "\n"
        f"exec uptime: 2 nodes: 1 changed, 1 {state} in 1.0s (run 3HAAgFJs)\n"
    )


def test_other_outputs_are_counted_with_the_command_that_shows_them() -> None:
    results = {
        f"web{number}": command_result(
            NodeState.CHANGED, "", {2: event("uptime", 2, type="exec", output=f"{number}\n", exit_code=0)}
        )
        for number in range(IN_FULL.outputs + 2)
    }

    shown = command_report("exec uptime", results, 1.0, "3HAAgFJsaaaaaaaaaaaaaaaaaaa", Style())

    assert "and 2 other outputs; `ccmctl run show 3HAAgFJs --json` has all\n" in shown
