"""
Records of runs in CCM_RUNS. With them, any operator on any machine can list, show, watch or stop the runs of others.

Each operator writes keys under its own token, such as `<operator>.<run>.request`. The broker allows no other keys.
The run belongs to the operator whose request was stored first. Additions by others (a stop, the end that a watcher saw) are
read with it and shown under their names. Records of older controllers, `<run>.request`, are read as well.

A record that cannot be read is skipped, so that one operator cannot block the list for others. Its author signs the request,
and the signature covers the list of nodes. A record that does not verify is marked (`run_signatures`).
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ccm_agent.bus.layout import RUNS
from ccm_agent.bus.signatures.verified import Unverified, Verified
from ccm_agent.bus.subjects import decode_token, encode_token, is_node, key_subject
from ccm_agent.model.errors import ProtocolError, RevisionError, RunError
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.ids import is_id, short_id
from ccm_agent.model.records.run_records import NodeEnd, RunEnds, RunRecord, RunState, RunTargets
from ccm_agent.model.wire import CARRIED_OUT, NodeState
from ccm_ctl.fleet.runs import run_signatures as signatures
from ccm_ctl.fleet.runs.run import LIMIT_S, Run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence

    from ccm_agent.bus.signatures.verified import Base
    from ccm_agent.model.ports import KeyValueEntry
    from ccm_ctl.fleet.ports import Fleet

T = TypeVar("T", RunRecord, RunState, RunTargets, RunEnds)

PIECE_NODES = 2000
"""The maximum number of nodes per key. The message size is limited."""

NEWEST = "last"
"""The word that an operator can enter instead of an ID, for the operator's own newest run."""

_TRIES, _UNHEARD = 10, (NodeState.PLANNED, NodeState.EXPECTED)
_WRITTEN = "another program keeps writing its record; try again"
_LONG_AGO = datetime.min.replace(tzinfo=UTC)
_REQUEST, _STATE, _TARGETS, _ENDS = "request", "state", "targets", "ends"
_IS_PIECE = {_REQUEST: False, _STATE: False, _TARGETS: True, _ENDS: True}
"""The kinds of keys, each with whether it is split into numbered pieces."""

_FORMER = ""
"""Replaces the operator's token for keys of older controllers, which do not contain the author."""


class UnknownRunError(RunError):
    """No recorded run has this ID or prefix."""


class Recorded(Struct, frozen=True, kw_only=True):
    """
    A recorded run, or a run from the stream that no operator started.

    Attributes:
        record: The request.
        state: Its progress when it was last watched.
        closed_by: The operator who recorded the end of the run, if another operator started it. Otherwise "".
        nodes: The nodes that were expected.
        offline: The expected nodes that were not present.
        ends: End states that no stream stores.
        cause, origin: The kind of the run's cause (see `stream_runs.CAUSES`), and the name of the schedule or assignment.
        note: A sentence about the list of nodes, or "".
        is_on_record: Whether an operator's record describes the run. Such a record can be closed.
        judged: The record and the result of checking its signature. None: the run is not on record.
    """

    record: RunRecord
    state: RunState
    closed_by: str = ""
    nodes: list[str]
    offline: list[str]
    ends: dict[str, NodeEnd]
    cause: str = "request"
    origin: str = ""
    note: str = ""
    is_on_record: bool = True
    judged: Verified[RunRecord] | Unverified[RunRecord] | None = None

    @property
    def unverified(self) -> str:
        """The reason why the record does not verify. "": it verifies, or the run is not on record."""
        return self.judged.reason if self.judged is not None else ""


class Listed(Struct, frozen=True, kw_only=True):
    """
    Runs on record, newest first, without their nodes.

    Attributes:
        runs: Request, progress, closing operator, and the reason if the record does not verify. See Recorded.
        left_out: Keys of records that cannot be read.
    """

    runs: list[tuple[RunRecord, RunState, str, str]]
    left_out: list[str]


class _Key(Struct, frozen=True, kw_only=True):
    """A key of the bucket: operator's token (or _FORMER), run, kind, and number of the piece."""

    owner: str
    run: str
    kind: str
    place: int = 0


