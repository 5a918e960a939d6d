"""What an agent answers to whoever is at its host, and what it leaves there."""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ccm_agent.agent.process.control_socket import LOOK, ONCE, SOCKET, STATUS, ControlSocket, ask
from ccm_agent.agent.runs.admission import disable
from ccm_agent.agent.state.state_folder import STATUS_FILE, read_status
from ccm_agent.model.errors import HostError
from ccm_agent.model.wire import Disabled
from tests.support.agent import Running, until, until_asked
from tests.unit.agent.test_manifest_reconciler import NODE, SITE, World

HOUR = {"interval_s": 3600, "watch_interval_s": 0}
DISABLED = Disabled(since=datetime(2026, 1, 1, tzinfo=UTC), why="the disk is replaced", by="maria")


@pytest.fixture
def blockbuster() -> None:
    """Tests play the operator, who has a process of his own: they may write files."""


@pytest.fixture
async def world(tmp_path: Path) -> World:
    one = World(tmp_path)
    one.files.put(SITE, "changed /a\nstable /b")
    await one.controller.listen()
    return one


@contextlib.asynccontextmanager
async def reachable(world: World, *manifests: str, users: tuple[int, ...] = ()) -> AsyncIterator[Running]:
    """An agent that can be asked, and is idle."""
    async with world.agent(*manifests, **HOUR) as one:
        await world.applies(len(manifests))
        await world.idle(one)
        task = asyncio.create_task(ControlSocket(one.agent, world.folder, users).run())
        try:
            await until((world.folder / STATUS_FILE).exists)
            yield one
        finally:
            task.cancel()
            await asyncio.wait([task])


