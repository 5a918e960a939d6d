"""Templates that never end or grow without end: the run fails and says why, and the agent answers meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fleet import Controller, Fleet, a_file, fleet, manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

PING_S = 1.0

LOOP = "\n{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}"
GROWING = "{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}"
ONE_CALL = (
    "{% set n = namespace(x=[1], y=[1]) %}{% for i in range(60) %}"
    "{% set n.x = [n.x, n.x] %}{% set n.y = [n.y, n.y] %}{% endfor %}{{ n.x == n.y }}"
)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A broker and the node web1, where a template may take two seconds of CPU time."""
    with fleet(tmp_path_factory.mktemp("fleet")) as built:
        built.add("web1", template_cpu="2s")
        yield built


def scaffold(one: Fleet, name: str, template: str, **properties: Any) -> tuple[str, str, dict[str, Any]]:
    """A directory of one template."""
    one.write(f"{name}/src/motd", template)
    source = str(Path(one.directory) / name / "src")
    return (
        "scaffold",
        f"{one.agents['web1'].files}/{name}",
        {"ensure": "present", "source": source, **properties},
    )


def begin(one: Fleet, *resources: tuple[str, str, dict[str, Any]]) -> Controller:
    path = one.write("m.yaml", manifest(*resources))
    return one.begin("apply", path, "--targets", "node=web1", "--yes", "--json")


def pings(one: Fleet, controller: Controller) -> list[float]:
    """How long the agent takes to answer, again and again until the run ends."""
    found = []
    while controller.so_far.code < 0:
        replies = one.ctl("ping", "--json").named("reply")
        found += [record["seconds"] for record in replies]
        time.sleep(0.1)
    return found


@pytest.mark.parametrize(
    ("engine", "template", "error"),
    [
        ("jinja", LOOP, "motd:2: template takes more than 2 s of CPU time"),
        ("jinja", GROWING, "motd:1: template needs more memory than it may have"),
        ("jinja", ONE_CALL, "motd: template takes more than 2 s of CPU time"),
        (
            "go",
            '{{ $s := repeat 100000 "abcdefghij" }}{{ range until 1000 }}{{ $x := shuffle $s }}{{ end }}',
            "motd:1: ",
        ),
    ],
)
def test_a_hostile_template_fails_its_resource_and_the_agent_answers_meanwhile(
    engine: str, template: str, error: str, one: Fleet
) -> None:
    one.forget_files()
    agent = one.agents["web1"]

    controller = begin(one, scaffold(one, engine, template, engine=engine), a_file("after"))
    answered = pings(one, controller)

    done = controller.end()
    events = {event["name"].rpartition("/")[2]: event for event in done.resources}
    assert events[engine]["failed"]
    assert error in events[engine]["error"][0]
    assert events["after"]["changed"], "the node goes on with the next resource"
    assert answered
    assert max(answered) < PING_S
    assert agent.process is not None
    assert agent.process.poll() is None
    assert agent.log.count("the agent has started") == 1


def test_costly_expressions_of_a_manifest_fail_the_run_and_the_agent_answers_meanwhile(one: Fleet) -> None:
    one.forget_files()
    costly = "{{ let l = 1..1400; any(l, any(l, # == -1)) }}"

    controller = begin(one, *(a_file(f"f{number}", costly) for number in range(40)))
    answered = pings(one, controller)

    done = controller.end()
    assert done.states == {"web1": "failed"}
    assert "the expressions take more than" in done.reasons["web1"]
    assert answered
    assert max(answered) < PING_S
