"""
The run of a scheduled rollout's start. The module derives its ID, and checks whether a server has already recorded it.

The results of the starts are stored in one document. An attacker who controls the broker can erase it, and every operator with
`--apply` can overwrite it. A start therefore does not depend only on this document. The run's ID contains the time of the
start, and the rest of the ID is derived from the server's key. A second run of the same start therefore has the same ID, and
nodes apply a run once. A server also looks for the run's record under the keys of all operators, which no other operator can
write.
"""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec import Struct

from ccm_agent.bus.signatures.verified import Verified, Verifier
from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.ids import derive_id, id_time, is_id
from ccm_agent.model.ports import KeyValueEntry
from ccm_agent.model.records.run_records import RunRecord
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.rollout.scheduled import DueRollout, ScheduledRollout
from ccm_ctl.fleet.rollout.starts import refuse_server
from ccm_ctl.fleet.runs.run_signatures import read_verifier, verify_record


class BegunStart(Struct, frozen=True, kw_only=True):
    """
    A start that a server has recorded.

    Attributes:
        run: The ID of its run.
        by: The operator of the server.
        created: When the broker stored the record.
    """

    run: str
    by: str
    created: datetime


class _Origin(Struct, frozen=True):
    """The part of a record that identifies the start."""

    run: str = ""
    schedule: str = ""


def run_of_start(fleet: Fleet, name: str, slot: datetime) -> str:
    """Return the ID of a start's run, or "" if there is no key to derive it from. Other operators cannot predict the ID."""
    if fleet.signatory is None:
        return ""
    payload = fleet.signatory.derive(f"start of schedule\n{name}\n{slot.timestamp()}")
    return derive_id(int(slot.timestamp()), payload)


async def find_begun(fleet: Fleet, one: DueRollout, slot: datetime) -> BegunStart | None:
    """
    Find the record of a start, written by an operator who may start this rollout.

    Args:
        fleet: The bus.
        one: The start.
        slot: The time in the schedule for which the start is due.
    """
    verifier = await read_verifier(fleet)
    for entry in await fleet.runs.matching(["*.*.request"]):
        if _is_of(entry, one.name, slot) and (begun := _read(verifier, entry, one.rollout)) is not None:
            return begun
    return None


def _is_of(entry: KeyValueEntry, name: str, slot: datetime) -> bool:
    run = entry.key.split(".")[1]
    if not is_id(run):
        return False
    try:
        is_then = int(id_time(run).timestamp()) == int(slot.timestamp())
        return is_then and decode_foreign(entry.value, _Origin) == _Origin(run, name)
    except (ValueError, OverflowError, OSError, msgspec.MsgspecError):
        return False


def _read(verifier: Verifier, entry: KeyValueEntry, rollout: ScheduledRollout) -> BegunStart | None:
    try:
        record = decode_foreign(entry.value, RunRecord)
        judged = verify_record(verifier, entry, entry.key.split(".")[0], record)
    except (msgspec.MsgspecError, ProtocolError):
        return None
    signer = verifier.signer_of(judged) if isinstance(judged, Verified) else None
    if signer is None or refuse_server(signer, rollout):
        return None
    return BegunStart(run=record.run, by=signer.name, created=entry.created)
