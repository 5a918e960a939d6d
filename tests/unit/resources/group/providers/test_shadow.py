"""Groups with the shadow tools: what is read, which programs run, and what their failures look like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ccm_agent.model.errors import CommandError, FileError, LockError
from ccm_agent.resources.group import TYPE
from ccm_agent.resources.group.model import GroupProperties
from ccm_agent.resources.group.providers.shadow import ShadowGroups, state
from ccm_agent.testing.files import FakeFiles
from ccm_agent.testing.locks import FakeLocks
from ccm_agent.testing.runner import FakeRunner
from tests.support.resources import manage

FILE = """\
root:x:0:
# a comment
broken:x
web:x:900:bob,alice
web:x:901:mallory
+nis::
webx:x:902:
"""


class CountingFiles(FakeFiles):
    """Counts what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []

    async def read(self, path: str, limit_bytes: int) -> bytes:
        self.reads.append(path)
        return await super().read(path, limit_bytes)


def host(text: str = FILE) -> tuple[ShadowGroups, FakeRunner, CountingFiles, FakeLocks]:
    runner, files, locks = FakeRunner(), CountingFiles(), FakeLocks()
    files.put("/etc/group", text)
    return ShadowGroups(runner, files, locks), runner, files, locks


def edit(files: FakeFiles, text: str) -> Callable[[], None]:
    """What a tool does to the file."""
    return lambda: files.put("/etc/group", text)


def group(**properties: Any) -> GroupProperties:
    return GroupProperties(**{"name": "web", "ensure": "present", **properties})


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        pytest.param("web", ["web", "x", "900", "bob,alice"], id="the first of two entries"),
        pytest.param("root", ["root", "x", "0", ""], id="the first line"),
        pytest.param("webx", ["webx", "x", "902", ""], id="another name that begins like it"),
        pytest.param("eb", None, id="the end of a name"),
        pytest.param("broken", None, id="an entry without all fields"),
        pytest.param("nobody", None, id="no entry"),
    ],
)
async def test_a_group_is_read_alone_and_among_many(name: str, entry: list[str] | None) -> None:
    shadow, *_ = host()
    others = [group(name=f"other{number}") for number in range(100)]

    alone = await shadow.status(group(name=name))
    among = (await shadow.look_ahead([group(name=name), *others]))[0]

    assert alone == among == state(name, entry)


async def test_ten_thousand_groups_are_one_read_and_no_program() -> None:
    shadow, runner, files, _ = host("".join(f"g{number}:x:{number}:\n" for number in range(10_000)))

    found = await shadow.look_ahead([group(name=f"g{number}") for number in range(10_000)])

    assert [one.metadata.gid for one in found] == list(range(10_000))
    assert (files.reads, runner.commands) == (["/etc/group"], [])


async def test_no_file_is_an_error() -> None:
    shadow, _, files, _ = host()
    await files.remove("/etc/group")

    with pytest.raises(FileError, match=r"/etc/group"):
        await shadow.status(group())


@pytest.mark.parametrize(
    ("wanted", "before", "after", "lines"),
    [
        (group(), "", "web:x:1000:\n", ["groupadd -- web"]),
        (group(gid=900, system=True), "", "web:x:900:\n", ["groupadd -g 900 -r -- web"]),
        (group(gid=901), "web:x:900:\n", "web:x:901:\n", ["groupmod -g 901 -- web"]),
        (
            group(members=["bob", "alice"]),
            "web:x:900:\n",
            "web:x:900:alice,bob\n",
            ["gpasswd -a alice -- web", "gpasswd -a bob -- web"],
        ),
        (
            group(members=["bob"], members_exclusive=True),
            "web:x:900:alice\n",
            "web:x:900:bob\n",
            ["gpasswd -M bob -- web"],
        ),
        (
            group(members=[], members_exclusive=True),
            "web:x:900:alice\n",
            "web:x:900:\n",
            ["gpasswd -M  -- web"],
        ),
        (group(ensure="absent"), "web:x:900:\n", "", ["groupdel -- web"]),
    ],
)
async def test_a_change_runs_the_tools_under_the_lock_and_is_stable_afterwards(
    wanted: GroupProperties, before: str, after: str, lines: list[str]
) -> None:
    shadow, runner, files, locks = host(before)
    for line in lines:
        runner.when(*line.split(" "), effect=edit(files, after))

    first = await manage(TYPE, shadow, wanted)
    second = await manage(TYPE, shadow, wanted)

    assert (first.changed, first.failed, second.changed) == (True, False, False), first.error
    assert runner.lines == lines
    assert locks.held == ["accounts"] * len(lines)
    assert all(one.time_limit_s for one in runner.commands)


@pytest.mark.parametrize(
    ("stderr", "error", "message"),
    [
        (
            "groupadd: cannot lock /etc/group; try again later.\n",
            LockError,
            "could not create the group web: another process holds the lock of the account files: groupadd: cannot lock "
            "/etc/group; try again later.; try again later",
        ),
        (
            "groupadd: group 'web' already exists\n",
            CommandError,
            "could not create the group web: it exists, but not in /etc/group, so a directory service provides it; only "
            "local groups are managed",
        ),
        (
            "groupadd: GID '900' already exists\n",
            CommandError,
            "could not create the group web: groupadd: GID '900' already exists",
        ),
        ("", CommandError, "could not create the group web: groupadd failed with exit status 4"),
    ],
)
async def test_a_failure_says_why(stderr: str, error: type[Exception], message: str) -> None:
    shadow, runner, *_ = host("")
    runner.when("groupadd", code=4, stderr=stderr)

    with pytest.raises(error) as caught:
        await shadow.create(group(gid=900))

    assert str(caught.value) == message


async def test_a_tool_that_hangs_is_ended() -> None:
    shadow, runner, *_ = host("")
    runner.when("groupadd", hangs=True)

    with pytest.raises(CommandError, match=r"groupadd ran for 120 s and was killed because it hung"):
        await shadow.create(group())


async def test_a_tool_that_does_nothing_is_a_failure() -> None:
    shadow, runner, *_ = host("web:x:900:\n")
    runner.when("groupmod")

    event = await manage(TYPE, shadow, group(gid=901))

    assert event.error == ["failed to reach desired state present: gid mismatch: found 900, wanted 901"]
