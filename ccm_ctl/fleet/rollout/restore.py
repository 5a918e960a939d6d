"""
Restore a rollout whose stored state is not valid, so that it can continue.

Every operator with `--apply` can replace or remove the state of every rollout. A running driver stores its own state again.
Without one, an operator who may drive the rollout restores the state. The sources are the copies that drivers store under their
own keys, which no other operator can write, and later reports of the nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from ccm_agent.model.errors import RunError
from ccm_agent.model.ids import short_id
from ccm_agent.model.records.rollout_records import Phase, RolloutState
from ccm_agent.model.wire import NodeState
from ccm_ctl.fleet.rollout.store import RolloutStore
from ccm_ctl.fleet.runs.history import Recorded
from ccm_ctl.fleet.runs.run_again import base_of

_SILENT = frozenset(
    {
        NodeState.EXPECTED,
        NodeState.PLANNED,
        NodeState.OFFLINE,
        NodeState.SKIPPED,
        NodeState.UNREACHABLE,
        NodeState.LOST,
    }
)
"""States of nodes that have reported nothing about the run."""


async def restore(store: RolloutStore, recorded: Recorded, ends: Mapping[str, NodeState]) -> None:
    """
    Store the newest copy of a rollout's state again, paused if it has not ended. Does nothing if the run is not a rollout.

    Args:
        store: The rollouts.
        recorded: The run.
        ends: The states of its nodes.

    Raises:
        RunError: The state of the rollout was replaced, and there is no valid copy.
        RevisionError: Another program has stored a state in the meantime.
    """
    run = recorded.record.run
    found = await store.look(run)
    kept = max(await store.copies(run), key=lambda one: one.value.serial, default=None)
    if kept is None and found is None:
        return
    if kept is None:
        raise RunError(
            f"{short_id(run)}: its state is unverified, and no driver has kept a copy; "
            f"end it with `ccmctl run abort {short_id(run)}`"
        )
    why = f"it is unverified: {found.judged.reason}" if found is not None else "it was removed"
    state = replace(kept.value, lease=None, is_detached=False, signature="")
    if not state.phase.is_over:
        reason = f"its state was restored from the copy of {kept.signer}, because {why}"
        state = catch_up(state, recorded.nodes, recorded.offline, ends)
        state = replace(state, phase=Phase.PAUSED, by="", reason=reason, bake_until=None)
    revision = found.revision if found is not None else 0
    await store.write(state, revision, base=[kept, base_of(recorded)])


def catch_up(
    state: RolloutState, nodes: Sequence[str], offline: Sequence[str], ends: Mapping[str, NodeState]
) -> RolloutState:
    """Return an earlier state, updated with the nodes that have reported since then."""
    total = state.plan.total
    heard = [
        place
        for place, node in enumerate(nodes[:total], 1)
        if ends.get(node, NodeState.EXPECTED) not in _SILENT
    ]
    asked = max([state.asked, *heard])
    back = [node for node in offline if ends.get(node, NodeState.OFFLINE) not in _SILENT]
    state = replace(state, asked=asked, returned=tuple(dict.fromkeys([*state.returned, *back])))
    while state.asked > state.wave_end:
        state = replace(state, wave=state.wave + 1, is_promoted=False, wave_began=None, wave_forgiven={})
    return state
