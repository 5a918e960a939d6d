"""`ccmctl` in this process, on a broker in memory, with nodes that do what a test says."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TextIO

import msgspec
import rich.console  # noqa: F401 -- loaded before a loop runs: at its import it asks for the working directory

from ccm_agent.bus.chain import CHAIN_HEADER
from ccm_agent.bus.connection.settings import BusSettings
from ccm_agent.bus.signatures.signed_bucket import SignedBucket
from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER, SigningKey
from ccm_agent.bus.signatures.trust import Trust
from ccm_agent.bus.subjects import event_subject, scopes_of
from ccm_agent.clikit.terminal import Terminal
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import (
    SESSION_START,
    SESSION_SUMMARY,
    TRANSACTION_EVENT,
    FailedResource,
    SessionStart,
    SessionSummary,
    TransactionEvent,
    count,
)
from ccm_agent.model.ports import IncomingRequest, StoredEvent
from ccm_agent.model.records.registration import RegistrationEntry
from ccm_agent.model.wire import (
    RUN_STOP,
    SESSION_ANSWER,
    SESSION_PROGRESS,
    Answer,
    FactsRecord,
    NodeRecord,
    Presence,
    Progress,
    RunAhead,
)
from ccm_agent.registration.entries import StreamEntry
from ccm_agent.storage.spool_segment import Kind
from ccm_agent.templates.selector import parse_selector
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.__main__ import VERBS
from ccm_ctl.app import Broker
from ccm_ctl.fleet.data.node_data import OperatorData
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.schedules.stored_schedule import Schedule
from ccm_ctl.main import main
from tests.support.authorship import Root, Writer, new_seed, sign_event
from tests.support.records import check_records

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)

BEFORE = int(NOW.timestamp() * 1000) - 1
"""Below the numbers of all documents that are written now: the first one's follows it, then one after the other."""


class StillClock:
    """Time that stands still, so that whole screens can be compared."""

    def now(self) -> datetime:
        """See `Clock.now`."""
        return NOW

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        return 1000.0

    async def sleep(self, seconds: float) -> None:
        """See `Clock.sleep`."""
        raise AssertionError(f"nobody waits in a unit test, not even for {seconds} s")


def event(name: str, number: int, **fields: Any) -> TransactionEvent:
    """What happened to a file: it was changed, unless the fields say otherwise."""
    values: dict[str, Any] = {
        "protocol": TRANSACTION_EVENT,
        "event_id": new_id(),
        "timestamp": NOW,
        "number": number,
        "type": "file",
        "provider": "posix",
        "name": name,
        "requested_ensure": "present",
        "final_ensure": "present",
        "duration": 1_000_000,
        "properties": {},
        "status": {},
        "error": [],
        "changed": not fields.get("failed", False),
        "refreshed": False,
        "failed": False,
        "skipped": False,
        "noop": False,
        "unmet_requirements": [],
    }
    return TransactionEvent(**(values | fields))


def planned_change(name: str, number: int) -> TransactionEvent:
    """What a plan says of a file that exists with other content, in Choria CCM's words."""
    return event(
        name,
        number,
        noop=True,
        noop_message="Would have created the file",
        properties={"content": "sha256:" + "a" * 64 + " (3 bytes)", "owner": "root"},
        status={"ensure": "present", "metadata": {"checksum": "b" * 64, "owner": "root"}},
    )


