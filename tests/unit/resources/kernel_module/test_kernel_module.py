"""Kernel modules: their checks, their decision table, their undo, and their provider on files and a modprobe in memory."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from ccm_agent.model.errors import FileError, PropertyError
from ccm_agent.model.records.undo import EarlierFile
from ccm_agent.resources.contract import Decision, DecisionContext
from ccm_agent.resources.kernel_module import TYPE
from ccm_agent.resources.kernel_module.lines import (
    ModuleSettings,
    read_blacklist,
    read_boot,
    read_built_in,
    read_loaded,
    read_settings,
    settings_text,
)
from ccm_agent.resources.kernel_module.model import KernelModuleProperties
from ccm_agent.resources.kernel_module.providers.kmod import Kmod
from ccm_agent.resources.kernel_module.resource import check, decide, reach
from ccm_agent.resources.kernel_module.undo import FOREIGN, earlier, identify
from ccm_agent.testing.files import FakeFiles
from ccm_agent.testing.runner import FakeRunner
from ccm_agent.testing.trees import FakeTrees
from tests.support.resources import manage

BOOT, SETTINGS = "/etc/modules-load.d/ccm-kvm_intel.conf", "/etc/modprobe.d/ccm-kvm_intel.conf"
BOOT_TEXT = "# Managed by ccm\nkvm_intel\n"
NESTED = "# Managed by ccm\noptions kvm_intel nested=1\n"
BLACKLIST = "# Managed by ccm\nblacklist kvm_intel\n"
KERNEL = """\
nf_nat 57344 2 nft_chain_nat,xt_MASQUERADE, Live 0x0000000000000000
dm_mod 184320 3 - Live 0x0000000000000000
ipv6 700416 1 [permanent], Live 0x0000000000000000
"""


def wanted(name: str = "kvm_intel", **properties: Any) -> KernelModuleProperties:
    return KernelModuleProperties(name=name, **{"ensure": "present", **properties})


def absent(name: str = "kvm_intel", **properties: Any) -> KernelModuleProperties:
    return wanted(name, ensure="absent", **properties)


async def keep_nothing(path: str, *, with_content: bool) -> EarlierFile:
    raise AssertionError(f"{path} is not kept")


class Host:
    """Files and a kernel in memory, whose modprobe works."""

    def __init__(self, kernel: str | None = KERNEL, *modules: str) -> None:
        self.files, self.runner = FakeFiles(), FakeRunner()
        for folder in ("/etc/modules-load.d", "/etc/modprobe.d"):
            self.files.put_directory(folder)
        self.files.put("/proc/sys/kernel/osrelease", "6.1.0-9\n")
        self.files.put("/lib/modules/6.1.0-9/modules.builtin", "kernel/fs/ext4/ext4.ko\nkernel/lib/a-b.ko\n")
        if kernel is not None:
            self.files.put("/proc/modules", kernel)
        for module in modules:
            self.load(module)
        for module in ("kvm_intel", "dm_mod"):
            self.runner.when("modprobe", "--", module, effect=partial(self.load, module))
            self.runner.when("modprobe", "-r", "--", module, effect=partial(self.unload, module))
        self.trees = FakeTrees(self.files)
        self.provider = Kmod(self.runner, self.files, self.trees)

    def load(self, module: str) -> None:
        text = self.text("/proc/modules") or ""
        self.files.put("/proc/modules", f"{text}{module} 16384 0 - Live 0x0\n")

    def unload(self, module: str) -> None:
        lines = (self.text("/proc/modules") or "").splitlines(keepends=True)
        self.files.put("/proc/modules", "".join(one for one in lines if one.split()[0] != module))

    def text(self, path: str) -> str | None:
        node = self.files.nodes.get(path)
        return node.content.decode() if node else None

    def has(self, module: str = "kvm_intel") -> bool:
        return module in read_loaded(self.text("/proc/modules") or "")

    @property
    def seen(self) -> tuple[bool, str | None, str | None]:
        return self.has(), self.text(BOOT), self.text(SETTINGS)


@pytest.mark.parametrize(
    ("properties", "place"),
    [
        pytest.param({"name": "-r"}, "name", id="a name like an option"),
        pytest.param({"name": "kvm\ninstall x /bin/sh"}, "name", id="a newline in the name"),
        pytest.param({"name": "kvm\0"}, "name", id="a NUL"),
        pytest.param({"name": "kvm:1"}, "name", id="a colon"),
        pytest.param({"name": "../../etc/passwd"}, "name", id="a path upwards"),
        pytest.param({"name": "/lib/modules/x.ko"}, "name", id="an absolute path"),
        pytest.param({"name": "kvm nested=1"}, "name", id="an option in the name"),
        pytest.param({"name": "kvm*"}, "name", id="a pattern"),
        pytest.param({"name": "#kvm"}, "name", id="a comment"),
        pytest.param({"name": "kvm\\"}, "name", id="a backslash"),
        pytest.param({"name": "kvm.nested"}, "name", id="a dot"),
        pytest.param({"name": "kvö"}, "name", id="a letter outside ASCII"),
        pytest.param({"name": ""}, "name", id="an empty name"),
        pytest.param({"name": "a" * 56}, "name", id="an overlong name"),
        pytest.param({"options": {"a": "1\ninstall kvm /bin/sh"}}, "options.a", id="a second directive"),
        pytest.param({"options": {"a": "1\r"}}, "options.a", id="a carriage return"),
        pytest.param({"options": {"a": "1\0"}}, "options.a", id="a NUL in a value"),
        pytest.param({"options": {"a": "1\\"}}, "options.a", id="a line that continues"),
        pytest.param({"options": {"a": "1 # x"}}, "options.a", id="a comment in a value"),
        pytest.param({"options": {"a": '1" b="2'}}, "options.a", id="a quote"),
        pytest.param({"options": {"a": "ä"}}, "options.a", id="a value outside ASCII"),
        pytest.param({"options": {"a": " 1"}}, "options.a", id="a space before a value"),
        pytest.param({"options": {"a": "1\t2"}}, "options.a", id="a tab"),
        pytest.param({"options": {"a b": "1"}}, "options", id="a space in the name of an option"),
        pytest.param({"options": {"a=1 b": "1"}}, "options", id="two options in a name"),
        pytest.param({"options": {"": "1"}}, "options", id="an option without a name"),
        pytest.param({"options": {"-a": "1"}}, "options", id="a hyphen before an option"),
        pytest.param({"options": {"a\n": "1"}}, "options", id="a newline in the name of an option"),
        pytest.param({"options": {"a-b": "1", "a_b": "2"}}, "options.a_b", id="the same option twice"),
        pytest.param({"options": {"a": "1" * 5000}}, "options", id="a huge value"),
        pytest.param({"options": {f"a{n}": "1" for n in range(101)}}, "options", id="too many options"),
        pytest.param({"ensure": "absent", "options": {"a": "1"}}, "options", id="options of nothing"),
        pytest.param({"blacklisted": True}, "blacklisted", id="present and blacklisted"),
        pytest.param({"ensure": "absent", "persistent": True}, "persistent", id="absent, but at boot"),
        pytest.param({"apply": False, "loaded": True}, "loaded", id="loaded and not managed"),
    ],
)
def test_hostile_properties_are_refused(properties: dict[str, Any], place: str) -> None:
    with pytest.raises(PropertyError) as caught:
        check(wanted(**properties))

    assert caught.value.place is not None
    assert caught.value.place.path == f"$.{place}"


def test_all_errors_are_reported_at_once() -> None:
    with pytest.raises(PropertyError) as caught:
        check(wanted("a b", blacklisted=True, options={"a": "\n"}))

    assert [one.place.path for one in caught.value.others if one.place] == ["$.blacklisted", "$.options.a"]


@pytest.mark.parametrize(
    "properties",
    [
        pytest.param({"name": "8021q"}, id="digits"),
        pytest.param({"name": "nf-conntrack"}, id="a hyphen"),
        pytest.param({"options": {"dyndbg": "file a.c +p; func b =_"}}, id="a value with spaces"),
        pytest.param({"options": {"ports": "0xca2,0xca4", "x": ""}}, id="a list, and an empty value"),
    ],
)
def test_usual_properties_are_accepted(properties: dict[str, Any]) -> None:
    check(wanted(**properties))


def test_hyphens_and_underscores_are_the_same_module() -> None:
    one = wanted("nf-conntrack")

    assert one.module == "nf_conntrack"
    assert one.boot_path == "/etc/modules-load.d/ccm-nf_conntrack.conf"


def test_the_policy_sees_the_files_and_the_module() -> None:
    assert reach(wanted(apply=False)).paths == (BOOT, SETTINGS, "/sys/module/kvm_intel")


@pytest.mark.parametrize(
    ("value", "is_command"),
    [
        ("/usr/local/bin/helper", True),
        ("1,/bin/sh", True),
        ("file a.c +p", False),
        ("drivers/usb", False),
    ],
)
def test_value_with_an_absolute_path_counts_as_a_command(value: str, is_command: bool) -> None:
    commands = reach(wanted(options={"usermode_helper": value})).commands

    assert commands == (("`options.usermode_helper`",) if is_command else ())


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        pytest.param(ModuleSettings(blacklisted=True), BLACKLIST, id="blacklisted"),
        pytest.param(ModuleSettings(options={"nested": "1"}), NESTED, id="an option"),
        pytest.param(
            ModuleSettings(options={"a": "", "b": "x y=z", "c-d": "1,2"}),
            '# Managed by ccm\noptions kvm_intel a= b="x y=z" c-d=1,2\n',
            id="several options",
        ),
    ],
)
def test_settings_are_read_as_they_were_written(settings: ModuleSettings, text: str) -> None:
    assert settings_text("kvm_intel", settings) == text
    assert read_settings("kvm_intel", text) == settings


@pytest.mark.parametrize(
    "text",
    [
        "",
        "options kvm_intel nested=1\n",
        f"{NESTED}install kvm_intel /bin/true\n",
        f"{NESTED}\n",
        "# Managed by ccm\noptions kvm_intel nested=1 # x\n",
        "# Managed by ccm\noptions kvm_intel\tnested=1\n",
        "# Managed by ccm\noptions other nested=1\n",
    ],
)
def test_other_texts_are_not_taken_for_settings_of_this_type(text: str) -> None:
    assert read_settings("kvm_intel", text) is None


def test_the_files_of_the_host_are_read() -> None:
    assert list(read_boot("# a\n;b\n\n nf-conntrack \nloop max_loop=8\n")) == [
        "nf-conntrack",
        "loop max_loop=8",
    ]
    assert list(
        read_blacklist("#blacklist a\nblacklist pc-spkr\nblacklist \\\n floppy # x\nalias a b\nblacklist\n")
    ) == [
        "pc_spkr",
        "floppy",
    ]
    assert read_built_in("kernel/fs/ext4/ext4.ko\nkernel/a-b.ko.xz\n\n") == {"ext4", "a_b"}
    loaded = read_loaded(f"{KERNEL}odd\nx 1 - - Live 0x0\n")
    assert [(name, one.references, one.used_by) for name, one in loaded.items()] == [
        ("nf_nat", 2, ("nft_chain_nat", "xt_MASQUERADE")),
        ("dm_mod", 3, ()),
        ("ipv6", 1, ("[permanent]",)),
        ("x", -1, ()),
    ]


LOADED, WITH_OPTIONS = "Would have loaded the module", "Would have written its options and loaded the module"
UNLOADED = "Would have unloaded the module"


@pytest.mark.parametrize(
    ("properties", "before", "noop"),
    [
        pytest.param(wanted(), (False, None, None), [LOADED, f"Would have written {BOOT}"], id="nothing"),
        pytest.param(wanted(), (True, None, None), [f"Would have written {BOOT}"], id="only loaded"),
        pytest.param(wanted(), (False, BOOT_TEXT, None), [LOADED], id="only at boot"),
        pytest.param(wanted(), (True, BOOT_TEXT, None), [], id="stable"),
        pytest.param(
            wanted("kvm-intel", options={"nested": "1"}),
            (True, BOOT_TEXT, NESTED),
            [],
            id="stable with options",
        ),
        pytest.param(
            wanted(options={"nested": "1"}),
            (False, BOOT_TEXT, None),
            [WITH_OPTIONS],
            id="options and loading",
        ),
        pytest.param(
            wanted(options={"nested": "0"}),
            (True, BOOT_TEXT, NESTED),
            [f"Would have written {SETTINGS}"],
            id="other options",
        ),
        pytest.param(
            wanted(), (True, BOOT_TEXT, NESTED), [f"Would have removed {SETTINGS}"], id="options too many"
        ),
        pytest.param(
            wanted(),
            (True, "kvm_intel\nx\n", None),
            [f"Would have written {BOOT}"],
            id="another module in the file",
        ),
        pytest.param(wanted(persistent=False), (True, None, None), [], id="not at boot"),
        pytest.param(
            wanted(persistent=False),
            (True, BOOT_TEXT, None),
            [f"Would have removed {BOOT}"],
            id="not loaded at boot",
        ),
        pytest.param(wanted(loaded=False), (True, BOOT_TEXT, None), [UNLOADED], id="only at boot is wanted"),
        pytest.param(
            wanted(apply=False), (False, None, None), [f"Would have written {BOOT}"], id="only files"
        ),
        pytest.param(absent(), (False, None, None), [], id="absent"),
        pytest.param(
            absent(),
            (True, BOOT_TEXT, NESTED),
            [UNLOADED, f"Would have removed {SETTINGS}", f"Would have removed {BOOT}"],
            id="all is too much",
        ),
        pytest.param(
            absent(blacklisted=True),
            (False, BOOT_TEXT, None),
            [f"Would have written {SETTINGS}", f"Would have removed {BOOT}"],
            id="blacklisted",
        ),
        pytest.param(absent(blacklisted=True), (False, None, BLACKLIST), [], id="stable and blacklisted"),
        pytest.param(
            absent(), (False, None, BLACKLIST), [f"Would have removed {SETTINGS}"], id="not blacklisted"
        ),
        pytest.param(absent(loaded=True), (True, None, None), [], id="absent and loaded by hand"),
        pytest.param(
            absent(apply=False), (True, BOOT_TEXT, None), [f"Would have removed {BOOT}"], id="files go"
        ),
    ],
)
async def test_steps_follow_from_the_desired_and_the_current_state(
    properties: KernelModuleProperties, before: tuple[bool, str | None, str | None], noop: list[str]
) -> None:
    host = put(before)
    check(properties)

    decision = decide(properties, await host.provider.status(properties), DecisionContext())

    assert decision.error is None
    assert [step.noop for step in decision.steps] == noop


def put(before: tuple[bool, str | None, str | None]) -> Host:
    loaded, boot, settings = before
    host = Host(KERNEL, *(["kvm_intel"] if loaded else []))
    for path, text in ((BOOT, boot), (SETTINGS, settings)):
        if text is not None:
            host.files.put(path, text)
    return host


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        pytest.param(
            absent("nf-nat"),
            "nf_nat cannot be unloaded: it is used by nft_chain_nat, xt_MASQUERADE; set `apply",
            id="used",
        ),
        pytest.param(absent("dm_mod"), "dm_mod cannot be unloaded: it is in use (3 references)", id="in use"),
        pytest.param(absent("ipv6"), "ipv6 cannot be unloaded: it is permanent", id="permanent"),
        pytest.param(absent("ext4"), "ext4 cannot be unloaded: it is built into the kernel", id="built in"),
        pytest.param(
            wanted("a-b", options={"c": "1"}),
            "set them on the kernel command line as `a_b.c=…`",
            id="options of a built-in one",
        ),
        pytest.param(absent("loop"), "loop is loaded at boot because /etc/modules lists it", id="listed"),
        pytest.param(
            wanted("loop", persistent=False),
            "/etc/modules lists it: remove that line",
            id="listed, and not persistent",
        ),
        pytest.param(
            absent("i2c-dev"), "/usr/lib/modules-load.d/i2c.conf lists it", id="listed by a package"
        ),
        pytest.param(
            wanted("pcspkr"),
            "because /usr/lib/modprobe.d/black.conf blacklists it",
            id="blacklisted elsewhere",
        ),
        pytest.param(
            wanted("dir", persistent=False), "it is a directory", id="a directory in the place of a file"
        ),
    ],
)
async def test_what_cannot_be_reached_is_an_error_before_any_change(
    properties: KernelModuleProperties, message: str
) -> None:
    host = listing_host()
    nodes = dict(host.files.nodes)

    decision = decide(properties, await host.provider.status(properties), DecisionContext())
    event = await manage(TYPE, host.provider, properties)

    assert isinstance(decision.error, FileError)
    assert message in str(decision.error)
    assert event.failed
    assert (host.runner.lines, host.files.nodes) == ([], nodes)


def listing_host() -> Host:
    host = Host()
    host.files.put("/etc/modules", "# x\nloop\n")
    host.files.put("/usr/lib/modules-load.d/i2c.conf", "i2c-dev\n")
    host.files.put("/usr/lib/modules-load.d/masked.conf", "masked\n")
    host.files.put("/etc/modules-load.d/masked.conf", "")
    host.files.put("/usr/lib/modprobe.d/black.conf", "blacklist pcspkr\n")
    host.files.put_directory("/etc/modprobe.d/ccm-dir.conf")
    return host


@pytest.mark.parametrize(
    "properties",
    [
        pytest.param(wanted("ext4"), id="built in"),
        pytest.param(wanted("loop", apply=False), id="listed by another file"),
        pytest.param(absent("masked"), id="listed by a file that another one replaces"),
        pytest.param(wanted("nf_nat", persistent=False), id="in use and wanted"),
    ],
)
async def test_what_another_file_or_the_kernel_does_is_stable(properties: KernelModuleProperties) -> None:
    event = await manage(TYPE, listing_host().provider, properties)

    assert (event.changed, event.error) == (False, [])


async def test_a_module_that_another_file_lists_can_be_blacklisted() -> None:
    host = listing_host()

    event = await manage(TYPE, host.provider, absent("loop", blacklisted=True))

    assert (event.changed, event.error) == (True, [])
    assert host.text("/etc/modprobe.d/ccm-loop.conf") == "# Managed by ccm\nblacklist loop\n"


async def test_a_built_in_module_gets_a_file_if_it_must_be_persistent() -> None:
    host = Host()

    await manage(TYPE, host.provider, wanted("ext4", persistent=True))

    assert host.text("/etc/modules-load.d/ccm-ext4.conf") == "# Managed by ccm\next4\n"


async def test_a_module_is_loaded_with_its_options_and_stable_afterwards() -> None:
    host = Host()
    options = wanted(options={"nested": "1"})

    first = await manage(TYPE, host.provider, options)
    second = await manage(TYPE, host.provider, options)

    assert (first.changed, first.error, second.changed, second.error) == (True, [], False, [])
    assert host.seen == (True, BOOT_TEXT, NESTED)
    assert host.runner.lines == ["modprobe -- kvm_intel"]


async def test_options_in_another_order_are_stable() -> None:
    host = Host()
    await manage(TYPE, host.provider, wanted(options={"nested": "1", "ept": "0"}))

    event = await manage(TYPE, host.provider, wanted(options={"ept": "0", "nested": "1"}))
    other = await manage(TYPE, host.provider, wanted(options={"ept": "1", "nested": "1"}))

    assert (event.changed, event.diff, event.error, other.changed) == (False, None, [], True)


async def test_the_directories_are_created() -> None:
    host = Host()
    del host.files.nodes["/etc/modules-load.d"], host.files.nodes["/etc/modprobe.d"]

    await manage(TYPE, host.provider, wanted(options={"nested": "1"}))

    assert host.seen == (True, BOOT_TEXT, NESTED)


async def test_a_module_is_unloaded_and_blacklisted() -> None:
    host = put((True, BOOT_TEXT, NESTED))

    event = await manage(TYPE, host.provider, absent(blacklisted=True))

    assert event.error == []
    assert host.seen == (False, None, BLACKLIST)
    assert host.runner.lines == ["modprobe -r -- kvm_intel"]


@pytest.mark.parametrize("before", [None, NESTED, "# by hand\n"])
async def test_a_module_that_cannot_be_loaded_leaves_the_files_as_they_were(before: str | None) -> None:
    host = put((False, None, before))
    host.runner = FakeRunner()
    host.runner.when("modprobe", code=1, stderr="modprobe: FATAL: Module kvm_intel not found\n")
    host.provider = Kmod(host.runner, host.files, host.trees)
    if before:
        host.files.nodes[SETTINGS].mode = 0o640

    event = await manage(TYPE, host.provider, wanted(options={"nested": "0"}))

    assert event.error == ["kvm_intel cannot be loaded: modprobe: FATAL: Module kvm_intel not found"]
    assert host.seen == (False, None, before)
    assert before is None or host.files.nodes[SETTINGS].mode == 0o640


async def test_a_modprobe_that_hangs_is_an_error() -> None:
    host = Host()
    host.runner = FakeRunner()
    host.runner.when("modprobe", hangs=True)

    event = await manage(TYPE, Kmod(host.runner, host.files, host.trees), wanted())

    assert "`modprobe` ran for 120 s and was killed because it hung" in event.error[0]
    assert host.seen == (False, None, None)


async def test_a_module_that_modprobe_does_not_load_is_an_error() -> None:
    host = Host()
    host.runner.when("modprobe", "--", "fs_xfs")

    event = await manage(TYPE, host.provider, wanted("fs-xfs"))

    assert event.failed
    assert "fs_xfs is not loaded: it may be an alias" in event.error[0]


async def test_a_kernel_without_modules_is_an_error_before_any_change() -> None:
    host = Host(None)

    event = await manage(TYPE, host.provider, wanted(options={"nested": "1"}))
    files = await manage(TYPE, host.provider, wanted(options={"nested": "1"}, apply=False))

    built_in = await manage(TYPE, host.provider, wanted("ext4"))

    assert "this kernel cannot load modules; set `apply: false`" in event.error[0]
    assert (built_in.changed, built_in.error) == (False, [])
    assert (files.changed, files.error, host.text(BOOT)) == (True, [], BOOT_TEXT)


async def test_a_sensitive_resource_writes_files_for_root_alone() -> None:
    host = Host()

    await manage(TYPE, host.provider, wanted(options={"key": "abc"}, sensitive=True))

    assert (host.files.nodes[SETTINGS].mode, host.files.nodes[BOOT].mode) == (0o600, 0o600)


@pytest.mark.parametrize("kind", ["symlink", "fifo", "huge"])
async def test_a_file_of_another_kind_is_an_error_before_any_change(kind: str) -> None:
    host = Host()
    if kind == "symlink":
        host.files.put_symlink(SETTINGS, "/etc/passwd")
    elif kind == "fifo":
        host.files.put_fifo(SETTINGS)
    else:
        host.files.put(SETTINGS, b"#" * (5 << 20))

    event = await manage(TYPE, host.provider, wanted())

    assert event.failed
    assert host.runner.lines == []
    assert host.has() is False


async def test_a_file_that_cannot_be_written_stays_as_it_was() -> None:
    host = put((True, None, NESTED))
    host.files.refuses[SETTINGS] = "No space left on device"

    event = await manage(TYPE, host.provider, wanted(options={"nested": "0"}))

    assert event.error == [f"{SETTINGS}: No space left on device"]
    assert host.seen == (True, None, NESTED)


async def test_a_thousand_modules_are_one_look() -> None:
    host = Host("".join(f"m{number} 1 0 - Live 0x0\n" for number in range(1000)))
    reads: list[str] = []
    read = host.files.read

    async def count(path: str, limit_bytes: int) -> bytes:
        reads.append(path)
        return await read(path, limit_bytes)

    host.files.read = count  # type: ignore[method-assign]

    states = await host.provider.look_ahead([wanted(f"m{number}") for number in range(1000)])

    assert all(one is not None and one.loaded for one in states)
    assert (reads, len(host.files.looked_at), host.runner.lines) == (["/proc/modules"], 2, [])


async def test_a_folder_that_cannot_be_read_is_an_error_of_each_resource() -> None:
    host = Host()
    host.files.put("/etc/modprobe.d/huge.conf", b"#" * (5 << 20))

    states = await host.provider.look_ahead([wanted(), wanted("dm_mod")])
    event = await manage(TYPE, host.provider, wanted())

    assert states == [None, None]
    assert "is the limit here" in event.error[0]


@pytest.mark.parametrize(
    ("before", "change"),
    [
        pytest.param((False, None, None), wanted(options={"nested": "1"}), id="nothing was there"),
        pytest.param((True, None, None), wanted(), id="loaded by hand"),
        pytest.param(
            (False, BOOT_TEXT, NESTED), wanted(options={"nested": "0"}), id="it was unloaded by hand"
        ),
        pytest.param((True, BOOT_TEXT, NESTED), absent(blacklisted=True), id="it was there"),
        pytest.param((False, None, BLACKLIST), wanted(), id="it was blacklisted"),
        pytest.param((True, None, BLACKLIST), absent(), id="blacklisted and loaded"),
        pytest.param((True, None, NESTED), wanted(), id="options and not at boot"),
        pytest.param((False, None, None), wanted(apply=False), id="only the files"),
        pytest.param((True, BOOT_TEXT, None), absent(apply=False), id="only the files, removed"),
    ],
)
async def test_an_undo_restores_the_kernel_and_the_files(
    before: tuple[bool, str | None, str | None], change: KernelModuleProperties
) -> None:
    host = put(before)
    found = await host.provider.status(change)
    kept = await earlier(change, found, Decision(), keep_nothing)

    await manage(TYPE, host.provider, change)
    changed = host.seen
    back = KernelModuleProperties(name=change.name, **kept.properties)
    check(back)
    event = await manage(TYPE, host.provider, back)

    assert event.error == []
    assert changed != before
    assert host.seen == before
    assert identify(await host.provider.status(back)) == identify(found)


@pytest.mark.parametrize(
    ("path", "text", "mode"),
    [
        pytest.param(BOOT, "kvm_intel\n", 0o644, id="another form"),
        pytest.param(SETTINGS, f"{NESTED}softdep x pre: y\n", 0o644, id="other lines"),
        pytest.param(SETTINGS, NESTED, 0o600, id="another mode"),
        pytest.param(SETTINGS, b"\xff", 0o644, id="not UTF-8"),
    ],
)
async def test_a_file_that_is_not_of_this_type_does_not_come_back(
    path: str, text: str | bytes, mode: int
) -> None:
    host = Host()
    host.files.put(path, text, mode=mode)

    kept = await earlier(wanted(), await host.provider.status(wanted()), Decision(), keep_nothing)

    assert kept.why_not == FOREIGN


async def test_a_diff_shows_properties_and_files() -> None:
    host = put((False, None, BLACKLIST))
    change = wanted(options={"nested": "1"})

    decision = decide(change, await host.provider.status(change), DecisionContext())
    assert decision.contents is not None
    contents = await decision.contents(host.provider)

    assert [(one.property, one.before, one.after) for one in decision.changes] == [
        ("loaded", "false", "true"),
        ("persistent", "false", "true"),
        ("blacklisted", "true", "false"),
        ("options", "", "nested=1"),
    ]
    assert [(one.path, one.before, one.after) for one in contents] == [
        (SETTINGS, BLACKLIST.encode(), NESTED.encode()),
        (BOOT, None, BOOT_TEXT.encode()),
    ]


@pytest.mark.parametrize(
    ("before", "ensure"),
    [
        pytest.param((True, None, None), "present", id="loaded"),
        pytest.param((False, BOOT_TEXT, None), "present", id="at boot"),
        pytest.param((False, None, NESTED), "present", id="with options"),
        pytest.param((False, None, BLACKLIST), "absent", id="blacklisted"),
    ],
)
async def test_the_state_is_present_if_the_kernel_or_a_file_has_the_module(
    before: tuple[bool, str | None, str | None], ensure: str
) -> None:
    state = await put(before).provider.status(wanted())

    assert state.ensure == ensure
