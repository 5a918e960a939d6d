"""Users with the shadow tools: what is read, which programs run, and what their failures look like."""

from __future__ import annotations

from typing import Any

import pytest

from ccm_agent.model.errors import CommandError, FileError, LockError
from ccm_agent.model.ports import KeyFile, KeyPlace
from ccm_agent.resources.user import TYPE
from ccm_agent.resources.user.model import UserChange, UserProperties
from ccm_agent.resources.user.providers.shadow import ShadowUsers
from ccm_agent.testing.files import FakeFiles
from ccm_agent.testing.key_files import FakeKeyFiles
from ccm_agent.testing.locks import FakeLocks
from ccm_agent.testing.runner import FakeRunner
from tests.support.resources import manage
from tests.unit.resources.user.test_key_lines import A, B
from tests.unit.resources.user.test_passwords import HASH

PASSWD = """\
root:x:0:0:root:/root:/bin/bash
broken:x:5
alice:x:1000:1001:Alice,,,:/home/alice:/bin/bash
alice:x:0:0::/:/bin/sh
alicent:x:1001:1001::/home/alice/inner:/bin/sh
sync:x:4:65534:sync:/bin:/bin/sync
+nis::::::
"""
SHADOW = f"root:*:20000:0:99999:7:::\nalice:!{HASH}:20000:0:99999:7::1:\nsync:*:20000::::::\n"
GROUP = (
    "root:x:0:\nstaff:x:1001:\ngames:x:60:bob,alice\naudio:x:29:alice\nvideo:x:44:alicent\nnogroup:x:65534:\n"
)


