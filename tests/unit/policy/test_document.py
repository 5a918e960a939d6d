"""What a policy document may say, and what is refused with file and line."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm_agent.model.errors import DocumentError
from ccm_agent.model.records.policy import RUN_ACTIONS
from ccm_agent.policy.document import Policy, parse_policy

TYPES = ("apply", "archive", "exec", "file", "package", "scaffold", "service")

WHOLE = """\
default: deny
time_zone: Europe/Berlin
forbid:
  types: [exec]
rules:
  - name: web team
    signers: [alice, "ops-*"]
    roles: [web]
    allow: [apply, plan]
    hours: [Mon-Fri 08:00-18:00, Sat 10:00-12:00]
    only:
      paths: [/srv/www/**]
      packages: ["nginx*"]
      services: [nginx.service]
  - name: others
    deny: [all, facts]
"""


def parse(text: str) -> Policy:
    return parse_policy(text.encode(), "policy.yaml", TYPES)


def test_a_whole_policy() -> None:
    policy = parse(WHOLE)

    web, others = policy.rules
    assert (policy.is_default_allow, policy.zone_name, len(policy.digest)) == (False, "Europe/Berlin", 64)
    assert policy.layer.forbid is not None
    assert policy.layer.forbid.types == frozenset({"exec"})
    assert (web.name, web.place.line, web.is_allow) == ("web team", 6, True)
    assert (web.signers, web.roles, web.actions) == (
        ("alice", "ops-*"),
        ("web",),
        frozenset({"apply", "plan"}),
    )
    assert web.written_hours == ("Mon-Fri 08:00-18:00", "Sat 10:00-12:00")
    assert web.title == "the rule `web team` (policy.yaml:6)"
    assert web.layer.only is not None
    assert web.layer.only.types == frozenset(
        {"file", "edit", "config", "archive", "scaffold", "package", "service"}
    )
    assert web.layer.only.services == ("nginx",)
    assert (others.is_allow, others.place.line) == (False, 15)
    assert others.actions == frozenset({*RUN_ACTIONS, "facts"})


def rule(text: str) -> str:
    return f"default: deny\nrules:\n  - name: one\n    {text}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("", "the policy is empty", id="nothing"),
        pytest.param("rules: []", "`default` is missing", id="no default"),
        pytest.param("default: maybe", "policy.yaml:1", id="a default that is none"),
        pytest.param("default: deny\nrulez: []", "policy.yaml:2:1: unknown key `rulez`, did you mean", id="key"),
        pytest.param(
            rule("alow: [apply]"), "policy.yaml:4:5: unknown key `alow`, did you mean `allow`?",
            id="a key of a rule",
        ),
        pytest.param(
            rule("allow: [apply]\n    only: {path: [/a]}"), "unknown key `path`, did you mean `paths`?",
            id="a key of limits",
        ),
        pytest.param(rule("allow: [aply]"), "policy.yaml:4", id="an action"),
        pytest.param(rule("hours: Mon"), "neither `allow` nor `deny`", id="neither"),
        pytest.param(rule("allow: [plan]\n    deny: [apply]"), "both `allow` and `deny`", id="both"),
        pytest.param(rule("deny: [all]\n    only: {types: [file]}"), "have no effect in it", id="limits of a denial"),
        pytest.param(rule("deny: [all]\n    max_mode: plan"), "have no effect in it", id="mode of a denial"),
        pytest.param(
            rule("allow: [all]\n    forbid: {types: [exce]}"), "unknown resource type `exce`, did you mean `exec`?",
            id="a type",
        ),
        pytest.param(rule("allow: [all]\n    forbid: {}"), "`forbid` is empty", id="empty limits"),
        pytest.param(
            rule("allow: [all]\n    only: {paths: [/a, etc/x]}"), "policy.yaml:5:24: `etc/x` is not an absolute path",
            id="a path",
        ),
        pytest.param(rule("allow: [all]\n    only: {packages: ['']}"), "is not a valid name", id="a package"),
        pytest.param(rule("allow: [all]\n    only: {sources: ['ftp://x/']}"), "is not a URL pattern", id="a source"),
        pytest.param(rule("allow: [all]\n    hours: Moon"), "did you mean `Mon`?", id="hours"),
        pytest.param(rule("allow: [all]\n    signers: ['']"), "a name is missing here", id="an empty signer"),
        pytest.param(
            rule("allow: [all]\n  - name: one\n    deny: [all]"), "two rules are named `one`", id="a name twice"
        ),
        pytest.param("default: deny\ntime_zone: Mars/Base", "unknown time zone `Mars/Base`", id="a time zone"),
        pytest.param("default: deny\nrules: {}", "policy.yaml:2", id="rules that are no list"),
        pytest.param("default: [", "policy.yaml:2", id="no YAML"),
    ],
)  # fmt: skip
def test_an_invalid_value_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(DocumentError) as caught:
        parse(text)

    assert said in str(caught.value)
    assert str(caught.value).startswith("policy.yaml")


WORDS = [
    "default",
    "rules",
    "name",
    "signers",
    "roles",
    "allow",
    "deny",
    "hours",
    "max_mode",
    "only",
    "forbid",
    "types",
    "paths",
    "sources",
    "packages",
    "services",
    "time_zone",
    "all",
    "apply",
    "plan",
    "exec",
    "/srv/**",
    "Mon-Fri",
    "*",
    "x",
]
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8), st.sampled_from(WORDS)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(WORDS), inner, max_size=4)
    ),
    max_leaves=12,
)


def refusal(text: str) -> str:
    """Why a document is refused; "" when it is a policy. Nothing but a DocumentError is let through."""
    try:
        parse(text)
    except DocumentError as err:
        return str(err)
    return ""


@given(VALUES)
def test_any_document_is_a_policy_or_an_error_with_a_place(value: object) -> None:
    document = {"default": "deny", "rules": [{"name": "one", "allow": ["all"]}]}
    if isinstance(value, dict):
        document |= value

    for held in (value, document, {"default": "deny", "rules": value}):
        said = refusal(json.dumps(held))
        assert said == "" or said.startswith("policy.yaml")


@given(st.text(max_size=60))
def test_any_file_is_a_policy_or_an_error(text: str) -> None:
    assert refusal(text) == "" or refusal(text).startswith("policy.yaml")


def test_a_policy_may_be_json() -> None:
    assert parse('{"default": "allow"}').is_default_allow
