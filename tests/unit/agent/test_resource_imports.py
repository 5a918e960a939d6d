"""A node reports what it has, in parts, one request after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ccm_agent.bus.subjects import event_subject
from ccm_agent.model.errors import CcmError
from ccm_agent.model.ids import new_id
from ccm_agent.model.records.host_import import (
    BATCH_FILES,
    PART_CHARACTERS,
    RESOURCES_LIMIT,
    FoundResource,
    HostResources,
    ResourcesPart,
    join_parts,
)
from ccm_agent.model.wire import RESOURCE_IMPORT, SESSION_ANSWER, Answer, ImportRequest
from ccm_agent.policy.grant import Grant
from ccm_agent.testing.memory_bus import MemoryBroker
from tests.support.agent import (
    NODE,
    Controller,
    FakeClock,
    FakeEngine,
    agent_ports,
    agent_settings,
    memory_bus,
    running,
    until,
)


def some(count: int, size: int = 1) -> HostResources:
    return HostResources(
        resources=[
            FoundResource(type="user", name=f"u{number}", properties={"comment": "x" * size})
            for number in range(count)
        ]
    )


class Host:
    """A host that has what a test says, and the answers about it."""

    def __init__(self, found: HostResources | Exception) -> None:
        self.found = found
        self.asked: list[Sequence[str]] = []
        self.go = asyncio.Event()
        self.go.set()

    async def find(self, types: Sequence[str], contents: Sequence[str], grant: Grant | None) -> HostResources:
        self.asked.append(types)
        await self.go.wait()
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


async def answers_of(
    folder: Path, host: Host, count: int, *requests: ImportRequest, before: int = 0
) -> list[Answer]:
    """The answers to requests; the host is held until so many (`before`) have come."""
    clock = FakeClock()
    broker = MemoryBroker(clock.now)
    controller = Controller(memory_bus(broker, "op"))
    await controller.listen()
    ports = agent_ports(memory_bus(broker, NODE), FakeEngine(), clock, find_resources=host.find)
    if before:
        host.go.clear()

    def heard() -> list[Answer]:
        subjects = {event_subject(SESSION_ANSWER, NODE, one.run) for one in requests}
        found = [body for subject, body in controller.heard if subject in subjects]
        return [msgspec.convert(body, Answer, strict=False) for body in found]

    async with running(agent_settings(folder, NODE), ports):
        for request in requests:
            await controller.ask(request)
        if before:
            await until(lambda: len(heard()) >= before)
            host.go.set()
        await until(lambda: len(heard()) >= count)
        return heard()


def a_request(*types: str, run: str = "") -> ImportRequest:
    return ImportRequest(protocol=RESOURCE_IMPORT, run=run or new_id(), types=list(types))


async def test_request_is_accepted_and_answered_in_parts_that_fit(tmp_path: Path) -> None:
    host = Host(some(200, 1000))

    accepted, *parts = await answers_of(tmp_path, host, 5, a_request("user", "group"))

    assert (accepted.state, host.asked) == ("accepted", [("group", "user")])
    bodies = [msgspec.convert(one.body, ResourcesPart) for one in parts]
    assert {one.state for one in parts} == {"done"}
    assert [(one.part, one.parts) for one in bodies] == [(number, 4) for number in range(4)]
    assert max(len(one.text) for one in bodies) == PART_CHARACTERS
    assert join_parts([one.text for one in bodies], bodies[0].digest) == host.found


@pytest.mark.parametrize(
    "types", [(), ("file",), ("user", "exec"), ("file:etc",), ("file:/a/../b",), ("user:/etc",)], ids=str
)
async def test_other_types_are_refused_and_the_host_is_not_looked_at(
    tmp_path: Path, types: tuple[str, ...]
) -> None:
    host = Host(some(1))

    [answer] = await answers_of(tmp_path, host, 1, a_request(*types))

    assert (answer.state, answer.code, host.asked) == ("refused", "import.type", [])


async def test_repeated_request_is_looked_at_once_while_it_waits(tmp_path: Path) -> None:
    host, request = Host(some(1)), a_request("user")

    answers = await answers_of(tmp_path, host, 3, request, request, before=2)

    assert [one.state for one in answers] == ["accepted", "accepted", "done"]
    assert len(host.asked) == 1


async def test_too_many_waiting_requests_are_refused(tmp_path: Path) -> None:
    host = Host(some(1))

    answers = await answers_of(tmp_path, host, 10, *[a_request("user") for _ in range(6)], before=6)

    assert [one.state for one in answers[:6]] == ["accepted"] * 4 + ["refused"] * 2
    assert {one.code for one in answers[4:6]} == {"queue.full"}
    assert [one.state for one in answers[6:]] == ["done"] * 4


@pytest.mark.parametrize(
    ("found", "code", "reason"),
    [
        (some(RESOURCES_LIMIT + 1), "import.size", "10001 resources are too many"),
        (some(100, 100_000), "import.size", "name fewer --types"),
        (CcmError("the disk is gone"), "ccm.error", "the disk is gone"),
        (RuntimeError("token=abc"), "import.failed", "the host cannot be read: RuntimeError"),
    ],
    ids=["many", "large", "error", "bug"],
)
async def test_failure_is_an_answer_and_the_next_request_is_served(
    tmp_path: Path, found: Any, code: str, reason: str
) -> None:
    answers = await answers_of(tmp_path, Host(found), 4, a_request("user"), a_request("user"))

    refused = [one for one in answers if one.state == "refused"]
    assert [(one.code, reason in one.reason, "abc" in one.reason) for one in refused] == [
        (code, True, False)
    ] * 2


async def test_request_for_too_many_contents_is_refused(tmp_path: Path) -> None:
    host, most = Host(some(1)), ["0f" * 32] * BATCH_FILES
    served, refused = (
        ImportRequest(protocol=RESOURCE_IMPORT, run=new_id(), types=["file:/etc/app"], contents=contents)
        for contents in (most, [*most, "0f" * 32])
    )

    answers = await answers_of(tmp_path, host, 3, served, refused)

    assert {one.run: one.code for one in answers if one.state == "refused"} == {refused.run: "import.size"}
    assert [one.run for one in answers if one.state == "done"] == [served.run]
