"""
The run of a start of a scheduled rollout: its ID, and whether a server has put it on record.

The results of the starts are one document, which the holder of the broker can erase and every operator with `--apply` can
overwrite. So a start does not depend on it alone. The time of its ID is that of the start, and the rest of it is derived from
the server's key: a second run of the same start has the same ID, and nodes apply a run once. A server also looks for the record
of the run, under the keys of all operators, which no other operator can write.
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
    A start that a server has put on record.

    Attributes:
        run: Its run.
        by: The operator of the server.
        created: When the broker stored the record.
    """

    run: str
    by: str
    created: datetime


class _Origin(Struct, frozen=True):
    """The part of a record that says which start it is of."""

    run: str = ""
    schedule: str = ""


def run_of_start(fleet: Fleet, name: str, slot: datetime) -> str:
    """The ID of the run of a start; "" without a key to derive it from. Other operators cannot predict it."""
    if fleet.signatory is None:
        return ""
    payload = fleet.signatory.derive(f"start of schedule\n{name}\n{slot.timestamp()}")
    return derive_id(int(slot.timestamp()), payload)


async def find_begun(fleet: Fleet, one: DueRollout, slot: datetime) -> BegunStart | None:
    """
    Find the record of a start, by an operator who may start this rollout.

    Args:
        fleet: The bus.
        one: The start.
        slot: The time of the schedule that it is for.
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
