"""The mount type: its checks, its decision table, its undo, and its provider on files and programs that are faked."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ccm_agent.model.errors import FileError, LockError, PropertyError
from ccm_agent.model.records.undo import EarlierFile
from ccm_agent.resources.contract import Decision, DecisionContext
from ccm_agent.resources.mount import TYPE
from ccm_agent.resources.mount.model import FstabEntry, MountProperties
from ccm_agent.resources.mount.providers.util_linux import UtilLinux
from ccm_agent.resources.mount.resource import check, decide, reach
from ccm_agent.resources.mount.tables import (
    escape,
    read_entries,
    read_mounts,
    unescape,
    with_entry,
    without_entry,
)
from ccm_agent.resources.mount.undo import earlier, identify
from ccm_agent.testing.files import FakeFiles
from ccm_agent.testing.locks import FakeLocks
from ccm_agent.testing.runner import FakeRunner
from tests.support.resources import manage

POINT = "/srv/data"
FSTAB = "# kept\nUUID=1 / ext4 errors=remount-ro 0 1\n"
LINE = "/dev/sdb1 /srv/data ext4 defaults 0 2\n"
ROOT = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
DATA = "30 22 8:17 / /srv/data rw,relatime - ext4 /dev/sdb1 rw\n"


def wanted(name: str = POINT, **properties: Any) -> MountProperties:
    usual = {"ensure": "mounted", "device": "/dev/sdb1", "fstype": "ext4", "passno": 2}
    return MountProperties(name=name, **{**usual, **properties})


class Host:
    """A host with two tables in memory, which mount and umount change."""

    def __init__(self, fstab: str = FSTAB, *, is_mounted: bool = False, has_directory: bool = True) -> None:
        self.files, self.runner, self.locks = FakeFiles(), FakeRunner(), FakeLocks()
        self.files.put("/etc/fstab", fstab)
        self.files.put_directory(POINT if has_directory else "/srv")
        self.set_mounted(is_mounted)
        self.runner.when("mount", effect=lambda: self.set_mounted(True))
        self.runner.when("umount", effect=lambda: self.set_mounted(False))
        self.provider = UtilLinux(self.runner, self.files, self.locks)

    def set_mounted(self, is_mounted: bool) -> None:
        self.files.put("/proc/self/mountinfo", ROOT + DATA if is_mounted else ROOT)

    @property
    def fstab(self) -> str:
        return self.files.nodes["/etc/fstab"].content.decode()


@pytest.mark.parametrize(
    ("properties", "place"),
    [
        pytest.param({"name": "srv/data"}, "name", id="a relative path"),
        pytest.param({"name": "swap"}, "name", id="swap"),
        pytest.param({"name": "/srv/../etc"}, "name", id="a path upwards"),
        pytest.param({"name": "/srv//data"}, "name", id="double slashes"),
        pytest.param({"name": "/srv/data/"}, "name", id="a slash at the end"),
        pytest.param({"name": "/srv\n/dev/sda / ext4"}, "name", id="a newline in the name"),
        pytest.param({"name": "/srv\0"}, "name", id="a NUL"),
        pytest.param({"name": "/" + "a" * 1001}, "name", id="an overlong name"),
        pytest.param({"name": "/", "ensure": "unmounted"}, "ensure", id="the root unmounted"),
        pytest.param({"name": "/", "ensure": "absent"}, "ensure", id="the root absent"),
        pytest.param({"name": "/usr", "ensure": "absent"}, "ensure", id="/usr"),
        pytest.param({"name": "/proc", "ensure": "unmounted"}, "ensure", id="/proc"),
        pytest.param({"name": "/sys", "ensure": "absent"}, "ensure", id="/sys"),
        pytest.param({"name": "/dev", "ensure": "absent"}, "ensure", id="/dev"),
        pytest.param({"name": "/run", "ensure": "unmounted"}, "ensure", id="/run"),
        pytest.param({"device": ""}, "device", id="no device"),
        pytest.param({"device": "-o"}, "device", id="a device like an option"),
        pytest.param({"device": "/dev/sdb\n/dev/sda / ext4"}, "device", id="a newline in the device"),
        pytest.param({"device": "/dev/sdb\r"}, "device", id="a carriage return"),
        pytest.param({"fstype": ""}, "fstype", id="no type"),
        pytest.param({"fstype": "ext4 defaults"}, "fstype", id="a space in the type"),
        pytest.param({"fstype": "../ext4"}, "fstype", id="a path as type"),
        pytest.param({"fstype": "-t"}, "fstype", id="a type like an option"),
        pytest.param({"fstype": "swap"}, "fstype", id="the type swap"),
        pytest.param({"options": ""}, "options", id="no options"),
        pytest.param({"options": "ro,,noexec"}, "options", id="an empty option"),
        pytest.param({"options": "ro\n/dev/sda / ext4"}, "options", id="a newline in the options"),
        pytest.param({"options": "user=a,password=b"}, "options", id="a password"),
        pytest.param({"options": "name=admin,secret=AQD12"}, "options", id="a secret of ceph"),
        pytest.param({"options": "USER=a%hunter2"}, "options", id="a password behind the user"),
        pytest.param({"device": "//a:hunter2@nas/x"}, "device", id="a password in the device"),
        pytest.param({"device": "etc", "options": "bind"}, "device", id="a relative bind"),
        pytest.param({"device": "../etc", "options": "ro,rbind"}, "device", id="a relative rbind"),
        pytest.param({"options": "lowerdir=/a:etc"}, "options", id="a relative lower directory"),
        pytest.param({"options": "lowerdir+=etc"}, "options", id="another relative lower directory"),
        pytest.param({"options": "upperdir=etc"}, "options", id="a relative upper directory"),
        pytest.param({"options": "credentials=etc/shadow"}, "options", id="a relative file of credentials"),
        pytest.param({"options": "x" * 1001}, "options", id="huge options"),
        pytest.param({"dump": 2}, "dump", id="dump 2"),
        pytest.param({"passno": -1}, "passno", id="pass -1"),
    ],
)
def test_hostile_properties_are_refused(properties: dict[str, Any], place: str) -> None:
    with pytest.raises(PropertyError) as caught:
        check(wanted(**properties))

    assert caught.value.place is not None
    assert caught.value.place.path == f"$.{place}"


def test_all_errors_are_reported_at_once() -> None:
    with pytest.raises(PropertyError) as caught:
        check(wanted("srv", device="", dump=7))

    assert [one.place.path for one in caught.value.others if one.place] == ["$.device", "$.dump"]


@pytest.mark.parametrize(
    "properties",
    [
        pytest.param({"name": "/srv/a b#c\\d"}, id="a path that is escaped"),
        pytest.param(
            {"device": "//server/share", "fstype": "cifs", "options": "credentials=/etc/c"}, id="cifs"
        ),
        pytest.param(
            {"name": "/proc", "device": "proc", "fstype": "proc", "options": "hidepid=2"}, id="/proc"
        ),
        pytest.param({"name": "/", "options": "noatime"}, id="the root"),
        pytest.param({"ensure": "absent", "device": "", "fstype": ""}, id="absent, with a name only"),
    ],
)
def test_usual_properties_are_accepted(properties: dict[str, Any]) -> None:
    check(wanted(**properties))


@pytest.mark.parametrize("text", ["a b", "a\tb", "a#b", "a\\b", "\\040", " # \\ ", "a\u00a0b", "a\u2028b"])
def test_fields_survive_the_table_and_cannot_become_another_line(text: str) -> None:
    entry = FstabEntry(device=text, fstype="ext4", options=f"ro,x={text}")

    lines = with_entry(["# kept"], f"/srv/{text}", entry)

    assert len(lines) == 2
    assert len(lines[1].split(" ")) == 6
    assert "#" not in lines[1]
    assert read_entries(lines) == {f"/srv/{text}": entry}
    assert with_entry(lines, f"/srv/{text}", entry) == lines
    assert unescape(escape(text)) == text


def test_lines_of_other_mount_points_are_kept() -> None:
    lines = [
        "",
        "#/dev/sdb1 /srv/data ext4",
        "garbage",
        "/dev/sdc1 none swap sw 0 0",
        "/dev/sdb1\t/srv/data/\text4",
        "x /y z",
    ]

    changed = with_entry([*lines, "/dev/sdd /srv/data xfs"], POINT, wanted().entry)

    assert changed == [*lines[:4], LINE.strip(), lines[5]]
    assert without_entry(changed, POINT) == [*lines[:4], lines[5]]


def test_the_last_mount_hides_the_others_and_autofs_is_none() -> None:
    text = (
        ROOT
        + "31 22 0:5 / /mnt/a\\040b rw - tmpfs tmpfs rw\n"
        + "32 31 8:2 / /mnt/a\\040b rw shared:7 master:1 - xfs /dev/sdc rw\n"
        + "33 22 0:9 / /mnt/auto rw - autofs systemd-1 rw\ngarbage\n"
    )

    assert read_mounts(text) == {"/": ("/dev/sda1", "ext4"), "/mnt/a b": ("/dev/sdc", "xfs")}


MOUNT, WRITE = "Would have mounted", "Would have written the entry to /etc/fstab"
UNMOUNT, REMOVE = "Would have unmounted", "Would have removed the entry from /etc/fstab"
CREATE, REMOUNT = "Would have created the mount point", "Would have remounted"


@pytest.mark.parametrize(
    ("host", "properties", "noop"),
    [
        pytest.param(Host(), {}, [MOUNT, WRITE], id="nothing there"),
        pytest.param(Host(has_directory=False), {}, [CREATE, MOUNT, WRITE], id="no mount point"),
        pytest.param(Host(FSTAB + LINE), {}, [MOUNT], id="only the entry"),
        pytest.param(Host(is_mounted=True), {}, [WRITE], id="only mounted"),
        pytest.param(Host(FSTAB + LINE, is_mounted=True), {}, [], id="stable"),
        pytest.param(
            Host(FSTAB + LINE, is_mounted=True), {"options": "ro"}, [REMOUNT, WRITE], id="other options"
        ),
        pytest.param(Host(FSTAB + LINE, is_mounted=True), {"passno": 0}, [WRITE], id="another number"),
        pytest.param(Host(), {"ensure": "present"}, [WRITE], id="present"),
        pytest.param(Host(FSTAB + LINE), {"ensure": "present"}, [], id="present and stable"),
        pytest.param(Host(is_mounted=True), {"ensure": "unmounted"}, [UNMOUNT, WRITE], id="unmounted"),
        pytest.param(Host(FSTAB + LINE), {"ensure": "unmounted"}, [], id="unmounted and stable"),
        pytest.param(
            Host(FSTAB + LINE, is_mounted=True), {"ensure": "absent"}, [UNMOUNT, REMOVE], id="absent"
        ),
        pytest.param(Host(), {"ensure": "absent"}, [], id="absent and stable"),
        pytest.param(
            Host(),
            {"name": "/", "device": "UUID=1", "options": "noatime", "passno": 1},
            [WRITE],
            id="never remounts root",
        ),
    ],
)
async def test_steps_follow_from_the_desired_and_the_current_state(
    host: Host, properties: dict[str, Any], noop: list[str]
) -> None:
    entry = wanted(**properties)

    decision = decide(entry, await host.provider.status(entry), DecisionContext())

    assert decision.error is None
    assert [step.noop for step in decision.steps] == noop


async def test_another_file_system_at_the_mount_point_is_an_error_before_any_change() -> None:
    host = Host(is_mounted=True)
    entry = wanted(fstype="xfs")

    decision = decide(entry, await host.provider.status(entry), DecisionContext())

    assert isinstance(decision.error, FileError)
    assert "/dev/sdb1 of type ext4, wanted /dev/sdb1 of type xfs" in str(decision.error)


@pytest.mark.parametrize("kind", ["file", "symlink", "fifo"])
async def test_what_is_no_directory_cannot_be_a_mount_point(kind: str) -> None:
    host = Host(has_directory=False)
    {"file": host.files.put, "fifo": host.files.put_fifo}.get(
        kind, lambda path: host.files.put_symlink(path, "/etc")
    )(POINT)

    event = await manage(TYPE, host.provider, wanted())

    assert event.failed
    assert "cannot be a mount point" in event.error[0]
    assert host.fstab == FSTAB


async def test_a_file_system_is_mounted_stable_and_removed() -> None:
    host = Host(has_directory=False)

    first = await manage(TYPE, host.provider, wanted(options="ro,noexec"))
    second = await manage(TYPE, host.provider, wanted(options="ro,noexec"))
    written = host.fstab
    await manage(TYPE, host.provider, wanted(ensure="absent"))

    assert (first.changed, first.error, second.changed, second.error) == (True, [], False, [])
    assert written == f"{FSTAB}/dev/sdb1 /srv/data ext4 ro,noexec 0 2\n"
    assert host.fstab == FSTAB
    assert host.runner.lines == [
        "mount -t ext4 -o ro,noexec -- /dev/sdb1 /srv/data",
        "umount -- /srv/data",
    ]


async def test_new_options_take_effect_at_once() -> None:
    host = Host(FSTAB + LINE, is_mounted=True)

    await manage(TYPE, host.provider, wanted(options="ro"))

    assert host.runner.lines == ["mount -o remount,ro -- /dev/sdb1 /srv/data"]


async def test_systemd_reads_the_new_table() -> None:
    host = Host(is_mounted=True)
    host.files.put_directory("/run/systemd/system")
    host.runner.when("systemctl", "--system", "daemon-reload")

    event = await manage(TYPE, host.provider, wanted())

    assert (event.error, host.runner.lines) == ([], ["systemctl --system daemon-reload"])


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        pytest.param(
            {"code": 32, "stderr": "mount: /srv/data: special device /dev/sdb1 does not exist."},
            "/srv/data cannot be mounted: mount: /srv/data: special device /dev/sdb1 does not exist.",
            id="a missing device",
        ),
        pytest.param(
            {"hangs": True},
            "`mount` ran for 120 s and was killed because it hung",
            id="a program that hangs",
        ),
        pytest.param({"error": "mount: no such program"}, "mount: no such program", id="no program"),
    ],
)
async def test_a_failed_mount_leaves_the_table_as_it_was(answer: dict[str, Any], message: str) -> None:
    host = Host()
    host.runner = FakeRunner()
    host.runner.when("mount", **answer)

    event = await manage(TYPE, UtilLinux(host.runner, host.files, host.locks), wanted())

    assert message in event.error[0]
    assert host.fstab == FSTAB


async def test_a_busy_file_system_stays_in_the_table() -> None:
    host = Host(FSTAB + LINE, is_mounted=True)
    host.runner = FakeRunner()
    host.runner.when("umount", code=32, stderr="umount: /srv/data: target is busy.")

    event = await manage(TYPE, UtilLinux(host.runner, host.files, host.locks), wanted(ensure="absent"))

    assert event.error == ["/srv/data cannot be unmounted: umount: /srv/data: target is busy."]
    assert host.fstab == FSTAB + LINE


async def test_a_lock_that_another_program_holds_is_an_error() -> None:
    host = Host()
    host.locks.foreign["fstab"] = "ccm apply (pid 7)"

    with pytest.raises(LockError, match="held by ccm apply"):
        await host.provider.write_entry(wanted())

    assert host.fstab == FSTAB


async def test_the_table_is_never_removed() -> None:
    host = Host(LINE)

    await manage(TYPE, host.provider, wanted(ensure="absent"))

    assert host.fstab == ""


async def test_a_thousand_file_systems_are_one_look_and_what_is_mounted_is_not_touched() -> None:
    host = Host(is_mounted=True)
    many = [wanted(f"/srv/{number}") for number in range(1000)]

    found = await host.provider.look_ahead([*many, wanted()])

    assert [one.ensure for one in found] == ["absent"] * 1000 + ["mounted"]
    assert host.files.looked_at == [("/etc/fstab",), tuple(one.name for one in many)]


def test_the_policy_sees_the_table_the_mount_point_and_the_device() -> None:
    access = reach(wanted())

    assert (access.paths, access.trees, access.reads) == (("/etc/fstab",), (POINT,), ("/dev/sdb1",))


@pytest.mark.parametrize(
    ("properties", "trees", "reads", "reads_trees"),
    [
        ({"device": "/home", "fstype": "none", "options": "bind,ro"}, (), (), ("/home",)),
        ({"device": "UUID=1", "options": "ro"}, (), (), ()),
        (
            {
                "device": "overlay",
                "fstype": "overlay",
                "options": "lowerdir=/etc:/root,upperdir=/u,workdir=/w",
            },
            ("/u", "/w"),
            (),
            ("/etc", "/root"),
        ),
        ({"device": "overlay", "options": "lowerdir+=/etc,datadir+=/root"}, (), (), ("/etc", "/root")),
        (
            {"device": "//nas/a", "fstype": "cifs", "options": "ro,credentials=/etc/shadow"},
            (),
            ("//nas/a", "/etc/shadow"),
            (),
        ),
    ],
)
def test_the_policy_sees_the_paths_in_options(
    properties: dict[str, Any], trees: tuple[str, ...], reads: tuple[str, ...], reads_trees: tuple[str, ...]
) -> None:
    access = reach(wanted(**properties))

    assert (access.trees, access.reads, access.reads_trees) == ((POINT, *trees), reads, reads_trees)


@pytest.mark.parametrize(
    ("properties", "commands"),
    [
        pytest.param({"fstype": "fuse"}, ["`fstype: fuse` runs `mount.fuse`, so it"], id="fuse"),
        pytest.param(
            {"fstype": "fuse.sshfs"}, ["`fstype: fuse.sshfs` runs `mount.fuse.sshfs`, so it"], id="subtype"
        ),
        pytest.param({"fstype": "davfs"}, ["`fstype: davfs` runs `mount.davfs`, so it"], id="another helper"),
        pytest.param(
            {"fstype": "fuse", "options": "bind"}, ["`fstype: fuse` runs `mount.fuse`, so it"], id="with bind"
        ),
        pytest.param(
            {"fstype": "fuse", "ensure": "present"}, ["`fstype: fuse` runs `mount.fuse`, so it"], id="entry"
        ),
        pytest.param(
            {"options": "ro,uhelper=x"}, ["`uhelper` in `options` runs a program, so it"], id="uhelper"
        ),
        pytest.param(
            {"options": "helper=../x"}, ["`helper` in `options` runs a program, so it"], id="helper"
        ),
        pytest.param(
            {"options": "x-systemd.makefs"},
            ["`x-systemd.makefs` in `options` runs a program, so it"],
            id="makefs",
        ),
        pytest.param({"options": "noatime,x-systemd.automount,nofail"}, [], id="the kernel's type"),
        pytest.param({"device": "nas:/a", "fstype": "nfs4"}, [], id="a network share"),
        pytest.param({"device": "/a", "fstype": "none", "options": "bind"}, [], id="a bind mount"),
        pytest.param({"fstype": "fuse", "ensure": "absent"}, [], id="absent"),
    ],
)
def test_the_policy_sees_what_runs_a_program(properties: dict[str, Any], commands: list[str]) -> None:
    assert list(reach(wanted(**properties)).commands) == commands


def test_the_policy_sees_the_units_that_are_started_with_a_mount() -> None:
    options = "x-systemd.requires=evil.service,x-systemd.requires=/dev/sdc,x-systemd.after=network.target"

    assert reach(wanted(options=options)).services == ("evil.service",)
    assert reach(wanted(options=options, ensure="absent")).services == ()


async def test_a_symlink_of_a_user_above_the_mount_point_is_refused() -> None:
    host = Host(has_directory=False)
    host.files.put_symlink("/srv/own", "/etc")
    host.files.nodes["/srv/own"].uid = 1000

    event = await manage(TYPE, host.provider, wanted("/srv/own/data"))

    assert event.failed
    assert "/srv/own is a symlink that does not belong to root" in event.error[0]
    assert not [one for one in host.runner.commands if one.argv[0] == "mount"]


async def test_a_symlink_of_root_above_the_mount_point_is_followed() -> None:
    host = Host(has_directory=False)
    host.files.put_symlink("/srv/own", "/srv/real")
    host.files.put_directory("/srv/real")

    await host.provider.mount(wanted("/srv/own"))

    assert [one.argv[0] for one in host.runner.commands] == ["mount"]


async def keep_nothing(path: str, *, with_content: bool) -> EarlierFile:
    raise AssertionError("no file is kept")


@pytest.mark.parametrize(
    ("host", "change"),
    [
        pytest.param(Host(), {}, id="nothing there"),
        pytest.param(Host(FSTAB + LINE), {}, id="only the entry"),
        pytest.param(Host(FSTAB + LINE, is_mounted=True), {"options": "ro"}, id="other options"),
        pytest.param(Host(FSTAB + LINE, is_mounted=True), {"ensure": "unmounted"}, id="unmounted"),
        pytest.param(Host(FSTAB + LINE, is_mounted=True), {"ensure": "absent"}, id="removed"),
    ],
)
async def test_an_undo_restores_the_entry_and_the_mount(host: Host, change: dict[str, Any]) -> None:
    entry = wanted(**change)
    found = await host.provider.status(entry)
    before = (host.fstab, identify(found))
    kept = await earlier(entry, found, Decision(), keep_nothing)

    await manage(TYPE, host.provider, entry)
    changed = (host.fstab, identify(await host.provider.status(entry)))
    back = MountProperties(name=POINT, **kept.properties)
    check(back)
    await manage(TYPE, host.provider, back)

    assert changed != before
    assert (host.fstab, identify(await host.provider.status(back))) == before


async def test_a_password_in_the_table_is_in_no_state_event_or_undo() -> None:
    host = Host(FSTAB + "//nas/a /srv/data cifs ro,password=hidden,password2=hidden,x 0 0\n")
    entry = wanted(ensure="unmounted")
    found = await host.provider.status(entry)
    kept = await earlier(entry, found, Decision(), keep_nothing)

    event = await manage(TYPE, host.provider, entry)

    assert event.changed
    assert found.entry is not None
    assert found.entry.options == "ro,password=***,password2=***,x"
    assert "hidden" not in repr((found, kept, event, decide(entry, found, DecisionContext()).changes))
    assert "`options` has a password" in kept.why_not


async def test_an_entry_that_is_not_utf8_can_be_published_and_does_not_come_back() -> None:
    host = Host()
    host.files.put("/etc/fstab", b"/dev/\xff /srv/data ext4\n/dev/\xfe /y ext4\n")
    found = await host.provider.status(wanted())

    kept = await earlier(wanted(), found, Decision(), keep_nothing)
    await manage(TYPE, host.provider, wanted())

    assert b"/dev/\xef\xbf\xbd" in msgspec.json.encode(found)
    assert kept.why_not == "its earlier entry is not UTF-8"
    assert host.files.nodes["/etc/fstab"].content == LINE.encode() + b"/dev/\xfe /y ext4\n"


async def test_a_mount_without_an_entry_is_not_undone() -> None:
    found = await Host(is_mounted=True).provider.status(wanted())

    kept = await earlier(wanted(ensure="absent"), found, Decision(), keep_nothing)

    assert kept.why_not == "it was mounted without an entry in /etc/fstab"
