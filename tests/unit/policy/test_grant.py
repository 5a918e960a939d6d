"""What a run may touch."""

from __future__ import annotations

import pytest

from ccm_agent.model.errors import PolicyError
from ccm_agent.policy.document import parse_policy
from ccm_agent.policy.grant import Grant

TYPES = ("apply", "archive", "exec", "file", "package", "scaffold", "service")
TITLE = "the rule `one` (policy.yaml:3) of the node's policy does not allow"


def grant(limits: str, *, is_restricted: bool = False) -> Grant:
    """The grant of a rule with these limits."""
    text = f"default: deny\nrules:\n  - name: one\n    allow: [all]\n    {limits}\n"
    (rule,) = parse_policy(text.encode(), "policy.yaml", TYPES).rules
    return Grant(who="bob", layers=(rule.layer,), is_restricted=is_restricted)


def said(refused: PolicyError | None) -> tuple[str, str] | None:
    return (refused.code, refused.message) if refused is not None else None


@pytest.mark.parametrize(
    ("limits", "kind", "is_allowed"),
    [
        pytest.param("forbid: {types: [exec]}", "exec", False, id="forbidden"),
        pytest.param("forbid: {types: [exec]}", "file", True, id="not forbidden"),
        pytest.param("only: {types: [file]}", "file", True, id="listed"),
        pytest.param("only: {types: [file]}", "exec", False, id="not listed"),
        pytest.param("only: {types: [file]}", "apply", True, id="a child manifest is judged by what is in it"),
        pytest.param("only: {types: [file]}\n    forbid: {types: [apply]}", "apply", False, id="unless it is forbidden"),
        pytest.param("only: {paths: [/srv/**]}", "file", True, id="paths mean the types that have some"),
        pytest.param("only: {paths: [/srv/**]}", "scaffold", True, id="all of those"),
        pytest.param("only: {paths: [/srv/**]}", "exec", False, id="and no others"),
        pytest.param("only: {paths: [/srv/**]}", "package", False, id="no packages either"),
        pytest.param("only: {packages: [a]}", "package", True, id="packages mean packages"),
        pytest.param("only: {services: [a]}", "service", True, id="services mean services"),
        pytest.param("only: {services: [a]}", "file", False, id="and nothing else"),
        pytest.param("only: {types: [exec], paths: [/srv/**]}", "exec", True, id="both lists count"),
        pytest.param("only: {types: [exec], paths: [/srv/**]}", "file", True, id="both lists count, indeed"),
        pytest.param("only: {sources: [/srv/**]}", "exec", True, id="sources say nothing about types"),
        pytest.param("only: {types: [file], sources: [/srv/**]}", "exec", False, id="nor do they widen them"),
        pytest.param("only: {paths: [/srv/**]}", "foreign", False, id="a type of others is not among them"),
    ],
)  # fmt: skip
def test_types(limits: str, kind: str, is_allowed: bool) -> None:
    assert (grant(limits).refuse_type(kind) is None) is is_allowed


def test_a_refusal_names_rule_and_type() -> None:
    assert said(grant("forbid: {types: [exec]}").refuse_type("exec")) == (
        "policy.type",
        f"{TITLE} resources of the type exec",
    )
    assert said(grant("forbid: {types: [exec]}").refuse_command("the health check `up`")) == (
        "policy.command",
        f"the health check `up` is a command, and {TITLE} resources of the type exec",
    )
    assert said(grant("forbid: {types: [registration]}").refuse_registration()) == (
        "policy.registration",
        f"`register_when_stable` publishes a registration, and {TITLE} resources of the type registration",
    )
    assert said(grant("forbid: {types: [unsigned]}").refuse_unsigned("trusted")) == (
        "policy.unsigned",
        f"`trusted: true` accepts software without a signature, and {TITLE} resources of the type unsigned",
    )


@pytest.mark.parametrize(
    ("limits", "path", "real", "is_allowed"),
    [
        pytest.param("only: {paths: [/srv/**]}", "/srv/a", "/srv/a", True, id="within"),
        pytest.param("only: {paths: [/srv/**]}", "/etc/a", "/etc/a", False, id="outside"),
        pytest.param(
            "only: {paths: [/srv/**]}", "/srv/link/a", "/etc/a", False, id="a symlink that leads out"
        ),
        pytest.param("only: {paths: [/srv/**]}", "/link/a", "/srv/a", True, id="a symlink that leads in"),
        pytest.param("forbid: {paths: [/etc/shadow]}", "/etc/shadow", "/etc/shadow", False, id="forbidden"),
        pytest.param(
            "forbid: {paths: [/etc/shadow]}", "/x/shadow", "/etc/shadow", False, id="by way of a symlink"
        ),
        pytest.param("forbid: {paths: [/var/run/**]}", "/var/run/x", "/run/x", False, id="as it is written"),
        pytest.param("forbid: {paths: [/etc/shadow]}", "/etc/motd", "/etc/motd", True, id="another path"),
        pytest.param("forbid: {types: [exec]}", "/etc/motd", "/etc/motd", True, id="no paths, no limit"),
    ],
)
def test_paths(limits: str, path: str, real: str, is_allowed: bool) -> None:
    assert (grant(limits).refuse_path(path, real) is None) is is_allowed