class _Pieces(Struct, kw_only=True):
    """The keys of one run, by operator's token."""

    requests: dict[str, tuple[KeyValueEntry, RunRecord]] = {}
    states: dict[str, tuple[KeyValueEntry, RunState]] = {}
    targets: dict[str, dict[int, RunTargets]] = {}
    ends: dict[str, dict[int, RunEnds]] = {}

    @property
    def owner(self) -> str | None:
        """Return the operator whose request was stored first, or None."""
        return min(self.requests, key=lambda token: self.requests[token][0].revision, default=None)

    def merge_states(self, run: str, owner: str) -> tuple[RunState, str]:
        """Return the run's progress, and the operator who closed the run, if another operator owns it."""
        _, state = self.states.get(owner, (None, RunState(run=run)))
        others = sorted(
            ((entry.revision, token, told) for token, (entry, told) in self.states.items() if token != owner),
            key=lambda one: one[0],
        )
        # The name of an operator who stops a run is taken from the key, because the broker checks who writes the key.
        stops = [token for _, token, told in others if told.stopped_by or told.state == "stopping"]
        stoppers = [state.stopped_by, *map(_decode_operator, stops)]
        state = msgspec.structs.replace(state, stopped_by=next(filter(None, stoppers), ""))
        for _, token, told in others:
            if state.state == "done":
                break
            if told.state == "done":
                ended = msgspec.structs.replace(state, state="done", counts=told.counts, joined=told.joined)
                return ended, _decode_operator(token)
            if told.state == "stopping":
                state = msgspec.structs.replace(state, state="stopping")
        return state, ""

    def merge_ends(self, owner: str) -> dict[str, NodeEnd]:
        """Return the end states from the run's owner, and from other watchers for nodes that the owner did not record."""
        ends: dict[str, NodeEnd] = {}
        for token in sorted(self.ends, key=lambda token: token != owner):
            for piece in self.ends[token].values():
                for node, end in piece.nodes.items():
                    if is_node(node):
                        ends.setdefault(node, end)
        return ends


