"""Records of runs in `CCM_RUNS`. Only controllers write and read them."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ccm_agent.model.formats.untrusted_json import Count, Moment
from ccm_agent.model.wire import MESSAGE_LIMIT

UNDO = "undo"
"""The action of a run that reverts the changes of another run."""


class SecretStage(Struct, frozen=True, kw_only=True):
    """
    The revision of a secret that is being rolled out to nodes.

    Attributes:
        name: The name of the secret.
        revision: The revision of the secret.
    """

    name: str
    revision: Count


class RunRecord(Struct, kw_only=True, omit_defaults=True):
    """
    `<operator>.<run>.request` in CCM_RUNS: the request and its targets. Older records have no operator in their key.

    Attributes:
        action: "apply", "plan", "check", "ensure", "exec", "undo", "assign" or "rotate". "assign" applies an
            assignment wave by wave. "rotate" lets nodes converge on a new revision of a secret.
        request: Names, digests, options and message of the request, without the text of the manifest and the
            values of properties.
        name: The manifest's or resource's name.
        requester: The operator's name. If the key contains an operator, readers use the operator from the key
            instead.
        nodes, offline: Number of expected nodes (listed in `….targets.<i>`), and the number of nodes that were
            offline at the start.
        nodes_digest: SHA-256 of these lists, so the signature of this record also covers them; "" in older records.
        retry_of: The run that this run retries; "" for none.
        schedule: The schedule for which a rollout server started the run; "" for none.
        user: The user of a dashboard on whose behalf the requester sent the request; "" without a dashboard.
        is_sent_to_scopes: Whether a rollout sends only to the scopes in `subjects`, never to a single node. The
            list of nodes then comes from an operator who may reach fewer nodes than the requester.
        secret: The revision that a "rotate" rolls out; None for other actions.
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
        """
        Return the reason that the requester gave; "" without a reason. Readers sanitize it before they show
        it.
        """
        told = self.request.get("message")
        return told[:MESSAGE_LIMIT] if isinstance(told, str) else ""


class RunTargets(Struct, kw_only=True, omit_defaults=True):
    """
    `<operator>.<run>.targets.<i>` in CCM_RUNS: up to 2,000 expected nodes, and the nodes among them that
    were not present.
    """

    run: str
    nodes: list[str] = []
    offline: list[str] = []


class NodeEnd(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a node without a summary: a value of NodeState, and the reason."""

    state: str
    reason: str = ""
    code: str = ""


class RunEnds(Struct, kw_only=True, omit_defaults=True):
    """
    `<operator>.<run>.ends.<i>` in CCM_RUNS: the results of nodes that are missing from the stream, because
    answers are not stored there.

    A later summary of such a node in the stream takes precedence: the node was lost and has returned.
    """

    run: str
    nodes: dict[str, NodeEnd] = {}


class RunState(Struct, kw_only=True, omit_defaults=True):
    """
    `<operator>.<run>.state` in CCM_RUNS. Another operator who stops or watches the run also writes such a record.

    Attributes:
        state: "running", "stopping" or "done".
        counts: Number of nodes by end state, once the run is done.
        joined: Nodes that answered although they were not expected.
    """

    run: str
    state: str = "running"
    time: Moment | None = None
    counts: dict[str, Count] = {}
    joined: list[str] = []
    stopped_by: str = ""