@dataclass
class FakeNode:
    """
    A node on the broker in memory.

    Attributes:
        name: Its identity.
        facts: Its facts, all of them routed.
        does: What it makes of a run: the events, or an answer that ends it ("refused: why").
        is_present: It has given a sign of life, and listens.
        heard: The requests that it got, decoded.
        progress: What it says on the way.
        record: What else stands in its record: its assignments, that it is disabled.
        status: What it answers to a question, besides its version; None: it is asked in vain.
        ahead: The run that it finishes first, to which it answers `queued`.
        stop: What it answers to a stop; "" is nothing.
        outcome: How its run had ended before the stop; "": it had not.
        reason: Why its sessions end before their resources; "": they do not.
        root: It signs its events with a key that this root certified; None: it does not sign.
        delivered: What the broker makes of the events of a run.
        may_go_on: Whether it may do more than accept a run; it waits until then.
        found: Its digest of what a plan found that it keeps; "": it cannot keep plans.
    """

    name: str
    facts: dict[str, Any] = field(default_factory=dict)
    does: Sequence[TransactionEvent] | str = ()
    reason: str = ""
    is_present: bool = True
    heard: list[dict[str, Any]] = field(default_factory=list)
    progress: Progress | None = None
    record: dict[str, Any] = field(default_factory=dict)
    status: dict[str, Any] | None = field(default_factory=dict)
    ahead: RunAhead | None = None
    stop: str = "done"
    outcome: str = ""
    root: Root | None = None
    delivered: Callable[[list[StoredEvent]], list[StoredEvent]] = list
    may_go_on: Callable[[], bool] = lambda: True
    found: str = ""

    def __post_init__(self) -> None:
        self.key = SigningKey(new_seed()) if self.root is not None else None
        self.writer = Writer(self.key)
        if self.root is not None and self.key is not None:
            certificate = self.root.certificate(self.name, self.key)
            self.record = self.record | {"key": self.key.public_key, "certificate": certificate}

    async def begin(self, broker: MemoryBroker) -> None:
        """Come to the broker: record, presence and facts, and listen."""
        bus = MemoryBus(broker, self.name)
        nodes = bus.bucket("CCM_NODES")
        record = NodeRecord(
            node=self.name, version="1.2.3", machine=f"m-{self.name}", facts=self.facts, **self.record
        )
        await nodes.put(f"node.{self.name}", msgspec.json.encode(record))
        await nodes.put(
            f"facts.{self.name}", msgspec.json.encode(FactsRecord(node=self.name, facts=self.facts))
        )
        if not self.is_present:
            return
        presence = Presence(node=self.name, time=NOW - timedelta(seconds=5))
        await nodes.put(f"presence.{self.name}", msgspec.json.encode(presence))
        tasks: set[asyncio.Task[None]] = set()

        def take(incoming: IncomingRequest) -> None:
            task = asyncio.get_running_loop().create_task(
                self._serve(bus, incoming), name=f"node:{self.name}"
            )
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        await bus.requests.subscribe(scopes_of(self.name, self.facts), take)

    async def _serve(self, bus: MemoryBus, incoming: IncomingRequest) -> None:
        request = msgspec.json.decode(incoming.body)
        targets = request.get("targets", [])
        if targets and not any(parse_selector(text).matches(self.name, self.facts) for text in targets):
            return
        self.heard.append(request)
        if len([one for one in self.heard if one["run"] == request["run"]]) > 1:
            return
        run = request["run"]
        if incoming.protocol == RUN_STOP:
            state, _, reason = self.stop.partition(": ")
            if state:
                await self._answer(bus, run, state, reason=reason, outcome=self.outcome)
            return
        if not any(word in incoming.protocol for word in ("manifest", "ensure", "exec")):
            if self.status is not None:
                await self._answer(bus, run, "done", body={"version": "1.2.3"} | self.status)
            return
        if self.ahead is not None:
            await self._answer(bus, run, "queued", position=1, ahead=self.ahead)
        if isinstance(self.does, str):
            state, _, reason = self.does.partition(": ")
            if state:
                await self._answer(bus, run, state, reason=reason)
            return
        await self._answer(bus, run, "accepted")
        await reached(self.may_go_on)
        await self._apply(
            bus, run, self.does, noop="plan" in incoming.protocol,
            requester=request.get("requester", ""), message=request.get("message", ""),
            found=self.found if request.get("keep") else "",
        )  # fmt: skip

    async def _answer(self, bus: MemoryBus, run: str, state: str, **more: Any) -> None:
        answer = Answer(protocol=SESSION_ANSWER, run=run, node=self.name, state=state, **more)
        subject, body = event_subject(SESSION_ANSWER, self.name, run), msgspec.json.encode(answer)
        headers = {SIGNATURE_HEADER: sign_event(self.key, subject, body, "")} if self.key else {}
        await bus.events.announce(subject, body, headers)

    async def converge(self, broker: MemoryBroker, run: str, cause: str, origin: str) -> None:
        """Do what a schedule or an assignment says, without an operator's request."""
        assert not isinstance(self.does, str)
        await self._apply(
            MemoryBus(broker, self.name), run, self.does, noop=False, cause=cause, origin=origin
        )

    async def _apply(
        self,
        bus: MemoryBus,
        run: str,
        events: Sequence[TransactionEvent],
        *,
        noop: bool,
        cause: str = "request",
        origin: str = "",
        requester: str = "",
        message: str = "",
        found: str = "",
    ) -> None:
        said: list[SessionStart | TransactionEvent | SessionSummary] = [
            SessionStart(
                protocol=SESSION_START, event_id=new_id(), timestamp=NOW, node=self.name, run=run, number=1,
                manifest="motd", resources=len(events), noop=noop, cause=cause, origin=origin, requester=requester,
                message=message,
            )
        ]  # fmt: skip
        summary = SessionSummary(
            protocol=SESSION_SUMMARY, event_id=new_id(), timestamp=NOW, start_time=NOW, end_time=NOW,
            total_duration=12_000_000, node=self.name, run=run, state="stable", found=found,
        )  # fmt: skip
        for one in events:
            count(summary, one)
            said.append(msgspec.structs.replace(one, event_id=new_id(), node=self.name, run=run, noop=noop))
            if one.failed:
                summary.failed.append(
                    FailedResource(resource=f"{one.type}#{one.name}", error=one.error, output=one.output)
                )
        if events:
            summary.state = "failed" if summary.failed else "changed"
        else:
            summary.stable_resources = summary.total_resources = 3
        if self.reason:
            summary.state, summary.reason = "failed", self.reason
        summary.number = summary.events_sent = len(said) + 1
        if self.progress is not None:
            told = msgspec.structs.replace(self.progress, node=self.name, run=run)
            await bus.events.announce(
                event_subject(SESSION_PROGRESS, self.name, run), msgspec.json.encode(told)
            )
        written = []
        for one in [*said, summary]:
            subject, kind = event_subject(one.protocol, self.name, run), Kind.RESOURCE
            kind = Kind.SUMMARY if one is summary else kind
            written.append(self.writer.event(subject, msgspec.json.encode(one), run=run, kind=kind))
        for event in self.delivered(written):
            headers = {CHAIN_HEADER: event.chain, SIGNATURE_HEADER: event.signature} if self.root else {}
            await bus.events.publish(
                event.subject, new_id(), event.body, {name: text for name, text in headers.items() if text}
            )


