"""
The policy of one node while its agent runs: read at the start and on SIGHUP, asked before anything runs.

A policy that cannot be used forbids everything that comes over the bus. The one that stood before does not go on: an
administrator who has just tightened it would believe that it holds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from ccm_agent.agent.node.node_presence import NodePresence
from ccm_agent.agent.requests.policy_file import read_policy
from ccm_agent.agent.requests.request_handler import Refusal
from ccm_agent.model.errors import CcmError
from ccm_agent.model.policy import LOOK_ACTIONS, Principal
from ccm_agent.model.ports import Clock
from ccm_agent.policy.document import Policy
from ccm_agent.policy.ruling import Ruling, refuse_all, rule_on

log = logging.getLogger(__name__)


class NodePolicy:
    """
    What one node's agent does for whom.

    Attributes:
        trouble: Why the policy cannot be used; "" when it can, or when there is none.
    """

    def __init__(self, types: Callable[[], Collection[str]], clock: Clock) -> None:
        """
        There is no policy yet.

        Args:
            types: The resource types there are.
            clock: What time it is.
        """
        self.trouble = ""
        self._types = types
        self._clock = clock
        self._path = ""
        self._policy: Policy | None = None

    def load(self, path: str, *, is_required: bool) -> None:
        """
        Read the policy; what is wrong with it stands in `trouble`. Blocking.

        Args:
            path: Its file; "" when there is none to look for.
            is_required: The configuration names the file, so it must be there.
        """
        before, had_trouble = self._policy, bool(self.trouble)
        self._path = path
        try:
            policy = read_policy(Path(path), self._types(), is_required=is_required) if path else None
        except CcmError as err:
            self._policy, self.trouble = None, str(err)
            log.error(
                "the policy cannot be used: nothing that comes over the bus is run",
                extra={"reason": str(err)},
            )
            return
        self._policy, self.trouble = policy, ""
        if policy is not None:
            log.info("the policy was read", extra={"path": path, "digest": policy.digest})
        elif before is not None or had_trouble:
            log.warning("the policy file is gone: the node has no policy", extra={"path": path})

    def tell(self, heartbeat: NodePresence, refused: Callable[[str, str], None]) -> None:
        """
        Report in the node's record whether there is a policy, and warn about one that cannot be used.

        Args:
            heartbeat: Publishes the record.
            refused: Publishes the event.
        """
        heartbeat.record.policy = self._policy is not None
        heartbeat.complain(
            "policy", f"its policy cannot be used, so it runs nothing: {self.trouble}" if self.trouble else ""
        )
        if self.trouble:
            refused("policy", self.trouble)

    def ruling(self, principal: Principal, action: str, mode: str) -> Ruling:
        """
        What the policy says now.

        Args:
            principal: Who asks.
            action: One of `model.policy`'s actions.
            mode: What the run does: "apply", "ensure", "plan" or "check"; "" for what is not a run.
        """
        is_own = principal.is_local and not principal.is_from_broker
        if self.trouble and not is_own and action not in LOOK_ACTIONS:
            return refuse_all(
                f"the node's policy cannot be used, so nothing that comes over the bus is run: {self.trouble}"
            )
        return rule_on(self._policy, principal, action, mode, self._clock.now())

    def refusal(self, principal: Principal, action: str, mode: str = "") -> Refusal | None:
        """Why something is refused now; None when it is allowed."""
        ruling = self.ruling(principal, action, mode)
        return None if ruling.is_allowed else Refusal(ruling.code, ruling.reason)

    def status(self) -> dict[str, Any] | None:
        """Its part of the agent's status; None without a policy."""
        if self.trouble:
            return {"path": self._path, "trouble": self.trouble}
        if self._policy is None:
            return None
        return {"path": self._path, "digest": self._policy.digest, "rules": len(self._policy.rules)}
