"""Files of kernel modules, as kmod and systemd read them. The kernel of these machines cannot load modules."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import testenv

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]

MODULES = """\
set -e
folder=/lib/modules/$(uname -r)
mkdir -p $folder/kernel
for module in t_intel t_floppy t_loop; do cp /root/module.ko $folder/kernel/$module.ko; done
echo kernel/lib/t-builtin.ko > $folder/modules.builtin
depmod 2>/dev/null
"""
OBSERVE = """modprobe --show-depends t-intel | sed 's/ $//'
modprobe --showconfig | grep -E '(options|blacklist) t_'
SYSTEMD_LOG_LEVEL=debug SYSTEMD_LOG_TARGET=console /usr/lib/systemd/systemd-modules-load 2>&1 | grep t_
stat -c '%a %U %n' /etc/mod*.d/ccm-*
true
"""


def empty_module() -> bytes:
    """Return an ELF object with a license and no code, which is enough for depmod and modprobe."""
    names, info = b"\0.modinfo\0.shstrtab\0", b"license=GPL\0"
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 1, 62, 1, 0, 0, 64, 0, 64, 0, 0, 64, 3, 2
    )
    offset = len(header) + 3 * 64
    rows = ((0, 0, 0, 0), (1, 1, offset, len(info)), (10, 3, offset + len(info), len(names)))
    sections = [
        struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, at, size, 0, 0, 1, 0) for name, kind, at, size in rows
    ]
    return b"".join([header, *sections, info, names])


@pytest.fixture(params=["apt", "dnf"])
def machine(only: Callable[[str], testenv.Node], request: pytest.FixtureRequest) -> Iterator[testenv.Node]:
    node = only(request.param)
    node.path("/root/module.ko").write_bytes(empty_module())
    node.run("sh", "-c", MODULES)
    yield node
    node.run("sh", "-c", "rm -f /etc/mod*.d/ccm-* /etc/modules /etc/modprobe.d/site.conf")


def apply(machine: testenv.Node, program: str, name: str, **properties: Any) -> tuple[int, str]:
    resources = [{"kernel_module": [{name: properties}]}]
    machine.path("/root/one.yaml").write_text(json.dumps({"ccm": {"resources": resources}}))
    done = machine.run(program, "apply", "/root/one.yaml", check=False, timeout=120)
    return done.returncode, done.stdout + done.stderr


def test_what_this_kernel_cannot_do_is_an_error_before_any_change(
    machine: testenv.Node, program: str
) -> None:
    before = machine.run("sh", "-c", OBSERVE).stdout

    code, output = apply(machine, program, "t_intel", options={"nested": "1"})
    built_in, _ = apply(machine, program, "t_builtin")
    removed, why = apply(machine, program, "t_builtin", ensure="absent")

    assert (code, built_in, removed) == (2, 0, 2)
    assert "t_intel cannot be loaded: this kernel cannot load modules" in output
    assert "t_builtin cannot be unloaded: it is built into the kernel" in why
    assert machine.run("sh", "-c", OBSERVE).stdout == before


def test_a_module_that_another_file_lists_is_not_loaded_when_it_is_blacklisted(
    machine: testenv.Node, program: str
) -> None:
    machine.path("/etc/modules").write_text("t-floppy\n")

    before = machine.run("sh", "-c", OBSERVE).stdout
    code, output = apply(machine, program, "t_floppy", ensure="absent", apply=False)
    blacklisted, _ = apply(machine, program, "t_floppy", ensure="absent", blacklisted=True, apply=False)

    assert (code, blacklisted) == (2, 0)
    assert "t_floppy is loaded at boot because /etc/modules lists it" in output
    assert "Failed to insert module 't_floppy'" in before
    assert "'t_floppy' is deny-listed" in machine.run("sh", "-c", OBSERVE).stdout


def test_an_import_changes_nothing_and_restores(machine: testenv.Node, program: str) -> None:
    machine.path("/etc/modules").write_text("# of this host\nt-loop\n")
    machine.path("/etc/modprobe.d/site.conf").write_text("softdep t_loop pre: t_intel\n")
    apply(machine, program, "t_intel", options={"nested": "1"}, apply=False)
    apply(machine, program, "t_floppy", ensure="absent", blacklisted=True, apply=False)
    before = machine.run("sh", "-c", OBSERVE).stdout

    told = json.loads(machine.run(program, "import", "kernel_module", "-o", "/root/site", "--json").stdout)

    assert [one["name"] for one in told["resources"]] == ["t_floppy", "t_intel", "t_loop"]
    assert [one["name"] for one in told["left_out"]] == ["/etc/modprobe.d/site.conf"]

    machine.run("sh", "-c", "rm /etc/mod*.d/ccm-*")
    for changed in (2, 0):
        done = machine.run(program, "apply", "/root/site/manifest.yaml", "--json", timeout=120)
        events = [json.loads(line) for line in done.stdout.splitlines()]
        assert [one["record"] == "event" and one["event"]["changed"] for one in events].count(True) == changed
    machine.run("rm", "-r", "/root/site")
    assert machine.run("sh", "-c", OBSERVE).stdout == before


def test_the_command_line_manages_and_shows_a_module(machine: testenv.Node, program: str) -> None:
    status = (program, "status", "kernel_module", "t_loop", "--json")
    before = json.loads(machine.run(*status).stdout)

    machine.run(program, "ensure", "kernel_module", "t_loop", "--options", "max_loop=8", "--no-apply")

    after = json.loads(machine.run(*status).stdout)
    assert (before["ensure"], after["ensure"], after["options"]) == ("absent", "present", {"max_loop": "8"})
