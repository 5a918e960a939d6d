"""
Explain decisions of a node's policy: the agent's decision on a request, and on each resource of a manifest.

The agent uses the same code, so explanations always match its decisions.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from ccm_agent.agent.runs.admission import read_policy
from ccm_agent.agent.state.settings import read_config
from ccm_agent.app import App
from ccm_agent.engine.permission import Permission
from ccm_agent.engine.request import ApplyOptions, ManifestSource
from ccm_agent.model.errors import PolicyError, UsageError
from ccm_agent.model.records.policy import CHANGING_ACTIONS, LOCAL, LOCAL_NAME, Principal
from ccm_agent.policy.document import Policy
from ccm_agent.policy.grant import Grant
from ccm_agent.policy.ruling import Ruling, rule_on
from ccm_agent.resources.catalog import Catalog
from ccm_agent.resources.contract import ResolvedResource

_MODES = (*CHANGING_ACTIONS, "plan", "check")


class PolicyQuestion(Struct, frozen=True, kw_only=True):
    """
    A question to a policy.

    Attributes:
        signer, roles: The requester. `local` is the agent's own configuration.
        is_verified: Whether a signature proves the requester's identity.
        action: One of the policy's actions.
        mode: The mode of an assignment's or schedule's run.
        at: The time in ISO 8601; "" for now. A time without an offset is in the policy's time zone.
        type, name: The resource.
        manifest: A manifest file. Each of its resources is checked.
    """

    signer: str = ""
    roles: tuple[str, ...] = ()
    is_verified: bool = True
    action: str = "apply"
    mode: str = "apply"
    at: str = ""
    type: str = ""
    name: str = ""
    manifest: str = ""


class SkippedExplanation(Struct, frozen=True, kw_only=True):
    """A rule that did not match: its name, its line, and the reason."""

    rule: str
    line: int
    why: str


class ResourceExplanation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The policy's decision on one resource. `code` and `reason` describe a refusal, or an omission of a restricted plan."""

    resource: str
    is_allowed: bool
    code: str = ""
    reason: str = ""


class PolicyExplanation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    A policy's decision, and the reasons.

    Attributes:
        is_allowed: Whether the action and every resource in the question are allowed.
        reason: Why the action is allowed or refused.
        code: The code of the action's refusal.
        rule: The deciding rule; "" if none matched.
        line: The line of that rule in the file; 0 if none matched.
        is_restricted: Whether the action is a plan or check that must not run commands from the manifest.
        skipped: The rules that did not match, with the reasons.
        resources: The decision on each resource in the question.
        policy: The policy file; "" without a policy.
        digest: SHA-256 of the file; "" without a policy.
    """

    is_allowed: bool
    reason: str
    code: str = ""
    rule: str = ""
    line: int = 0
    is_restricted: bool = False
    skipped: list[SkippedExplanation] = []
    resources: list[ResourceExplanation] = []
    policy: str = ""
    digest: str = ""


def explain(policy_file: str, config: str, question: PolicyQuestion) -> PolicyExplanation:
    """
    Return a policy's decision on a question.

    Args:
        policy_file: The policy file; "" for the one in the agent's configuration.
        config: The agent's configuration file.
        question: The question that the policy decides.

    Raises:
        CcmError: The policy, the configuration or the manifest cannot be used.
        UsageError: The question is not valid.
    """
    catalog = Catalog()
    if policy_file:
        policy = read_policy(Path(policy_file).absolute(), catalog.names(), is_required=True)
    else:
        settings = read_config(Path(config))
        policy = read_policy(
            Path(settings.policy_file), catalog.names(), is_required=settings.is_policy_required
        )
    ruling = _ruling(policy, question)
    resources: list[ResourceExplanation] = []
    if ruling.is_allowed and (question.type or question.manifest):
        resources = asyncio.run(_resources(catalog, ruling.grant, question))
    return PolicyExplanation(
        is_allowed=ruling.is_allowed and all(one.is_allowed for one in resources),
        reason=ruling.reason,
        code=ruling.code,
        rule=ruling.rule,
        line=ruling.place.line,
        is_restricted=ruling.is_allowed and ruling.grant is not None and ruling.grant.is_restricted,
        skipped=[
            SkippedExplanation(rule=one.rule, line=one.place.line, why=one.why) for one in ruling.skipped
        ],
        resources=resources,
        policy=policy.source if policy is not None else "",
        digest=policy.digest if policy is not None else "",
    )


def _ruling(policy: Policy | None, question: PolicyQuestion) -> Ruling:
    mode = question.action if question.action in _MODES else ""
    if question.action in ("assignment", "schedule"):
        mode = question.mode
    return rule_on(policy, _principal(question), question.action, mode, _moment(policy, question.at))


def _principal(question: PolicyQuestion) -> Principal:
    if question.signer == LOCAL_NAME:
        return LOCAL
    is_verified = question.is_verified and bool(question.signer or question.roles)
    return Principal(
        name=question.signer, roles=question.roles if is_verified else (), is_verified=is_verified
    )


def _moment(policy: Policy | None, text: str) -> datetime:
    if not text:
        return datetime.now(UTC)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as err:
        raise UsageError(f"--at {text}: not a time; write one such as 2026-11-23T09:30") from err
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=policy.zone if policy is not None else UTC)
    return moment


async def _resources(
    catalog: Catalog, grant: Grant | None, question: PolicyQuestion
) -> list[ResourceExplanation]:
    if question.type:
        kind = catalog.find(question.type)
        if not question.name:
            raise UsageError("--type requires --name, the name of the resource")
        declared = [
            ResolvedResource(
                kind=kind, wanted=kind.properties(name=question.name, ensure=kind.default_ensure)
            )
        ]
        return await _judged(grant, declared, "/")
    try:
        source = ManifestSource(path=question.manifest)
        app = App(os.environ)
        plan = await app.engine().load(source, ApplyOptions(noop=True, grant=grant))
    except PolicyError as err:
        return [_refused("the manifest", err)]
    return await _judged(grant, plan.loaded.resources, plan.loaded.document.directory)


async def _judged(
    grant: Grant | None, resources: Sequence[ResolvedResource], directory: str
) -> list[ResourceExplanation]:
    if grant is None:
        return [ResourceExplanation(resource=one.reference, is_allowed=True) for one in resources]
    permission = Permission(grant, os.path.realpath)
    permission.root = directory.rstrip("/")
    found = []
    for one in resources:
        refused = await permission.refusal(one, directory)
        found.append(
            _refused(one.reference, refused)
            if refused is not None
            else ResourceExplanation(resource=one.reference, is_allowed=True)
        )
    return found


def _refused(resource: str, refused: PolicyError) -> ResourceExplanation:
    return ResourceExplanation(
        resource=resource, is_allowed=refused.is_unknown, code=refused.code, reason=str(refused)
    )
