"""The directory type: its checks, its decision table, its undo, and its provider on trees that the test decides."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ccm_agent.engine.diffs import RunDiffs
from ccm_agent.model.errors import PropertyError
from ccm_agent.model.outcome import TransactionEvent
from ccm_agent.model.ports import TreeChange, TreeDifference
from ccm_agent.model.records.undo import FILE_LIMIT_BYTES, EarlierFile, EarlierState
from ccm_agent.model.secret import Masker
from ccm_agent.resources.contract import DecisionContext
from ccm_agent.resources.directory import TYPE
from ccm_agent.resources.directory.model import (
    DirectoryMetadata,
    DirectoryProperties,
    DirectoryState,
    EntryList,
)
from ccm_agent.resources.directory.protected import PROTECTED, TIDIED
from ccm_agent.resources.directory.providers.posix import PosixDirectory
from ccm_agent.resources.directory.resource import check, decide, reach
from ccm_agent.resources.directory.undo import ENTRIES_KEPT, keep_changes, why_lost
from ccm_agent.testing.clock import FakeClock
from ccm_agent.testing.files import FakeFiles
from ccm_agent.testing.tree_editor import FakeTreeEditor
from tests.support.resources import NOON, manage

PATH = "/srv/www"


def wanted(name: str = PATH, **properties: Any) -> DirectoryProperties:
    return DirectoryProperties(name=name, **{"ensure": "present", **properties})


class Host:
    """Trees and files that the test decides, and the provider on them."""

    def __init__(self, look: TreeDifference | None = None) -> None:
        self.trees = FakeTreeEditor({PATH: look or TreeDifference()})
        self.files = FakeFiles()
        self.said: list[tuple[str, dict[str, object]]] = []
        context: Any = SimpleNamespace(
            files=self.files,
            clock=FakeClock(NOON),
            directory="/site",
            port={"tree_editor": self.trees}.__getitem__,
            say=lambda message, **fields: self.said.append((message, fields)),
        )
        self.provider = PosixDirectory(context)

    async def manage(
        self, properties: DirectoryProperties, *, noop: bool = False, diff: bool = False
    ) -> TransactionEvent:
        diffs = RunDiffs(Masker(), is_wanted=diff)
        return await manage(TYPE, self.provider, properties, noop=noop, diffs=diffs)


def change(path: str, action: str, kind: str = "file", **more: Any) -> TreeChange:
    before = {} if action == "create" else {"mode": 0o644, "uid": 0, "gid": 0}
    return TreeChange(path=path, action=action, kind=kind, **before, **more)


def looked(*changes: TreeChange, **more: Any) -> TreeDifference:
    return TreeDifference(
        **{"kind": "directory", "mode": 0o755, "uid": 0, "gid": 0, "changes": changes, **more}
    )


# ---- checks ----


@pytest.mark.parametrize(
    ("properties", "place"),
    [
        pytest.param({"name": "srv/www"}, "name", id="a relative path"),
        pytest.param({"name": ""}, "name", id="no path"),
        pytest.param({"name": "-rf"}, "name", id="a path like an option"),
        pytest.param({"name": "/srv/../etc"}, "name", id="a path upwards"),
        pytest.param({"name": "/srv/./a"}, "name", id="a dot"),
        pytest.param({"name": "/srv/a/"}, "name", id="a slash at the end"),
        pytest.param({"name": "//srv/a"}, "name", id="two slashes"),
        pytest.param({"name": "/srv/a\nb"}, "name", id="a newline"),
        pytest.param({"name": "/srv/a\0"}, "name", id="a NUL"),
        pytest.param({"name": "/srv/\x1b[2J"}, "name", id="an escape sequence"),
        pytest.param({"name": "/srv/bad\udcff"}, "name", id="bytes that are not UTF-8"),
        pytest.param({"name": "/" + "a" * 256}, "name", id="an overlong part"),
        pytest.param({"name": "/a" * 2048}, "name", id="an overlong path"),
        pytest.param({"source": "www\n"}, "source", id="a newline in the source"),
        pytest.param({"source": "a\0b"}, "source", id="a NUL in the source"),
        pytest.param({"source": "https://u:p@example.net/x.tgz"}, "source", id="a URL as source"),
        pytest.param({"source": "/srv/www"}, "source", id="itself as source"),
        pytest.param({"source": "/srv/www/in", "purge": True}, "source", id="a source in the directory"),
        pytest.param(
            {"source": "/srv/x/../www/in", "max_age": "1d"},
            "source",
            id="a source in the directory by a detour",
        ),
        pytest.param({"source": "/srv"}, "source", id="a source around the directory"),
        pytest.param({"source": "/"}, "source", id="the root as source"),
        pytest.param({"purge": True}, "purge", id="purge without a source"),
        pytest.param({"purge": True, "source": "www", "max_age": "1d"}, "purge", id="purge and a limit"),
        pytest.param({"owner": "root\n"}, "owner", id="a newline in the owner"),
        pytest.param({"group": "a\0"}, "group", id="a NUL in the group"),
        pytest.param({"recurse": True}, "recurse", id="recurse without attributes"),
        pytest.param({"file_mode": "rw-r--r--"}, "file_mode", id="a mode in letters"),
        pytest.param({"file_mode": "4755"}, "file_mode", id="setuid"),
        pytest.param({"file_mode": "0o644"}, "file_mode", id="a prefix"),
        pytest.param({"file_mode": "６４４"}, "file_mode", id="digits of another script"),
        pytest.param({"directory_mode": "0644"}, "directory_mode", id="a directory without entry"),
        pytest.param({"directory_mode": "0999"}, "directory_mode", id="no octal number"),
        pytest.param({"max_age": "30"}, "max_age", id="an age without a unit"),
        pytest.param({"max_age": "-1d"}, "max_age", id="an age in the future"),
        pytest.param({"max_age": "0"}, "max_age", id="no age"),
        pytest.param({"max_size": "big"}, "max_size", id="no size"),
        pytest.param({"max_size": "-1"}, "max_size", id="a negative size"),
        pytest.param({"max_size": "9" * 400}, "max_size", id="a huge size"),
        pytest.param({"matches": ["*"]}, "matches", id="globs without a limit"),
        pytest.param({"matches": ["["], "max_age": "1d"}, "matches", id="no glob"),
        pytest.param({"matches": [""], "max_age": "1d"}, "matches", id="an empty glob"),
        pytest.param({"matches": ["*a" * 2000], "max_age": "1d"}, "matches", id="an overlong glob"),
        pytest.param({"matches": ["a"] * 101, "max_age": "1d"}, "matches", id="too many globs"),
        pytest.param({"force": True}, "force", id="force for a directory that stays"),
    ],
)
def test_hostile_and_wrong_properties_are_refused(properties: dict[str, Any], place: str) -> None:
    with pytest.raises(PropertyError) as caught:
        check(wanted(**properties))

    assert caught.value.place is not None
    assert caught.value.place.path == f"$.{place}"


def test_all_errors_are_reported_at_once() -> None:
    with pytest.raises(PropertyError) as caught:
        check(wanted("srv", purge=True, owner="a\n", file_mode="x", max_age="x", matches=["["]))

    assert len(caught.value.others) == 5


@pytest.mark.parametrize(
    "properties",
    [
        pytest.param({"source": "www", "purge": True}, id="purge"),
        pytest.param({"ensure": "absent", "force": True}, id="removal"),
        pytest.param({"owner": "app", "recurse": True}, id="owners of everything"),
        pytest.param({"directory_mode": "0700"}, id="the mode of the directory"),
        pytest.param({"source": "/files", "group": "app"}, id="the group of what is added"),
    ],
)
@pytest.mark.parametrize("name", PROTECTED)
def test_directories_of_the_system_are_not_emptied_or_given_away(
    name: str, properties: dict[str, Any]
) -> None:
    with pytest.raises(PropertyError, match=f"`{name}` is a system directory"):
        check(wanted(name, **properties))


def test_only_directories_for_passing_files_may_be_tidied() -> None:
    tidied = set()
    for name in PROTECTED:
        try:
            check(wanted(name, max_age="10d"))
            tidied.add(name)
        except PropertyError:
            continue

    assert tidied == TIDIED == {"/tmp", "/var/tmp", "/var/log", "/var/cache"}
    check(wanted("/", source="rootfs"))
    check(wanted("/", source="/srv/rootfs"))


def test_a_parent_of_a_directory_of_the_system_is_one_too() -> None:
    parents = {name.rpartition("/")[0] or "/" for name in PROTECTED}

    assert parents <= set(PROTECTED)


def test_the_policy_sees_the_tree_and_the_source() -> None:
    copied = reach(wanted(source="www"))
    assert (copied.trees, copied.reads_trees, copied.paths) == ((PATH,), ("www",), ())
    assert reach(wanted(owner="app")).paths == (PATH,)
    for properties in ({"ensure": "absent"}, {"owner": "a", "recurse": True}, {"max_size": "1G"}):
        assert reach(wanted(**properties)).trees == (PATH,)


# ---- decisions ----


def state(ensure: str = "present", **metadata: Any) -> DirectoryState:
    return DirectoryState(
        protocol="x",
        type="directory",
        name=PATH,
        ensure=ensure,
        metadata=DirectoryMetadata(name=PATH, **metadata),
    )


def entries(*first: str) -> EntryList:
    return EntryList(count=len(first), first=list(first))


@pytest.mark.parametrize(
    ("properties", "found", "noop"),
    [
        pytest.param({}, state(), None, id="nothing to do"),
        pytest.param({"ensure": "absent"}, state("absent"), None, id="gone already"),
        pytest.param({}, state("absent", added=entries(".")), "Would have added 1 entry", id="missing"),
        pytest.param(
            {},
            state(added=entries("a", "b"), changed=entries("c"), removed=entries("d")),
            "Would have added 2 entries, changed 1 entry and removed 1 entry",
            id="all kinds of changes",
        ),
        pytest.param(
            {},
            state(attributes=entries("a"), lost=entries("a"), lost_because="setuid"),
            "Would have set owner or mode of 1 entry; an undo will not restore 1 entry: setuid",
            id="what an undo cannot restore",
        ),
        pytest.param(
            {"ensure": "absent", "force": True},
            state(entries=2, removed=entries("a", "b", ".")),
            "Would have removed the directory with 2 entries",
            id="removal",
        ),
        pytest.param(
            {"ensure": "absent"},
            state(removed=entries(".")),
            "Would have removed the directory",
            id="removal of an empty one",
        ),
    ],
)
def test_the_decision_table(properties: dict[str, Any], found: DirectoryState, noop: str | None) -> None:
    decision = decide(wanted(**properties), found, DecisionContext(noop=True))

    assert decision.error is None
    assert [step.noop for step in decision.steps] == ([noop] if noop else [])


def test_content_is_removed_only_with_force_and_errors_end_the_decision() -> None:
    kept = decide(wanted(ensure="absent"), state(entries=3), DecisionContext())
    assert str(kept.error) == "/srv/www contains 3 entries: `force: true` removes it with its content"
    broken = decide(wanted(), state("unknown", error="/srv/www: is a file"), DecisionContext())
    assert (str(broken.error), broken.steps) == ("/srv/www: is a file", ())


def test_a_limit_that_is_exceeded_again_is_no_failure_but_what_is_still_missing_is() -> None:
    expired = state(removed=entries("a"), expired=1)
    missing = state(added=entries("a", "b"))

    assert decide(wanted(), expired, DecisionContext()).steps
    assert not decide(wanted(), expired, DecisionContext(verifying=True)).steps
    assert decide(wanted(), missing, DecisionContext(verifying=True)).reason == "a is missing (and 1 more)"


# ---- the provider ----


async def test_an_order_has_what_the_resource_wants() -> None:
    host = Host()
    properties = wanted(
        source="www/./x",
        owner="app",
        file_mode="0640",
        directory_mode="750",
        max_age="1d",
        max_size="1.5KiB",
        matches=["*.log", "cache/*"],
    )

    await host.provider.status(properties)

    ((order,),) = host.trees.looked_at
    assert (order.path, order.source, order.owner, order.group) == (PATH, "/site/www/x", "app", "")
    assert (order.file_mode, order.directory_mode) == (0o640, 0o750)
    assert (order.max_age_s, order.max_size_bytes, order.now_s) == (86_400.0, 1536, NOON.timestamp())
    assert [(bool(one.fullmatch("x.log")), is_path) for one, is_path in order.matches] == [
        (True, False),
        (False, True),
    ]
    assert order.refused == PROTECTED


async def test_many_directories_are_looked_at_in_one_call() -> None:
    host = Host()

    found = await host.provider.look_ahead([wanted(f"/srv/{number}") for number in range(1000)])

    assert len(found) == 1000
    assert [len(orders) for orders in host.trees.looked_at] == [1000]


async def test_a_change_is_made_as_it_was_looked_at_and_is_stable_then() -> None:
    look = looked(change("a", "create"), change("old", "remove", why="purge"))
    host = Host(look)

    event = await host.manage(wanted(source="www", purge=True))
    again = await host.manage(wanted(source="www", purge=True))

    assert (event.changed, event.error, again.changed) == (True, [], False)
    assert [one for _, one in host.trees.synced] == [look]


async def test_noop_changes_nothing_and_the_diff_names_everything() -> None:
    host = Host(
        looked(
            change("sub", "create", "directory"),
            change("sub/new", "create"),
            change("a", "write"),
            change("mode", "set", new_mode=0o600, new_uid=1, new_gid=2),
            change("gone", "remove", why="purge"),
            change("link", "remove", "symlink", why="purge", link="/etc/shadow"),
        )
    )
    host.files.put_directory(PATH)
    host.files.put(f"{PATH}/a", "old\n")
    host.files.put(f"{PATH}/gone", "gone\n")
    host.files.put("/site/www/a", "new\n")
    host.files.put("/site/www/sub/new", "made\n")

    event = await host.manage(wanted(source="www", purge=True), noop=True, diff=True)

    assert host.trees.synced == []
    assert event.diff is not None
    assert [(one.path, one.action, one.text) for one in event.diff.files] == [
        (f"{PATH}/a", "change", "@@ -1 +1 @@\n-old\n+new\n"),
        (f"{PATH}/gone", "remove", "@@ -1 +0,0 @@\n-gone\n"),
        (f"{PATH}/sub/new", "create", "@@ -0,0 +1 @@\n+made\n"),
    ]
    assert [(one.property, one.before, one.after) for one in event.diff.properties] == [
        ("sub", "absent", "directory"),
        ("mode", "0:0 0644", "1:2 0600"),
        ("link", "symlink to /etc/shadow", "absent"),
    ]


async def test_a_plan_names_an_owner_that_does_not_exist_yet() -> None:
    host = Host(looked(change("a", "set", new_mode=0o644, new_uid=-2, new_gid=7)))

    event = await host.manage(wanted(owner="app", group="7"), noop=True, diff=True)

    assert event.diff is not None
    assert [one.after for one in event.diff.properties] == ["app:7 0644"]


async def test_lists_and_diffs_are_bounded_and_names_are_clean() -> None:
    changes = [change(f"{number:04}\udcff", "create") for number in range(500)]
    host = Host(looked(*changes))

    event = await host.manage(wanted(source="www"), noop=True, diff=True)

    state = event.status
    assert isinstance(state, DirectoryState)
    assert (state.metadata.added.count, len(state.metadata.added.first)) == (500, 200)
    assert state.metadata.added.first[0] == "0000\ufffd"
    assert event.diff is not None
    assert (len(event.diff.files), event.diff.files_left_out) == (200, 300)


async def test_an_error_of_the_look_or_of_a_change_fails_the_resource() -> None:
    host = Host(TreeDifference(kind="unknown", error="/srv/www: is a socket, not a directory"))
    assert (await host.manage(wanted())).error == ["/srv/www: is a socket, not a directory"]
    host = Host(looked(change("a", "create")))
    host.trees.refuses[PATH] = "/srv/www/a: cannot be written: No space left on device"
    assert (await host.manage(wanted(source="www"))).error == [
        "/srv/www/a: cannot be written: No space left on device"
    ]


# ---- undo ----


class Keeper:
    """Keeps files of a test; of one whose name has `lost` it does not."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bool]] = []

    async def __call__(self, path: str, *, with_content: bool) -> EarlierFile:
        self.asked.append((path, with_content))
        if "lost" in path:
            return EarlierFile(why_not="no room")
        return EarlierFile(owner="o", group="g", mode="0644", sha256="abc" if with_content else "")


