"""Executes accepted requests: queues runs, executes commands, and answers."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from ccm_agent.agent.events.publisher import AgentEventPublisher, Author
from ccm_agent.agent.requests.node_commands import NodeCommand, convergence_end
from ccm_agent.agent.runs.admission import Admission
from ccm_agent.agent.runs.run_executor import RunExecutor
from ccm_agent.agent.runs.run_queue import ACTIONS, EXPIRED, QueuedRun, RunQueue, build_run, find_deadline
from ccm_agent.agent.state.request_log import DecisionLog, RequestLog, RequestLogEntry
from ccm_agent.agent.trust.schedule_times import schedule_name
from ccm_agent.bus.signatures.node_key import FINAL_ANSWERS
from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER
from ccm_agent.bus.subjects import event_subject
from ccm_agent.model.errors import BusError, CcmError, Refusal
from ccm_agent.model.formats.json_text import encode_message
from ccm_agent.model.ids import is_id, short_id
from ccm_agent.model.limited_log import LimitedLog
from ccm_agent.model.ports import Clock, Events, IncomingRequest
from ccm_agent.model.records.policy import Principal
from ccm_agent.model.wire import (
    NODE_CONVERGE,
    NODE_DISABLE,
    NODE_ENABLE,
    NODE_FACTS,
    NODE_PING,
    NODE_STATUS,
    RESOURCE_IMPORT,
    RUN_STOP,
    SESSION_ANSWER,
    UNRECEIVED_CODE,
    Answer,
    AnswerState,
    NodeRecord,
    NodeState,
    Request,
    RunAhead,
    StopRequest,
)

log = logging.getLogger(__name__)

QUESTIONS = {
    RUN_STOP: "stop",
    NODE_DISABLE: "disable",
    NODE_ENABLE: "enable",
    NODE_CONVERGE: "converge",
    RESOURCE_IMPORT: "import",
    NODE_PING: "ping",
    NODE_FACTS: "facts",
    NODE_STATUS: "status",
}
"""Requests that do not start runs, with their action in the node's policy."""

NAME_LIMIT = 200
"""Maximum characters of a name in an answer; the name of a run comes from its request."""


