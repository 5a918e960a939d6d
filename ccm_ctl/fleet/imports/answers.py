"""Request the resources of nodes, and collect their signed answers, which arrive in parts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ccm_agent.bus.signatures.verified import Authored
from ccm_agent.bus.subjects import request_subject, run_pattern
from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.ids import new_id
from ccm_agent.model.records.host_import import HostResources, ResourcesPart, join_parts
from ccm_agent.model.wire import RESOURCE_IMPORT, Answer, AnswerState, ImportRequest
from ccm_ctl.fleet.events.messages import decode_agent_message
from ccm_ctl.fleet.runs.gather import NAMED_AT_ONCE
from ccm_ctl.fleet.trust.authors import find_certificates, read_authors

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from ccm_agent.model.ports import StoredEvent
    from ccm_ctl.fleet.nodes.nodes import TargetSet
    from ccm_ctl.fleet.ports import Fleet

TURN_S = 0.2
"""The interval, in seconds, at which time limits are checked."""

ACCEPT_S = 5.0
"""A node that does not accept within this time is unreachable."""

LOOK_S = 150.0
"""The time limit for a node that has accepted, in seconds. The node's own limit is shorter."""

ASK_AGAIN_S = (1.0, 2.5)
"""The times, in seconds, at which the request is sent again to nodes that have not reacted."""

ALL_S = 600.0
"""The time limit, in seconds, for a complete answer, even if a node keeps sending."""

QUIET_S = 10.0
"""The seconds without a new part after which a node with an incomplete answer gets the request again."""


class ImportAnswer(Struct, frozen=True, kw_only=True):
    """
    The result of the request on one node.

    Attributes:
        state: `imported`, `refused`, `silent`, or `forged` (the received messages are not from the node).
        reason: The reason why there are no resources. "" for `imported`.
        found: The node's resources, or None unless the state is `imported`.
    """

    state: str
    reason: str = ""
    found: HostResources | None = None


class _Parts(Struct):
    """The parts of a node's answer that have arrived."""

    accepted: bool = False
    digest: str = ""
    texts: dict[int, str] = {}
    heard_at: float = 0
    is_asked_again: bool = False
    forged: str = ""


class ImportAnswers:
    """
    Collects the answers to one request. This class does no I/O: its input is answers and the time.

    Attributes:
        ended: The results of the nodes that have ended, by name.
    """

    def __init__(self, nodes: Collection[str], now: float) -> None:
        self.ended: dict[str, ImportAnswer] = {}
        self._began = now
        self._waiting = {node: _Parts(heard_at=now) for node in sorted(nodes)}

    @property
    def open(self) -> list[str]:
        """The nodes that have not ended."""
        return list(self._waiting)

    @property
    def silent(self) -> list[str]:
        """The nodes that have neither accepted nor answered."""
        return [node for node, parts in self._waiting.items() if not parts.accepted and not parts.texts]

    def heard(self, node: str, said: Answer, now: float) -> None:
        """Process a node's answer. The caller has checked that the answer is from the node."""
        parts = self._waiting.get(node)
        if parts is None:
            return
        if said.state == AnswerState.REFUSED:
            self._end(node, ImportAnswer(state="refused", reason=said.reason or "no reason given"))
        elif said.state == AnswerState.DONE:
            self._take(node, parts, said, now)
        elif said.state == AnswerState.ACCEPTED and not parts.accepted:
            parts.accepted, parts.heard_at = True, now

    def distrust(self, node: str, reason: str) -> None:
        """Record that a message in the name of a node is not proven to be from the node."""
        if parts := self._waiting.get(node):
            parts.forged = reason

    def late(self, now: float) -> list[str]:
        """
        End nodes that were silent for too long. Returns the nodes that get the request again, because parts of their answer are
        missing.
        """
        again = []
        for node, parts in list(self._waiting.items()):
            silent_s = now - parts.heard_at
            if parts.texts and silent_s >= QUIET_S and not parts.is_asked_again:
                parts.is_asked_again, parts.heard_at = True, now
                again.append(node)
            elif silent_s >= (LOOK_S if parts.accepted else ACCEPT_S) or now - self._began >= ALL_S:
                state = "forged" if parts.forged else "silent"
                waited_s = max(silent_s, now - self._began if parts.texts else 0)
                reason = parts.forged or f"no {'complete ' if parts.texts else ''}answer in {waited_s:.0f}s"
                self._end(node, ImportAnswer(state=state, reason=reason))
        return again

    def _take(self, node: str, parts: _Parts, said: Answer, now: float) -> None:
        try:
            part = msgspec.convert(said.body, ResourcesPart)
        except msgspec.ValidationError as err:
            self._end(node, _malformed(err))
            return
        if part.part >= part.parts:
            self._end(node, _malformed(f"part {part.part} of {part.parts}"))
            return
        if part.digest != parts.digest:
            # the node has searched again, because the request was repeated
            parts.digest, parts.texts = part.digest, {}
        if part.part not in parts.texts:
            parts.heard_at = now
        parts.texts[part.part] = part.text
        if len(parts.texts) < part.parts:
            return
        try:
            found = join_parts([parts.texts[number] for number in sorted(parts.texts)], parts.digest)
        except (ValueError, msgspec.DecodeError) as err:
            self._end(node, _malformed(err))
        else:
            self._end(node, ImportAnswer(state="imported", found=found))

    def _end(self, node: str, answer: ImportAnswer) -> None:
        del self._waiting[node]
        self.ended[node] = answer


