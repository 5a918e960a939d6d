"""What a shell completes: files, types, and names of what there is on the broker."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from ccm_agent.bus.connection.settings import BusSettings
from ccm_agent.clikit.terminal import Terminal
from ccm_agent.model.errors import BusUnavailableError
from ccm_agent.testing.memory_bus import MemoryBroker
from ccm_ctl.__main__ import VERBS
from ccm_ctl.app import Application, Broker
from ccm_ctl.commands import completion_values
from ccm_ctl.commands.command_tree import CtlProgram
from ccm_ctl.commands.completion_values import complete_facts
from tests.support.controller import Desk, FakeNode

ENVIRON = {"CCM_OPERATOR": "op", "HOME": "/nonexistent"}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    path = tmp_path / "motd.yaml"
    path.write_text("ccm:\n  resources:\n    - exec: [{'true': {}}]\n")
    (tmp_path / "common.yaml").write_text("data: {a: 1}\n")
    desk = Desk(FakeNode("web1", {"role": "web"}), FakeNode("web2", {"role": "web"}), FakeNode("db1", {}))
    desk.ccmctl("data", "put", "role/web", str(tmp_path / "common.yaml"))
    desk.ccmctl("assign", "motd", str(path), "--targets", "role=web", "--yes")
    desk.ccmctl("group", "set", "canary", "-t", "node=web1")
    return desk


def completed(application: Application, line: str) -> list[tuple[str, str]]:
    """What is offered for the last word of a line, and as what."""
    *before, last = line.split(" ")
    found = ShellComplete(CtlProgram(VERBS), {"obj": application}, "ccmctl", "_X").get_completions(
        before, last
    )
    return [(item.value, item.type) for item in found]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("node show w", ["web1", "web2"]),
        ("why ", ["db1", "web1", "web2"]),
        ("facts set d", ["db1"]),
        ("nodes rm web1 d", ["db1"]),
        ("events --node web", ["web1", "web2"]),
        ("data get ", ["role/web"]),
        ("data ls r", ["role/web"]),
        ("hiera explain ", []),
        ("assignment status ", ["motd"]),
        ("rollback x", []),
        ("schedule rm ", []),
        ("run show l", ["last"]),
        ("ensure fi", ["file"]),
        ("ensure file ", []),
        ("run wa", ["watch"]),
        ("apply site -t role", ["role=web"]),
        ("apply site -t role=w", ["role=web"]),
        ("apply site -t role!=", ["role!=web"]),
        ("apply site -t role=web,node=w", ["role=web,node=web1", "role=web,node=web2"]),
        ("apply site -t @", ["@canary"]),
        ("apply site -t role=web,@can", ["role=web,@canary"]),
        ("apply site -t @canary,node=d", ["@canary,node=db1"]),
        ("group rm c", ["canary"]),
        ("facts set web1 role=", ["role=web"]),
        ("facts show web1 r", ["role"]),
        (
            "ensure service cron ",
            [
                "alias=",
                "enable=",
                "ignore=",
                "provider=",
                "require=",
                "running",
                "sensitive=",
                "stopped",
                "subscribe=",
                "tags=",
                "timeout=",
            ],
        ),
        ("ensure service cron enable=", ["enable=false", "enable=true"]),
        ("ensure package nginx l", ["latest"]),
        ("help run st", ["stop"]),
        ("help nothing ", []),
    ],
)
def test_names_are_those_that_there_are(desk: Desk, line: str, offered: list[str]) -> None:
    application = Application(Terminal("ccmctl", environ={}), ENVIRON, desk._connect)

    assert completed(application, line) == [(name, "plain") for name in offered]


def test_bundles_are_offered_by_the_beginning_of_their_digests(desk: Desk) -> None:
    [digest] = desk.broker.objects["CCM_MANIFESTS"]
    application = Application(Terminal("ccmctl", environ={}), ENVIRON, desk._connect)

    assert completed(application, f"bundle get {digest[:2]}") == [(digest[:12], "plain")]


@pytest.mark.parametrize("line", ["apply s", "assign web s", "data put common s", "nodes --creds s"])
def test_files_are_left_to_the_shell(line: str) -> None:
    assert completed(Application(Terminal("ccmctl", environ={}), ENVIRON), line) == [("s", "file")]


def test_words_that_a_shell_would_expand_are_not_offered(desk: Desk) -> None:
    async def evil(broker: MemoryBroker) -> None:
        for name in ("web3", "$(id)", "*", "--force"):
            broker.store("KV_CCM_NODES", broker.buckets["CCM_NODES"], f"node.{name}", b"{}")

    desk.hooks.append(evil)
    application = Application(Terminal("ccmctl", environ={}), ENVIRON, desk._connect)

    assert [name for name, _ in completed(application, "why ")] == ["db1", "web1", "web2", "web3"]


@pytest.mark.parametrize("why", [BusUnavailableError("no broker answers"), OSError("away"), None])
def test_without_an_answer_nothing_is_offered_and_nothing_said(
    why: Exception | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextlib.asynccontextmanager
    async def connect(_settings: BusSettings) -> AsyncIterator[Broker]:
        if why is not None:
            raise why
        raise TimeoutError
        yield

    monkeypatch.setattr(completion_values, "WITHIN_S", 0.01)

    assert completed(Application(Terminal("ccmctl", environ={}), ENVIRON, connect), "why w") == []
    assert completed(Application(Terminal("ccmctl", environ={}), ENVIRON), "--context none why w") == []
    assert tuple(capsys.readouterr()) == ("", "")


def test_names_of_resources_are_those_of_earlier_runs(desk: Desk) -> None:
    desk.ccmctl("ensure", "package", "nginx", "present", "--all", "--yes")
    desk.ccmctl("ensure", "service", "cron", "running", "--all", "--yes")
    application = Application(Terminal("ccmctl", environ={}), ENVIRON, desk._connect)

    assert completed(application, "ensure package ") == [("nginx", "plain")]


def test_a_fact_with_many_values_is_offered_by_its_name_first() -> None:
    facts = [*(f"host=h{number}" for number in range(30)), "role=web"]

    assert sorted(complete_facts(facts, "")) == ["host=", "role=web"]
    assert len(complete_facts(facts, "host=")) == 31
