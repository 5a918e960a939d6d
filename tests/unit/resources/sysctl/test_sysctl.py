"""The sysctl type: its checks, its decision table, its undo, and its provider on files and a kernel in memory."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ccm_agent.model.errors import FileError, InputError, LockError, PropertyError
from ccm_agent.model.records.undo import EarlierFile
from ccm_agent.resources.contract import Decision, DecisionContext
from ccm_agent.resources.sysctl import TYPE
from ccm_agent.resources.sysctl.lines import read_values, with_value, without
from ccm_agent.resources.sysctl.model import DEFAULT_FILE, SysctlProperties, SysctlState, parameter_path
from ccm_agent.resources.sysctl.providers.procfs import Procfs
from ccm_agent.resources.sysctl.resource import check, decide, reach
from ccm_agent.resources.sysctl.undo import earlier, identify
from ccm_agent.testing.files import FakeFiles
from ccm_agent.testing.kernel import FakeKernel
from ccm_agent.testing.locks import FakeLocks
from tests.support.resources import manage

SWAPPINESS = "/proc/sys/vm/swappiness"


def wanted(name: str = "vm.swappiness", **properties: Any) -> SysctlProperties:
    return SysctlProperties(name=name, **{"ensure": "present", "value": "10", **properties})


def absent(name: str = "vm.swappiness", **properties: Any) -> SysctlProperties:
    return SysctlProperties(name=name, ensure="absent", **properties)


def state(**values: Any) -> SysctlState:
    """A parameter that is not in the file, and whose live value is 60."""
    usual = {"ensure": "absent", "file": DEFAULT_FILE, "live_value": "60", "exists": True}
    return SysctlState(
        protocol=TYPE.state_protocol, type="sysctl", name="vm.swappiness", **{**usual, **values}
    )


class Host:
    """Files and a kernel in memory, and the provider on them."""

    def __init__(self, text: str | bytes | None = None, **values: str) -> None:
        self.files = FakeFiles()
        self.files.put_directory("/etc/sysctl.d")
        if text is not None:
            self.files.put(DEFAULT_FILE, text)
        self.kernel = FakeKernel({SWAPPINESS: "60", "/proc/sys/net/ipv4/tcp_rmem": "4096\t131072\t6291456"})
        self.locks = FakeLocks()
        self.provider = Procfs(self.files, self.kernel, self.locks)

    def text(self, path: str = DEFAULT_FILE) -> str | None:
        node = self.files.nodes.get(path)
        return node.content.decode(errors="replace") if node else None


@pytest.mark.parametrize(
    ("name", "path"),
    [
        pytest.param("vm.swappiness", "vm/swappiness", id="dots"),
        pytest.param("net/ipv4/conf/eth0.100/forwarding", "net/ipv4/conf/eth0.100/forwarding", id="slashes"),
        pytest.param("net.ipv4.conf.eth0/100.forwarding", "net/ipv4/conf/eth0.100/forwarding", id="mixed"),
    ],
)
def test_a_name_is_read_as_sysctl_reads_it(name: str, path: str) -> None:
    assert parameter_path(name) == f"/proc/sys/{path}"


@pytest.mark.parametrize(
    ("properties", "place"),
    [
        pytest.param(
            {"name": "vm.swappiness\nkernel.core_pattern = |/x"}, "name", id="a newline in the name"
        ),
        pytest.param({"name": "-vm.swappiness"}, "name", id="a name like an option"),
        pytest.param({"name": "vm.swappiness\0"}, "name", id="a NUL"),
        pytest.param({"name": "vm.a:b"}, "name", id="a colon"),
        pytest.param({"name": "vm.swappiness = 5 #"}, "name", id="a value in the name"),
        pytest.param({"name": "net.ipv4.conf.*.rp_filter"}, "name", id="a pattern"),
        pytest.param({"name": "../../etc/passwd"}, "name", id="a path upwards"),
        pytest.param({"name": "net/../../../etc/passwd"}, "name", id="a path upwards inside"),
        pytest.param({"name": "net.//.//.//.etc/passwd"}, "name", id="a path upwards, spelled with dots"),
        pytest.param({"name": "/etc/passwd"}, "name", id="an absolute path"),
        pytest.param({"name": "vm..swappiness"}, "name", id="an empty part"),
        pytest.param({"name": "vm.swappiness."}, "name", id="a dot at the end"),
        pytest.param({"name": "swappiness"}, "name", id="without a group"),
        pytest.param({"name": ""}, "name", id="an empty name"),
        pytest.param({"name": "vm." + "a" * 300}, "name", id="an overlong name"),
        pytest.param({"name": "vm.swäppiness"}, "name", id="a letter outside ASCII"),
        pytest.param({"value": "10\nkernel.modprobe = /tmp/x"}, "value", id="a newline in the value"),
        pytest.param({"value": "10\r"}, "value", id="a carriage return"),
        pytest.param({"value": "1\x7f"}, "value", id="a control character"),
        pytest.param({"value": "9" * 4001}, "value", id="a huge value"),
        pytest.param({"value": ""}, "value", id="no value"),
        pytest.param({"value": " 10"}, "value", id="a space before the value"),
        pytest.param({"ensure": "absent"}, "value", id="a value of what is to be absent"),
        pytest.param({"live_value": "1\n2"}, "live_value", id="a newline in the live value"),
        pytest.param(
            {"live_value": "5", "apply": False}, "live_value", id="a live value that is not managed"
        ),
        pytest.param({"file": "/etc/passwd"}, "file", id="another file"),
        pytest.param({"file": "/etc/sysctl.d/../passwd.conf"}, "file", id="a file outside"),
        pytest.param({"file": "/etc/sysctl.d/a/b.conf"}, "file", id="a file in a folder"),
        pytest.param({"file": "60-ccm.conf"}, "file", id="a relative file"),
        pytest.param({"file": "/etc/sysctl.d/.hidden.conf"}, "file", id="a hidden file"),
        pytest.param({"file": "/etc/sysctl.d/60-ccm.txt"}, "file", id="a file that is not read at boot"),
        pytest.param({"file": "/etc/sysctl.d/a.conf\n"}, "file", id="a newline in the file"),
        pytest.param({"file": f"/etc/sysctl.d/{'a' * 300}.conf"}, "file", id="an overlong file"),
    ],
)
def test_hostile_properties_are_refused(properties: dict[str, Any], place: str) -> None:
    with pytest.raises(PropertyError) as caught:
        check(wanted(**properties))

    assert caught.value.place is not None
    assert caught.value.place.path == f"$.{place}"


def test_all_errors_are_reported_at_once() -> None:
    with pytest.raises(PropertyError) as caught:
        check(wanted("vm", value="1\n", file="x"))

    assert [one.place.path for one in caught.value.others if one.place] == ["$.value", "$.file"]


@pytest.mark.parametrize(
    "properties",
    [
        pytest.param({"name": "net.ipv4.conf.eth0/100.forwarding"}, id="an interface with a dot"),
        pytest.param({"name": "kernel.core_pattern", "value": "|/usr/bin/x %p #1"}, id="a command as value"),
        pytest.param({"value": "4096 131072\t6291456"}, id="several numbers"),
        pytest.param({"file": "/etc/sysctl.conf"}, id="the old file"),
    ],
)
def test_usual_properties_are_accepted(properties: dict[str, Any]) -> None:
    check(wanted(**properties))


SET = "Would have set the live value to 10"
WRITE = f"Would have written the value 10 to {DEFAULT_FILE}"
REMOVE = f"Would have removed the parameter from {DEFAULT_FILE}"


@pytest.mark.parametrize(
    ("properties", "found", "noop"),
    [
        pytest.param(wanted(), state(), [SET, WRITE], id="neither live nor in the file"),
        pytest.param(wanted(), state(live_value="10"), [WRITE], id="only live"),
        pytest.param(wanted(), state(ensure="present", value="10"), [SET], id="only in the file"),
        pytest.param(wanted(), state(ensure="present", value="10", live_value="10"), [], id="stable"),
        pytest.param(
            wanted(), state(ensure="present", value="20", live_value="10"), [WRITE], id="another line"
        ),
        pytest.param(
            wanted(value="1 2"),
            state(ensure="present", value="1  2", live_value="1 2"),
            [],
            id="other spaces",
        ),
        pytest.param(wanted(apply=False), state(), [WRITE], id="only the file is managed"),
        pytest.param(wanted(apply=False), state(is_read_only=True), [WRITE], id="the file in a container"),
        pytest.param(
            wanted(),
            state(ensure="present", value="10", live_value="10", is_read_only=True),
            [],
            id="set outside",
        ),
        pytest.param(
            wanted(live_value="10", value="20"), state(ensure="present", value="20"), [SET], id="both"
        ),
        pytest.param(
            wanted(ignore_missing=True),
            state(exists=False, live_value=""),
            [WRITE],
            id="missing, and ignored",
        ),
        pytest.param(absent(), state(), [], id="absent"),
        pytest.param(absent(), state(ensure="present", value="10"), [REMOVE], id="a line too many"),
        pytest.param(absent(), state(exists=False, live_value=""), [], id="absent and unknown"),
        pytest.param(
            absent(live_value="10"),
            state(ensure="present", value="10"),
            [SET, REMOVE],
            id="absent, with a live value",
        ),
    ],
)
def test_steps_follow_from_the_desired_and_the_current_state(
    properties: SysctlProperties, found: SysctlState, noop: list[str]
) -> None:
    check(properties)

    decision = decide(properties, found, DecisionContext())

    assert decision.error is None
    assert [step.noop for step in decision.steps] == noop


@pytest.mark.parametrize(
    ("properties", "found", "message"),
    [
        pytest.param(
            wanted(),
            state(exists=False),
            "the kernel has no parameter vm.swappiness (/proc/sys/vm/swappiness does not exist)",
            id="missing",
        ),
        pytest.param(
            wanted(apply=False), state(exists=False), "the kernel has no parameter", id="missing, file only"
        ),
        pytest.param(
            wanted(),
            state(is_read_only=True),
            "/proc/sys is read-only here, as in most containers",
            id="read-only",
        ),
        pytest.param(
            wanted(), state(error="Permission denied"), "cannot be read: Permission denied", id="unreadable"
        ),
    ],
)
def test_what_the_kernel_cannot_do_is_an_error_before_any_change(
    properties: SysctlProperties, found: SysctlState, message: str
) -> None:
    decision = decide(properties, found, DecisionContext())

    assert isinstance(decision.error, FileError)
    assert message in str(decision.error)
    assert decision.steps == ()


def test_the_policy_sees_the_file_and_the_live_value() -> None:
    assert reach(wanted()).paths == (DEFAULT_FILE, SWAPPINESS)
    assert reach(wanted(apply=False)).paths == (DEFAULT_FILE, SWAPPINESS)


LINES = [
    "# tuned",
    "",
    "net/ipv4/ip_forward=1",
    " -vm.swappiness = 5 ",
    "net.ipv4.conf.*.rp_filter = 1",
    "garbage",
]


def test_lines_are_read_in_all_their_spellings_and_the_last_takes_effect() -> None:
    assert read_values([*LINES, "vm/swappiness=7", "; x = 1"]) == {
        "/proc/sys/net/ipv4/ip_forward": "1",
        SWAPPINESS: "7",
    }


def test_a_line_is_replaced_in_its_place_and_the_others_are_kept() -> None:
    lines = with_value([*LINES, "vm.swappiness=9"], "vm.swappiness", "10")

    assert lines == [*LINES[:3], " -vm.swappiness = 10", *LINES[4:]]
    assert without(lines, "vm.swappiness") == [*LINES[:3], *LINES[4:]]


async def test_a_parameter_is_set_written_and_stable_afterwards() -> None:
    host = Host("# kept \udce4\nkernel.panic = 1".encode(errors="surrogateescape"))

    first = await manage(TYPE, host.provider, wanted())
    second = await manage(TYPE, host.provider, wanted())

    assert (first.changed, first.error, second.changed, second.error) == (True, [], False, [])
    assert host.kernel.values[SWAPPINESS] == "10"
    assert host.files.nodes[DEFAULT_FILE].content == b"# kept \xe4\nkernel.panic = 1\nvm.swappiness = 10\n"


async def test_owner_and_mode_of_the_file_are_kept() -> None:
    host = Host()
    host.files.put(DEFAULT_FILE, "a.b = 1\n", mode=0o600, uid=1, gid=1)

    await manage(TYPE, host.provider, wanted())

    node = host.files.nodes[DEFAULT_FILE]
    assert (node.mode, node.uid, node.gid) == (0o600, 1, 1)


async def test_the_directory_is_created_and_the_file_goes_with_its_last_line() -> None:
    host = Host()
    del host.files.nodes["/etc/sysctl.d"]

    await manage(TYPE, host.provider, wanted())
    written = host.text()
    await manage(TYPE, host.provider, absent())

    assert written == "vm.swappiness = 10\n"
    assert host.text() is None
    assert host.kernel.values[SWAPPINESS] == "10"


async def test_numbers_that_the_kernel_separates_by_tabs_are_the_same() -> None:
    host = Host()
    numbers = wanted("net.ipv4.tcp_rmem", value="4096 131072 6291456")

    event = await manage(TYPE, host.provider, numbers, noop=True)

    expected = f"Would have written the value {numbers.value} to {DEFAULT_FILE}"
    assert event.noop_message == expected


async def test_a_value_that_the_kernel_refuses_is_not_written() -> None:
    host = Host("a.b = 1\n")
    host.kernel.refuses[SWAPPINESS] = "the kernel does not accept '10'"

    event = await manage(TYPE, host.provider, wanted())

    assert event.error == ["/proc/sys/vm/swappiness cannot be set: the kernel does not accept '10'"]
    assert host.text() == "a.b = 1\n"


async def test_a_file_that_cannot_be_written_stays_as_it_was() -> None:
    host = Host("a.b = 1\n")
    host.files.refuses[DEFAULT_FILE] = "No space left on device"

    event = await manage(TYPE, host.provider, wanted())

    assert event.error == [f"{DEFAULT_FILE}: No space left on device"]
    assert host.text() == "a.b = 1\n"


async def test_a_lock_that_another_program_holds_is_an_error() -> None:
    host = Host()
    host.locks.foreign["sysctl"] = "ccm apply (pid 7)"

    with pytest.raises(LockError, match="held by ccm apply"):
        await host.provider.write_line(wanted())

    assert host.text() is None


async def test_a_symlink_is_not_replaced() -> None:
    host = Host()
    host.files.put("/etc/sysctl.conf", "")
    host.files.put_symlink("/etc/sysctl.d/99-sysctl.conf", "/etc/sysctl.conf")

    event = await manage(TYPE, host.provider, wanted(file="/etc/sysctl.d/99-sysctl.conf"))

    assert event.failed
    assert "is a symlink to /etc/sysctl.conf" in event.error[0]


@pytest.mark.parametrize("kind", ["directory", "fifo", "huge"])
async def test_a_file_of_another_kind_is_an_error_before_any_change(kind: str) -> None:
    host = Host()
    if kind == "directory":
        host.files.put_directory(DEFAULT_FILE)
    elif kind == "fifo":
        host.files.put_fifo(DEFAULT_FILE)
    else:
        host.files.put(DEFAULT_FILE, b"#" * (5 << 20))

    event = await manage(TYPE, host.provider, wanted())

    assert event.failed
    assert host.kernel.values[SWAPPINESS] == "60"


async def test_a_thousand_parameters_are_one_look() -> None:
    host = Host("".join(f"net.ipv4.conf.eth{number}.forwarding = 1\n" for number in range(1000)))
    many = [wanted(f"net.ipv4.conf.eth{number}.forwarding", ignore_missing=True) for number in range(1000)]

    found = await host.provider.look_ahead(many)

    assert {one.value for one in found} == {"1"}
    assert len(host.kernel.looked_at) == 1
    assert host.files.looked_at == [(DEFAULT_FILE,)]


async def keep_nothing(path: str, *, with_content: bool) -> EarlierFile:
    raise AssertionError("no file is kept")


@pytest.mark.parametrize(
    ("text", "change"),
    [
        pytest.param(None, wanted(), id="there was no file"),
        pytest.param("kernel.panic = 1\n", wanted(), id="there was no line"),
        pytest.param("vm.swappiness = 60\n", wanted(), id="there was another line"),
        pytest.param("vm.swappiness = 10\n", wanted(), id="the live value had drifted"),
        pytest.param("vm.swappiness = 30\n", absent(), id="there was a line"),
        pytest.param("vm.swappiness = 30\n", absent(live_value="5"), id="a line, and another live value"),
        pytest.param(None, wanted(apply=False), id="the live value is not managed"),
    ],
)
async def test_an_undo_restores_the_line_and_the_live_value(
    text: str | None, change: SysctlProperties
) -> None:
    host = Host(text)
    found = await host.provider.status(change)
    before = (host.text(), host.kernel.values[SWAPPINESS], identify(found))
    kept = await earlier(change, found, Decision(), keep_nothing)

    await manage(TYPE, host.provider, change)
    changed = (host.text(), host.kernel.values[SWAPPINESS], identify(await host.provider.status(change)))
    back = SysctlProperties(name="vm.swappiness", **kept.properties)
    check(back)
    await manage(TYPE, host.provider, back)

    assert changed != before
    assert (host.text(), host.kernel.values[SWAPPINESS], identify(await host.provider.status(back))) == before


async def test_a_value_that_is_not_utf8_can_be_published_and_does_not_come_back() -> None:
    host = Host(b"kernel.domainname = \xff\nvm.swappiness = \xfe\n")
    found = await host.provider.status(wanted())

    kept = await earlier(wanted(), found, Decision(), keep_nothing)
    await manage(TYPE, host.provider, wanted())

    assert b'"value":"\xef\xbf\xbd"' in msgspec.json.encode(found)
    assert kept.why_not == "its earlier line is not UTF-8"
    assert host.files.nodes[DEFAULT_FILE].content == b"kernel.domainname = \xff\nvm.swappiness = 10\n"


async def test_a_line_without_a_value_cannot_come_back() -> None:
    host = Host("vm.swappiness =\n")

    kept = await earlier(wanted(), await host.provider.status(wanted()), Decision(), keep_nothing)

    assert "`value` is required" in kept.why_not


def test_the_errors_name_the_property_of_a_wrong_live_value() -> None:
    with pytest.raises(InputError, match="`live_value` begins or ends with a space"):
        check(absent(live_value=" 1"))