async def reached(condition: Callable[[], bool]) -> None:
    """Let everything else run until a condition holds."""
    while not condition():  # noqa: ASYNC110 -- a condition on text that a command wrote sets no event
        await asyncio.sleep(0)


class Screen(io.StringIO):
    """A stream that may be a terminal."""

    def __init__(self, *, is_terminal: bool = False) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        """It is a terminal."""
        return self._is_terminal


@contextlib.contextmanager
def keyboard(typed: str) -> Iterator[TextIO]:
    """A terminal at which something was typed."""
    above, below = os.openpty()
    with os.fdopen(above, "wb", buffering=0) as writer, os.fdopen(below) as source:
        writer.write(typed.encode())
        yield source


@dataclass
class Said:
    """How a command line ended."""

    code: int
    out: str
    err: str

    @property
    def records(self) -> list[dict[str, Any]]:
        """The lines of `--json`; each must fit its schema."""
        found = [msgspec.json.decode(line) for line in self.out.splitlines()]
        check_records(found)
        return found

    def named(self, kind: str) -> list[dict[str, Any]]:
        """The records of one kind."""
        return [record for record in self.records if record["record"] == kind]

    @property
    def screen(self) -> str:
        """What a person sees on both streams, without what differs from run to run."""
        text = _RUN.sub("RUN", self.err + self.out)
        return _AFTER.sub("Nms", _LASTS.sub("in T", text))


_RUN = re.compile(r"\b(?:[0-9A-Za-z]{27}|3[A-Za-z][0-9A-Za-z]{6,24})\b")
"""Ids of runs that begin now, whole or short; the first characters are the time, `3` until 2029."""
_LASTS = re.compile(r"in \d+(\.\d)?m?s\b")
_AFTER = re.compile(r"\b\dms\b")

Hook = Callable[[MemoryBroker], Awaitable[None]]