async def test_undo_restores_removed_directories_before_their_content_and_removes_new_content_first() -> None:
    keeper = Keeper()
    changes = [
        change("new", "create", "directory"),
        change("new/file", "create"),
        change("a", "write"),
        change("old/x", "remove", why="purge"),
        change("old", "remove", "directory", why="purge"),
        change(
            "link",
            "remove",
            "symlink",
            why="purge",
            link="x",
        ),
    ]

    states = [one async for one in keep_changes(PATH, changes, keeper)]

    undone = [(one.type, one.name.removeprefix(PATH)) for one in reversed(states)]
    assert undone == [
        ("file", "/new/file"),
        ("file", "/new"),
        ("symlink", "/link"),
        ("file", "/old"),
        ("file", "/old/x"),
        ("file", "/a"),
    ]
    assert keeper.asked == [(f"{PATH}/a", True), (f"{PATH}/old/x", True), (f"{PATH}/old", False)]
    assert states[-1].properties == {"ensure": "absent"}
    assert states[3].properties == {"ensure": "present", "target": "x", "owner": "0", "group": "0"}


@pytest.mark.parametrize(
    ("one", "why"),
    [
        pytest.param(change("a", "create"), "", id="new"),
        pytest.param(change("a", "write"), "", id="content"),
        pytest.param(change("a\n", "write"), "its name is not printable UTF-8", id="a newline"),
        pytest.param(change("\udcff", "remove"), "its name is not printable UTF-8", id="not UTF-8"),
        pytest.param(change("a", "remove", "other"), "it is a FIFO, socket or device", id="FIFO"),
        pytest.param(
            change("a", "write", "symlink", link="b"),
            "symlinks that a file replaces are not restored",
            id="replaced symlink",
        ),
        pytest.param(
            change("a", "remove", "symlink", link="b\n"), "its target is not printable UTF-8", id="odd target"
        ),
        pytest.param(
            change("a", "write", size_bytes=FILE_LIMIT_BYTES + 1), "it is larger than 32 MiB", id="large"
        ),
        pytest.param(change("a", "set", size_bytes=FILE_LIMIT_BYTES + 1), "", id="the mode of a large file"),
    ],
)
def test_what_an_undo_cannot_restore_is_known_before(one: TreeChange, why: str) -> None:
    assert why_lost(one) == why


async def test_more_changes_than_are_kept_are_not_kept_and_a_noop_says_so() -> None:
    changes = [change(f"{number}", "remove", why="age") for number in range(ENTRIES_KEPT + 1)]
    keeper = Keeper()

    states = [one async for one in keep_changes(PATH, changes, keeper)]
    event = await Host(looked(*changes)).manage(wanted(max_age="1d"), noop=True)

    assert (keeper.asked, len(states)) == ([], 1)
    assert states[0].why_not == "it was not kept: more than 1000 entries change at once"
    assert event.noop_message.endswith(
        "an undo will not restore 1001 entries: more than 1000 entries change at once"
    )


async def test_what_could_not_be_kept_is_logged_before_the_change() -> None:
    host = Host(looked(change("lost", "write"), change("a", "write")))

    states = [one async for one in host.provider.keep(wanted(source="www"), Keeper())]

    assert states[0] == EarlierState(type="file", name=f"{PATH}/lost", why_not="no room")
    ((message, fields),) = host.said
    assert message == "an undo will not restore all of this directory"
    assert fields == {"entries": 1, "first": f"{PATH}/lost", "reason": "no room"}
    assert host.trees.synced == []
