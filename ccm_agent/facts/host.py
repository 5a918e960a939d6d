"""`host`: the machine, its operating system, and whether it is virtualized."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

_FAMILIES = {
    "debian": ("debian", "ubuntu", "linuxmint", "raspbian", "Kylin", "cumuluslinux", "uos", "Deepin"),
    "fedora": ("fedora",),
    "rhel": (
        "oracle", "centos", "redhat", "rhel", "scientific", "enterpriseenterprise", "amazon", "xenserver",
        "cloudlinux", "ibm_powerkvm", "rocky", "almalinux",
    ),
    "suse": (
        "suse", "opensuse", "opensuse-leap", "opensuse-tumbleweed", "opensuse-tumbleweed-kubic", "sles", "sled",
        "caasp",
    ),
    "gentoo": ("gentoo",),
    "slackware": ("slackware",),
    "arch": ("arch",),
    "exherbo": ("exherbo",),
    "alpine": ("alpine",),
    "coreos": ("coreos",),
    "solus": ("solus",),
    "neokylin": ("neokylin",),
    "anolis": ("anolis",),
}  # fmt: skip
_FAMILY = {platform: family for family, platforms in _FAMILIES.items() for platform in platforms}

_DEBIAN_FLAVOURS = {
    "Ubuntu": "ubuntu",
    "LinuxMint": "linuxmint",
    "Kylin": "Kylin",
    "Cumulus Linux": "cumuluslinux",
    "uos": "uos",
    "Deepin": "Deepin",
}
_LSB_PLATFORMS = {
    "RedHat": "redhat",
    "Amazon": "amazon",
    "ScientificSL": "scientific",
    "XenServer": "xenserver",
}
_RELEASE = re.compile(r"release (\w[\d.]*)")

PLATFORM_FILES = (
    "oracle-release", "enterprise-release", "slackware-version", "debian_version", "neokylin-release", "redhat-release",
    "system-release", "gentoo-release", "SuSE-release", "arch-release", "alpine-release", "os-release", "lsb-release",
)  # fmt: skip
"""The files in /etc that `parse_platform` reads."""


class Platform(NamedTuple):
    """The distribution, such as `debian`, its family and version; "" for unknown values."""

    platform: str = ""
    family: str = ""
    version: str = ""


class Guest(NamedTuple):
    """
    The virtualization under which this machine runs, or that it provides. The role is `guest`, `host` or
    "".
    """

    system: str = ""
    role: str = ""


def gather(root: Path = Path("/")) -> dict[str, Any]:
    """Return the `host` family, read from the proc, sys and etc below `root`."""
    proc = root / "proc"
    uname = os.uname()
    platform = parse_platform({name: _text(root / "etc" / name) for name in PLATFORM_FILES})
    guest = parse_guest(lambda name: _text(root / name), lambda name: (root / name).exists())
    uptime = float(_text(proc / "uptime").split()[0])
    info = {
        "hostname": socket.gethostname(),
        "uptime": int(uptime),
        "bootTime": _boot_time(_text(proc / "stat"), uptime, guest),
        "procs": _processes(proc),
        "os": "linux",
        "platform": platform.platform,
        "platformFamily": platform.family,
        "platformVersion": platform.version,
        "kernelVersion": uname.release,
        "kernelArch": uname.machine,
        "virtualizationSystem": guest.system,
        "virtualizationRole": guest.role,
        "hostId": host_id(lambda name: _text(root / name)),
    }
    return {"info": info}


def parse_platform(etc: Mapping[str, str]) -> Platform:
    """
    Determine the distribution from release files.

    Args:
        etc: Contents of the `PLATFORM_FILES`, by name; "" for a missing file.

    An unknown family is read from ID_LIKE in os-release.

    Source: the order of gopsutil, which CCM uses for its facts.
    """
    platform, version = _platform(etc)
    platform = platform.strip('"')
    family = _FAMILY.get(platform, "")
    if not family:
        like = parse_assignments(etc.get("os-release", "")).get("ID_LIKE", "").split()
        family = next((_FAMILY[one] for one in like if one in _FAMILY), "")
    return Platform(platform, family, version)


def _platform(etc: Mapping[str, str]) -> tuple[str, str]:
    lsb = parse_assignments(etc.get("lsb-release", ""))
    maker, release = lsb.get("DISTRIB_ID", ""), lsb.get("DISTRIB_RELEASE", "")
    for name in ("oracle-release", "enterprise-release"):
        if text := etc.get(name, ""):
            return "oracle", _redhat_version(text)
    if text := etc.get("slackware-version", ""):
        return "slackware", text.strip().lower().removeprefix("slackware ")
    if text := etc.get("debian_version", ""):
        if maker in _DEBIAN_FLAVOURS:
            return _DEBIAN_FLAVOURS[maker], release
        return "debian", text.strip().split("\n")[0]
    for name in ("neokylin-release", "redhat-release", "system-release"):
        if text := etc.get(name, ""):
            lower = text.strip().lower()
            return "redhat" if "red hat" in lower else lower.split(" ")[0], _redhat_version(text)
    if text := etc.get("gentoo-release", ""):
        return "gentoo", _redhat_version(text)
    if text := etc.get("SuSE-release", ""):
        parts = re.findall(r"(?:VERSION|PATCHLEVEL) = ([\d.]+)", text)
        return "opensuse" if "opensuse" in text.lower() else "suse", ".".join(parts)
    if etc.get("arch-release", ""):
        return "arch", release
    if text := etc.get("alpine-release", ""):
        return "alpine", text.strip().split("\n")[0]
    if text := etc.get("os-release", ""):
        found = parse_assignments(text)
        name = found.get("ID", "")
        return "amazon" if name == "amzn" else name, found.get("VERSION_ID", "")
    return _LSB_PLATFORMS.get(maker, maker.lower()), release


def parse_assignments(text: str) -> dict[str, str]:
    """Parse the `NAME=value` lines of os-release or lsb-release, with or without quotes."""
    found = {}
    for line in text.splitlines():
        name, mark, value = line.partition("=")
        if mark and not name.startswith("#"):
            found[name.strip()] = value.strip().strip("\"'")
    return found


def parse_guest(read: Callable[[str], str], exists: Callable[[str], bool]) -> Guest:
    """
    Detect virtualization from files of the kernel.

    Args:
        read: Returns the content of a path below the root, such as `proc/modules`; "" if it cannot be read.
        exists: Returns whether a path exists below the root.

    Later checks take precedence: a container in a virtual machine is a container.
    """
    guest = Guest()
    if exists("proc/xen"):
        guest = Guest("xen", "host" if "control_d" in read("proc/xen/capabilities") else "guest")
    modules = read("proc/modules")
    for module, found in (
        ("kvm", Guest("kvm", "host")),
        ("hv_util", Guest("hyperv", "guest")),
        ("vboxdrv", Guest("vbox", "host")),
        ("vboxguest", Guest("vbox", "guest")),
        ("vmware", Guest("vmware", "guest")),
    ):
        if module in modules:
            guest = found
            break
    if re.search("QEMU Virtual CPU|Common KVM processor|Common 32-bit KVM processor", read("proc/cpuinfo")):
        guest = Guest("kvm", "guest")
    if "virtio-pci" in read("proc/bus/pci/devices"):
        guest = guest._replace(role="guest")
    if exists("proc/bc/0"):
        guest = Guest("openvz", "host")
    elif exists("proc/vz"):
        guest = Guest("openvz", "guest")
    return _container(read, exists, guest)


def _container(read: Callable[[str], str], exists: Callable[[str], bool], guest: Guest) -> Guest:
    if re.search("s_context:|VxID:", read("proc/self/status")):
        guest = guest._replace(system="linux-vserver")
    if "container=lxc" in read("proc/1/environ"):
        guest = Guest("lxc", "guest")
    cgroup = read("proc/self/cgroup")
    for word, system in (("lxc", "lxc"), ("docker", "docker"), ("machine-rkt", "rkt")):
        if word in cgroup:
            guest = Guest(system, "guest")
            break
    else:
        if exists("usr/bin/lxc-version"):
            guest = Guest("lxc", "host")
    if exists(".dockerenv"):
        guest = Guest("docker", "guest")
    return guest


def host_id(read: Callable[[str], str]) -> str:
    """
    Return an ID that is unique to this machine: the firmware's UUID, else /etc/machine-id, else the boot ID.

    Args:
        read: Returns the content of a path below the root; "" if it cannot be read (the firmware's UUID requires root).
    """
    if uuid := read("sys/class/dmi/id/product_uuid").strip():
        return uuid.lower()
    machine = read("etc/machine-id").strip()
    if len(machine) == 32:
        return "-".join((machine[:8], machine[8:12], machine[12:16], machine[16:20], machine[20:]))
    return read("proc/sys/kernel/random/boot_id").strip().lower()


def _boot_time(stat: str, uptime: float, guest: Guest) -> int:
    if guest in (Guest("lxc", "guest"), Guest("docker", "guest")):
        # in a container, btime is the host's boot time
        return int(time.time() - uptime)
    found = re.search(r"^btime (\d+)", stat, re.MULTILINE)
    return int(found[1]) if found else int(time.time() - uptime)


def _processes(proc: Path) -> int:
    with os.scandir(proc) as entries:
        return sum(1 for entry in entries if entry.name.isdecimal())


def _redhat_version(text: str) -> str:
    lower = text.lower()
    if "rawhide" in lower:
        return "rawhide"
    found = _RELEASE.search(lower)
    return found[1] if found else ""


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
