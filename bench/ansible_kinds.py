"""
The kinds that `ansible` compares: the resources, states and tasks of each, and how a container is reset to its initial state.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.services import UNIT

USERS, SYSCTLS, FILES, EDITS, SERVICES, UNITS = 1_000, 1_000, 20, 500, 200, 200
ACCOUNTS = ["passwd", "group", "shadow", "gshadow", "subuid", "subgid"]
SETTINGS = {
    "accept_local": 1, "accept_redirects": 0, "accept_source_route": 1, "arp_accept": 1, "arp_announce": 2,
    "arp_filter": 1, "arp_ignore": 1, "arp_notify": 1, "disable_policy": 1, "disable_xfrm": 1,
    "force_igmp_version": 2, "log_martians": 1, "medium_id": 3, "promote_secondaries": 1, "proxy_arp": 1,
    "rp_filter": 2, "secure_redirects": 0, "send_redirects": 0, "shared_media": 0, "src_valid_mark": 1,
}  # fmt: skip
"""The settings of each network interface. A container may change its own."""

LINKS = SYSCTLS // len(SETTINGS)
SYSCTL_FILE, EDITED = Path("/etc/sysctl.d/70-bench.conf"), Path("/srv/bench")
LINES = 200
"""Lines of each edited file."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """
    The resources of one kind, for each program.

    Attributes:
        count: The number of changes.
        ours, salt: The resources, and the states.
        task, items: Ansible's task for one item, and the items. Empty if Ansible has no equivalent.
        reset: Restores the initial state of the container.
        done: Counts the items that are in the desired state.
    """

    count: int
    ours: list[dict[str, Any]]
    salt: dict[str, Any]
    task: dict[str, Any]
    items: list[Any]
    reset: Callable[[], None]
    done: Callable[[], int]


def users() -> Kind:
    """Return users without a home directory."""
    names = [f"bench{i}" for i in range(USERS)]
    before = {name: Path("/etc", name).read_bytes() for name in ACCOUNTS if Path("/etc", name).exists()}

    def reset() -> None:
        for name, text in before.items():
            Path("/etc", name).write_bytes(text)

    return Kind(
        count=USERS,
        ours=[{"user": [{name: {"create_home": False, "shell": "/bin/sh"}} for name in names]}],
        salt={name: {"user.present": [{"createhome": False}, {"shell": "/bin/sh"}]} for name in names},
        task={"user": {"name": "{{ item }}", "create_home": False, "shell": "/bin/sh"}},
        items=names,
        reset=reset,
        done=lambda: Path("/etc/passwd").read_text().count("\nbench"),
    )


def sysctls() -> Kind:
    """Return parameters of network interfaces, live and in a file."""
    links = [f"{side}{i}" for i in range(LINKS // 2) for side in ("left", "right")]
    for i in range(LINKS // 2):
        subprocess.run(["ip", "link", "add", f"left{i}", "type", "veth", "peer", f"right{i}"], check=True)
    wanted = {f"net.ipv4.conf.{link}.{key}": value for link in links for key, value in SETTINGS.items()}
    paths = {name: Path("/proc/sys", name.replace(".", "/")) for name in wanted}
    before = {name: path.read_text() for name, path in paths.items()}

    def reset() -> None:
        SYSCTL_FILE.unlink(missing_ok=True)
        for name, path in paths.items():
            path.write_text(before[name])

    def done() -> int:
        lines = {line.replace(" ", "") for line in SYSCTL_FILE.read_text().splitlines()}
        return sum(
            paths[name].read_text().strip() == str(value) and f"{name}={value}" in lines
            for name, value in wanted.items()
        )

    file = str(SYSCTL_FILE)
    options = {"sysctl_file": file, "sysctl_set": True, "reload": False}
    return Kind(
        count=SYSCTLS,
        ours=[{"sysctl": [{name: {"value": value, "file": file}} for name, value in wanted.items()]}],
        salt={
            name: {"sysctl.present": [{"value": value}, {"config": file}]} for name, value in wanted.items()
        },
        task={"ansible.posix.sysctl": {"name": "{{ item[0] }}", "value": "{{ item[1] }}", **options}},
        items=[list(pair) for pair in wanted.items()],
        reset=reset,
        done=done,
    )


def edits(*, together: bool = False) -> Kind:
    """Return lines of files: each separately, or all lines of a file in one resource, for which Ansible has no module."""
    EDITED.mkdir(exist_ok=True)
    paths = [EDITED / f"{i}.conf" for i in range(FILES)]
    keys = [f"key{i}" for i in range(0, LINES, LINES * FILES // EDITS)]
    changes = [(str(path), key) for path in paths for key in keys]

    def reset() -> None:
        for path in paths:
            path.write_text("".join(f"key{i} = old\n" for i in range(LINES)))

    def edit(key: str) -> dict[str, Any]:
        return {"match": f"^{key} =", "line": f"{key} = new"}

    def replace(path: str, key: str) -> dict[str, Any]:
        options = {
            "pattern": f"^{key} =.*$",
            "repl": f"{key} = new",
            "append_if_not_found": True,
            "backup": False,
        }
        return {"file.replace": [{"name": path}, *({name: value} for name, value in options.items())]}

    salt: dict[str, Any]
    if together:
        ours = [{"edit": [{str(path): {"edits": [edit(key) for key in keys]}} for path in paths]}]
        # built again for each path, because Salt interprets a list that YAML repeats by anchor as several functions
        salt = {
            str(path): {"file.keyvalue": [{"key_values": dict.fromkeys(keys, "new")}, {"separator": " = "}]}
            for path in paths
        }
    else:
        ours = [{"edit": [{f"{path} {key}": {"path": path, **edit(key)}} for path, key in changes]}]
        salt = {f"{path} {key}": replace(path, key) for path, key in changes}
    task = {"path": "{{ item[0] }}", "regexp": "^{{ item[1] }} =", "line": "{{ item[1] }} = new"}
    return Kind(
        count=EDITS,
        ours=ours,
        salt=salt,
        task={} if together else {"lineinfile": task},
        items=[list(pair) for pair in changes],
        reset=reset,
        done=lambda: sum(path.read_text().count(" = new\n") for path in paths),
    )


def edits_together() -> Kind:
    """Return the same lines, with all lines of a file in one resource."""
    return edits(together=True)


def services() -> Kind:
    """Return units that start immediately."""
    names = [f"bench-{i}" for i in range(SERVICES)]
    for name in names:
        Path(f"/etc/systemd/system/{name}.service").write_text(UNIT)
    subprocess.run(["systemctl", "daemon-reload"], check=True)

    def reset() -> None:
        subprocess.run(["systemctl", "disable", "--now", "--quiet", *names], check=True)

    def done() -> int:
        states = [
            subprocess.run(["systemctl", verb, *names], check=False, capture_output=True, text=True).stdout
            for verb in ("is-active", "is-enabled")
        ]
        pairs = zip(*(text.split() for text in states), strict=True)
        return sum(pair == ("active", "enabled") for pair in pairs)

    return Kind(
        count=SERVICES,
        ours=[{"service": [{name: {"ensure": "running", "enable": True}} for name in names]}],
        salt={name: {"service.running": [{"enable": True}]} for name in names},
        task={"systemd_service": {"name": "{{ item }}", "state": "started", "enabled": True}},
        items=names,
        reset=reset,
        done=done,
    )


def units() -> Kind:
    """Return unit files. `ccm` also verifies and loads them. Ansible and Salt only write them."""
    paths = [Path(f"/etc/systemd/system/bench-unit-{i}.service") for i in range(UNITS)]

    def reset() -> None:
        for path in paths:
            path.unlink(missing_ok=True)
        subprocess.run(["systemctl", "daemon-reload"], check=True)

    return Kind(
        count=UNITS,
        ours=[{"systemd_unit": [{path.name: {"content": UNIT}} for path in paths]}],
        salt={str(path): {"file.managed": [{"contents": UNIT}, {"mode": "0644"}]} for path in paths},
        task={"copy": {"dest": "{{ item }}", "content": UNIT, "mode": "0644"}},
        items=[str(path) for path in paths],
        reset=reset,
        done=lambda: sum(path.exists() and path.read_text().strip() == UNIT.strip() for path in paths),
    )


KINDS = {
    "users": users,
    "sysctls": sysctls,
    "edits": edits,
    "edits_together": edits_together,
    "services": services,
    "units": units,
}
