"""`ccmctl exec` on real agents: who may run commands, what nodes run, and what stays on record."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.fleet import Fleet, fleet
from tests.support.secured import Secured, secured_fleet

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """web1 with role=web; bob may apply there, sue may run commands there, and lou may look."""
    with secured_fleet(tmp_path_factory.mktemp("secured")) as one:
        one.give("operator", "sue", "--exec", "role=web")
        one.give("operator", "lou")
        one.fleet.wait_for(
            lambda: one.as_("sue", "exec", "-t", "role=web", "--yes", "true").code == 0,
            "the node to know sue",
        )
        yield one


@pytest.fixture(scope="module")
def open_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two agents without security."""
    with fleet(tmp_path_factory.mktemp("open")) as one:
        one.add("web1", "web2")
        yield one


def outputs(records: list[dict[str, Any]]) -> dict[str, tuple[int | None, str]]:
    """Exit code and output of each node."""
    return {one["node"]: (one.get("exit_code"), one["output"]) for one in records}


def test_operator_with_exec_runs_commands_only_in_scope(secured: Secured) -> None:
    done = secured.as_(
        "sue", "exec", "-t", "role=web", "--yes", "--json", "--", "printf", "%s|", "a b", "$HOME"
    )
    seen = secured.as_("lou", "run", "show", done.run, "--json")
    assert secured.as_("tester", "facts", "set", "db1", "role=db", "--new").code == 0
    elsewhere = secured.as_("sue", "exec", "-t", "node=db1", "--yes", "true")
    ensured = secured.as_("sue", "ensure", "exec", "true", "-t", "role=web", "--yes")

    assert (done.code, done.states) == (0, {"web1": "changed"}), done.err
    assert outputs(done.named("output")) == {"web1": (0, "a b|$HOME|")}
    [event] = seen.resources
    assert (event["exit_code"], event["output"]) == (0, "a b|$HOME|")
    assert [one["verdict"] for one in seen.named("event")] == ["verified"]
    assert (elsewhere.code, ensured.code) == (1, 1)
    assert "it lacks the right `--exec node=db1`" in elsewhere.err


@pytest.mark.parametrize("who", ["bob", "lou", "web1"])
def test_others_run_no_command(secured: Secured, who: str) -> None:
    """An operator who may apply, one who may look, and the holder of a node's stolen key."""
    done = secured.as_(who, "exec", "-t", "role=web", "--yes", "true")

    assert done.code == 1, done.out
    assert "the broker does not allow" in done.err


def test_commands_end_differently_and_a_script_sees_it(open_fleet: Fleet) -> None:
    script = "case $PWD$(cat) in /) echo out; echo err >&2; exit 3;; esac"

    done = open_fleet.ctl("exec", "--all", "--yes", "--json", "--shell", "--", script)
    killed = open_fleet.ctl("exec", "--all", "--yes", "--json", "--timeout", "1s", "--", "sleep", "60")
    absent = open_fleet.ctl("exec", "-t", "node=web1", "--yes", "--json", "--", "no-such-program")
    signalled = open_fleet.ctl("exec", "-t", "node=web1", "--yes", "--json", "--shell", "kill -KILL $$")

    assert (done.code, killed.code, absent.code, signalled.code) == (2, 2, 2, 2)
    assert {
        node: (code, sorted(text.split())) for node, (code, text) in outputs(done.named("output")).items()
    } == {
        "web1": (3, ["err", "out"]),
        "web2": (3, ["err", "out"]),
    }
    assert "took longer than" in killed.named("output")[0]["error"]
    assert "no-such-program" in absent.named("output")[0]["error"]
    assert outputs(signalled.named("output")) == {"web1": (-signal.SIGKILL, "")}


def test_templates_are_text_and_the_end_of_a_long_output_is_kept(open_fleet: Fleet) -> None:
    plain = open_fleet.ctl("exec", "-t", "node=web1", "--yes", "--json", "--", "echo", "{{ 1 + 1 }}${ x }")
    long = open_fleet.ctl("exec", "-t", "node=web1", "--yes", "--json", "--shell", "--", "seq 100000; exit 1")

    assert outputs(plain.named("output")) == {"web1": (0, "{{ 1 + 1 }}${ x }\n")}
    [output] = long.named("output")
    assert (output["exit_code"], output["cut"]) == (1, True)
    assert output["output"].endswith("\n99999\n100000\n")
    assert 40_000 < len(output["output"]) <= 65_536


def test_policy_that_forbids_commands_forbids_these_too(open_fleet: Fleet) -> None:
    policy = open_fleet.agents["web2"].directory / "policy.yaml"
    policy.write_text("default: allow\nforbid: {types: [exec]}\nrules: []\n")
    open_fleet.agents["web2"].process.send_signal(signal.SIGHUP)
    mark = open_fleet.directory / "ran"

    def refused() -> bool:
        done = open_fleet.ctl("exec", "-t", "node=web2", "--yes", "--json", "--", "true")
        return done.code == 2 and "policy" in done.named("output")[0].get("error", "")

    open_fleet.wait_for(refused, "the policy to be in force")
    open_fleet.ctl("exec", "-t", "node=web2", "--yes", "--json", "--", "touch", str(mark))
    policy.write_text("default: allow\nrules: [{name: no commands, deny: [exec]}]\n")
    open_fleet.agents["web2"].process.send_signal(signal.SIGHUP)

    def denied() -> bool:
        done = open_fleet.ctl("exec", "-t", "node=web2", "--yes", "--json", "--", "true")
        return done.states == {"web2": "refused"}

    open_fleet.wait_for(denied, "the new policy to be in force")
    assert not mark.exists()