class CountingFiles(FakeFiles):
    """Counts what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []

    async def read(self, path: str, limit_bytes: int) -> bytes:
        self.reads.append(path)
        return await super().read(path, limit_bytes)


class World:
    """A host with a provider."""

    def __init__(self, passwd: str = PASSWD, shadow: str = SHADOW, group: str = GROUP) -> None:
        self.runner, self.files, self.locks = FakeRunner(), CountingFiles(), FakeLocks()
        self.keys = FakeKeyFiles()
        for name, text in (("passwd", passwd), ("shadow", shadow), ("group", group)):
            self.files.put(f"/etc/{name}", text)
        self.provider = ShadowUsers(self.runner, self.files, self.locks, self.keys)

    def on(self, tool: str, passwd: str = "", shadow: str = "") -> None:
        """What a tool does to the files."""

        def change() -> None:
            if passwd:
                self.files.put("/etc/passwd", passwd)
            if shadow:
                self.files.put("/etc/shadow", shadow)

        self.runner.when(tool, effect=change)


def user(**properties: Any) -> UserProperties:
    return UserProperties(**{"name": "alice", "ensure": "present", **properties})


async def test_a_user_is_read_alone_and_among_many() -> None:
    world = World()
    others = [user(name=f"other{number}") for number in range(100)]

    alone = await world.provider.status(user())
    among = (await world.provider.look_ahead([user(), *others]))[0]

    metadata = alone.metadata
    assert (metadata.uid, metadata.gid, metadata.group, metadata.groups) == (
        1000,
        1001,
        "staff",
        ["audio", "games"],
    )
    assert (metadata.home, metadata.shell, metadata.comment) == ("/home/alice", "/bin/bash", "Alice,,,")
    assert (metadata.locked, metadata.expires, metadata.has_password) == (True, "1970-01-02", True)
    assert alone.secrets.password == among.secrets.password == f"!{HASH}"
    assert (metadata.authorized_keys, among.metadata.authorized_keys) == (0, None)
    metadata.authorized_keys = None
    assert metadata == among.metadata


@pytest.mark.parametrize("name", ["broken", "lice", "nobody", "alicen"])
async def test_other_lines_are_no_users(name: str) -> None:
    assert (await World().provider.status(user(name=name))).ensure == "absent"


async def test_ten_thousand_users_are_one_read_of_each_file_and_no_program() -> None:
    count = 10_000
    world = World(
        "".join(f"u{number}:x:{number}:{number}::/home/u{number}:/bin/sh\n" for number in range(count)),
        "".join(f"u{number}:!:20000::::::\n" for number in range(count)),
        "".join(f"g{number}:x:{number}:u{number}\n" for number in range(count)),
    )
    keyed = [user(name=f"u{number}", authorized_keys=[A], create_home=True) for number in range(count)]

    found = await world.provider.look_ahead(keyed)

    assert [one.metadata.uid for one in found] == list(range(count))
    assert [one.metadata.groups for one in found] == [[f"g{number}"] for number in range(count)]
    assert world.files.reads == ["/etc/passwd", "/etc/shadow", "/etc/group"]
    assert (len(world.files.looked_at), len(world.keys.looks), world.runner.commands) == (1, 1, [])


async def test_keys_and_homes_are_read_only_where_they_matter() -> None:
    world = World()

    await world.provider.look_ahead(
        [user(), user(name="root", authorized_keys=[A]), user(name="none", create_home=True)]
    )

    assert world.keys.looks == [("/root",)]
    assert world.files.looked_at == []


async def test_without_the_right_to_read_shadow_the_rest_is_known() -> None:
    world = World()
    await world.files.remove("/etc/shadow")

    state = await world.provider.status(user())

    assert (state.metadata.uid, state.metadata.has_password, state.secrets.password) == (1000, None, None)


async def test_users_with_a_home_inside_are_found_for_a_purge() -> None:
    world = World()

    kept = await world.provider.status(user(ensure="absent"))
    purged = await world.provider.status(user(ensure="absent", purge_home=True))

    assert (kept.secrets.home_users, purged.secrets.home_users) == ((), ("alicent",))


@pytest.mark.parametrize(
    ("wanted", "lines"),
    [
        (user(name="new"), ["useradd -U -m -- new"]),
        (user(name="new", system=True), ["useradd -U -M -r -- new"]),
        (user(name="new", system=True, create_home=True), ["useradd -U -m -r -- new"]),
        (user(name="games"), ["useradd -g games -m -- games"]),
        (user(name="new", group="staff"), ["useradd -g staff -m -- new"]),
        (user(name="new", gid=1001), ["useradd -g 1001 -m -- new"]),
        (user(name="new", gid=7), ["groupadd -g 7 -- new", "useradd -g 7 -m -- new"]),
        (
            user(
                name="new",
                uid=5,
                groups=["a", "b"],
                home="/h",
                shell="/s",
                comment="-c x",
                expires="2030-01-31",
            ),
            ["useradd -U -m -u 5 -G a,b -d /h -s /s -c -c x -e 2030-01-31 -- new"],
        ),
        (user(name="new", password_hash=HASH, expires="never", comment=""), ["useradd -U -m -- new"]),
    ],
)
async def test_a_user_is_created_in_one_call(wanted: UserProperties, lines: list[str]) -> None:
    world = World()
    world.runner.when("useradd")
    world.runner.when("groupadd")

    await world.provider.create(wanted)

    assert world.runner.lines == lines
    assert world.locks.held == ["accounts"] * len(lines)


async def test_each_verb_runs_its_tool_with_a_time_limit() -> None:
    world = World()
    for tool in ("usermod", "userdel", "chpasswd", "mkhomedir_helper"):
        world.runner.when(tool)
    provider = world.provider

    await provider.modify(
        "alice", UserChange(uid=7, group="g", home="/h", shell="/s", comment="", expires="")
    )
    await provider.add_groups("alice", ["a", "b"])
    await provider.set_groups("alice", [])
    await provider.create_home("alice")
    await provider.lock("alice")
    await provider.unlock("alice", 2, is_expired=True)
    await provider.remove("alice")

    assert world.runner.lines == [
        "usermod -u 7 -g g -d /h -s /s -c  -e  -- alice",
        "usermod -a -G a,b -- alice",
        "usermod -G  -- alice",
        "mkhomedir_helper alice",
        "usermod -L -e 1 -- alice",
        "usermod -e  -- alice",
        "usermod -U -- alice",
        "usermod -U -- alice",
        "userdel -- alice",
    ]
    assert all(one.time_limit_s for one in world.runner.commands)


async def test_a_hash_goes_only_through_standard_input() -> None:
    world = World()
    world.on("chpasswd", shadow=SHADOW.replace(f"!{HASH}", HASH))

    event = await manage(
        TYPE, world.provider, user(password_hash=f"{HASH}x", locked=False, expires="never"), noop=True
    )
    await world.provider.set_password("alice", HASH)

    (command,) = world.runner.commands
    assert (command.argv, command.stdin) == (("chpasswd", "-e"), f"alice:{HASH}\n".encode())
    assert HASH not in event.noop_message


@pytest.mark.parametrize(
    ("verb", "tool", "stderr", "error", "message"),
    [
        ("remove", "userdel", "userdel: cannot lock /etc/passwd; try again later.", LockError, "another process holds the lock"),
        (
            "remove",
            "userdel",
            "userdel: user alice is currently used by process 42",
            CommandError,
            "could not remove the user alice: userdel: user alice is currently used by process 42; end its sessions and "
            "processes first",
        ),
        ("remove", "userdel", "", CommandError, "could not remove the user alice: userdel failed with exit status 8"),
        ("lock", "usermod", "usermod: x", CommandError, "could not lock the user alice: usermod: x"),
    ],
)  # fmt: skip
async def test_a_failure_says_why(
    verb: str, tool: str, stderr: str, error: type[Exception], message: str
) -> None:
    world = World()
    world.runner.when(tool, code=8, stderr=stderr)

    with pytest.raises(error) as caught:
        await getattr(world.provider, verb)("alice")

    assert message in str(caught.value)


async def test_a_user_of_a_directory_service_is_named() -> None:
    world = World()
    world.runner.when("useradd", code=9, stderr="useradd: user 'bob' already exists")

    with pytest.raises(
        CommandError, match="it exists, but not in /etc/passwd, so a directory service provides it"
    ):
        await world.provider.create(user(name="bob"))


async def test_a_tool_that_hangs_is_ended() -> None:
    world = World()
    world.runner.when("chpasswd", hangs=True)

    with pytest.raises(CommandError) as caught:
        await world.provider.set_password("alice", HASH)

    assert str(caught.value) == (
        "could not set the password hash of the user alice: chpasswd ran for 120 s and was killed because it hung"
    )


async def test_keys_are_merged_with_those_that_are_there_and_odd_bytes_stay() -> None:
    world = World()
    world.keys.files["/home/alice"] = KeyFile(content=b"# \xff\n" + f"{A} old\n".encode())

    await world.provider.add_keys("alice", [A, B])
    await world.provider.set_keys("alice", [B])
    await world.provider.set_keys("alice", [])

    place = KeyPlace(path="/home/alice", uid=1000, gid=1001)
    assert world.keys.writes == [
        (place, b"# \xff\n" + f"{A} old\n{B}\n".encode()),
        (place, f"{B}\n".encode()),
        (place, None),
    ]


@pytest.mark.parametrize("name", ["nobody", "homeless"])
async def test_a_user_without_a_home_gets_no_keys(name: str) -> None:
    world = World(f"{PASSWD}homeless:x:9:9:::/bin/sh\n")

    with pytest.raises(FileError, match="has no home directory"):
        await world.provider.add_keys(name, [A])


async def test_a_link_for_the_keys_fails_before_any_change() -> None:
    world = World()
    world.keys.files["/home/alice"] = KeyFile(error="/home/alice/.ssh: is a symlink, which is not followed")

    event = await manage(TYPE, world.provider, user(authorized_keys=[A], shell="/bin/sh"))

    assert event.error == ["/home/alice/.ssh: is a symlink, which is not followed"]
    assert world.runner.commands == []


async def test_a_purged_home_is_removed_after_the_user() -> None:
    world = World()
    world.files.put("/home/alice/x", uid=1000)
    world.files.put_directory("/home/alice", uid=1000)
    world.files.put("/home/alice/x")
    without = "".join(line for line in PASSWD.splitlines(keepends=True) if not line.startswith("alice"))
    world.files.put(
        "/etc/passwd", PASSWD.replace("alice:x:0:0::/:/bin/sh\n", "").replace("/home/alice/inner", "/x")
    )
    world.on("userdel", without)

    event = await manage(TYPE, world.provider, user(ensure="absent", purge_home=True))

    assert (event.error, event.changed) == ([], True)
    assert "/home/alice" not in world.files.nodes
