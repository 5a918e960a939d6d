"""
Unexpected nodes that answer a run.

A node can receive requests for other roles, and it reports its gathered facts itself. Its answer is therefore no proof that it is
a target. Only assigned facts are checked. In a fleet with signatures, they must be signed by an operator with the right to write
them. A node joins the run if its assigned facts match the run's targets. Otherwise it is ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccm_agent.model.errors import CcmError, ProtocolError
from ccm_agent.templates.selector import parse_targets, parse_where
from ccm_ctl.fleet.data.documents import decode_document
from ccm_ctl.fleet.trust.node_state import make_node_verifier

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ccm_agent.model.ports import KeyValueEntry
    from ccm_ctl.fleet.ports import Fleet
    from ccm_ctl.fleet.trust.node_state import NodeVerifier


class Joining:
    """
    Decides which nodes may join a run.

    Args:
        fleet: The bus. Assigned facts are in `CCM_FACTS`.
        targets: The run's selectors, of which at least one must match. Without selectors, all nodes match.
        where: An expression that must also be true. "" is always true.
    """

    def __init__(self, fleet: Fleet, targets: Sequence[str], where: str) -> None:
        self._fleet = fleet
        self._targets = targets
        self._where = where
        self._verifier: NodeVerifier | None = None

    async def may_join(self, node: str) -> bool:
        """
        Whether the node's assigned facts match the run's targets.

        Raises:
            BusUnavailableError: The broker cannot be reached.
        """
        try:
            entry = await self._fleet.facts.get(node)
            facts = decode_document(entry).body if entry and await self._counts(entry) else {}
        except ProtocolError:
            return False
        if not isinstance(facts, dict):
            return False
        try:
            fits = not self._targets or any(
                selector.matches(node, facts) for selector in parse_targets(self._targets)
            )
            return fits and (not self._where or parse_where(self._where).matches(node, facts))
        except CcmError:
            return False  # the recorded text is not a selector

    async def _counts(self, entry: KeyValueEntry) -> bool:
        """Whether the entry is signed by an operator who may write it."""
        if self._verifier is None:
            self._verifier = await make_node_verifier(self._fleet)
        return self._verifier is None or not self._verifier.judge_facts(entry)


async def admit_none(_node: str) -> bool:
    """Admit no further nodes, because the nodes of a rollout and of a recorded run are known."""
    return False