class Desk:
    """
    An operator's desk: a broker that lives as long as the test, and nodes that come when a command runs.

    Attributes:
        broker: What the commands talk to.
        nodes: Who is there.
        trust: What the operator's credentials say about trust; None: nothing.
        schedules: The schedules on the broker.
        services: What the registry stores.
        err: Standard error of the command that runs now, or ran last.
    """

    def __init__(self, *nodes: FakeNode, operator: str = "op", trust: Trust | None = None) -> None:
        self.broker = MemoryBroker(now=lambda: NOW)
        self.nodes = list(nodes)
        self.operator = operator
        self.trust = trust
        self.hooks: list[Hook] = []
        self.schedules: list[Schedule] = []
        self.unreadable_schedules: list[str] = []
        self.services: list[StreamEntry] = []
        self.err = Screen()
        self._come: set[str] = set()

    def ccmctl(
        self,
        *argv: str,
        environ: Mapping[str, str] | None = None,
        is_terminal: bool = False,
        typed: str = "",
    ) -> Said:
        """Run a command line; on a terminal if something is `typed` there."""
        with contextlib.ExitStack() as stack:
            source = stack.enter_context(keyboard(typed)) if typed else None
            return self._run(argv, environ, source, is_terminal=is_terminal or bool(typed))

    def _run(
        self,
        argv: Sequence[str],
        environ: Mapping[str, str] | None,
        source: TextIO | None,
        *,
        is_terminal: bool,
    ) -> Said:
        out, err = Screen(is_terminal=is_terminal), Screen(is_terminal=is_terminal)
        self.err = err
        terminal = Terminal("ccmctl", out=out, err=err, source=source, environ=environ or {})
        given = {"CCM_OPERATOR": self.operator, "HOME": "/nonexistent", **(environ or {})}
        code = main(argv, VERBS, terminal=terminal, environ=given, connect=self._connect)
        return Said(code, out.getvalue(), err.getvalue())

    @contextlib.asynccontextmanager
    async def _connect(self, settings: BusSettings) -> AsyncIterator[Broker]:
        bus = MemoryBus(self.broker, settings.identity)
        for node in self.nodes:
            await node.begin(self.broker)
        for hook in list(self.hooks):
            await hook(self.broker)
        fleet = msgspec.structs.replace(
            fleet_on(bus, self.trust),
            schedules=self._read_schedules,
            services=StoredServices(self.services),
        )
        yield Broker(fleet)

    async def _read_schedules(self, left_out: list[str]) -> list[Schedule]:
        left_out += self.unreadable_schedules
        return self.schedules


class StoredServices:
    """A registry with what a test puts there."""

    def __init__(self, entries: list[StreamEntry]) -> None:
        self._entries = entries

    async def stored(self) -> list[StreamEntry]:
        """All of it."""
        return self._entries

    async def registrations(
        self, cluster: str, protocol: str, service: str, address: str
    ) -> list[RegistrationEntry]:
        """Not asked: tests of gates bring their own answers."""
        raise NotImplementedError

    async def kv_get(self, bucket: str, key: str) -> bytes | None:
        """Not asked."""
        raise NotImplementedError


def fleet_on(bus: MemoryBus, trust: Trust | None = None) -> Fleet:
    """The controller's ports on a connection in memory."""
    return Fleet(
        operator=bus.identity,
        link=bus.link,
        requests=bus.requests,
        events=bus.events,
        nodes=bus.bucket("CCM_NODES"),
        facts=SignedBucket(bus.bucket("CCM_FACTS"), "CCM_FACTS", bus.signatory),
        data=OperatorData(
            bus.bucket("CCM_DATA"), bus.bucket("CCM_NODE_DATA"), bus.bucket("CCM_NODES"), bus.signatory
        ),
        assignments=SignedBucket(bus.bucket("CCM_ASSIGNMENTS"), "CCM_ASSIGNMENTS", bus.signatory),
        runs=bus.bucket("CCM_RUNS"),
        manifests=bus.objects("CCM_MANIFESTS"),
        clock=StillClock(),
        trust=trust,
        signers=SignedBucket(bus.bucket("CCM_TRUST"), "CCM_TRUST", bus.signatory),
        slots=bus.bucket("CCM_SLOTS"),
        secrets=SignedBucket(bus.bucket("CCM_SECRETS"), "CCM_SECRETS", bus.signatory),
        signatory=bus.signatory,
    )
