"""
Decides whether a principal may perform an action now, and which limits apply to its run.

The first rule with matching signers or roles, actions and hours decides; later rules are not read. One rule
therefore governs each run, together with the top level of the policy. Nothing else in a request influences the
decision.
"""

from __future__ import annotations

from datetime import datetime
from fnmatch import fnmatchcase

from msgspec import Struct
from msgspec.structs import replace

from ccm_agent.model.errors import Place
from ccm_agent.model.records.policy import CHANGING_ACTIONS, LOCAL_NAME, LOOK_ACTIONS, Principal
from ccm_agent.policy.document import CompiledRule, Policy
from ccm_agent.policy.grant import Grant

LOOKING = ("plan", "check")
"""Modes that change nothing. They run guards and checks of the manifest, unless they are restricted."""

_WAYS = {"assignment": "by an assignment", "schedule": "by a schedule"}
"""Descriptions of actions that identify the origin of a run. The mode describes the run itself."""

_PHRASES = {
    "exec": "to run commands",
    "import": "to import resources",
    "ping": "to ping",
    "facts": "to request facts",
    "status": "to request the status",
}


class SkippedRule(Struct, frozen=True, kw_only=True):
    """A rule that did not match, and the reason; `is_closed` if it would match at another time."""

    rule: str
    place: Place
    why: str
    is_closed: bool = False


class Ruling(Struct, frozen=True, kw_only=True):
    """
    A decision of the policy.

    Attributes:
        is_allowed: Whether the run may start or the query may be answered.
        reason: A sentence, also for allowed requests.
        code: The code of a refusal.
        rule: The deciding rule; "" if no rule matched.
        place: File and line of the rule.
        grant: The permissions of the run; None for no limits. A refusal grants nothing.
        skipped: The rules before the deciding rule.
    """

    is_allowed: bool
    reason: str
    code: str = ""
    rule: str = ""
    place: Place = Place()
    grant: Grant | None = None
    skipped: tuple[SkippedRule, ...] = ()


def rule_on(policy: Policy | None, principal: Principal, action: str, mode: str, now: datetime) -> Ruling:
    """
    Decide about an action.

    Args:
        policy: The node's policy; None if it has none.
        principal: The requester.
        action: One of `model.records.policy`'s actions.
        mode: The mode of the run: "apply", "ensure", "exec", "plan" or "check"; "" for actions that are not runs.
        now: The time.
    """
    ruling = _decide(policy, principal, action, mode, now)
    if not ruling.is_allowed or mode not in LOOKING:
        return ruling
    # a plan may run commands if an apply by the same principal may run them
    applied = _decide(policy, principal, action if action in _WAYS else "apply", "apply", now)
    runs_commands = applied.is_allowed and (applied.grant is None or applied.grant.refuse_command("") is None)
    if runs_commands and not (ruling.grant and ruling.grant.is_restricted):
        return ruling
    grant = ruling.grant or Grant(who=principal.title)
    return replace(ruling, grant=replace(grant, is_restricted=True))


def refuse_all(reason: str, code: str = "policy.broken") -> Ruling:
    """Refuse everything for the same reason."""
    return Ruling(is_allowed=False, reason=reason, code=code, grant=Grant(denial=reason))


def _decide(policy: Policy | None, principal: Principal, action: str, mode: str, now: datetime) -> Ruling:
    """Decide about an action, without checking whether the principal may apply."""
    if principal.is_plan_only and mode in CHANGING_ACTIONS:
        return refuse_all(f"{principal.title} may plan here, but not apply", "policy.mode")
    if policy is None:
        return Ruling(is_allowed=True, reason="the node has no policy")
    local = now.astimezone(policy.zone)
    skipped: list[SkippedRule] = []
    for rule in policy.rules:
        mismatch = _mismatch(rule, policy, principal, action, local)
        if mismatch is None:
            ruling = _by_rule(policy, rule, principal, action, mode)
            return replace(ruling, rule=rule.name, place=rule.place, skipped=tuple(skipped))
        skipped.append(mismatch)
    return replace(_by_default(policy, principal, action, mode, skipped), skipped=tuple(skipped))


