"""Which rule decides about which principal, and what it then says."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm_agent.model.errors import DocumentError
from ccm_agent.model.records.policy import LOCAL, LOCAL_FROM_BROKER, LOOK_ACTIONS, RUN_ACTIONS, Principal
from ccm_agent.policy.document import Policy, parse_policy
from ccm_agent.policy.ruling import Ruling, refuse_all, rule_on

MONDAY_NOON = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
SUNDAY = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
TYPES = ("apply", "archive", "exec", "file", "package", "scaffold", "service")

ALICE = Principal(name="alice", key="UA", is_verified=True)
BOB = Principal(name="bob", key="UB", roles=("apprentice",), is_verified=True)
EVE = Principal(name="eve", key="UE", is_verified=True)
UNVERIFIED_ALICE = Principal(name="alice")

POLICY = """\
default: deny
time_zone: UTC
forbid:
  paths: [/etc/shadow]
rules:
  - name: no weekend
    signers: ["*"]
    deny: [ensure]
    hours: Sat,Sun
  - name: operators
    signers: [alice]
    allow: [all]
  - name: apprentices
    roles: [apprent*]
    allow: [plan, check, apply]
    max_mode: plan
  - name: office hours
    signers: [eve]
    allow: [apply, plan, assignment]
    hours: Mon-Fri 08:00-18:00
    forbid: {types: [exec]}
  - name: quiet
    signers: [eve]
    deny: [facts]
  - name: own
    signers: [local]
    allow: [apply, check]
    only: {types: [file]}
