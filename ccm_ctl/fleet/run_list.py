"""The list of runs: which of them are asked for, and how far each is."""

from __future__ import annotations

from datetime import datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ccm_agent.model.errors import ProtocolError, RunError
from ccm_agent.model.run_records import RunRecord, RunState
from ccm_ctl.fleet.authors import read_authors
from ccm_ctl.fleet.history import History
from ccm_ctl.fleet.open_runs import close_ended, look_at_ends

if TYPE_CHECKING:
    from ccm_ctl.fleet.authors import Authors
    from ccm_ctl.fleet.ports import Fleet

OPEN_LOOKED_AT = 50
"""Of at most so many open runs the stream is read for one list; the others are shown as their records say."""


class RunFilter(Struct, frozen=True, kw_only=True):
    """
    Which runs are asked for; everything that is set must fit.

    Attributes:
        node: It was expected in the run.
        name: The manifest's or resource's name; `*` and `?` are wildcards.
        by: The operator.
        state: "open", "stopping", "done", or an end state that at least one node has.
        since, until: When the run began.
    """

    node: str = ""
    name: str = ""
    by: str = ""
    state: str = ""
    since: datetime | None = None
    until: datetime | None = None

    def fits_record(self, record: RunRecord) -> bool:
        """What was asked, by whom and when, fits."""
        if self.name and not fnmatchcase(record.name, self.name):
            return False
        if self.by and record.requester != self.by:
            return False
        if self.since and (record.time is None or record.time < self.since):
            return False
        return not (self.until and (record.time is None or record.time > self.until))

    def fits_state(self, state: RunState) -> bool:
        """How far the run is fits."""
        if not self.state:
            return True
        if self.state == "open":
            return state.state != "done"
        return self.state == state.state or state.counts.get(self.state, 0) > 0


class ListedRun(Struct, frozen=True, kw_only=True):
    """
    A run in the list.

    Attributes:
        record: What was asked.
        state: How far it is. While it is open, `counts` has its nodes by state, as far as that is known.
        closed_by: The operator who saw it end, if that was not the one who began it; else "".
    """

    record: RunRecord
    state: RunState
    closed_by: str = ""


class ListedRuns(Struct, frozen=True, kw_only=True):
    """
    Runs, the newest first.

    Attributes:
        runs: The runs.
        left_out: Keys of records that cannot be read.
    """

    runs: list[ListedRun]
    left_out: list[str]


async def list_runs(fleet: Fleet, wanted: RunFilter, most: int) -> ListedRuns:
    """The newest runs that fit. Records of runs that have ended are closed on the way."""
    left_out: list[str] = []
    runs: list[ListedRun] = []
    history = History(fleet)
    authors, looked_at = None, 0
    async for record, state, closed_by in history.newest_first(left_out):
        if not wanted.fits_record(record):
            continue
        if wanted.node and wanted.node not in (await history.load(record.run)).nodes:
            continue
        one = ListedRun(record=record, state=state, closed_by=closed_by)
        if state.state != "done" and looked_at < OPEN_LOOKED_AT:
            if not looked_at:
                authors = await read_authors(fleet)
            looked_at += 1
            one = await _looked_at(fleet, one, authors)
        if wanted.fits_state(one.state):
            runs.append(one)
            if len(runs) == most:
                break
    return ListedRuns(runs=runs, left_out=sorted(left_out))


async def _looked_at(fleet: Fleet, listed: ListedRun, authors: Authors | None) -> ListedRun:
    """An open run as the stream shows it; as its record says where that cannot be read."""
    try:
        recorded = await History(fleet).load(listed.record.run)
        run = await look_at_ends(fleet, recorded, authors)
        is_ended = await close_ended(fleet, recorded, run)
    except (ProtocolError, RunError):
        return listed
    counts = {str(state): count for state, count in run.counts().items()}
    word = "done" if is_ended else listed.state.state
    state = msgspec.structs.replace(listed.state, state=word, counts=counts, joined=run.joined)
    return msgspec.structs.replace(listed, state=state)
