"""
Follow a run over the bus: send the request, receive messages and read the stream until every node has ended.

`fleet/runs/run.py` makes the decisions, and this module executes them. After each turn it calls `on_turn` with the news.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from typing import TYPE_CHECKING

from ccm_agent.bus.subjects import parse_event, run_pattern
from ccm_agent.model.errors import BusError, BusUnavailableError, ProtocolError
from ccm_agent.model.outcome import SESSION_SUMMARY, SessionStart, SessionSummary, TransactionEvent
from ccm_agent.model.wire import Answer, Progress
from ccm_ctl.fleet.events.messages import decode_agent_message
from ccm_ctl.fleet.runs.proof import CountedMessage
from ccm_ctl.fleet.trust.authors import find_certificates, learn_records

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from ccm_agent.model.ports import StoredEvent
    from ccm_ctl.fleet.events.messages import AgentMessage
    from ccm_ctl.fleet.ports import Fleet
    from ccm_ctl.fleet.runs.node_run import News, PendingActions
    from ccm_ctl.fleet.runs.proof import RunProof
    from ccm_ctl.fleet.runs.returning import ReturningNodes
    from ccm_ctl.fleet.runs.run import Run

log = logging.getLogger(__name__)

TURN_S = 0.2
"""Seconds between turns without messages."""

READ_EACH_LIMIT = 8
"""With more nodes than this, the events of the whole run are read with one request, instead of node by node."""


HELD_LIMIT = 1000
"""
The maximum number of messages kept for an unexpected node until it is decided whether the node may join. Further messages can be
read from the stream.
"""

LAST_TURNS = 10
"""A finished run ends after this many turns, even if nodes keep sending."""


async def ignore_news(_news: list[News]) -> None:
    """Do nothing. This is the `on_turn` of callers that need only the result of the run."""


class Follower:
    """
    Follows one run.

    Args:
        fleet: The bus.
        run: The state of the run, which this class updates.
        ask: Sends the request again to the given nodes. None for an observer.
        may_join: Whether an unexpected node may join the run (`fleet/runs/joining.py`).
        on_turn: Called after each turn with the news, which may be empty.
        proof: Decides which messages are valid. None: all are, because these credentials cannot verify messages.
        returning: Finds nodes that come back while the run is in progress. The request is then sent to them. None: they do not
            get it.
        is_ended: Whether to stop following before every node has ended, for example when a rollout is paused.
        goes_on: Whether to continue after every node has ended, for example because a rollout has another step to do.
    """

    def __init__(
        self,
        fleet: Fleet,
        run: Run,
        *,
        ask: Callable[[list[str]], Awaitable[None]] | None,
        may_join: Callable[[str], Awaitable[bool]],
        on_turn: Callable[[list[News]], Awaitable[None]],
        proof: RunProof | None = None,
        returning: ReturningNodes | None = None,
        is_ended: Callable[[], bool] = lambda: False,
        goes_on: Callable[[], bool] = lambda: False,
    ) -> None:
        self._fleet = fleet
        self._run = run
        self._ask = ask
        self._may_join = may_join
        self._on_turn = on_turn
        self._proof = proof
        self._returning = returning
        self._is_ended = is_ended
        self._goes_on = goes_on
        self._heard: deque[StoredEvent] = deque()
        self._unexpected: dict[str, list[tuple[StoredEvent, AgentMessage]]] = {}
        self._done_turns = 0
        self._woken = asyncio.Event()
        self._ticked_at = float("-inf")

    async def follow(self, begin: Callable[[], Awaitable[None]] | None = None) -> None:
        """
        Return when every node has ended.

        Args:
            begin: Sends the request for the first time. It is called when all subscriptions are active.
        """
        stop = await self._fleet.events.follow(run_pattern(self._run.run), self._hear)
        try:
            if begin is not None:
                await begin()
            await self._prepare()
            while not await self._turn():
                await self._wait()
        finally:
            await stop()

    async def look(self, *, ends_only: bool = False) -> None:
        """
        Read the run's events from the stream once, without showing news.

        Args:
            ends_only: Read only the summaries, which contain the end state of each node.
        """
        if ends_only:
            self._take_in(await self._fleet.events.read(f"{SESSION_SUMMARY}.{self._run.run}.>"))
        else:
            await self._read(None)
        await self._judge_unexpected()
        await self._certify()

    async def _prepare(self) -> None:
        """Read the keys of the expected nodes while the nodes are working."""
        if self._proof is None:
            return
        with contextlib.suppress(BusError):  # missing keys are looked up again when they are needed
            authors = self._proof.authors
            await learn_records(
                self._fleet, authors, [one for one in self._run.nodes if not authors.certified(one)]
            )

    async def _certify(self) -> None:
        """Read the certificates that summaries are waiting for, and process the messages that they verify."""
        if self._proof is None or not (wanted := self._proof.wanted_keys):
            return
        try:
            await find_certificates(self._fleet, self._proof.authors, wanted)
        except BusUnavailableError:
            raise
        except BusError as err:
            log.warning("certificates of nodes cannot be read", extra={"reason": str(err)})
        for one in self._proof.retry():
            self._count(one)

    def _hear(self, message: StoredEvent) -> None:
        if not self._is_ignored(message):
            self._heard.append(message)
            self._woken.set()

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(TURN_S):
                await self._woken.wait()
        except TimeoutError:
            pass
        self._woken.clear()

    async def _turn(self) -> bool:
        """Process received messages and timers, and show news. Returns True at the end of the run."""
        now = self._now()
        if self._fleet.link.connected:
            self._run.back(now)
        else:
            self._run.away(now)
        self._take_in_heard()
        try:
            if now - self._ticked_at >= TURN_S:
                self._ticked_at = now
                await self._do(self._run.tick(now))
            await self._judge_unexpected()
            await self._certify()
        except BusUnavailableError:
            self._run.away(self._now())
        await self._on_turn(self._run.updates())
        self._done_turns = self._done_turns + 1 if self._run.is_done else 0
        if self._is_ended():
            return True
        if self._goes_on():
            return False
        return self._run.is_done and (not self._heard or self._done_turns >= LAST_TURNS)

    async def _do(self, todo: PendingActions) -> None:
        if todo.resend and self._ask is not None:
            await self._ask(todo.resend)
        await self._ask_returned()
        if todo.read_all or len(todo.read) > READ_EACH_LIMIT:
            await self._read(None)
        elif todo.read:
            await self._read(todo.read)

    async def _ask_returned(self) -> None:
        if self._ask is None or self._returning is None or self._run.is_done:
            return
        if back := await self._returning.find(self._run.missing()):
            self._run.ask(back, self._now())
            await self._ask(back)

    async def _read(self, nodes: list[str] | None) -> None:
        for node in [">"] if nodes is None else nodes:
            self._take_in(await self._fleet.events.read(run_pattern(self._run.run, node)))
        # the broker delivered these messages before its reply, so their nodes are not lost
        self._take_in_heard()
        await self._certify()
        self._run.read_done(nodes, self._now())

    def _take_in_heard(self) -> None:
        while self._heard:
            self._take_in([self._heard.popleft()])

    def _take_in(self, messages: Iterable[StoredEvent]) -> None:
        for message in messages:
            if self._is_ignored(message):
                continue
            try:
                heard = decode_agent_message(message)
            except ProtocolError:
                continue
            if heard.run != self._run.run:
                continue
            if self._run.knows(heard.node):
                self._give(message, heard)
            elif len(held := self._unexpected.setdefault(heard.node, [])) < HELD_LIMIT:
                held.append((message, heard))

    def _is_ignored(self, message: StoredEvent) -> bool:
        """Whether the message is from a node that may not join. Such messages are not decoded, because there may be many."""
        if not self._run.ignored:
            return False
        try:
            return parse_event(message.subject).node in self._run.ignored
        except ProtocolError:
            return True

    def _give(self, message: StoredEvent, heard: AgentMessage) -> None:
        if self._proof is None:
            self._count(CountedMessage(heard.node, heard.said))
            return
        for one in self._proof.take(message, heard):
            self._count(one)

    def _count(self, one: CountedMessage) -> None:
        now, said = self._now(), one.said
        if isinstance(said, Answer):
            self._run.answered(one.node, said, now)
        elif isinstance(said, Progress):
            self._run.progressed(one.node, said, now)
        elif isinstance(said, SessionSummary) and one.proves:
            self._run.proven(one.node, said, now)
        elif isinstance(said, SessionStart | TransactionEvent | SessionSummary):
            self._run.happened(one.node, said, now)

    async def _judge_unexpected(self) -> None:
        """Let unexpected nodes join if they may, and process their messages so far. Ignore the other unexpected nodes."""
        for name in list(self._unexpected):
            may_join = await self._may_join(name)
            held = self._unexpected.pop(name)
            if not may_join:
                self._run.ignored.add(name)
                continue
            self._run.join(name, self._now())
            for message, heard in held:
                self._give(message, heard)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
