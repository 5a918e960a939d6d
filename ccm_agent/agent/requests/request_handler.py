"""
Requests from the controller: which of them concern this node, what is answered, and what is put into the queue.

A request is written into the ledger before it is answered, so that it is carried out once however often it is delivered. On a
scope that many share, a node that the selector does not mean stays silent unless it is named.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ccm_agent.agent.requests.node_commands import convergence_end
from ccm_agent.agent.runs.run_queue import ACTIONS, QueuedRun, build_run, find_deadline
from ccm_agent.agent.state.request_log import RequestLogEntry
from ccm_agent.agent.trust.authentication import NotAuthorizedError, WrongClockError
from ccm_agent.agent.trust.schedule_times import schedule_name
from ccm_agent.bus.signatures.node_key import FINAL_ANSWERS
from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER
from ccm_agent.bus.subjects import event_subject, node_scope, scopes_of
from ccm_agent.model.errors import BusError, CcmError, ProtocolError, Refusal
from ccm_agent.model.formats.json_text import encode_message
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.ids import is_id, short_id
from ccm_agent.model.limited_log import LimitedLog
from ccm_agent.model.ports import IncomingRequest
from ccm_agent.model.records.policy import Principal
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
    RUN_STOP,
    SESSION_ANSWER,
    UNRECEIVED_CODE,
    Answer,
    AnswerState,
    EnsureRequest,
    ExecRequest,
    MaintenanceRequest,
    ManifestRequest,
    NodeState,
    Request,
    RunAhead,
    StopRequest,
)

if TYPE_CHECKING:
    from ccm_agent.agent.node.status import NodeStatus
    from ccm_agent.agent.process.context import AgentContext
    from ccm_agent.agent.requests.missed_schedules import MissedSchedules
    from ccm_agent.agent.requests.node_commands import NodeCommands
    from ccm_agent.agent.runs.run_executor import RunExecutor

log = logging.getLogger(__name__)

KINDS: dict[str, type[Request]] = {
    MANIFEST_APPLY: ManifestRequest,
    MANIFEST_PLAN: ManifestRequest,
    MANIFEST_CHECK: ManifestRequest,
    RESOURCE_ENSURE: EnsureRequest,
    RESOURCE_EXEC: ExecRequest,
    NODE_PING: Request,
    NODE_FACTS: Request,
    NODE_STATUS: Request,
    NODE_DISABLE: MaintenanceRequest,
    NODE_ENABLE: MaintenanceRequest,
    NODE_CONVERGE: MaintenanceRequest,
    RUN_STOP: StopRequest,
}

QUESTIONS = {
    RUN_STOP: "stop",
    NODE_DISABLE: "disable",
    NODE_ENABLE: "enable",
    NODE_CONVERGE: "converge",
    NODE_PING: "ping",
    NODE_FACTS: "facts",
    NODE_STATUS: "status",
}
"""Requests that become no runs, and what the node's policy calls them."""


NAME_LIMIT = 200
"""Characters of a name in an answer; the name of a run comes from its request."""


