"""
Send a request that nodes answer immediately (ping, facts, status), and collect the answers. Their signatures are not checked.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ccm_agent.bus.signatures.verified import Authored
from ccm_agent.bus.subjects import request_subject, run_pattern
from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.ids import new_id
from ccm_agent.model.wire import Answer, Request
from ccm_ctl.fleet.events.messages import decode_agent_message

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from ccm_agent.model.ports import StoredEvent
    from ccm_ctl.fleet.nodes.nodes import TargetSet
    from ccm_ctl.fleet.ports import Fleet

NAMED_AT_ONCE = 2000
"""The maximum number of nodes named in one request. The message size is limited."""

ASK_AGAIN_S = 1.0
ROUNDS = 3
"""
The number of times that the request is sent, at intervals of ASK_AGAIN_S. The function waits for one more interval after the
last.
"""


class Reply(Struct, frozen=True, kw_only=True):
    """
    A node's answer.

    Attributes:
        node: The node.
        answer: The content of the answer.
        after_s: Seconds between the request and the answer.
    """

    node: str
    answer: Answer
    after_s: float


async def gather(
    fleet: Fleet, protocol: str, resolved: TargetSet, on_reply: Callable[[Reply], None] | None = None
) -> tuple[dict[str, Reply], list[str]]:
    """
    Send a request to the target nodes and collect the answers.

    Args:
        fleet: The bus.
        protocol: The request's protocol: an ID of `model.wire` that ends in `.request`.
        resolved: The nodes to ask. The function does not wait for offline nodes.
        on_reply: Called with each answer when it arrives.

    Returns:
        The answers by node, and the nodes that did not answer.
    """
    now = fleet.clock.now()
    request = Request(
        protocol=protocol,
        run=new_id(now),
        time=now,
        targets=resolved.targets,
        where=resolved.where,
        requester=fleet.operator,
    )
    waited_for = set(resolved.nodes) - set(resolved.offline)
    return await ask(fleet, request, resolved.scopes, waited_for, on_reply)


async def ask(
    fleet: Fleet,
    request: Request,
    scopes: Iterable[str],
    waited_for: Collection[str],
    on_reply: Callable[[Reply], None] | None = None,
) -> tuple[dict[str, Reply], list[str]]:
    """
    Send a request that nodes answer immediately, and repeat it for silent nodes. See `gather`.

    Args:
        fleet: The bus.
        request: The request. Answers contain its run ID.
        scopes: The scopes to which it is sent.
        waited_for: The nodes that must answer.
        on_reply: Called with each answer when it arrives.
    """
    asking = _Asking(set(waited_for), on_reply)
    stop = await fleet.events.follow(run_pattern(request.run), asking.hear)
    try:
        for number in range(ROUNDS if waited_for else 1):
            silent = sorted(asking.silent)
            named = silent[:NAMED_AT_ONCE] if number else []
            body = msgspec.json.encode(msgspec.structs.replace(request, named=named))
            for scope in scopes:
                await fleet.requests.publish(
                    request_subject(request.protocol, scope), body, base=[Authored.from_arguments()]
                )
            if await asking.complete_within(ASK_AGAIN_S):
                break
    finally:
        await stop()
    return asking.replies, sorted(asking.silent)


class _Asking:
    """One request and the answers to it."""

    def __init__(self, waited_for: set[str], on_reply: Callable[[Reply], None] | None) -> None:
        self.silent = waited_for
        self.replies: dict[str, Reply] = {}
        self._on_reply = on_reply
        self._complete = asyncio.Event()
        self._began = asyncio.get_running_loop().time()

    def hear(self, message: StoredEvent) -> None:
        after_s = asyncio.get_running_loop().time() - self._began
        try:
            heard = decode_agent_message(message)
        except ProtocolError:
            return
        if not isinstance(heard.said, Answer) or heard.node in self.replies:
            return
        reply = Reply(node=heard.node, answer=heard.said, after_s=after_s)
        self.replies[heard.node] = reply
        self.silent.discard(heard.node)
        if self._on_reply is not None:
            self._on_reply(reply)
        if not self.silent:
            self._complete.set()

    async def complete_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._complete.wait()
        except TimeoutError:
            return False
        return True
