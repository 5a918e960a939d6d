"""
Handles requests from the controller: selects those for this node, answers them, and queues runs.

A request is written into the request log before it is answered, so that it is executed only once even if it is delivered several
times. On a shared scope, a node that does not match the selector answers only if the request names it.
"""

from __future__ import annotations

import logging
from datetime import datetime

import msgspec
from msgspec.structs import replace

from ccm_agent.agent.cache.facts import FactCache
from ccm_agent.agent.requests.missed_schedules import MissedSchedules
from ccm_agent.agent.requests.requested_runs import CommandHandler, RequestedRuns
from ccm_agent.agent.runs.run_queue import ACTIONS, QueuedRun, build_run, find_deadline
from ccm_agent.agent.state.request_log import DecisionLog, RequestLogEntry
from ccm_agent.agent.trust.authentication import Authenticator, NotAuthorizedError, WrongClockError
from ccm_agent.bus.subjects import node_scope, scopes_of
from ccm_agent.model.errors import CcmError, ProtocolError, Refusal
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.ids import is_id
from ccm_agent.model.limited_log import LimitedLog
from ccm_agent.model.ports import IncomingRequest
from ccm_agent.model.wire import (
    MANIFEST_APPLY,
    MANIFEST_CHECK,
    MANIFEST_PLAN,
    NODE_CONVERGE,
    NODE_DISABLE,
    NODE_ENABLE,
    NODE_FACTS,
    NODE_PING,
    NODE_STATUS,
    RESOURCE_ENSURE,
    RESOURCE_EXEC,
    RESOURCE_IMPORT,
    RUN_STOP,
    EnsureRequest,
    ExecRequest,
    ImportRequest,
    MaintenanceRequest,
    ManifestRequest,
    Request,
    StopRequest,
)
from ccm_agent.templates.target_matcher import Matches

log = logging.getLogger(__name__)

KINDS: dict[str, type[Request]] = {
    MANIFEST_APPLY: ManifestRequest,
    MANIFEST_PLAN: ManifestRequest,
    MANIFEST_CHECK: ManifestRequest,
    RESOURCE_ENSURE: EnsureRequest,
    RESOURCE_EXEC: ExecRequest,
    RESOURCE_IMPORT: ImportRequest,
    NODE_PING: Request,
    NODE_FACTS: Request,
    NODE_STATUS: Request,
    NODE_DISABLE: MaintenanceRequest,
    NODE_ENABLE: MaintenanceRequest,
    NODE_CONVERGE: MaintenanceRequest,
    RUN_STOP: StopRequest,
}


class RequestTargets:
    """
    Decides which requests select this node.

    Args:
        node: The node's identity.
        facts: The node's facts.
        matches: Returns whether targets and expression of a request select a node with these facts.
    """

    def __init__(self, node: str, facts: FactCache, matches: Matches) -> None:
        self._node = node
        self._facts = facts
        self._matches = matches
        self._limited = LimitedLog(log)

    def is_called(self, incoming: IncomingRequest, request: Request) -> bool:
        """Whether a request names this node."""
        return self._node in request.named or incoming.scope == node_scope(self._node)

    async def is_meant(self, incoming: IncomingRequest) -> bool:
        """
        Return whether the signed scope of a request is one of this node's scopes according to its current facts.

        The subscriptions do not prove this: an attacker who controls the broker can deliver any message to any subscription.
        """
        facts = await self._facts.routed()
        if incoming.scope in scopes_of(self._node, facts):
            return True
        self._limited.info(
            "a request for another node's scope is ignored", extra={"subject": incoming.subject}
        )
        return False

    async def matches(self, request: Request) -> bool:
        """Whether the selectors of a request select this node. Raises SelectorError if they are invalid."""
        if not request.targets and not request.where:
            return True
        facts = await self._facts.latest()
        asked = request.targets, request.where
        return await self._matches(*asked, self._node, facts, is_request=True)


