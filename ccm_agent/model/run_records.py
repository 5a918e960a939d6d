"""What `CCM_RUNS` holds about a run. Controllers write and read it; agents do not."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ccm_agent.model.untrusted_json import Count, Moment


class RunRecord(Struct, kw_only=True, omit_defaults=True):
    """
    `<operator>.<run>.request` in CCM_RUNS: what was asked, of whom. Older records have no operator in their key.

    Attributes:
        action: "apply", "plan", "check", "ensure" or "exec".
        request: Names, digests and options of the request, without the manifest's text and the properties' values.
        name: The manifest's or resource's name.
        requester: Who asked; of a key with an operator it is that operator, whatever stands here.
        nodes, offline: How many nodes are expected (`….targets.<i>` names them), and of those offline at the start.
        retry_of: The run whose request is sent again; "": none.
        user: The user of a dashboard for whom the requester sent it; "": the requester asked.
    """

    run: str
    action: str
    name: str
    requester: str = ""
    time: Moment | None = None
    targets: list[str] = []
    where: str = ""
    subjects: list[str] = []
    request: dict[str, Any] = {}
    nodes: Count = 0
    offline: Count = 0
    retry_of: str = ""
    user: str = ""


class RunTargets(Struct, kw_only=True, omit_defaults=True):
    """`<operator>.<run>.targets.<i>` in CCM_RUNS: up to 2,000 expected nodes, and of those the ones that were not present."""

    run: str
    nodes: list[str] = []
    offline: list[str] = []


class NodeEnd(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a node ended in a run without a summary: a word of NodeState, and why."""

    state: str
    reason: str = ""
    code: str = ""


class RunEnds(Struct, kw_only=True, omit_defaults=True):
    """
    `<operator>.<run>.ends.<i>` in CCM_RUNS: nodes of which no stream tells the end, for answers stand in none.

    What the stream says of such a node later (it was lost, and came back) counts more.
    """

    run: str
    nodes: dict[str, NodeEnd] = {}


class RunState(Struct, kw_only=True, omit_defaults=True):
    """
    `<operator>.<run>.state` in CCM_RUNS; another operator who stops or watches the run writes one, too.

    Attributes:
        state: "running", "stopping" or "done".
        counts: Nodes by end state, once done.
        joined: Nodes that answered and had not been expected.
    """

    run: str
    state: str = "running"
    time: Moment | None = None
    counts: dict[str, Count] = {}
    joined: list[str] = []
    stopped_by: str = ""