class History:
    """The runs in a bucket, with the reads and writes of one operator."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._bucket = fleet.runs
        self._token = encode_token(fleet.operator)

    async def begin(
        self, record: RunRecord, nodes: list[str], offline: Collection[str], base: Sequence[Base]
    ) -> None:
        """
        Record a run before its request is sent.

        Args:
            record: The request.
            nodes, offline: The expected nodes, and those of them that are not present.
            base: The verified data or operator input from which the request was made.

        The request is written first. This makes this operator the owner, because other operators do not know the run ID yet.
        """
        away = [node for node in nodes if node in offline]
        await self._put_request(replace(record, nodes_digest=signatures.digest_nodes(nodes, away)), base)
        for place, piece in _pieces(nodes):
            away = [node for node in piece if node in offline]
            targets = RunTargets(run=record.run, nodes=piece, offline=away)
            await self._put(f"{record.run}.{_TARGETS}.{place}", targets)
        await self._put(f"{record.run}.{_STATE}", RunState(run=record.run, time=record.time))

    async def recorded_at(self, run: str) -> datetime | None:
        """Return when this operator's record of a run was last written, by the broker's clock, or None if there is no record."""
        entry = await self._bucket.get(f"{self._token}.{run}.{_STATE}")
        return entry.created if entry else None

    async def forget(self, run: str) -> None:
        """Remove this operator's record of a run whose request was never sent."""
        for entry in await self._bucket.matching([f"{self._token}.{run}.>"]):
            await self._bucket.delete(entry.key)

    async def find(self, word: str) -> str:
        """
        Find the ID of a run from an ID, a prefix, or NEWEST, which is this operator's own newest run.

        Raises:
            RunError: There is no such run, or the prefix is ambiguous.
        """
        if is_id(word):
            return word
        known = (await self._known())[0]
        runs = [run for _, run, _ in known]
        own = [run for _, run, pieces in known if pieces.owner == self._token]
        found = own[:1] if word == NEWEST else [run for run in runs if run.startswith(word)]
        if len(found) == 1:
            return found[0]
        if found:
            raise RunError(
                f"run `{word}` is ambiguous: {len(found)} runs begin with it, such as {found[0]} and {found[1]}; "
                "use more characters"
            )
        if word == NEWEST and runs:
            raise UnknownRunError(
                f"`{NEWEST}`: {self._fleet.operator} has no run on record; "
                "`ccmctl run list` shows the runs of others"
            )
        if word == NEWEST:
            raise UnknownRunError("no run is on record here yet; `ccmctl apply` and `ccmctl plan` start one")
        raise UnknownRunError(f"there is no run `{word}`; `ccmctl run list` lists the newest runs")

    async def load(self, run: str) -> Recorded:
        """
        Load everything recorded about a run.

        Raises:
            RunError: Nothing is recorded.
            ProtocolError: The record cannot be read.
        """
        entries = await self._bucket.matching([f"{run}.>", f"*.{run}.>"])
        found, left_out = _sorted_out(entries)
        pieces = found.get(run, _Pieces())
        owner = pieces.owner
        if owner is None:
            bad = next((err for key, err in left_out.items() if key.endswith(f"{run}.{_REQUEST}")), None)
            raise bad or UnknownRunError(f"there is no run `{run}`; `ccmctl run list` lists the newest runs")
        targets = [targets for _, targets in sorted(pieces.targets.get(owner, {}).items())]
        state, closed_by = pieces.merge_states(run, owner)
        entry, record = pieces.requests[owner]
        judged = signatures.verify_record(await signatures.read_verifier(self._fleet), entry, owner, record)
        return Recorded(
            record=record,
            judged=signatures.verify_nodes(judged, targets),
            state=state,
            closed_by=closed_by,
            nodes=[node for piece in targets for node in piece.nodes if is_node(node)],
            offline=[node for piece in targets for node in piece.offline if is_node(node)],
            ends=pieces.merge_ends(owner),
            cause="schedule" if record.schedule else "request",
            origin=record.schedule,
        )

    async def requests(self, run: str = "*") -> dict[str, RunRecord]:
        """Return the records of one run or of all runs, by ID, without their nodes. Records that do not verify are left out."""
        entries = await self._bucket.matching([f"*.{run}.{_REQUEST}"])
        verifier, verified = await signatures.read_verifier(self._fleet), {}
        for each, pieces in _sorted_out(entries)[0].items():
            owner = pieces.owner
            if owner is not None:
                entry, record = pieces.requests[owner]
                judged = signatures.verify_record(verifier, entry, owner, record)
                if isinstance(judged, Verified):
                    verified[each] = judged.value
        return verified

    async def newest(self, most: int) -> Listed:
        """Return the newest runs."""
        left_out: list[str] = []
        runs = []
        async for one in self.newest_first(left_out):
            runs.append(one)
            if len(runs) == most:
                break
        return Listed(runs=runs, left_out=sorted(left_out))

    async def newest_first(self, left_out: list[str]) -> AsyncIterator[tuple[RunRecord, RunState, str, str]]:
        """
        Yield all runs, newest first: request, progress, closing operator, and the reason why the record does not verify.

        Args:
            left_out: The keys of records that cannot be read are added to this list.
        """
        known, unreadable = await self._known()
        left_out += unreadable
        verifier = await signatures.read_verifier(self._fleet)
        for _, run, pieces in known:
            if not pieces.requests:
                pieces = await self._former(run, pieces, left_out)
            owner = pieces.owner
            if owner is not None:
                entry, record = pieces.requests[owner]
                reason = signatures.verify_record(verifier, entry, owner, record).reason
                yield (record, *pieces.merge_states(run, owner), reason)

    async def change(self, run: str, change: Callable[[RunState], None]) -> RunState:
        """Change this operator's record of a run's state and return the new state. Safe with concurrent programs."""
        key = f"{self._token}.{run}.{_STATE}"
        for _ in range(_TRIES):
            entry = await self._bucket.get(key)
            state = _decode(entry, RunState) if entry else RunState(run=run)
            change(state)
            with suppress(RevisionError):
                await self._bucket.update(key, msgspec.json.encode(state), entry.revision if entry else 0)
                return state
        raise RevisionError(f"{short_id(run)}: {_WRITTEN}")

    async def keep_ends(self, run: Run) -> None:
        """
        Record end states that no stream stores, safely for concurrent programs.

        Ends that another program of this operator recorded are kept for nodes about which this program has no information.
        """
        ends = {
            node.node: NodeEnd(state=str(node.state), reason=node.reason, code=node.code)
            for node in run.expected
            if node.state.is_final and node.kept_summary is None and not node.wants_summary
        }
        heard = {name for name, node in run.nodes.items() if node.state not in _UNHEARD}
        for _ in range(_TRIES):
            entries = await self._bucket.matching([f"{self._token}.{run.run}.{_ENDS}.*"])
            owned = _sorted_out(entries)[0].get(run.run, _Pieces()).ends.get(self._token, {})
            kept = {
                name: end for told in owned.values() for name, end in told.nodes.items() if name not in heard
            }
            merged, revisions = kept | ends, {entry.key: entry.revision for entry in entries}
            with suppress(RevisionError):
                # write later pieces first, so that a name that moves to a later piece is never missing
                for place, piece in reversed([*_pieces(sorted(merged))]):
                    told = RunEnds(run=run.run, nodes={node: merged[node] for node in piece})
                    if told != owned.get(place):
                        key = f"{self._token}.{run.run}.{_ENDS}.{place}"
                        await self._bucket.update(key, msgspec.json.encode(told), revisions.get(key, 0))
                return
        raise RevisionError(f"{short_id(run.run)}: {_WRITTEN}")

    async def finish(self, run: Run) -> None:
        """Close the record of a run that has ended."""
        await self.keep_ends(run)

        def close(state: RunState) -> None:
            state.state = "done"
            state.counts = {str(word): count for word, count in run.counts().items()}
            state.joined = run.joined

        await self.change(run.run, close)

    async def mark_stopped(self, run: str, operator: str, *, is_stopping: bool = False) -> None:
        """Record that this operator stopped a run. `is_stopping`: some nodes are still stopping."""

        def mark(state: RunState) -> None:
            state.stopped_by = operator
            if is_stopping:
                state.state = "stopping"

        await self.change(run, mark)

    async def ended_by(self, run: str) -> list[str]:
        """Return the tokens of the operators who stopped a run or recorded its end. They can only write under their own token."""
        found, _ = _sorted_out(await self._bucket.matching([f"*.{run}.{_STATE}"]))
        states = found.get(run, _Pieces()).states
        return [token for token, (_, told) in states.items() if told.state != "running" or told.stopped_by]

    async def _known(self) -> tuple[list[tuple[datetime, str, _Pieces]], dict[str, ProtocolError]]:
        """
        Return start time, ID and known state of each run, newest first, and the records that cannot be read.

        Requests of older controllers are not read, because they may be long. Times are the broker's, since records may be false.
        """
        patterns = [f"*.{_STATE}", f"*.*.{_STATE}", f"*.*.{_REQUEST}"]
        found, left_out = _sorted_out(await self._bucket.matching(patterns))
        known = []
        for run, pieces in found.items():
            owner = pieces.owner
            if owner is not None:
                known.append((pieces.requests[owner][0].created, run, pieces))
            elif _FORMER in pieces.states:
                entry, state = pieces.states[_FORMER]
                known.append((min(state.time or _LONG_AGO, entry.created), run, pieces))
        return sorted(known, key=lambda one: one[:2], reverse=True), left_out

    async def _former(self, run: str, pieces: _Pieces, left_out: list[str]) -> _Pieces:
        """Return the pieces with the request that an older controller wrote."""
        request = await self._bucket.get(f"{run}.{_REQUEST}")
        found, bad = _sorted_out([request] if request else [])
        left_out += bad
        return msgspec.structs.replace(pieces, requests=found[run].requests if run in found else {})

    async def _put_request(self, record: RunRecord, base: Sequence[Base]) -> None:
        """Write the request, signed if this operator signs. A signed record is written only once."""
        if (signatory := self._fleet.signatory) is None:
            return await self._put(f"{record.run}.{_REQUEST}", record)
        key, body = f"{self._token}.{record.run}.{_REQUEST}", msgspec.json.encode(record)
        signature = signatory.record(key_subject(RUNS, key), body, base)
        await self._bucket.update(key, body, 0, signature=signature)

    async def _put(self, key: str, value: Struct) -> None:
        await self._bucket.put(f"{self._token}.{key}", msgspec.json.encode(value))


