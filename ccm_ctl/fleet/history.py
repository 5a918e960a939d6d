"""Runs on record, in CCM_RUNS: so that any operator on any machine can list, show, watch or stop what another began."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import Struct

from ccm_agent.model.errors import ProtocolError, RevisionError, RunError
from ccm_agent.model.foreign import decode_foreign
from ccm_agent.model.ids import is_id
from ccm_agent.model.wire import NodeEnd, NodeState, RunEnds, RunRecord, RunState, RunTargets

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from ccm_agent.model.ports import Entry
    from ccm_ctl.fleet.ports import Bucket
    from ccm_ctl.fleet.run import Run

T = TypeVar("T")

PIECE_NODES = 2000
"""So many nodes stand in one key: a message to the broker has a limit."""

NEWEST = "last"
"""Instead of an id: the newest run."""

_TRIES = 10
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class Recorded(Struct, frozen=True, kw_only=True):
    """
    A run as it is on record.

    Attributes:
        record: What was asked.
        state: How far it is, as its last watcher left it.
        nodes: The nodes that were expected.
        offline: Those of them that were not present.
        ends: How nodes ended of which the stream tells nothing.
    """

    record: RunRecord
    state: RunState
    nodes: list[str]
    offline: list[str]
    ends: dict[str, NodeEnd]


class History:
    """The runs in a bucket."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    async def begin(self, record: RunRecord, nodes: list[str], offline: Collection[str]) -> None:
        """Put a run on record, before anybody is asked."""
        for place, piece in _pieces(nodes):
            away = [node for node in piece if node in offline]
            targets = RunTargets(run=record.run, nodes=piece, offline=away)
            await self._put(f"{record.run}.targets.{place}", targets)
        await self._put(f"{record.run}.state", RunState(run=record.run, time=record.time))
        await self._put(f"{record.run}.request", record)

    async def forget(self, run: str) -> None:
        """Take a run off the record that never went out."""
        for entry in await self._bucket.matching([f"{run}.>"]):
            await self._bucket.delete(entry.key)

    async def find(self, word: str) -> str:
        """
        The id of a run, from the id, the beginning of it that no other has, or NEWEST.

        Raises:
            RunError: There is none, or several begin so.
        """
        if is_id(word):
            return word
        runs = [state.run for state in await self._states()]
        found = runs[:1] if word == NEWEST else [run for run in runs if run.startswith(word)]
        if len(found) == 1:
            return found[0]
        if found:
            raise RunError(
                f"{word}: {len(found)} runs begin so, {found[0]} and {found[1]} among them; write more of it"
            )
        raise RunError(f"{word}: there is no such run; `ccmctl run list` shows which there are")

    async def load(self, run: str) -> Recorded:
        """
        Everything on record about a run.

        Raises:
            RunError: Nothing is.
        """
        entries = {entry.key: entry for entry in await self._bucket.matching([f"{run}.>"])}
        request = entries.get(f"{run}.request")
        if request is None:
            raise RunError(f"{run}: there is no such run; `ccmctl run list` shows which there are")
        state = entries.get(f"{run}.state")
        pieces = _decoded(entries, f"{run}.targets.", RunTargets)
        ends = _decoded(entries, f"{run}.ends.", RunEnds)
        return Recorded(
            record=_decode(request, RunRecord),
            state=_decode(state, RunState) if state else RunState(run=run),
            nodes=[node for piece in pieces for node in piece.nodes],
            offline=[node for piece in pieces for node in piece.offline],
            ends={node: end for piece in ends for node, end in piece.nodes.items()},
        )

    async def newest(self, most: int) -> list[tuple[RunRecord, RunState]]:
        """The newest runs, newest first, without their nodes."""
        found = []
        for state in (await self._states())[:most]:
            request = await self._bucket.get(f"{state.run}.request")
            if request is not None:
                found.append((_decode(request, RunRecord), state))
        return found

    async def change(self, run: str, change: Callable[[RunState], None]) -> RunState:
        """Change a run's state, whoever else does at the same time; what was written."""
        for _ in range(_TRIES):
            entry = await self._bucket.get(f"{run}.state")
            state = _decode(entry, RunState) if entry else RunState(run=run)
            change(state)
            try:
                await self._bucket.update(
                    f"{run}.state", msgspec.json.encode(state), entry.revision if entry else 0
                )
            except RevisionError:
                continue
            return state
        raise RevisionError(f"{run}: its state is written all the time by somebody else; try again")

    async def keep_ends(self, run: Run) -> None:
        """Write down how nodes ended of which the stream will not tell."""
        ends = {
            name: NodeEnd(state=str(node.state), reason=node.reason, code=node.code)
            for name, node in run.nodes.items()
            if node.state.is_final and node.summary is None and not node.wants_summary
        }
        for place, piece in _pieces(sorted(ends)):
            told = RunEnds(run=run.run, nodes={node: ends[node] for node in piece})
            await self._put(f"{run.run}.ends.{place}", told)

    async def finish(self, run: Run) -> None:
        """Close the record of a run that has come to its end."""
        await self.keep_ends(run)

        def close(state: RunState) -> None:
            state.state = "done"
            state.counts = {str(word): count for word, count in run.counts().items()}
            state.joined = run.joined

        await self.change(run.run, close)

    async def _states(self) -> list[RunState]:
        """The states of all runs, newest first: small, where the requests may hold whole manifests."""
        states = [_decode(entry, RunState) for entry in await self._bucket.matching(["*.state"])]
        return sorted(states, key=lambda state: (state.time or _LONG_AGO, state.run), reverse=True)

    async def _put(self, key: str, value: Struct) -> None:
        await self._bucket.put(key, msgspec.json.encode(value))


def restore_ends(run: Run, recorded: Recorded, now: float) -> None:
    """Give a watcher's run the ends that only the record knows."""
    for node, end in recorded.ends.items():
        try:
            state = NodeState(end.state)
        except ValueError:
            continue
        run.ended(node, state, end.reason, end.code, now)


def _pieces(nodes: list[str]) -> Iterator[tuple[int, list[str]]]:
    for place, begin in enumerate(range(0, len(nodes), PIECE_NODES)):
        yield place, nodes[begin : begin + PIECE_NODES]


def _decoded(entries: dict[str, Entry], prefix: str, kind: type[T]) -> list[T]:
    keys: Iterable[str] = (key for key in entries if key.startswith(prefix))
    return [_decode(entries[key], kind) for key in sorted(keys, key=lambda key: int(key.rpartition(".")[2]))]


def _decode(entry: Entry, kind: type[T]) -> T:
    try:
        return decode_foreign(entry.value, kind)
    except msgspec.MsgspecError as err:
        raise ProtocolError(f"{entry.key}: not what belongs there: {err}; remove the key") from err
