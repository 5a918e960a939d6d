"""
Reports the resources of the host, for `ccmctl import`.

Finding them can take seconds, so a request is accepted immediately and answered later, in parts. An import does not change the
host, so a request that is repeated after a lost answer is answered again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec
from msgspec import Struct

from ccm_agent.agent.requests.node_commands import NodeCommand
from ccm_agent.agent.requests.requested_runs import AnswerSender
from ccm_agent.agent.runs.admission import Admission
from ccm_agent.model.errors import CcmError, Refusal
from ccm_agent.model.records.host_import import (
    BATCH_FILES,
    PARTS_LIMIT,
    RESOURCES_LIMIT,
    WORDS_LIMIT,
    HostResources,
    content_words,
    in_site_order,
    split_resources,
    why_not_imported,
)
from ccm_agent.model.records.policy import DIFF, Principal
from ccm_agent.model.wire import RESOURCE_IMPORT, AnswerState, ImportRequest, Request
from ccm_agent.policy.grant import Grant

log = logging.getLogger(__name__)

WAITING_LIMIT = 4
"""The maximum number of waiting requests."""

LOOK_S = 120.0
"""Time limit for reading the host; a package manager may hang while it waits for its lock."""

FindResources = Callable[[Sequence[str], Sequence[str], Grant | None], Awaitable[HostResources]]
"""Finds resources of some types on the host, or contents by their digests, limited to resources that a grant allows."""


class _Waiting(Struct, frozen=True):
    """A request that has not been answered."""

    run: str
    types: tuple[str, ...]
    contents: tuple[str, ...]
    grant: Grant | None


class ResourceImports:
    """
    Answers the import requests to one agent, one at a time.

    Args:
        admission: The node's policy.
        find: Finds the resources of the host.
        answers: Sends the answers.
    """

    def __init__(self, admission: Admission, find: FindResources, answers: AnswerSender) -> None:
        self._admission = admission
        self._find = find
        self._answers = answers
        self._waiting: deque[_Waiting] = deque()
        self._wake = asyncio.Event()

    def by_protocol(self) -> Mapping[str, NodeCommand]:
        """The command, by the protocol id of its request."""
        return {RESOURCE_IMPORT: self._accept}

    async def run(self) -> None:
        """Answer requests until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                await self._answer(self._waiting[0])
                self._waiting.popleft()

    async def _accept(self, request: Request, principal: Principal) -> None:
        assert isinstance(request, ImportRequest)
        if any(one.run == request.run for one in self._waiting):
            return
        words = request.types[: WORDS_LIMIT + 1]
        reason = next(filter(None, map(why_not_imported, words)), "")
        if reason or not 0 < len(words) <= WORDS_LIMIT:
            raise Refusal("import.type", reason or f"a request can import 1 to {WORDS_LIMIT} types")
        if len(request.contents) > BATCH_FILES:
            raise Refusal("import.size", f"at most {BATCH_FILES} file contents are sent per request")
        if len(self._waiting) >= WAITING_LIMIT:
            raise Refusal("queue.full", f"{WAITING_LIMIT} import requests are already waiting")
        grant = self._admission.policy.ruling(principal, "import", "").grant
        if content_words(words):
            grant = self._grant_contents(principal, grant)
        types = tuple(in_site_order(words))
        self._waiting.append(_Waiting(request.run, types, tuple(request.contents), grant))
        self._wake.set()

    def _grant_contents(self, principal: Principal, grant: Grant | None) -> Grant | None:
        """Return the grant for an import with contents, limited to resources that an apply may also manage."""
        ruling = self._admission.policy.ruling(principal, "apply", "apply")
        if not ruling.is_allowed:
            raise Refusal(
                ruling.code, f"files are imported only for operators who may also apply: {ruling.reason}"
            )
        grants = [one for one in (grant, ruling.grant) if one is not None]
        if any(DIFF in one.withheld for one in grants):
            raise Refusal("policy.denied", "the node's policy withholds diffs, so no files are imported")
        if not grants:
            return None
        layers = [layer for one in grants for layer in one.layers]
        denial = next((one.denial for one in grants if one.denial), "")
        return Grant(who=grants[0].who, layers=tuple(layers), denial=denial)

    async def _answer(self, asked: _Waiting) -> None:
        try:
            async with asyncio.timeout(LOOK_S):
                found = await self._find(asked.types, asked.contents, asked.grant)
            await self._send(asked.run, found)
        except CcmError as err:
            await self._refuse(asked.run, str(err), err.code)
        except TimeoutError:
            await self._refuse(
                asked.run, f"the host could not be read within {LOOK_S:g} seconds", "import.failed"
            )
        except Exception as err:
            log.exception("the host cannot be imported", extra={"run": asked.run})
            await self._refuse(asked.run, f"the host cannot be read: {type(err).__name__}", "import.failed")

    async def _send(self, run: str, found: HostResources) -> None:
        parts = await asyncio.to_thread(split_resources, found)
        count = len(found.resources) + len(found.left_out)
        if len(parts) > PARTS_LIMIT or count > RESOURCES_LIMIT:
            raise Refusal(
                "import.size", f"{count} resources are too many for one request; name fewer --types"
            )
        for part in parts:
            await self._answers.send(
                run, AnswerState.DONE, body=msgspec.to_builtins(part), is_decision=part.part == 0
            )

    async def _refuse(self, run: str, reason: str, code: str) -> None:
        await self._answers.send(run, AnswerState.REFUSED, reason=reason, code=code)