class RequestHandler:
    """
    Handles the requests of one agent, one after the other.

    Args:
        authenticator: Verifies the sender and the rights of requests.
        targets: Decides which of them select this node.
        decisions: Records the decision about each request.
        missed: Records the scheduled requests that this node has seen.
        runs: Accepts the runs.
        commands: Executes all other requests.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        targets: RequestTargets,
        decisions: DecisionLog,
        missed: MissedSchedules,
        runs: RequestedRuns,
        commands: CommandHandler,
    ) -> None:
        self._authenticator = authenticator
        self._targets = targets
        self._decisions = decisions
        self._missed = missed
        self._runs = runs
        self._commands = commands
        self._limited = LimitedLog(log)

    async def handle(self, incoming: IncomingRequest) -> None:
        """
        Handle a request, and answer it if it is for this node.

        Raises:
            ProtocolError: The request violates the protocol, or its sender is not proven. It was not answered: with an answer, a
                forged request could make this node appear to have refused its part in a genuine run.
        """
        request, due = self._read(incoming)
        is_called = self._targets.is_called(incoming, request)
        known = self._runs.find(request.run)
        if request.named and not is_called and known is not None:
            return  # it was sent again for other nodes; this one has answered
        try:
            principal = await self._authenticator.request(incoming)
        except WrongClockError as err:
            await self._refuse_by_clock(
                incoming, request, err, is_called=is_called, is_known=known is not None
            )
            return
        except NotAuthorizedError as err:
            refused = Refusal(err.code, str(err))
            await self._runs.refuse(incoming, request, refused, is_decision=False)
            self._decisions.unauthorized(request.run, incoming, refused)
            return
        if principal.is_verified:
            request.requester = principal.name
        else:
            principal = replace(principal, name=request.requester)
        if known is not None:
            await self._runs.answer_again(known)
            return
        self._decisions.asked(request.run, incoming, principal)
        try:
            matches = await self._targets.is_meant(incoming) and await self._targets.matches(request)
        except CcmError as err:
            await self._runs.refuse(incoming, request, Refusal(err.code, str(err)))
            return
        if not matches:
            if is_called:
                await self._runs.refuse(incoming, request, Refusal("target.mismatch", "no longer matches"))
            return
        refusal = self._runs.forbids(incoming, principal)
        if refusal is not None:
            self._limited.info("refused by the policy", extra={"run": request.run, "reason": str(refusal)})
            await self._runs.refuse(incoming, request, refusal)
        elif incoming.protocol in ACTIONS:
            await self._runs.take_on(incoming, request, due, principal)
        elif not await self._commands.carry_out(incoming.protocol, request, principal, is_called=is_called):
            reason = f"this agent does not support {incoming.protocol}; upgrade the agent if it is older than the controller"
            await self._runs.refuse(incoming, request, Refusal("request.unknown", reason))

    def build_job(self, entry: RequestLogEntry) -> QueuedRun | None:
        """Return the job of a request that was in the request log when the agent started; None if it can no longer be read."""
        try:
            request = decode_foreign(entry.body, KINDS[entry.protocol])
        except (KeyError, msgspec.DecodeError):
            return None
        request.run = entry.run
        self._decisions.recalled(entry)
        if entry.principal.is_verified:
            request.requester = entry.principal.name
        job = build_run(entry.protocol, request, find_deadline(request, None), entry.principal)
        return replace(job, way="schedule") if entry.scheduled else job

    async def _refuse_by_clock(
        self,
        incoming: IncomingRequest,
        request: Request,
        err: WrongClockError,
        *,
        is_called: bool,
        is_known: bool,
    ) -> None:
        """
        Refuse a request that a listed operator signed for a different time. The answer is signed, so it ends the run on this
        node.

        A known request is not refused: an attacker who controls the broker can deliver an old request again while its run is in
        progress.
        """
        refused = Refusal(err.code, str(err))
        self._decisions.unauthorized(request.run, incoming, refused)
        self._limited.warning("a request is refused", extra={"subject": incoming.subject, "error": str(err)})
        if not incoming.scheduled:  # for a scheduled request, `refuse` publishes it
            self._runs.report_refusal(incoming, str(err))
        if (
            not is_known
            and await self._targets.is_meant(incoming)
            and (is_called or await self._targets.matches(request))
        ):
            await self._runs.refuse(incoming, request, refused, is_decision=False)

    def _read(self, incoming: IncomingRequest) -> tuple[Request, datetime | None]:
        request = decode_request(incoming)
        due = None
        if incoming.scheduled:
            request.run, due = self._missed.identify_run(incoming)
        if not is_id(request.run):
            raise ProtocolError(f"{incoming.subject}: the request has no valid run id")
        return request, due


def decode_request(incoming: IncomingRequest) -> Request:
    """
    Decode the body of a request according to its protocol.

    Raises:
        ProtocolError: The body is not a valid request.
    """
    try:
        return decode_foreign(incoming.body, KINDS.get(incoming.protocol, Request))
    except msgspec.DecodeError as err:
        raise ProtocolError(f"{incoming.subject}: the request cannot be read: {err}") from err
