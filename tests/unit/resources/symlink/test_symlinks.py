"""The symlink type: its checks, its decision table, its undo, and its provider on files in memory."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ccm_agent.model.errors import PropertyError
from ccm_agent.model.records.undo import EarlierFile
from ccm_agent.resources.contract import Decision, DecisionContext
from ccm_agent.resources.ignored import without_ignored
from ccm_agent.resources.symlink import TYPE
from ccm_agent.resources.symlink.model import SymlinkProperties
from ccm_agent.resources.symlink.providers.posix import PosixSymlink
from ccm_agent.resources.symlink.resource import check, decide, reach
from ccm_agent.resources.symlink.undo import earlier, identify
from ccm_agent.testing.files import FakeEntry, FakeFiles
from tests.support.resources import manage

PATH = "/srv/current"


def wanted(name: str = PATH, **properties: Any) -> SymlinkProperties:
    return SymlinkProperties(name=name, **{"ensure": "present", "target": "releases/2", **properties})


class Host:
    """Files in memory, and the provider on them."""

    def __init__(self, place: str = "") -> None:
        self.files = FakeFiles()
        self.files.put_directory("/srv")
        if place == "file":
            self.files.put(PATH, "precious")
        elif place == "FIFO":
            self.files.put_fifo(PATH)
        elif place in ("directory", "content"):
            self.files.put_directory(PATH)
            if place == "content":
                self.files.put(f"{PATH}/a", "precious")
        elif place:
            self.files.put_symlink(PATH, place)
        self.provider = PosixSymlink(self.files)

    @property
    def target(self) -> str | None:
        node = self.files.nodes.get(PATH)
        return node.link if node else None


@pytest.mark.parametrize(
    ("properties", "place"),
    [
        pytest.param({"name": "srv/current"}, "name", id="a relative path"),
        pytest.param({"name": ""}, "name", id="no path"),
        pytest.param({"name": "-rf"}, "name", id="a path like an option"),
        pytest.param({"name": "/"}, "name", id="the root"),
        pytest.param({"name": "/srv/../etc/passwd"}, "name", id="a path upwards"),
        pytest.param({"name": "/srv/./a"}, "name", id="a dot"),
        pytest.param({"name": "/srv/a/"}, "name", id="a slash at the end"),
        pytest.param({"name": "//srv/a"}, "name", id="two slashes"),
        pytest.param({"name": "/srv/a\nb"}, "name", id="a newline"),
        pytest.param({"name": "/srv/a\0"}, "name", id="a NUL"),
        pytest.param({"name": "/srv/\x1b[2J"}, "name", id="an escape sequence"),
        pytest.param({"name": "/srv/\u202egpj.exe"}, "name", id="text from right to left"),
        pytest.param({"name": "/srv/bad\udcff"}, "name", id="bytes that are not UTF-8"),
        pytest.param({"name": "/" + "a" * 256}, "name", id="an overlong part"),
        pytest.param({"name": "/a" * 2048}, "name", id="an overlong path"),
        pytest.param({"target": ""}, "target", id="no target"),
        pytest.param({"target": "a\nb"}, "target", id="a newline in the target"),
        pytest.param({"target": "a\0/etc"}, "target", id="a NUL in the target"),
        pytest.param({"target": "bad\udcff"}, "target", id="a target that is not UTF-8"),
        pytest.param({"target": "b/" * 2048}, "target", id="an overlong target"),
        pytest.param({"target": "\u00e9" * 128}, "target", id="an overlong part in bytes"),
        pytest.param({"target": "./current"}, "target", id="itself"),
        pytest.param({"target": "../srv/x/../current/"}, "target", id="itself by a detour"),
        pytest.param({"owner": "root\n"}, "owner", id="a newline in the owner"),
        pytest.param({"group": "a\0"}, "group", id="a NUL in the group"),
    ],
)
def test_hostile_properties_are_refused(properties: dict[str, Any], place: str) -> None:
    with pytest.raises(PropertyError) as caught:
        check(wanted(**properties))

    assert caught.value.place is not None
    assert caught.value.place.path == f"$.{place}"


def test_all_errors_are_reported_at_once() -> None:
    with pytest.raises(PropertyError) as caught:
        check(wanted("a", target="", owner="\n"))

    assert [one.place.path for one in caught.value.others if one.place] == ["$.target", "$.owner"]


@pytest.mark.parametrize(
    "properties",
    [
        {"target": "/opt/app bin/-x:y"},
        {"target": "../../d\u00e9j\u00e0"},
        {"target": "/"},
        {"ensure": "absent", "target": ""},
    ],
)
def test_usual_properties_are_accepted(properties: dict[str, Any]) -> None:
    check(wanted(**properties))


@pytest.mark.parametrize(
    ("place", "properties", "noop", "changes"),
    [
        pytest.param("releases/2", {}, "", [], id="the same"),
        pytest.param(
            "",
            {},
            "Would have created the symlink",
            [("ensure", "absent", "present"), ("target", "", "releases/2")],
            id="nothing",
        ),
        pytest.param(
            "releases/1",
            {"owner": "daemon", "group": "1"},
            "Would have changed the symlink",
            [("target", "releases/1", "releases/2"), ("owner", "root", "daemon"), ("group", "root", "1")],
            id="another target and owner",
        ),
        pytest.param("releases/2", {"owner": "0", "group": "root"}, "", [], id="the same owner"),
        pytest.param(
            "file",
            {"force": True},
            "Would have replaced the file with the symlink",
            [("ensure", "file", "present"), ("target", "", "releases/2")],
            id="a file, with force",
        ),
        pytest.param(
            "directory",
            {"force": True},
            "Would have replaced the directory with the symlink",
            [("ensure", "directory", "present"), ("target", "", "releases/2")],
            id="an empty directory, with force",
        ),
        pytest.param("", {"ensure": "absent"}, "", [], id="nothing, wanted absent"),
        pytest.param(
            "releases/1",
            {"ensure": "absent"},
            "Would have removed the symlink",
            [("ensure", "present", "absent"), ("target", "releases/1", "")],
            id="a symlink, wanted absent",
        ),
        pytest.param(
            "file",
            {"ensure": "absent", "force": True},
            "Would have removed the file",
            [("ensure", "file", "absent")],
            id="a file, wanted absent with force",
        ),
    ],
)
async def test_decisions_are_carried_out_and_stable(
    place: str, properties: dict[str, Any], noop: str, changes: list[tuple[str, str, str]]
) -> None:
    host, link = Host(place), wanted(**properties)

    decision = decide(link, await host.provider.status(link), DecisionContext())
    first = await manage(TYPE, host.provider, link)
    second = await manage(TYPE, host.provider, link)

    assert [step.noop for step in decision.steps] == ([noop] if noop else [])
    assert [(one.property, one.before, one.after) for one in decision.changes] == changes
    assert (first.changed, first.error, second.changed, second.error) == (bool(noop), [], False, [])
    assert host.target == (None if link.ensure == "absent" else "releases/2")


@pytest.mark.parametrize(
    ("place", "properties", "error"),
    [
        ("file", {}, "is a file, not a symlink; `force: true` replaces or removes it"),
        ("file", {"ensure": "absent"}, "is a file, not a symlink; `force: true` replaces or removes it"),
        ("directory", {}, "is a directory, not a symlink; `force: true` replaces or removes it"),
        ("content", {"force": True}, "is a directory with content, not a symlink; move the content away"),
        (
            "content",
            {"force": True, "ensure": "absent"},
            "is a directory with content, not a symlink; move the content away",
        ),
        ("FIFO", {"force": True}, "is a FIFO, socket or device, not a symlink; remove it yourself"),
    ],
)
async def test_what_is_in_the_way_stays(place: str, properties: dict[str, Any], error: str) -> None:
    host = Host(place)
    before = dict(host.files.nodes)

    event = await manage(TYPE, host.provider, wanted(**properties))

    assert event.error == [f"{PATH} {error}"]
    assert host.files.nodes == before


async def test_an_ignored_target_is_set_once() -> None:
    link = wanted(ignore=["target"])
    steps = {}
    for place in ("", "releases/9", "file"):
        provider = Host(place).provider
        found = await provider.status(link)
        decision = decide(
            cast(SymlinkProperties, without_ignored(TYPE, link, found)), found, DecisionContext()
        )
        steps[place] = [step.noop for step in decision.steps]

    assert steps == {"": ["Would have created the symlink"], "releases/9": [], "file": []}


async def test_a_failed_write_leaves_the_earlier_target() -> None:
    host = Host("releases/1")
    host.files.refuses[PATH] = "No space left on device"

    full = await manage(TYPE, host.provider, wanted())
    unknown = await manage(TYPE, host.provider, wanted(owner="nosuch"))

    assert full.error == [f"{PATH}: No space left on device"]
    assert unknown.error == ["there is no user 'nosuch' on this machine"]
    assert host.target == "releases/1"


async def test_another_name_of_the_same_owner_is_no_difference() -> None:
    host = Host("releases/2")
    host.files.users["toor"] = 0

    event = await manage(TYPE, host.provider, wanted(owner="toor"))

    assert (event.changed, event.error) == (False, [])


async def test_a_thousand_symlinks_are_one_look() -> None:
    host = Host()
    many = [wanted(f"/srv/{number}") for number in range(1000)]
    for one in many:
        host.files.put_symlink(one.name, "releases/2")

    found = await host.provider.look_ahead(many)

    assert {one.target for one in found} == {"releases/2"}
    assert len(host.files.looked_at) == 1


async def test_a_loop_on_the_way_is_an_error() -> None:
    host = Host()
    host.files.put_symlink("/srv/loop", "loop")

    event = await manage(TYPE, host.provider, wanted("/srv/loop/a"))

    assert event.failed
    assert "Too many levels of symbolic links" in event.error[0]


def test_the_policy_sees_the_path() -> None:
    assert reach(wanted()).paths == (PATH,)


async def keep_nothing(path: str, *, with_content: bool) -> EarlierFile:
    raise AssertionError("no file is kept")


@pytest.mark.parametrize(
    ("place", "change"),
    [
        pytest.param("", {}, id="there was nothing"),
        pytest.param("releases/1", {"owner": "root"}, id="another target and owner"),
        pytest.param("releases/1", {"ensure": "absent"}, id="it was removed"),
    ],
)
async def test_an_undo_restores_the_symlink(place: str, change: dict[str, Any]) -> None:
    host, link = Host(place), wanted(**change)
    if place:
        host.files.nodes[PATH] = FakeEntry(kind="symlink", link=place, mode=0o777, uid=1, gid=1)
    found = await host.provider.status(link)
    before = identify(found)
    kept = await earlier(link, found, Decision(), keep_nothing)

    await manage(TYPE, host.provider, link)
    changed = identify(await host.provider.status(link))
    back = SymlinkProperties(name=PATH, **kept.properties)
    await manage(TYPE, host.provider, back)

    assert changed != before
    assert identify(await host.provider.status(back)) == before


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("file", "it was a file, which was not kept"),
        ("directory", "it was a directory, which was not kept"),
        ("bad\udcff", "its earlier target is not UTF-8 text"),
        (
            "a\nb",
            "its earlier target cannot be restored: `target` contains a control character, or bytes that are not UTF-8",
        ),
    ],
)
async def test_what_cannot_come_back_is_named(place: str, why: str) -> None:
    link = wanted(force=True)

    kept = await earlier(link, await Host(place).provider.status(link), Decision(), keep_nothing)

    assert kept.why_not == why