def run_on_record(
    recorded: Recorded,
    now: float,
    *,
    asked: bool = False,
    limit_s: float = LIMIT_S,
    planned: Collection[str] = (),
) -> Run:
    """Create a run from a record, ready to be watched. See `Run` for the arguments."""
    run, nodes, offline = recorded.record.run, recorded.nodes, recorded.offline
    return Run(run, nodes, offline, now, asked=asked, limit_s=limit_s, planned=planned)


def restore_ends(run: Run, recorded: Recorded, now: float) -> None:
    """Set the end states that are only in the record."""
    for node, end in recorded.ends.items():
        try:
            state = NodeState(end.state)
        except ValueError:
            continue
        if state in CARRIED_OUT:  # only the node's own summary proves these states
            continue
        run.ended(node, state, end.reason, end.code, now)


def _pieces(nodes: list[str]) -> Iterator[tuple[int, list[str]]]:
    for place, begin in enumerate(range(0, len(nodes), PIECE_NODES)):
        yield place, nodes[begin : begin + PIECE_NODES]


def _parse_key(key: str) -> _Key | None:
    """Parse a key. Returns None for an unknown format."""
    tokens = key.split(".")
    is_former = is_id(tokens[0]) and tokens[1:2] != [] and tokens[1] in _IS_PIECE
    owner, rest = (_FORMER, tokens) if is_former else (tokens[0], tokens[1:])
    run, kind, place = rest if len(rest) == 3 else [*rest, "0"] if len(rest) == 2 else ["", "", ""]
    if not is_id(run) or _IS_PIECE.get(kind) is not (len(rest) == 3):
        return None
    is_number = place.isascii() and place.isdigit() and len(place) < 10
    return _Key(owner=owner, run=run, kind=kind, place=int(place)) if is_number else None