class RequestHandler:
    """Answers the requests of one agent, one after the other."""

    def __init__(
        self,
        context: AgentContext,
        executor: RunExecutor,
        missed: MissedSchedules,
        status: NodeStatus,
        commands: NodeCommands,
    ) -> None:
        self._context = context
        self._executor = executor
        self._missed = missed
        self._bodies = status.bodies()
        self._commands = commands.by_protocol()
        self._run_queue = context.run_queue
        self._request_log = context.request_log
        self._decisions = context.decisions
        self._limited = LimitedLog(log)

    async def handle(self, incoming: IncomingRequest) -> None:
        """
        Do with a request what is to be done, and answer it if it is ours.

        Raises:
            ProtocolError: It breaks the rules of the protocol, or nothing proves who sent it; nothing was answered. An
                answer would let a forged request say of a node's part in a true run that it was refused.
        """
        request, due = self._read(incoming)
        is_called = self._context.node in request.named or incoming.scope == node_scope(self._context.node)
        known = self._request_log.find(request.run)
        if request.named and not is_called and known is not None:
            return  # it was sent again to other nodes; this one has answered
        try:
            principal = await self._context.authenticator.request(incoming)
        except WrongClockError as err:
            await self._refuse_by_clock(
                incoming, request, err, is_called=is_called, is_known=known is not None
            )
            return
        except NotAuthorizedError as err:
            refused = Refusal(err.code, str(err))
            await self._refuse(incoming, request, refused, is_decision=False)
            self._decisions.unauthorized(request.run, incoming, refused)
            return
        if principal.is_verified:
            request.requester = principal.name
        else:
            principal = replace(principal, name=request.requester)
        if known is not None:
            await self._answer_again(known)
            return
        self._decisions.asked(request.run, incoming, principal)
        try:
            matches = await self._is_meant(incoming) and await self._matches(request)
        except CcmError as err:
            await self._refuse(incoming, request, Refusal(err.code, str(err)))
            return
        if not matches:
            if is_called:
                await self._refuse(incoming, request, Refusal("target.mismatch", "no longer matches"))
            return
        refusal = self._forbids(incoming, principal)
        if refusal is not None:
            self._limited.info("refused by the policy", extra={"run": request.run, "reason": str(refusal)})
            await self._refuse(incoming, request, refusal)
        elif incoming.protocol == RUN_STOP:
            await self._stop(request, principal, is_called=is_called)
        elif incoming.protocol in ACTIONS:
            await self._take_on(incoming, request, due, principal)
        elif incoming.protocol in self._commands:
            await self._command(incoming.protocol, request, principal)
        elif incoming.protocol in self._bodies:
            body = await self._bodies[incoming.protocol]()
            await self._answer(request.run, AnswerState.DONE, body=body)
        else:
            reason = f"this agent does not support {incoming.protocol}; upgrade the agent if it is older than the controller"
            await self._refuse(incoming, request, Refusal("request.unknown", reason))

    def build_job(self, entry: RequestLogEntry) -> QueuedRun | None:
        """The job of a request that stood in the ledger when the agent started; None when it cannot be read any more."""
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

    async def close_command(self, run: str, body: dict[str, Any], refusal: CcmError | None = None) -> None:
        """Answer a command, which was carried out or refused, and treat it as handled from here on."""
        if refusal is not None:
            self._request_log.end(run, NodeState.REFUSED, str(refusal), refusal.code)
            await self._answer(run, AnswerState.REFUSED, reason=str(refusal), code=refusal.code)
            return
        outcome, reason = convergence_end(body)
        self._request_log.end(run, outcome or AnswerState.DONE, reason)
        await self._answer(run, AnswerState.DONE, outcome=outcome, reason=reason, body=body)

    async def expired(self, job: QueuedRun) -> None:
        """A job that waited is past its deadline."""
        if job.own is not None:
            job.own.finish(None)
            return
        self._request_log.end(
            job.run, NodeState.EXPIRED, "its deadline passed before it began", "run.expired"
        )
        if job.way == "schedule":
            self._context.events.refused(
                job.origin or job.run, "its deadline passed before it began", job.run
            )
        await self._answer(
            job.run, AnswerState.EXPIRED, reason="its deadline passed before it began", code="run.expired"
        )

    async def refused(self, job: QueuedRun, refusal: Refusal) -> None:
        """A job that waited may not begin now."""
        if job.own is not None:
            job.own.finish(None)
            return
        self._request_log.end(job.run, NodeState.REFUSED, str(refusal), refusal.code)
        if job.way == "schedule":
            self._context.events.refused(job.origin or job.run, str(refusal), job.run)
        await self._answer(job.run, AnswerState.REFUSED, reason=str(refusal), code=refusal.code)

    def is_late(self, deadline: datetime | None) -> bool:
        """The time to begin by has passed."""
        return deadline is not None and self._context.clock.now() > deadline

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
        Refuse what a listed operator signed for another time. The answer is signed, so the run ends so on this node.

        Not if the request is known: the holder of the broker can deliver an old one again, while its run is in progress.
        """
        refused = Refusal(err.code, str(err))
        self._decisions.unauthorized(request.run, incoming, refused)
        self._limited.warning("a request is refused", extra={"subject": incoming.subject, "error": str(err)})
        if not incoming.scheduled:  # of a schedule `_refuse` publishes it
            self._context.events.refused(incoming.subject, str(err))
        if not is_known and await self._is_meant(incoming) and (is_called or await self._matches(request)):
            await self._refuse(incoming, request, refused, is_decision=False)

    async def _is_meant(self, incoming: IncomingRequest) -> bool:
        """
        Whether the scope that a request was signed for is one of this node's, by its facts as they are now.

        The subscriptions do not prove it: the holder of the broker can deliver any message to any subscription.
        """
        context = self._context
        facts = await context.facts.routed(context.settings.routed_facts)
        if incoming.scope in scopes_of(context.node, facts):
            return True
        self._limited.info("a request for a scope of other nodes", extra={"subject": incoming.subject})
        return False

    async def _matches(self, request: Request) -> bool:
        """Whether the selectors of a request select this node; SelectorError when they cannot be read."""
        if not request.targets and not request.where:
            return True
        facts = await self._context.facts.latest()
        asked = request.targets, request.where
        return await self._context.ports.matches(*asked, self._context.node, facts, is_request=True)

    def _forbids(self, incoming: IncomingRequest, principal: Principal) -> Refusal | None:
        """Why the node's policy refuses a request; a kind of request that it has no word for is refused elsewhere."""
        asked = find_action(incoming)
        return self._context.admission.policy.refusal(principal, *asked) if asked is not None else None

    def _read(self, incoming: IncomingRequest) -> tuple[Request, datetime | None]:
        request = decode_request(incoming)
        due = None
        if incoming.scheduled:
            request.run, due = self._missed.identify_run(incoming)
        if not is_id(request.run):
            raise ProtocolError(f"{incoming.subject}: the request has no valid run id")
        return request, due

    async def _take_on(
        self, incoming: IncomingRequest, request: Request, due: datetime | None, principal: Principal
    ) -> None:
        job = build_run(incoming.protocol, request, find_deadline(request, due), principal)
        if incoming.scheduled:
            job = replace(job, way="schedule", origin=schedule_name(incoming))
        if self.is_late(job.deadline):
            self._write_down(incoming, request)
            await self.expired(job)
            return
        refusal = self._context.admission.refusal(job.action)
        if refusal is not None:
            await self._refuse(incoming, request, refusal)
            return
        self._write_down(incoming, request, principal)
        offer = self._run_queue.offer(job)
        if offer.position < 0:
            reason = f"{len(self._run_queue.waiting)} requests wait already"
            self._request_log.end(job.run, NodeState.REFUSED, reason, "queue.full")
            await self._answer(job.run, AnswerState.REFUSED, reason=reason, code="queue.full")
            return
        state = AnswerState.QUEUED if offer.position else AnswerState.ACCEPTED
        await self._answer(job.run, state, position=offer.position)
        if offer.superseded is not None:
            await self._supersede(offer.superseded, job)

    async def _supersede(self, old: QueuedRun, new: QueuedRun) -> None:
        reason = f"replaced by a newer request for {old.name}: run {short_id(new.run)}"
        self._request_log.end(old.run, NodeState.SUPERSEDED, reason, "run.superseded")
        await self._answer(old.run, AnswerState.SUPERSEDED, reason=reason, code="run.superseded")

    async def _command(self, protocol: str, request: Request, principal: Principal) -> None:
        try:
            body = await self._commands[protocol](request, principal)
        except CcmError as err:
            await self.close_command(request.run, {}, err)
            return
        log.info(
            "a command of an operator",
            extra={"protocol": protocol, "run": request.run, "by": principal.title},
        )
        if body is None:
            await self._answer(request.run, AnswerState.ACCEPTED)
        else:
            await self.close_command(request.run, body)

    async def _stop(self, request: Request, principal: Principal, *, is_called: bool) -> None:
        run, is_kill = (request.stop, request.kill) if isinstance(request, StopRequest) else ("", False)
        if not is_id(run):
            await self._answer(
                request.run,
                AnswerState.REFUSED,
                reason="the request does not name a run to stop",
                code="run.unknown",
            )
            return
        waiting = self._run_queue.withdraw(run)
        if waiting is not None:
            self._executor.discard(waiting, principal.title)
        elif not self._executor.stop(run, principal.title, is_kill=is_kill):
            known = self._request_log.find(run)
            if known is None:
                # a stop that overtook its run: the run is not started when it comes
                reason = f"stopped by {principal.title} before it arrived"
                self._request_log.end(run, NodeState.STOPPED, reason, UNRECEIVED_CODE)
                if not is_called:
                    return
        self._limited.info(
            "a run is stopped", extra={"run": run, "requester": principal.title, "kill": is_kill}
        )
        entry = self._request_log.find(run)
        await self._answer(request.run, AnswerState.DONE, outcome=_format_outcome(entry) if entry else "")

    async def _answer_again(self, known: RequestLogEntry) -> None:
        """A request that was handled before, or is being carried out: the request log answers."""
        if known.outcome in (NodeState.REFUSED, NodeState.SUPERSEDED, NodeState.EXPIRED):
            await self._answer(
                known.run, known.outcome, reason=known.reason, code=known.code, is_decision=False
            )
        elif known.outcome:
            await self._answer(
                known.run,
                AnswerState.DONE,
                outcome=_format_outcome(known),
                reason=known.reason,
                code=known.code,
                is_decision=False,
            )
        else:
            position = self._run_queue.position(known.run) or 0
            state = AnswerState.QUEUED if position else AnswerState.ACCEPTED
            await self._answer(known.run, state, position=position, is_decision=False)

    async def _refuse(
        self, incoming: IncomingRequest, request: Request, refusal: Refusal, *, is_decision: bool = True
    ) -> None:
        if incoming.protocol in ACTIONS:
            self._write_down(incoming, request)
            self._request_log.end(request.run, NodeState.REFUSED, str(refusal), refusal.code)
            if incoming.scheduled:
                # Answers are in no stream, and no controller hears this one.
                self._context.events.refused(incoming.subject, str(refusal), request.run)
        await self._answer(
            request.run,
            AnswerState.REFUSED,
            reason=str(refusal),
            code=refusal.code,
            is_decision=is_decision,
        )

    def _write_down(
        self, incoming: IncomingRequest, request: Request, principal: Principal | None = None
    ) -> None:
        self._request_log.take(
            request.run,
            protocol=incoming.protocol,
            subject=incoming.subject,
            body=incoming.body,
            principal=principal,
            scheduled=incoming.scheduled,
        )

    async def _answer(
        self,
        run: str,
        state: str,
        *,
        reason: str = "",
        code: str = "",
        position: int = 0,
        outcome: str = "",
        body: dict[str, Any] | None = None,
        is_decision: bool = True,
    ) -> None:
        if is_decision:
            self._decisions.decided(run, state, reason=reason, code=code)
        ahead = self._run_queue.current if state == AnswerState.QUEUED else None
        answer = Answer(
            protocol=SESSION_ANSWER,
            run=run,
            node=self._context.node,
            time=self._context.clock.now(),
            state=str(state),
            reason=reason,
            code=code,
            position=position,
            outcome=outcome,
            machine=self._context.machine,
            started=self._context.started,
            body=body or {},
            ahead=_ahead(ahead) if ahead is not None else None,
        )
        subject, body_text = event_subject(SESSION_ANSWER, self._context.node, run), encode_message(answer)
        # what ends the node's part in a run is signed; that it continues needs no proof
        signature = self._context.author.sign_answer(subject, body_text) if state in FINAL_ANSWERS else ""
        try:
            await self._context.ports.events.announce(
                subject, body_text, {SIGNATURE_HEADER: signature} if signature else None
            )
        except BusError as err:
            # the request comes again, with our name in it, and is then answered from the ledger
            self._limited.info("an answer could not be sent", extra={"run": run, "reason": str(err)})