async def asked(world: World, question: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The last line of an answer, and those before."""
    lines: list[dict[str, Any]] = []
    end = await asyncio.to_thread(ask, world.folder, question, lines.append)
    assert end is not None
    return end, lines


async def test_the_status_says_what_the_agent_is_and_does_next(world: World) -> None:
    async with reachable(world, SITE) as one:
        end, _ = await asked(world, STATUS)
        status = end["status"]

        assert end["end"] == STATUS
        assert {key: status[key] for key in ("node", "version", "pid", "connected", "run", "waiting")} == {
            "node": NODE,
            "version": "0.1.0",
            "pid": os.getpid(),
            "connected": True,
            "run": "",
            "waiting": [],
        }
        assert status["last_state"] == "changed"
        assert status["scopes"] == one.agent.scopes
        [manifest] = status["manifests"]
        assert (manifest["name"], manifest["trouble"]) == (SITE, "")
        assert world.clock.now() < datetime.fromisoformat(manifest["next"])


async def test_status_shows_the_position_of_a_run_in_progress(world: World) -> None:
    world.files.put("/wait.yaml", "stable /a\nwait /b\nstable /c")
    async with world.agent("/wait.yaml", **HOUR) as one:
        await world.engine.at_wait.wait()

        status = await one.agent.local_status.now()
        world.engine.go.set()

    assert status["run"] == world.engine.applied[0][1].run
    assert (status["progress"]["resource"], status["progress"]["position"], status["progress"]["total"]) == (
        "file#/b",
        2,
        3,
    )


async def test_to_converge_once_applies_everything_and_tells_how_it_ended(world: World) -> None:
    world.files.put("/other.yaml", "failed /c\nstable /d")
    async with reachable(world, SITE, "/other.yaml"):
        end, lines = await asked(world, ONCE)

    assert len(world.engine.applied) == 4
    assert [(one["name"], one["state"]) for one in end["ended"]] == [
        (SITE, "changed"),
        ("/other.yaml", "failed"),
    ]
    assert {line["status"]["node"] for line in lines} == {NODE}


async def test_a_source_without_a_manifest_is_reported_as_failed(world: World) -> None:
    async with reachable(world) as one:
        one.agent.reload(one.agent.settings.__class__(**settings_of(one, manifests=("/none.yaml",))))
        await until_asked(lambda: has_manifests(one))
        end, _ = await asked(world, ONCE)

    [ended] = end["ended"]
    assert (ended["name"], ended["state"]) == ("/none.yaml", "failed")
    assert "/none.yaml" in ended["reason"]


async def has_manifests(one: Running) -> bool:
    return bool((await one.agent.local_status.now())["manifests"])


def settings_of(one: Running, **changes: Any) -> dict[str, Any]:
    settings = one.agent.settings
    return {name: getattr(settings, name) for name in settings.__struct_fields__} | changes


async def test_a_disabled_node_does_not_converge_once(world: World) -> None:
    async with reachable(world, SITE):
        disable(world.folder, DISABLED)
        looked, _ = await asked(world, LOOK)
        with pytest.raises(HostError, match="disabled by maria: the disk is replaced"):
            await asked(world, ONCE)

    assert looked["status"]["disabled"]["why"] == "the disk is replaced"
    assert len(world.engine.applied) == 1


async def test_run_continues_after_the_local_client_disconnects(world: World) -> None:
    async with reachable(world, SITE) as one:
        world.files.put(SITE, "wait /a\nchanged /b")
        reader, writer = await asyncio.open_unix_connection(str(world.folder / SOCKET))
        writer.write(b'{"ask":"once"}\n')
        await reader.readline()
        await world.engine.at_wait.wait()
        writer.close()
        world.engine.go.set()
        await world.idle(one)

        status = await one.agent.local_status.now()

    assert status["last_state"] == "changed"
    assert len(world.engine.applied) == 2


@pytest.mark.parametrize(
    "question", [b"", b"x\n", b"{}\n", b"x" * 10_000], ids=["nothing", "text", "empty", "long"]
)
async def test_invalid_requests_get_no_answer_and_do_no_harm(world: World, question: bytes) -> None:
    async with reachable(world):
        reader, writer = await asyncio.open_unix_connection(str(world.folder / SOCKET))
        writer.write(question)
        writer.write_eof()
        async with asyncio.timeout(10):
            said = await reader.read()
        writer.close()
        end, _ = await asked(world, STATUS)

    assert (said, end["end"]) == (b"", STATUS)


async def test_an_unknown_question_is_refused(world: World) -> None:
    async with reachable(world):
        with pytest.raises(HostError, match="this agent does not support `dance`"):
            await asked(world, "dance")


async def test_the_socket_is_for_its_owner_alone_and_another_user_is_sent_away(world: World) -> None:
    async with reachable(world, users=(os.geteuid() + 1,)):
        mode = (world.folder / SOCKET).stat().st_mode & 0o777
        with pytest.raises(HostError, match="exited or closed the connection before the end of its answer"):
            await asked(world, STATUS)

    assert mode == 0o600


async def test_the_socket_of_a_dead_agent_is_taken_over(world: World) -> None:
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(world.folder / SOCKET))
    dead.close()
    before = await asyncio.to_thread(ask, world.folder, STATUS)

    async with reachable(world):
        end, _ = await asked(world, STATUS)

    assert (before, end["end"]) == (None, STATUS)


async def test_a_state_folder_of_any_depth_can_be_reached(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    world = World(folder)
    async with reachable(world):
        end, _ = await asked(world, STATUS)

    assert end["end"] == STATUS


def test_without_an_agent_there_is_no_answer(tmp_path: Path) -> None:
    assert ask(tmp_path, STATUS) is None
    assert ask(tmp_path / "none", STATUS) is None


async def test_last_status_is_readable_only_by_its_owner(world: World) -> None:
    async with reachable(world, SITE):
        pass

    left = read_status(world.folder)
    assert (left["node"], left["last_state"]) == (NODE, "changed")
    assert (world.folder / STATUS_FILE).stat().st_mode & 0o777 == 0o600
    assert json.loads((world.folder / STATUS_FILE).read_text()) == left
