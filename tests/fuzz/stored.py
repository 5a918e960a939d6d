"""Targets that read what is stored: files of an agent's state, and documents of agents and operators on the broker."""

from __future__ import annotations

import logging
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from ccm_agent.agent.runs.admission import read_disabled
from ccm_agent.agent.state.request_log import RequestLog
from ccm_agent.bus.object_descriptions import ObjectInfo
from ccm_agent.bus.signatures.signing import read_claims
from ccm_agent.bus.streams import Stored
from ccm_agent.bus.subjects import event_subject, rollout_due_subject, rollout_schedule_subject, starts_key
from ccm_agent.facts.host import parse_guest, parse_platform
from ccm_agent.facts.memory import parse_swap
from ccm_agent.facts.netlink import parse_addresses, parse_links
from ccm_agent.health.goss.network import listeners
from ccm_agent.model import ids
from ccm_agent.model.bundle import Bundle
from ccm_agent.model.errors import CcmError
from ccm_agent.model.formats.escapes import views
from ccm_agent.model.formats.shellwords import split_words
from ccm_agent.model.formats.yaml_comments import key_comments
from ccm_agent.model.outcome import SESSION_START, SESSION_SUMMARY, TRANSACTION_EVENT
from ccm_agent.model.ports import KeyValueEntry, StoredEvent
from ccm_agent.model.records.schedule_slots import schedule_slot
from ccm_agent.model.wire import AGENT_REFUSED, SESSION_ANSWER
from ccm_agent.registration.liveness import read_sightings
from ccm_agent.resources.scaffold.providers.record import recall
from ccm_agent.resources.user.key_lines import lines_of, merge_lines, shown_lines
from ccm_agent.sessions.directory import _open
from ccm_agent.storage.journal import encode_record
from ccm_agent.storage.spool import Spool
from ccm_agent.storage.state_file import StateFile
from ccm_agent.templates.gjson_text import elements, is_valid, members, parsed
from ccm_agent.testing.clock import FakeClock
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.fleet.data.documents import decode_document
from ccm_ctl.fleet.events.messages import decode_agent_message
from ccm_ctl.fleet.rollout.scheduled import find_due
from ccm_ctl.fleet.rollout.starts import StartsStore, read_servers
from ccm_ctl.fleet.runs.plan_file import FORMAT, PlanFile, PlannedNode, _seal, decode_plan
from ccm_ctl.fleet.schedules.stored_schedule import next_time, read_past, read_schedule
from tests.fuzz.target import Target
from tests.fuzz.wrapped import run_now, text_of
from tests.support.controller import fleet_on

MOMENT = datetime(2026, 11, 21, 12, tzinfo=UTC)
LEVEL = "fact.role.web"


@contextmanager
def _folder() -> Iterator[Path]:
    """A state folder; what is logged about damage in it is not shown."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with tempfile.TemporaryDirectory(prefix="ccm-fuzz-") as top:
            yield Path(top)
    finally:
        logging.disable(before)


# -- files of this host


def state_files(data: bytes) -> object:
    """Small state files, and the file that says that the agent is disabled."""
    with _folder() as folder:
        for name in ("state.json", "disabled.json"):
            (folder / name).write_bytes(data)
        return StateFile(folder / "state.json", dict[str, Any]).load(), read_disabled(folder)


def _records(data: bytes) -> bytes:
    return b"".join(map(encode_record, data.split(b"\0\0\0\0")))


def ledger(data: bytes) -> object:
    """A ledger whose frames are whole and whose records are not."""
    with _folder() as folder:
        (folder / "ledger").write_bytes(_records(data))
        ledger = RequestLog(folder / "ledger", keep_s=60, clock=FakeClock())
        try:
            return ledger.open()
        finally:
            ledger.close()


def spool(data: bytes) -> object:
    """A spool whose frames are whole and whose records are not; what is left of it is sent."""
    with _folder() as folder:
        (folder / "0000000001.log").write_bytes(_records(data))
        spool = Spool(folder, limit_bytes=1 << 20, segment_bytes=1 << 16)
        try:
            return spool.open()
        finally:
            spool.close()


def session(data: bytes) -> object:
    """A session directory with one event."""
    with _folder() as folder:
        (folder / "a.event").write_bytes(data)
        before = ids._last
        try:
            return _open(folder)
        finally:
            ids._last = before


class _Records:
    """Remembers one document."""

    def __init__(self, document: bytes) -> None:
        self._document = document

    async def recall(self, _kind: str, _key: str) -> bytes | None:
        return self._document


def scaffold(data: bytes) -> object:
    """What a scaffold remembers."""
    records: Any = _Records(data)
    return run_now(recall(records, "/srv"))


def netlink(data: bytes) -> object:
    """The kernel's answers about interfaces and addresses."""
    return parse_links(data), parse_addresses(data)


def sockets(data: bytes) -> object:
    """/proc/net/tcp and its kind."""
    return [listeners(text_of(data), kind) for kind in ("tcp", "tcp6", "udp", "udp6")]