def _ahead(job: QueuedRun) -> RunAhead:
    """What an operator whose run is queued behind this one has to know of it."""
    name, requester = (text[:NAME_LIMIT] for text in (job.name, job.principal.title))
    return RunAhead(run=job.run, action=job.action, name=name, requester=requester)


def _format_outcome(known: RequestLogEntry) -> str:
    """The end state for an answer. Older controllers ignore an answer with a word they do not know, and know no `stopped`."""
    return NodeState.FAILED if known.outcome == NodeState.STOPPED else known.outcome


def decode_request(incoming: IncomingRequest) -> Request:
    """
    The body of a request, as the kind that its protocol names.

    Raises:
        ProtocolError: It is not one.
    """
    try:
        return decode_foreign(incoming.body, KINDS.get(incoming.protocol, Request))
    except msgspec.DecodeError as err:
        raise ProtocolError(f"{incoming.subject}: the request cannot be read: {err}") from err


def find_action(incoming: IncomingRequest) -> tuple[str, str] | None:
    """
    The action of a request for the node's policy, and its mode ("" when it becomes no run).

    It depends on the protocol and on whether it was scheduled; nothing in the body has a say. None for an unknown protocol.
    """
    mode = ACTIONS.get(incoming.protocol, "")
    if mode:
        return "schedule" if incoming.scheduled else mode, mode
    question = QUESTIONS.get(incoming.protocol)
    return (question, "") if question is not None else None
