"""The page about policies: every example is a policy, and says what the page says; and further policies that people write."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ccm_agent.model.records.policy import LOCAL, Principal
from ccm_agent.policy.document import Policy, parse_policy
from ccm_agent.policy.ruling import Ruling, rule_on

PAGE_ROOT = Path(__file__).resolve().parents[3]
PAGE = (PAGE_ROOT / "docs/concepts/policy.md").read_text()
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
CODES = (PAGE_ROOT / "docs/reference/error-codes.md").read_text()
TYPES = ("apply", "archive", "exec", "file", "package", "scaffold", "service")
MONDAY = datetime(2026, 11, 23, 9, 30, tzinfo=UTC)


def parsed(text: str) -> Policy:
    return parse_policy(text.encode(), "policy.yaml", TYPES)


def example(word: str) -> Policy:
    """The one example in which a word stands."""
    (text,) = [text for text in EXAMPLES if word in text]
    return parsed(text)


def ask(policy: Policy, name: str, action: str, *roles: str, mode: str = "") -> Ruling:
    principal = Principal(name=name, roles=roles, is_verified=True)
    return rule_on(policy, principal, action, mode or action, MONDAY)


@pytest.mark.parametrize("text", EXAMPLES)
def test_every_example_is_a_policy(text: str) -> None:
    parsed(text)


def test_the_first_example_refuses_as_the_page_shows() -> None:
    ruling = ask(example("apprentices"), "alice", "apply")

    assert ruling.grant is not None
    refused = ruling.grant.refuse_type("exec")
    assert refused is not None
    assert f"refused: {refused.message}\n" in PAGE


def test_no_commands_for_anyone() -> None:
    (policy,) = [parsed(text) for text in EXAMPLES if text == "default: allow\nforbid:\n  types: [exec]\n"]

    ruling = ask(policy, "anyone", "apply")

    assert ruling.is_allowed
    assert ruling.grant is not None
    assert ruling.grant.refuse_type("exec") is not None
    assert ruling.grant.refuse_type("file") is None


def test_a_node_that_is_only_looked_at() -> None:
    policy = parsed("default: allow\nmax_mode: plan\n")

    assert ask(policy, "anyone", "apply").code == "policy.mode"
    assert rule_on(policy, LOCAL, "apply", "apply", MONDAY).grant is None


def test_the_pipeline_assigns_and_a_person_on_call_may_do_anything() -> None:
    policy = example("release-pipeline")

    assert ask(policy, "release-pipeline", "assignment", mode="apply").rule == "pipeline"
    assert not ask(policy, "release-pipeline", "apply").is_allowed
    assert ask(policy, "eve", "apply", "on-call").rule == "on call"
    assert ask(policy, "eve", "plan").rule == "office"


def test_own_manifests_that_may_not_touch_the_agent() -> None:
    ruling = rule_on(example("own manifests"), LOCAL, "apply", "apply", MONDAY)

    assert ruling.grant is not None
    assert ruling.grant.refuse_path("/etc/choria/ccm/policy.yaml", "/etc/choria/ccm/policy.yaml") is not None
    assert ruling.grant.refuse_service("ccm-agent.service") is not None


def test_web_content_from_one_server() -> None:
    policy = parsed(
        "default: deny\n"
        "rules:\n"
        "  - name: content\n"
        "    signers: [publisher]\n"
        "    allow: [apply, ensure]\n"
        "    only:\n"
        "      paths: [/srv/www/**]\n"
        '      sources: ["https://artifacts.example.net/site/**"]\n'
    )

    ruling = ask(policy, "publisher", "apply")

    assert ruling.grant is not None
    assert ruling.grant.refuse_url("https://artifacts.example.net/site/1.tgz", "") is None
    assert ruling.grant.refuse_url("https://evil.example.net/site/1.tgz", "") is not None
    assert ruling.grant.refuse_reading("/etc/shadow", "/etc/shadow", is_own=False) is not None


def test_every_code_of_the_page_is_one_that_the_code_uses() -> None:
    listed = set(re.findall(r"^\| `(policy\.[a-z]+)`", CODES, re.MULTILINE))
    source = (
        "".join(
            path.read_text()
            for path in Path(PAGE_ROOT, "ccm_agent").rglob("*.py")
            if "policy" in path.name or path.parent.name == "policy"
        )
        + (Path(PAGE_ROOT) / "ccm_agent/model/errors.py").read_text()
    )
    used = set(re.findall(r'"(policy\.[a-z]+)"', source)) | {"policy.package", "policy.service"}

    assert listed == used - {"policy.yaml"}