def release(data: bytes) -> object:
    """Release files, and what the kernel shows of the machine below it."""
    text = text_of(data)
    names = ("lsb-release", "debian_version", "redhat-release", "SuSE-release", "os-release")
    found = [parse_platform({name: text}) for name in names]
    return found, parse_guest(lambda _path: text, lambda _path: True)


def authorized_keys(data: bytes) -> object:
    """The file of a user, as it is merged and shown."""
    found = lines_of(data.decode(errors="surrogateescape"))
    merged = merge_lines(found, found[:1], is_exclusive=False)
    return shown_lines(merged)


def swap(data: bytes) -> object:
    """/proc/vmstat."""
    return parse_swap({"swapTotal": 2, "swapFree": 1}, text_of(data))


# -- documents of agents and operators


def _entry(data: bytes) -> KeyValueEntry:
    return KeyValueEntry(key="node.web1", value=data, revision=3, created=MOMENT)


def document(data: bytes) -> object:
    """A stored document, as an operator's program reads it."""
    return decode_document(_entry(data))


def event(data: bytes) -> object:
    """An event of each kind, as an operator's program hears it."""
    found = []
    for protocol in (SESSION_START, TRANSACTION_EVENT, SESSION_SUMMARY, SESSION_ANSWER, AGENT_REFUSED):
        run = "" if protocol == AGENT_REFUSED else "3MQfrJPuO0jgbX8OLS0ivd4F6Ch"
        body = data.replace(b"PROTOCOL", protocol.encode())
        with suppress(CcmError):
            found.append(
                decode_agent_message(StoredEvent(subject=event_subject(protocol, "web1", run), body=body))
            )
    return found


def schedule(data: bytes) -> object:
    """A stored schedule and its next time: what it says, a NUL, its headers' `when` and `zone`."""
    body, _, words = data.partition(b"\0")
    when, _, zone = text_of(words).partition("\0")
    headers = {"Nats-Schedule": when, "Nats-Schedule-Time-Zone": zone, "Nats-Scheduler": f"{SCHEDULE}.x"}
    stored = Stored(subject=f"{SCHEDULE}.x", body=body, sequence=1, time=MOMENT, headers=headers)
    found = read_schedule(stored, {})
    next_time(when, zone, since=MOMENT, now=MOMENT)
    return read_past(stored), found and found.next_after(MOMENT)


def scheduled_rollout(data: bytes) -> object:
    """The schedule of a rollout, and a start that is due: what they say."""
    subject = rollout_schedule_subject("x")
    headers = {
        "Nats-Schedule": "@every 1h",
        "Nats-Schedule-Target": rollout_due_subject("x"),
        "Nats-Scheduler": subject,
    }
    stored = Stored(subject=subject, body=data, sequence=1, time=MOMENT, headers=headers)
    due = msgspec.structs.replace(stored, subject=rollout_due_subject("x"))
    return read_schedule(stored, {}), read_past(due), find_due([stored, due])


def rollout_records(data: bytes) -> object:
    """What rollout servers store: the starts of a schedule, and themselves."""
    bus = MemoryBus(MemoryBroker(now=lambda: MOMENT), "op")
    fleet = fleet_on(bus)
    run_now(fleet.runs.put(starts_key("x"), data))
    run_now(fleet.runs.put("=server.x", data))
    return run_now(StartsStore(fleet).all({})), run_now(read_servers(fleet))


def saved_plan(data: bytes) -> object:
    """A plan in a file, which any operator may have written."""
    return decode_plan(data, "web.plan", MOMENT)


def _sealed_plan() -> bytes:
    plan = PlanFile(
        format=FORMAT,
        run="3MQfrJPuO0jgbX8OLS0ivd4F6Ch",
        name="site",
        time=MOMENT,
        expires=MOMENT,
        bundle=Bundle(digest="0" * 64, size_bytes=1),
        nodes={"web1": PlannedNode(found="f" * 64, data_revisions={"kv://CCM_DATA/common": 3})},
    )
    return msgspec.json.encode(msgspec.structs.replace(plan, seal=_seal(plan)))


SCHEDULE = f"choria.ccm.schedule.manifest.apply.request.{LEVEL}"


SLOT_ERRORS = (ValueError, LookupError, OSError, OverflowError, TypeError)
"""What the caller takes for a schedule that does not fit."""


def slot(data: bytes) -> object:
    """The time that a signed schedule gives to a due message."""
    when, _, zone = text_of(data).partition("\0")
    return schedule_slot(when, zone, MOMENT)


# -- texts


def masked(data: bytes) -> object:
    """Every way in which a program may have written a secret."""
    return [view.text for view in views(text_of(data))]


def json_text(data: bytes) -> object:
    """A JSON text as templates read it."""
    text = text_of(data)
    if not is_valid(text):
        return None
    return parsed(text), list(elements(text)), list(members(text))


def others(data: bytes) -> object:
    """Small readers of one text."""
    text = text_of(data)
    return read_sightings(data), ObjectInfo(digest=text).hex_digest, split_words(text)


def comments(data: bytes) -> object:
    """Comments of a YAML file of the fleet's."""
    return key_comments(data.decode(errors="replace"), "data.yaml")


def header_claims(data: bytes) -> object:
    """A signature header."""
    return read_claims(text_of(data))


