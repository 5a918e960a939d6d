"""Records of runs in `CCM_RUNS`. Only controllers write and read them."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ccm_agent.model.formats.untrusted_json import Count, Moment
from ccm_agent.model.wire import MESSAGE_LIMIT

UNDO = "undo"
"""The action of a run that brings back what another run changed."""


class SecretStage(Struct, frozen=True, kw_only=True):
    """
    The revision of a secret that a rollout brings to nodes.

    Attributes:
        name: The secret.
        revision: Its revision.
    """

    name: str
    revision: Count


class RunRecord(Struct, kw_only=True, omit_defaults=True):
    """
    `<operator>.<run>.request` in CCM_RUNS: the request and its targets. Older records have no operator in their key.

    Attributes:
        action: "apply", "plan", "check", "ensure", "exec", "undo", "assign", which applies an assignment wave after wave, or
            "rotate", which lets nodes converge on a new revision of a secret.
        request: Names, digests, options and message of the request, without the manifest's text and the properties' values.
        name: The manifest's or resource's name.
        requester: The operator's name; if the key contains an operator, readers use that one instead.
        nodes, offline: Number of expected nodes (`….targets.<i>` names them), and how many of them were offline at the start.
        nodes_digest: SHA-256 of these lists, so that the signature of this record covers them; "" in older records.
        retry_of: The run that this one retries; "": none.
        schedule: The schedule that a rollout server started it for; "": none.
        user: The user of a dashboard for whom the requester sent it; "": the requester asked.
        is_sent_to_scopes: The list of nodes is of an operator who may reach fewer nodes than the requester, so a rollout
            sends to the scopes in `subjects` only, and to no node alone.
        secret: What a "rotate" brings to its nodes; None for other actions.
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
    nodes_digest: str = ""
    retry_of: str = ""
    schedule: str = ""
    user: str = ""
    is_sent_to_scopes: bool = False
    secret: SecretStage | None = None

    @property
    def message(self) -> str:
        """Why, in the requester's words; "" without a reason. Readers make it safe before they show it."""
        told = self.request.get("message")
        return told[:MESSAGE_LIMIT] if isinstance(told, str) else ""


class RunTargets(Struct, kw_only=True, omit_defaults=True):
    """`<operator>.<run>.targets.<i>` in CCM_RUNS: up to 2,000 expected nodes, and which of them were not present."""

    run: str
    nodes: list[str] = []
    offline: list[str] = []


class NodeEnd(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The end of a node without a summary: a value of NodeState, and the reason."""

    state: str
    reason: str = ""
    code: str = ""


class RunEnds(Struct, kw_only=True, omit_defaults=True):
    """
    `<operator>.<run>.ends.<i>` in CCM_RUNS: ends of nodes that are not in a stream, because answers are not stored in one.

    A later summary of such a node in the stream (it was lost, and came back) has precedence.
    """

    run: str
    nodes: dict[str, NodeEnd] = {}


class RunState(Struct, kw_only=True, omit_defaults=True):
    """
    `<operator>.<run>.state` in CCM_RUNS; another operator who stops or watches the run also writes one.

    Attributes:
        state: "running", "stopping" or "done".
        counts: Nodes by end state, once done.
        joined: Nodes that answered although they were not expected.
    """

    run: str
    state: str = "running"
    time: Moment | None = None
    counts: dict[str, Count] = {}
    joined: list[str] = []
    stopped_by: str = ""