def _mismatch(
    rule: CompiledRule, policy: Policy, principal: Principal, action: str, local: datetime
) -> SkippedRule | None:
    """Return the reason why a rule does not match; None if it matches."""
    why, is_closed = "", False
    if not _is_meant(rule, principal):
        why = f"it does not apply to {principal.title}"
    elif action not in rule.actions:
        why = f"it does not cover {action}"
    elif rule.hours and not any(hours.contains(local) for hours in rule.hours):
        why, is_closed = f"its hours are {', '.join(rule.written_hours)} ({policy.zone_name})", True
    return SkippedRule(rule=rule.name, place=rule.place, why=why, is_closed=is_closed) if why else None


def _is_meant(rule: CompiledRule, principal: Principal) -> bool:
    if principal.is_local:
        return LOCAL_NAME in rule.signers
    if not rule.signers and not rule.roles:
        return True
    if not principal.is_verified:
        return False
    signers = [one for one in rule.signers if one != LOCAL_NAME]
    return any(fnmatchcase(principal.name, one) for one in signers) or any(
        fnmatchcase(role, one) for one in rule.roles for role in principal.roles
    )


def _by_rule(policy: Policy, rule: CompiledRule, principal: Principal, action: str, mode: str) -> Ruling:
    who, doing = principal.title, _doing(action, mode)
    if not rule.is_allow:
        return refuse_all(f"{rule.title} of the node's policy denies {who} {doing}", "policy.denied")
    if mode in CHANGING_ACTIONS and rule.max_mode == "plan":
        return _plan_only(rule.title, who, doing)
    if mode in CHANGING_ACTIONS and policy.max_mode == "plan" and not principal.is_local:
        return _plan_only("`max_mode`", who, doing)
    return Ruling(
        is_allowed=True,
        reason=f"{rule.title} of the node's policy allows {who} {doing}",
        grant=Grant(
            who=who,
            layers=(rule.layer,) if principal.is_local else (policy.layer, rule.layer),
            is_restricted=mode in LOOKING and rule.max_mode == "plan",
            withheld=policy.withheld | rule.withheld,
        ),
    )


def _by_default(
    policy: Policy, principal: Principal, action: str, mode: str, skipped: list[SkippedRule]
) -> Ruling:
    who, doing = principal.title, _doing(action, mode)
    if principal.is_local:
        grant = Grant(who=who, withheld=policy.withheld) if policy.withheld else None
        return Ruling(is_allowed=True, reason=f"no rule of the node's policy applies to {who}", grant=grant)
    if action in LOOK_ACTIONS:
        return Ruling(is_allowed=True, reason=f"no rule of the node's policy covers {action}")
    if not policy.is_default_allow:
        closed = next(
            (f"; the rule `{one.rule}` did not match: {one.why}" for one in skipped if one.is_closed), ""
        )
        return refuse_all(f"no rule of the node's policy allows {who} {doing} now{closed}", "policy.denied")
    if mode in CHANGING_ACTIONS and policy.max_mode == "plan":
        return _plan_only("`max_mode`", who, doing)
    return Ruling(
        is_allowed=True,
        reason=f"`default: allow` of the node's policy allows {who} {doing}",
        grant=Grant(who=who, layers=(policy.layer,), withheld=policy.withheld),
    )


def _plan_only(what: str, who: str, doing: str) -> Ruling:
    return refuse_all(f"{what} of the node's policy allows {who} only to plan, not {doing}", "policy.mode")


def _doing(action: str, mode: str) -> str:
    """Describe an action for a sentence: `to apply`, `to plan by an assignment`."""
    if action in _WAYS:
        return f"to {mode or 'apply'} {_WAYS[action]}"
    return _PHRASES.get(action, f"to {action}")