"""


@cache
def policy(text: str = POLICY) -> Policy:
    return parse_policy(text.encode(), "/etc/ccm/policy.yaml", TYPES)


def ask(
    principal: Principal,
    action: str,
    mode: str | None = None,
    now: datetime = MONDAY_NOON,
    text: str = POLICY,
) -> Ruling:
    own_mode = action if action in ("apply", "plan", "check", "ensure") else ""
    return rule_on(policy(text), principal, action, own_mode if mode is None else mode, now)


@pytest.mark.parametrize(
    ("principal", "action", "mode", "now", "expected"),
    [
        pytest.param(ALICE, "apply", None, MONDAY_NOON, (True, "operators", ""), id="a signer by name"),
        pytest.param(ALICE, "ensure", None, SUNDAY, (False, "no weekend", "policy.denied"), id="the first rule wins"),
        pytest.param(ALICE, "ensure", None, MONDAY_NOON, (True, "operators", ""), id="out of hours the next one does"),
        pytest.param(ALICE, "stop", None, MONDAY_NOON, (True, "operators", ""), id="all is every action that runs"),
        pytest.param(
            UNVERIFIED_ALICE, "apply", None, MONDAY_NOON, (False, "", "policy.denied"),
            id="an unverified name does not match a signer",
        ),
        pytest.param(BOB, "plan", None, MONDAY_NOON, (True, "apprentices", ""), id="a signer by role"),
        pytest.param(BOB, "apply", None, MONDAY_NOON, (False, "apprentices", "policy.mode"), id="max_mode refuses to apply"),
        pytest.param(BOB, "stop", None, MONDAY_NOON, (False, "", "policy.denied"), id="an action that no rule names"),
        pytest.param(EVE, "apply", None, MONDAY_NOON, (True, "office hours", ""), id="within its hours"),
        pytest.param(EVE, "apply", None, SUNDAY, (False, "", "policy.denied"), id="outside its hours"),
        pytest.param(EVE, "assignment", "apply", MONDAY_NOON, (True, "office hours", ""), id="by an assignment"),
        pytest.param(EVE, "schedule", "apply", MONDAY_NOON, (False, "", "policy.denied"), id="not by a schedule"),
        pytest.param(EVE, "ping", None, SUNDAY, (True, "", ""), id="a look that no rule names"),
        pytest.param(EVE, "facts", None, MONDAY_NOON, (False, "quiet", "policy.denied"), id="a look that a rule denies"),
        pytest.param(UNVERIFIED_ALICE, "status", None, MONDAY_NOON, (True, "", ""), id="a look of an unverified requester"),
        pytest.param(LOCAL, "apply", None, MONDAY_NOON, (True, "own", ""), id="the own configuration, by its name"),
        pytest.param(LOCAL_FROM_BROKER, "check", None, MONDAY_NOON, (True, "own", ""), id="likewise from the broker"),
        pytest.param(
            Principal(name="local", key="U", is_verified=True), "apply", None, MONDAY_NOON, (False, "", "policy.denied"),
            id="an operator called local is not the node's own configuration",
        ),
    ],
)  # fmt: skip
def test_the_policy_decides(
    principal: Principal, action: str, mode: str | None, now: datetime, expected: tuple[bool, str, str]
) -> None:
    ruling = ask(principal, action, mode, now)

    assert (ruling.is_allowed, ruling.rule, ruling.code) == expected


@pytest.mark.parametrize(
    ("principal", "action", "mode", "now", "said"),
    [
        (ALICE, "ensure", None, SUNDAY, "the rule `no weekend` (policy.yaml:6) of the node's policy denies alice to ensure"),
        (EVE, "apply", None, SUNDAY,
         "no rule of the node's policy allows eve to apply now; the rule `office hours` did not match: its hours are "
         "Mon-Fri 08:00-18:00 (UTC)"),
        (EVE, "schedule", "plan", MONDAY_NOON, "no rule of the node's policy allows eve to plan by a schedule now"),
        (UNVERIFIED_ALICE, "apply", None, MONDAY_NOON,
         "no rule of the node's policy allows alice (unverified) to apply now"),
        (BOB, "apply", None, MONDAY_NOON,
         "the rule `apprentices` (policy.yaml:13) of the node's policy allows bob only to plan, not to apply"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_rule(
    principal: Principal, action: str, mode: str | None, now: datetime, said: str
) -> None:
    ruling = ask(principal, action, mode, now)

    assert ruling.reason == said
    assert ruling.grant is not None
    refused = ruling.grant.refuse_type("file")
    assert refused is not None
    assert refused.message == said


def test_an_allowed_run_has_the_limits_of_the_rule_and_of_the_policy() -> None:
    ruling = ask(EVE, "apply")

    assert ruling.grant is not None
    assert [layer.rule for layer in ruling.grant.layers] == ["", "office hours"]
    assert ruling.grant.refuse_type("exec") is not None
    assert ruling.grant.refuse_path("/etc/shadow", "/etc/shadow") is not None
    assert not ruling.grant.is_restricted


def test_the_own_configuration_is_bound_by_its_rule_alone() -> None:
    ruling = ask(LOCAL, "apply")

    assert ruling.grant is not None
    assert [layer.rule for layer in ruling.grant.layers] == ["own"]


def test_the_own_configuration_is_not_bound_without_a_rule_for_it() -> None:
    ruling = ask(LOCAL, "apply", text="default: deny\nmax_mode: plan\nforbid: {types: [exec]}\n")

    assert (ruling.is_allowed, ruling.grant) == (True, None)


@pytest.mark.parametrize(
    ("principal", "action", "mode", "restricted"),
    [
        pytest.param(ALICE, "plan", None, False, id="who may apply plans as ever"),
        pytest.param(ALICE, "check", None, False, id="and checks as ever"),
        pytest.param(BOB, "plan", None, True, id="a rule with max_mode plan"),
        pytest.param(BOB, "check", None, True, id="a check under such a rule"),
        pytest.param(EVE, "plan", None, True, id="who may apply, but no commands"),
        pytest.param(EVE, "assignment", "plan", True, id="a plan by an assignment, likewise"),
        pytest.param(LOCAL, "check", None, True, id="own checks under a rule without exec"),
    ],
)
def test_a_plan_runs_no_programs_without_permission_to_apply(
    principal: Principal, action: str, mode: str | None, restricted: bool
) -> None:
    ruling = ask(principal, action, mode)

    assert ruling.is_allowed
    assert ruling.grant is not None
    assert ruling.grant.is_restricted is restricted


@pytest.mark.parametrize(
    "text", ["default: allow\nmax_mode: plan\n", "default: allow\nforbid: {types: [exec]}\n"]
)
def test_policy_for_everyone_restricts_plans(text: str) -> None:
    ruling = ask(EVE, "plan", text=text)

    assert ruling.grant is not None
    assert ruling.grant.is_restricted


def test_max_mode_for_everyone_refuses_to_apply() -> None:
    text = "default: allow\nmax_mode: plan\nrules: [{name: all, allow: [all]}]\n"

    assert ask(EVE, "apply", text=text).code == "policy.mode"
    assert ask(EVE, "apply", text="default: allow\nmax_mode: plan\n").code == "policy.mode"
    assert ask(EVE, "assignment", "apply", text=text).code == "policy.mode"
    assert ask(EVE, "stop", text=text).is_allowed


def test_a_rule_without_signers_applies_to_all_requesters_over_the_bus() -> None:
    text = "default: deny\nrules: [{name: anyone, allow: [plan]}]\n"

    assert ask(UNVERIFIED_ALICE, "plan", text=text).rule == "anyone"
    assert ask(LOCAL, "apply", text=text).rule == ""


def test_without_a_policy_everything_is_allowed_except_for_a_signer_without_apply() -> None:
    planner = Principal(name="pia", key="UP", is_verified=True, is_plan_only=True)

    assert rule_on(None, UNVERIFIED_ALICE, "apply", "apply", SUNDAY).grant is None
    assert rule_on(None, UNVERIFIED_ALICE, "plan", "plan", SUNDAY).grant is None
    plan = rule_on(None, planner, "plan", "plan", SUNDAY)
    assert plan.grant is not None
    assert plan.grant.is_restricted
    assert rule_on(None, planner, "apply", "apply", SUNDAY).code == "policy.mode"


def test_a_signed_role_without_apply_is_not_widened_by_a_rule() -> None:
    planner = Principal(name="alice", key="UA", is_verified=True, is_plan_only=True)

    assert ask(planner, "apply").code == "policy.mode"
    plan = ask(planner, "plan")
    assert plan.grant is not None
    assert plan.grant.is_restricted


def test_the_rules_that_did_not_match_say_why() -> None:
    ruling = ask(EVE, "apply", now=SUNDAY)

    assert [(one.rule, one.why) for one in ruling.skipped] == [
        ("no weekend", "it does not cover apply"),
        ("operators", "it does not apply to eve"),
        ("apprentices", "it does not apply to eve"),
        ("office hours", "its hours are Mon-Fri 08:00-18:00 (UTC)"),
        ("quiet", "it does not cover apply"),
        ("own", "it does not apply to eve"),
    ]


def test_hours_are_those_of_the_policys_time_zone() -> None:
    text = "default: deny\ntime_zone: Asia/Tokyo\nrules: [{name: early, allow: [apply], hours: 'Tue 00:00-02:00'}]"

    moment = datetime(2026, 11, 23, 15, 30, tzinfo=UTC)

    assert ask(EVE, "apply", now=moment, text=text).is_allowed
    assert not ask(EVE, "apply", now=MONDAY_NOON, text=text).is_allowed


principals = st.builds(
    Principal,
    name=st.sampled_from(["alice", "bob", "eve", "local", "", "*"]),
    roles=st.lists(st.sampled_from(["apprentice", "admin", "*"]), max_size=2).map(tuple),
    is_verified=st.booleans(),
    is_plan_only=st.booleans(),
)


@given(
    principals, st.sampled_from([*RUN_ACTIONS, *LOOK_ACTIONS]), st.sampled_from(["apply", "plan", "check"])
)
def test_an_unverified_requester_gets_the_rights_of_anyone(
    principal: Principal, action: str, mode: str
) -> None:
    nameless = Principal(is_plan_only=principal.is_plan_only)
    if principal.is_verified:
        return

    asked = rule_on(policy(), principal, action, mode, MONDAY_NOON)
    anyone = rule_on(policy(), nameless, action, mode, MONDAY_NOON)

    assert (asked.is_allowed, asked.rule, asked.code) == (anyone.is_allowed, anyone.rule, anyone.code)


@given(principals, st.sampled_from(["plan", "check"]))
def test_only_signers_with_commands_run_plans_without_restriction(principal: Principal, mode: str) -> None:
    planned = rule_on(policy(), principal, mode, mode, MONDAY_NOON)
    applied = rule_on(policy(), principal, "apply", "apply", MONDAY_NOON)

    if planned.is_allowed and planned.grant is not None and not planned.grant.is_restricted:
        assert applied.is_allowed
        assert applied.grant is not None
        assert applied.grant.refuse_command("a health check") is None


def test_a_refusal_of_everything_refuses_everything() -> None:
    grant = refuse_all("the file is broken").grant

    assert grant is not None
    for refused in (
        grant.refuse_type("file"),
        grant.refuse_command("a check"),
        grant.refuse_registration(),
        grant.refuse_url("https://h/", "https://h/"),
        grant.refuse_reading("/a", "/a", is_own=True),
    ):
        assert refused is not None
        assert refused.message == "the file is broken"


WITHHOLDING = """\
default: allow
withhold: [output]
rules:
  - name: bob
    signers: [bob]
    allow: [all]
    withhold: [diff]
"""


def test_a_grant_combines_the_limits_of_the_rule_and_the_policy() -> None:
    rulings = [rule_on(policy(WITHHOLDING), who, "plan", "plan", MONDAY_NOON) for who in (BOB, ALICE, LOCAL)]

    withheld = [set(one.grant.withheld) if one.grant is not None else None for one in rulings]
    assert withheld == [{"output", "diff"}, {"output"}, {"output"}]


def test_a_rule_that_denies_withholds_nothing() -> None:
    text = "default: allow\nrules:\n  - name: bob\n    deny: [all]\n    withhold: [diff]\n"

    with pytest.raises(DocumentError, match="`withhold` and `max_mode` have no effect in it"):
        parse_policy(text.encode(), "policy.yaml", TYPES)