class AnswerSender:
    """
    Sends the answers of one node.

    Args:
        record: Contains the node's name.
        run_queue: Contains the run that other runs wait for.
        decisions: Records the decisions.
        author: Signs answers.
        events: Publishes the answers.
        clock: Returns the current time.
    """

    def __init__(
        self,
        record: NodeRecord,
        run_queue: RunQueue,
        decisions: DecisionLog,
        author: Author,
        events: Events,
        clock: Clock,
    ) -> None:
        self._record = record
        self._run_queue = run_queue
        self._decisions = decisions
        self._author = author
        self._events = events
        self._clock = clock
        self._limited = LimitedLog(log)

    async def send(
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
        """
        Answer a request. A lost answer is sent again when the request is delivered again.

        Args:
            run, state, reason, code, position, outcome, body: See `Answer`.
            is_decision: Whether the answer is a new decision, which belongs in the audit trail.
        """
        if is_decision:
            self._decisions.decided(run, state, reason=reason, code=code)
        ahead = self._run_queue.current if state == AnswerState.QUEUED else None
        answer = Answer(
            protocol=SESSION_ANSWER,
            run=run,
            node=self._record.node,
            time=self._clock.now(),
            state=str(state),
            reason=reason,
            code=code,
            position=position,
            outcome=outcome,
            machine=self._record.machine,
            started=self._record.started,
            body=body or {},
            ahead=_ahead(ahead) if ahead is not None else None,
        )
        subject, body_text = event_subject(SESSION_ANSWER, self._record.node, run), encode_message(answer)
        # An answer that ends the node's part in a run is signed; other answers need no proof.
        signature = self._author.sign_answer(subject, body_text) if state in FINAL_ANSWERS else ""
        try:
            await self._events.announce(
                subject, body_text, {SIGNATURE_HEADER: signature} if signature else None
            )
        except BusError as err:
            # The request is sent again with our name in it, and is then answered from the request log.
            self._limited.info("an answer could not be sent", extra={"run": run, "reason": str(err)})


class RequestedRuns:
    """
    Accepts or refuses the runs that operators request.

    Args:
        request_log: The requests that this node has accepted.
        run_queue: The waiting runs.
        admission: Decides whether a run may start now.
        answers: Answers the requests.
        events: Publishes refusals that no controller receives.
        clock: Returns the current time.
    """

    def __init__(
        self,
        request_log: RequestLog,
        run_queue: RunQueue,
        admission: Admission,
        answers: AnswerSender,
        events: AgentEventPublisher,
        clock: Clock,
    ) -> None:
        self._request_log = request_log
        self._run_queue = run_queue
        self._admission = admission
        self._answers = answers
        self._events = events
        self._clock = clock

    def find(self, run: str) -> RequestLogEntry | None:
        """Return the entry of a run; None if this node has not received the run in the last day."""
        return self._request_log.find(run)

    def forbids(self, incoming: IncomingRequest, principal: Principal) -> Refusal | None:
        """Return why the node's policy refuses a request. An unknown kind of request is refused elsewhere."""
        asked, policy = find_action(incoming), self._admission.policy
        if asked is None:
            return None
        # An import shows as much information as a plan.
        is_import = incoming.protocol == RESOURCE_IMPORT
        refusal = policy.refusal(principal, "plan", "plan") if is_import else None
        return refusal or policy.refusal(principal, *asked)

    async def take_on(
        self, incoming: IncomingRequest, request: Request, due: datetime | None, principal: Principal
    ) -> None:
        """Record a request that starts a run, queue the run, and answer."""
        job = build_run(incoming.protocol, request, find_deadline(request, due), principal)
        if incoming.scheduled:
            job = replace(job, way="schedule", origin=schedule_name(incoming))
        if job.deadline is not None and self._clock.now() > job.deadline:
            self._write_down(incoming, request)
            await self.not_started(job, EXPIRED)
            return
        refusal = self._admission.refusal(job.action)
        if refusal is not None:
            await self.refuse(incoming, request, refusal)
            return
        self._write_down(incoming, request, principal)
        offer = self._run_queue.offer(job)
        if offer.position < 0:
            reason = f"{len(self._run_queue.waiting)} requests are already waiting"
            self._request_log.end(job.run, NodeState.REFUSED, reason, "queue.full")
            await self._answers.send(job.run, AnswerState.REFUSED, reason=reason, code="queue.full")
            return
        state = AnswerState.QUEUED if offer.position else AnswerState.ACCEPTED
        await self._answers.send(job.run, state, position=offer.position)
        if offer.superseded is not None:
            await self._supersede(offer.superseded, job)

    async def _supersede(self, old: QueuedRun, new: QueuedRun) -> None:
        reason = f"replaced by a newer request for {old.name}: run {short_id(new.run)}"
        self._request_log.end(old.run, NodeState.SUPERSEDED, reason, "run.superseded")
        await self._answers.send(old.run, AnswerState.SUPERSEDED, reason=reason, code="run.superseded")

    async def not_started(self, job: QueuedRun, refusal: Refusal) -> None:
        """Report that a waiting job does not start, because its deadline has passed (EXPIRED) or it may not start now."""
        if job.own is not None:
            job.own.finish(None)
            return
        is_late = refusal is EXPIRED
        end = NodeState.EXPIRED if is_late else NodeState.REFUSED
        self._request_log.end(job.run, end, str(refusal), refusal.code)
        if job.way == "schedule":
            self._events.refused(job.origin or job.run, str(refusal), job.run)
        state = AnswerState.EXPIRED if is_late else AnswerState.REFUSED
        await self._answers.send(job.run, state, reason=str(refusal), code=refusal.code)

    async def answer_again(self, known: RequestLogEntry) -> None:
        """Answer a request that was handled before or is being executed, from the request log."""
        if known.outcome in (NodeState.REFUSED, NodeState.SUPERSEDED, NodeState.EXPIRED):
            await self._answers.send(
                known.run, known.outcome, reason=known.reason, code=known.code, is_decision=False
            )
        elif known.outcome:
            await self._answers.send(
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
            await self._answers.send(known.run, state, position=position, is_decision=False)

    async def refuse(
        self, incoming: IncomingRequest, request: Request, refusal: Refusal, *, is_decision: bool = True
    ) -> None:
        """
        Answer that a request is refused.

        Args:
            incoming, request: The request.
            refusal: The reason.
            is_decision: See `AnswerSender.send`.
        """
        if incoming.protocol in ACTIONS:
            self._write_down(incoming, request)
            self._request_log.end(request.run, NodeState.REFUSED, str(refusal), refusal.code)
            if incoming.scheduled:
                # Answers are not in a stream, and no controller receives this one.
                self._events.refused(incoming.subject, str(refusal), request.run)
        await self._answers.send(
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

    def report_refusal(self, incoming: IncomingRequest, why: str) -> None:
        """Publish that a request was refused, for operators who did not send it."""
        self._events.refused(incoming.subject, why)


class CommandHandler:
    """
    Executes operators' requests other than runs: commands, questions, and the stop of a run.

    Args:
        executor: Executes the current run.
        run_queue: The waiting runs.
        request_log: The requests that this node has accepted.
        answers: Answers the requests.
        commands: The commands by protocol id.
        bodies: Functions that return the bodies of answers to questions, by protocol id.
    """

    def __init__(
        self,
        executor: RunExecutor,
        run_queue: RunQueue,
        request_log: RequestLog,
        answers: AnswerSender,
        commands: Mapping[str, NodeCommand],
        bodies: Mapping[str, Callable[[], Awaitable[dict[str, Any]]]],
    ) -> None:
        self._executor = executor
        self._run_queue = run_queue
        self._request_log = request_log
        self._answers = answers
        self._commands = commands
        self._bodies = bodies
        self._limited = LimitedLog(log)

    async def carry_out(
        self, protocol: str, request: Request, principal: Principal, *, is_called: bool
    ) -> bool:
        """
        Execute a request and answer it. Returns False if its kind is unknown.

        Args:
            protocol, request: The request.
            principal: The sender.
            is_called: Whether the request names this node.
        """
        if protocol == RUN_STOP:
            await self._stop(request, principal, is_called=is_called)
        elif protocol in self._commands:
            await self._command(protocol, request, principal)
        elif protocol in self._bodies:
            body = await self._bodies[protocol]()
            await self._answers.send(request.run, AnswerState.DONE, body=body)
        else:
            return False
        return True

    async def close(self, run: str, body: dict[str, Any], refusal: CcmError | None = None) -> None:
        """Answer a command that was executed or refused, and treat it as handled from now on."""
        if refusal is not None:
            self._request_log.end(run, NodeState.REFUSED, str(refusal), refusal.code)
            await self._answers.send(run, AnswerState.REFUSED, reason=str(refusal), code=refusal.code)
            return
        outcome, reason = convergence_end(body)
        self._request_log.end(run, outcome or AnswerState.DONE, reason)
        await self._answers.send(run, AnswerState.DONE, outcome=outcome, reason=reason, body=body)

    async def _command(self, protocol: str, request: Request, principal: Principal) -> None:
        try:
            body = await self._commands[protocol](request, principal)
        except CcmError as err:
            await self.close(request.run, {}, err)
            return
        log.info(
            "an operator's command was executed",
            extra={"protocol": protocol, "run": request.run, "by": principal.title},
        )
        if body is None:
            await self._answers.send(request.run, AnswerState.ACCEPTED)
        else:
            await self.close(request.run, body)

    async def _stop(self, request: Request, principal: Principal, *, is_called: bool) -> None:
        run, is_kill = (request.stop, request.kill) if isinstance(request, StopRequest) else ("", False)
        if not is_id(run):
            await self._answers.send(
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
                # The stop arrived before its run. The run is not started when it arrives.
                reason = f"stopped by {principal.title} before it arrived"
                self._request_log.end(run, NodeState.STOPPED, reason, UNRECEIVED_CODE)
                if not is_called:
                    return
        self._limited.info(
            "a run is stopped", extra={"run": run, "requester": principal.title, "kill": is_kill}
        )
        entry = self._request_log.find(run)
        await self._answers.send(
            request.run, AnswerState.DONE, outcome=_format_outcome(entry) if entry else ""
        )


def _ahead(job: QueuedRun) -> RunAhead:
    """Return the information about this run for an operator whose run is queued behind it."""
    name, requester = (text[:NAME_LIMIT] for text in (job.name, job.principal.title))
    return RunAhead(run=job.run, action=job.action, name=name, requester=requester)


def _format_outcome(known: RequestLogEntry) -> str:
    """
    Return the end state for an answer. Older controllers do not support the word `stopped`, and ignore an answer with an
    unknown word.
    """
    return NodeState.FAILED if known.outcome == NodeState.STOPPED else known.outcome


def find_action(incoming: IncomingRequest) -> tuple[str, str] | None:
    """
    Return the action of a request for the node's policy, and its mode ("" if it does not start a run).

    The result depends only on the protocol and on whether the request was scheduled, not on the body. None for an unknown
    protocol.
    """
    mode = ACTIONS.get(incoming.protocol, "")
    if mode:
        return "schedule" if incoming.scheduled else mode, mode
    question = QUESTIONS.get(incoming.protocol)
    return (question, "") if question is not None else None