def _malformed(err: object) -> ImportAnswer:
    return ImportAnswer(state="refused", reason=f"its answer cannot be read: {err}")


async def ask_resources(
    fleet: Fleet,
    types: Sequence[str],
    resolved: TargetSet,
    on_turn: Callable[[ImportAnswers], None] = lambda _: None,
    contents: Sequence[str] = (),
) -> dict[str, ImportAnswer]:
    """
    Request the resources of the present target nodes.

    Args:
        fleet: The bus.
        types: Types of `SITE_ORDER`, some with a path.
        resolved: The nodes. The function does not wait for offline nodes.
        on_turn: Called several times a second.
        contents: Digests of contents to request instead, at most BATCH_FILES with BATCH_BYTES in total.

    Returns:
        The result of each present node, by name.

    Raises:
        BusDeniedError: The broker does not allow this operator to send the request to these nodes.
        BusError: The broker cannot be reached.
    """
    loop, now = asyncio.get_running_loop(), fleet.clock.now()
    request = ImportRequest(
        protocol=RESOURCE_IMPORT,
        run=new_id(now),
        time=now,
        targets=resolved.targets,
        where=resolved.where,
        requester=fleet.operator,
        types=list(types),
        contents=list(contents),
    )
    authors = await read_authors(fleet)
    if authors is not None:
        await find_certificates(fleet, authors, [(node, "") for node in resolved.present])
    answers = ImportAnswers(resolved.present, loop.time())

    def take(message: StoredEvent) -> None:
        try:
            heard = decode_agent_message(message)
        except ProtocolError:
            return
        if not isinstance(heard.said, Answer) or heard.node not in answers.open:
            return
        is_final = heard.said.state != AnswerState.ACCEPTED
        if is_final and authors is not None and not authors.accepts(heard.node, message):
            reason = authors.check(heard.node, message).reason or "it is not signed"
            answers.distrust(heard.node, f"its answer is not verified: {reason}")
            return
        answers.heard(heard.node, heard.said, loop.time())

    stop = await fleet.events.follow(run_pattern(request.run), take)
    try:
        await _send(fleet, request, resolved, [])
        began, pending = loop.time(), list(ASK_AGAIN_S)
        while answers.open:
            await asyncio.sleep(TURN_S)
            again = answers.late(loop.time())
            if pending and loop.time() - began >= pending[0]:
                del pending[0]
                again = sorted({*again, *answers.silent})
            if again:
                await _send(fleet, request, resolved, again)
            on_turn(answers)
    finally:
        await stop()
    return answers.ended


async def _send(fleet: Fleet, request: ImportRequest, resolved: TargetSet, named: list[str]) -> None:
    for begin in range(0, max(len(named), 1), NAMED_AT_ONCE):
        body = msgspec.json.encode(
            msgspec.structs.replace(request, named=named[begin : begin + NAMED_AT_ONCE])
        )
        for scope in resolved.scopes:
            await fleet.requests.publish(
                request_subject(request.protocol, scope), body, base=[Authored.from_arguments()]
            )
