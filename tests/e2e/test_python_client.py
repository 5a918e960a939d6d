"""The Python client on real agents: outcomes as they come, rollouts, errors before anything is sent, and early ends."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ccm_ctl
from ccm_agent.model.errors import CcmError, InputError, RunError, UsageError
from tests.support.fleet import Fleet, a_file, fleet, manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

NODES = ("web1", "web2", "web3")
FAILS = manifest(("exec", "fails", {"command": "sh -c 'exit 3'"}))


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("client")) as made:
        made.add(*NODES)
        yield made


@pytest.fixture(autouse=True)
def _clean(three: Fleet) -> Iterator[None]:
    yield
    three.forget_files()


async def test_outcomes_come_one_by_one_and_the_run_is_on_record(three: Fleet) -> None:
    path, found = three.write("site.yaml", manifest(a_file("motd"))), []
    async with ccm_ctl.client(environ=three.environ) as client:
        run = client.apply(path, all_nodes=True, message="new banner")
        async for outcome in run:
            found.append(outcome)
        again = await client.apply(path, targets=["node=web1", "node=web2"], noop=True).wait()
        nodes = await client.nodes("node=web1")
        with pytest.raises(UsageError, match="message: 1001 characters"):
            await client.apply(path, all_nodes=True, message="m" * 1001).wait()

    assert sorted((one.node, str(one.state), one.is_ok) for one in found) == [
        (name, "changed", True) for name in NODES
    ]
    assert [event.type for event in found[0].events] == ["file"]
    assert {name: str(one.state) for name, one in again.items()} == {"web1": "stable", "web2": "stable"}
    assert [node.name for node in nodes] == ["web1"]
    shown = await asyncio.to_thread(three.ctl, "run", "list", "--json")
    runs = {one["run"]: (one["state"], one.get("message")) for one in shown.named("run")}
    assert runs[run.id] == ("done", "new banner")
    assert len(runs) == 2


def test_the_example_of_the_page_runs(three: Fleet, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/reference/python-client.md").read_text()
    (tmp_path / "site").mkdir()
    (tmp_path / "site/manifest.yaml").write_text(manifest(a_file("motd")))
    three.ctl("facts", "set", "web1", "role=web")

    done = subprocess.run(
        [sys.executable, "-c", page.split("```python\n")[1].split("```")[0]],
        cwd=tmp_path, env=dict(three.environ), capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.stderr == ""
    assert done.stdout.startswith("web1 changed \n   file ")
    assert done.stdout.endswith(": 1 nodes\n")


async def test_a_rollout_that_pauses_is_an_error_that_says_how_to_continue(three: Fleet) -> None:
    path = three.write("fails.yaml", FAILS)
    async with ccm_ctl.client(environ=three.environ) as client:
        run = client.apply(path, all_nodes=True, batch="1")
        with pytest.raises(RunError, match="ccmctl run resume"):
            await run.wait()

    assert [str(one.state) for one in run.outcomes.values()] == ["failed"]
    await asyncio.to_thread(three.ctl, "run", "abort", run.id)


async def test_mistakes_are_errors_before_anything_is_sent(three: Fleet) -> None:
    good, bad = (
        three.write("site.yaml", manifest(a_file("motd"))),
        three.write("bad.yaml", "ccm: {resorces: []}\n"),
    )
    async with ccm_ctl.client(environ=three.environ) as client:
        with pytest.raises(InputError, match="nothing was sent"):
            await client.apply(bad, all_nodes=True).wait()
        with pytest.raises(UsageError):
            await client.apply(good).wait()
        with pytest.raises(CcmError, match="no node"):
            await client.apply(good, targets="node=web9").wait()
        with pytest.raises(UsageError, match="batch"):
            await client.apply(good, all_nodes=True, batch="0").wait()

    assert not any((agent.files / "motd").exists() for agent in three.agents.values())


async def test_leaving_the_loop_ends_the_watch_and_a_run_is_used_once(three: Fleet) -> None:
    path = three.write("site.yaml", manifest(a_file("motd")))
    async with ccm_ctl.client(environ=three.environ) as client:
        run = client.apply(path, all_nodes=True)
        async for _ in run:
            break
        with pytest.raises(UsageError, match="once"):
            await run.wait()
        await client.stop(run.id)

    assert len(run.outcomes) >= 1


async def test_a_broker_that_is_not_there_is_an_error_on_entry(tmp_path: Path) -> None:
    with pytest.raises(CcmError, match="cannot connect"):
        async with ccm_ctl.client("nats://127.0.0.1:1", environ={"HOME": str(tmp_path)}):
            raise AssertionError("there is a broker")