def _sorted_out(entries: Sequence[KeyValueEntry]) -> tuple[dict[str, _Pieces], dict[str, ProtocolError]]:
    """Group entries by run. The second result contains the errors of unreadable entries, by key."""
    found: dict[str, _Pieces] = {}
    left_out: dict[str, ProtocolError] = {}
    for entry in entries:
        key = _parse_key(entry.key)
        try:
            if key is None:
                raise ProtocolError(f"{entry.key}: not a key of a run's record; remove the key")
            _take_in(found.setdefault(key.run, _Pieces()), key, entry)
        except ProtocolError as err:
            left_out[entry.key] = err
    return found, left_out


def _take_in(pieces: _Pieces, key: _Key, entry: KeyValueEntry) -> None:
    if key.kind == _REQUEST:
        record = _decode(entry, RunRecord)
        if key.owner != _FORMER:
            record.requester = _decode_operator(key.owner)
        record.action = signatures.action_of(record)
        pieces.requests[key.owner] = entry, record
    elif key.kind == _STATE:
        pieces.states[key.owner] = entry, _decode(entry, RunState)
    elif key.kind == _TARGETS:
        pieces.targets.setdefault(key.owner, {})[key.place] = _decode(entry, RunTargets)
    else:
        pieces.ends.setdefault(key.owner, {})[key.place] = _decode(entry, RunEnds)


def _decode_operator(token: str) -> str:
    """Return the operator's name for a token. If a long name cannot be decoded, the token is returned."""
    try:
        return decode_token(token) or token
    except ProtocolError:
        return token


def _decode(entry: KeyValueEntry, kind: type[T]) -> T:
    key = _parse_key(entry.key)
    try:
        value = decode_foreign(entry.value, kind)
    except msgspec.MsgspecError as err:
        raise ProtocolError(f"{entry.key}: not a valid record: {err}; remove the key") from err
    if key is None or value.run != key.run:
        raise ProtocolError(f"{entry.key}: contains the record of another run; remove the key")
    return value
