"""A warning before a change: rollouts that are open on the same nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccm_agent.clikit.text import fold_names, one_line, short_id
from ccm_agent.model.errors import BusDeniedError, ProtocolError, RunError

if TYPE_CHECKING:
    from collections.abc import Collection

    from ccm_ctl.app import Application
    from ccm_ctl.fleet.ports import Fleet

TOLD = 5
"""So many rollouts are named; each is loaded with its nodes."""


async def warn_of_rollouts(application: Application, fleet: Fleet, nodes: Collection[str]) -> None:
    """Name the open rollouts that change some of these nodes, too. Costs one question to the broker if no rollout is open."""
    from ccm_ctl.fleet.history import History
    from ccm_ctl.fleet.rollout.store import RolloutStore
    from ccm_ctl.render.records import title_of
    from ccm_ctl.render.rollout import rollout_line

    store, told, wanted = RolloutStore(fleet), 0, frozenset(nodes)
    try:
        open_runs = await store.open_runs()
    except BusDeniedError:
        return  # these credentials cannot see rollouts
    for run in open_runs:
        try:
            recorded, found = await History(fleet).load(run), await store.require(run)
        except (RunError, ProtocolError):
            continue  # nobody can drive it
        both = sorted(wanted & set(recorded.nodes))
        if not both or found.state.phase.is_over:
            continue
        told += 1
        if told > TOLD:
            application.terminal.warn("more rollouts are open on these nodes; see `ccmctl rollout list`")
            return
        record, where = recorded.record, rollout_line(found.state).removeprefix("rollout: ")
        application.terminal.warn(
            f"{fold_names(both)}: run {short_id(run)} ({one_line(title_of(record))} by {one_line(record.requester)}) "
            f"is a rollout that is open on {'this node' if len(both) == 1 else 'these nodes'}, too: {where}"
        )