_DISABLED = b'{"since":"2026-01-01T00:00:00Z","until":"2026-01-02T00:00:00Z","why":"x","by":"root"}'
_EVENT = (
    b'{"protocol":"PROTOCOL","event_id":"3MQfrJPuO0jgbX8OLS0ivd4F6Ch","timestamp":"2026-01-01T00:00:00Z","type":"file","name":"/a",'
    b'"time":"2026-01-01T00:00:00Z","run":"3MQfrJPuO0jgbX8OLS0ivd4F6Ch","node":"web1","state":"done","health_check":[null],"error":null}'
)
_SCHEDULE = (
    b'{"protocol":"io.choria.ccm.v1.manifest.apply.request","run":"x","catch_up":true,"targets":["role=web"]}'
)
_STAMPED = b'{"bucket":"CCM_DATA","key":"common","number":3,"body":"a: 1","written_by":"alice","time":"2026-01-01T00:00:00Z"}'
_TAKEN = msgspec.msgpack.encode(["t", "3MQfrJPuO0jgbX8OLS0ivd4F6Ch", 1.0, "p", "s", b"{}"])
_LINK = (
    struct.pack("=IHHII", 44, 16, 0, 1, 0)
    + struct.pack("=BxHiII", 0, 1, 1, 1, 0)
    + struct.pack("=HH8s", 12, 3, b"lo")
)
_ADDRESS = (
    struct.pack("=IHHII", 32, 20, 0, 1, 0)
    + struct.pack("=BBBBi", 2, 8, 0, 0, 1)
    + struct.pack("=HH4s", 8, 2, b"\x7f\0\0\1")
)

STORED = [
    Target("state files", state_files, [_DISABLED, b'{"a": [1]}']),
    Target("ledger", ledger, [_TAKEN, msgspec.msgpack.encode(["e", "x", 1.0, "stable", "", ""])]),
    Target("spool on disk", spool, [msgspec.msgpack.encode(["e", 1, "s", "i", b"x"])]),
    Target("session directory", session, [
        _EVENT.replace(b"PROTOCOL", SESSION_START.encode()),
        _EVENT.replace(b"PROTOCOL", TRANSACTION_EVENT.encode()),
    ]),
    Target("memory of a scaffold", scaffold, [b'{"name":"/srv","made":{"a":{"sha256":"x","command":"y"}}}']),
    Target("netlink", netlink, [_LINK + _ADDRESS]),
    Target("sockets", sockets, [
        b"  sl  local_address rem_address   st\n   0: 0100007F:0016 00000000:0000 0A 0\n",
    ], (ValueError, OSError)),
    Target("release files", release, [
        b'ID=debian\nID_LIKE="debian"\nDISTRIB_ID=Ubuntu\nVERSION = 15.1\nkvm 1 0\ncontrol_d\n',
    ]),
    Target("authorized_keys", authorized_keys, [
        b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB a\n# b\n",
        b'command="a \\" b",restrict ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB a\n',
    ]),
    Target("vmstat", swap, [b"pswpin 3\npswpout 4\n"]),
    Target("document", document, [_STAMPED]),
    Target("saved plan", saved_plan, [_sealed_plan()]),
    Target("event", event, [_EVENT]),
    Target("schedule", schedule, [
        _SCHEDULE + b"\x000 0 2 * * *\0Europe/Berlin",
        _SCHEDULE + b"\0@at 2026-12-01T02:00:00Z\0",
        _SCHEDULE + b"\0@every 1h\0",
        _SCHEDULE + b"\0@at 2026-12-01T02:00:00\0",
        _SCHEDULE + b"\0@every 99999999999h\0",
    ]),
    Target("scheduled rollout", scheduled_rollout, [
        b'{"request":' + _SCHEDULE + b',"scope":"all","definition":{"options":{"batch":"1"}},"start_within_s":1.0}',
        b'{"request":' + _SCHEDULE + b',"scope":"all","definition":{"file":{"waves":[{"name":"a"}]}}}',
    ]),
    Target("records of rollout servers", rollout_records, [
        b'{"name":"x","starts":[{"due":"2026-01-01T00:00:00Z","run":"x"}],"run":"x"}',
        b'{"operator":"op","host":"a","until":"2026-11-21T12:00:30Z"}',
    ]),
    Target("signed schedule", slot, [
        b"0 0 12 * * *\0UTC", b"@at 2026-11-21T12:00:00+00:00", b"@every 1h",
    ], SLOT_ERRORS),
    Target("masked text", masked, [b"a=%41%c3%a9&amp;&#65;&#x41;\\n\\u0041\\101'it''s' \"q\"\"q\"\r\n b\\\n"]),
    Target("JSON text", json_text, [b'{"a":[1,{"b":null}],"c":"\\ud83d\\ude00"}', b"[1,2]"]),
    Target("small readers", others, [b'{"known": ["a"]}', b"SHA-256=AAAA", b"a 'b c' \"d\\\"\" e\\ f"]),
    Target("comments of YAML", comments, [b"# a\na: 1 # b\n# c\nb:\n  - x # d\n"]),
]  # fmt: skip