@pytest.mark.parametrize(
    ("limits", "path", "is_allowed"),
    [
        pytest.param("only: {paths: [/srv/**]}", "/srv/www", True, id="the pattern covers all of it"),
        pytest.param("only: {paths: [/srv/*]}", "/srv/www", False, id="the pattern covers only its top"),
        pytest.param(
            "forbid: {paths: [/etc/shadow]}", "/etc", False, id="something forbidden could lie in it"
        ),
        pytest.param(
            "forbid: {paths: [/etc/shadow]}", "/etc/nginx", True, id="nothing forbidden can lie in it"
        ),
    ],
)
def test_directories_with_all_that_is_in_them(limits: str, path: str, is_allowed: bool) -> None:
    assert (grant(limits).refuse_tree(path, path) is None) is is_allowed


def test_a_path_that_is_another_in_truth_is_shown_with_both() -> None:
    assert said(grant("only: {paths: [/srv/**]}").refuse_path("/srv/link/a", "/etc/a")) == (
        "policy.path",
        f"{TITLE} the path /srv/link/a, which is /etc/a",
    )


@pytest.mark.parametrize(
    ("limits", "path", "is_own", "is_allowed"),
    [
        pytest.param("forbid: {types: [exec]}", "/etc/hostname", False, True, id="no paths, no limit"),
        pytest.param("only: {paths: [/srv/**]}", "/bundle/a", True, True, id="the manifest's own files"),
        pytest.param("only: {paths: [/srv/**]}", "/etc/shadow", False, False, id="who may write some paths reads no others"),
        pytest.param("only: {paths: [/srv/**]}", "/srv/a", False, True, id="but those"),
        pytest.param("only: {paths: [/srv/**], sources: [/opt/**]}", "/opt/a", False, True, id="and those it names"),
        pytest.param("only: {sources: [/opt/**]}", "/etc/a", False, False, id="sources limit what is read"),
        pytest.param("forbid: {paths: [/etc/shadow]}", "/etc/shadow", False, False, id="a forbidden path is not read"),
        pytest.param("forbid: {sources: [/etc/ssl/**]}", "/etc/ssl/key", False, False, id="nor a forbidden source"),
        pytest.param("forbid: {paths: [/bundle/**]}", "/bundle/a", True, False, id="not even an own file"),
    ],
)  # fmt: skip
def test_reading(limits: str, path: str, is_own: bool, is_allowed: bool) -> None:
    assert (grant(limits).refuse_reading(path, path, is_own=is_own) is None) is is_allowed


def test_a_restricted_plan_reads_the_manifests_own_files_and_no_others() -> None:
    planned = grant("forbid: {types: [exec]}", is_restricted=True)

    assert planned.refuse_reading("/bundle/a", "/bundle/a", is_own=True) is None
    refused = planned.refuse_reading("/etc/hostname", "/etc/hostname", is_own=False)
    assert said(refused) == (
        "policy.unknown",
        "unknown until applied: /etc/hostname is not read, because it is not one of the manifest's own files in a plan by bob, "
        "who may only plan here",
    )
    assert refused is not None
    assert refused.is_unknown


@pytest.mark.parametrize(
    ("limits", "url", "is_allowed"),
    [
        pytest.param("only: {paths: [/srv/**]}", "https://h/a", True, id="paths say nothing about URLs"),
        pytest.param("only: {sources: ['https://h/**']}", "https://h/a", True, id="a listed one"),
        pytest.param("only: {sources: ['https://h/**']}", "https://g/a", False, id="one that is not listed"),
        pytest.param("only: {sources: [/opt/**]}", "https://h/a", False, id="paths alone list no URL"),
        pytest.param("forbid: {sources: ['http://*/**']}", "http://h/a", False, id="a forbidden one"),
    ],
)
def test_urls(limits: str, url: str, is_allowed: bool) -> None:
    assert (grant(limits).refuse_url(url, url) is None) is is_allowed


def test_packages_and_services() -> None:
    limits = grant("only: {packages: ['nginx*'], services: [nginx]}\n    forbid: {packages: [nginx-evil]}")

    assert limits.refuse_package("nginx-full:amd64") is None
    assert limits.refuse_service("nginx.service") is None
    assert said(limits.refuse_package("nginx-evil")) == ("policy.package", f"{TITLE} the package nginx-evil")
    assert said(limits.refuse_package("telnetd")) == ("policy.package", f"{TITLE} the package telnetd")
    assert said(limits.refuse_service("sshd")) == ("policy.service", f"{TITLE} the service sshd")
