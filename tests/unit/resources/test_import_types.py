"""What `ccm import` finds of users, groups, jobs, kernel modules and parameters, file systems, hosts and settings."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ccm_agent.model.errors import FileError, UsageError
from ccm_agent.model.ports import KeyFile
from ccm_agent.resources.contract import ResourceContext
from ccm_agent.resources.cron.providers.existing import find_jobs
from ccm_agent.resources.existing import ExistingResources
from ccm_agent.resources.group.providers.existing import find_groups
from ccm_agent.resources.host.providers.existing import find_hosts
from ccm_agent.resources.kernel_module.providers.existing import find_modules
from ccm_agent.resources.mount.providers.existing import find_mounts
from ccm_agent.resources.sysctl.providers.existing import find_parameters
from ccm_agent.resources.system.model import KERNEL_HOSTNAME
from ccm_agent.resources.system.providers.existing import find_settings
from ccm_agent.resources.user.providers.existing import find_users
from ccm_agent.testing.clock import FakeClock
from ccm_agent.testing.files import FakeFiles
from ccm_agent.testing.kernel import FakeKernel
from ccm_agent.testing.key_files import FakeKeyFiles
from ccm_agent.testing.locks import FakeLocks
from ccm_agent.testing.runner import FakeRunner
from ccm_agent.testing.trees import FakeTrees
from tests.unit.resources.user.test_key_lines import A
from tests.unit.resources.user.test_passwords import HASH

Found = dict[str, dict[str, Any]]

PASSWD = """\
root:x:0:0:root:/root:/bin/bash
www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin
alice:x:1000:1000:Alice:/home/alice:/bin/bash
bob:x:1001:2000::/srv/bob:/bin/sh
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
"""
SHADOW = f"""\
root:*:20000:0:99999:7:::
alice:{HASH}:20000:0:99999:7:::
bob:!:20000:0:99999:7::1:
"""
GROUP = """\
root:x:0:
adm:x:4:alice
alice:x:1000:
web:x:2000:alice,www-data
empty:x:2001:
broken:x:2002
nogroup:x:65534:
"""
JOB = "# Managed by ccm\nMAILTO=ops@example.com\n@daily root /srv/report\n"


class Host:
    """A host in memory, with dpkg."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files, self.runner, self.keys = FakeFiles(), FakeRunner(), FakeKeyFiles()
        for folder in ("/etc", "/etc/cron.d", "/etc/sysctl.d", "/home", "/home/alice"):
            self.files.put_directory(folder)
        for name, text in (("passwd", PASSWD), ("shadow", SHADOW), ("group", GROUP)):
            self.files.put(f"/etc/{name}", text)
        found = "ccm_agent.resources.registry.HostProbe.has_program"
        monkeypatch.setattr(found, lambda _self, name: name == "dpkg-query")
        self.owners, self.conffiles = "", ""
        self.kernel = FakeKernel()

    async def find(
        self, find: Callable[[ResourceContext, str], Awaitable[ExistingResources]], argument: str = ""
    ) -> tuple[Found, list[tuple[str, str]]]:
        self.runner.when("dpkg-query", "--search", stdout=self.owners, code=1)
        self.runner.when("dpkg-query", "-W", stdout=self.conffiles)
        self.runner.when("dpkg-query", "--control-show", code=1)
        ports = {
            "locks": FakeLocks(),
            "key_files": self.keys,
            "trees": FakeTrees(self.files),
            "kernel": self.kernel,
        }
        context = SimpleNamespace(
            runner=self.runner,
            files=self.files,
            port=ports.__getitem__,
            directory="/root",
            clock=FakeClock(),
            may_run_commands=True,
        )
        self.found = found = await find(cast("ResourceContext", cast("Any", context)), argument)
        return (
            {one.name: one.properties for one in found.resources},
            [(one.name, one.reason) for one in found.left_out],
        )


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(monkeypatch)


@pytest.mark.parametrize(
    "find",
    [
        find_users,
        find_groups,
        find_jobs,
        find_parameters,
        find_mounts,
        find_hosts,
        find_settings,
        find_modules,
    ],
)
async def test_an_argument_is_refused(host: Host, find: Any) -> None:
    with pytest.raises(UsageError, match="takes no argument; use `"):
        await host.find(find, "alice")


async def test_users_of_people_are_found_without_their_password(host: Host) -> None:
    host.keys.files["/home/alice"] = KeyFile(content=f"{A}\n# a note\n".encode())

    found, left_out = await host.find(find_users)

    assert found == {
        "alice": {
            "uid": 1000,
            "gid": 1000,
            "groups": ["adm", "web"],
            "home": "/home/alice",
            "shell": "/bin/bash",
            "comment": "Alice",
            "authorized_keys": [A],
        },
        "bob": {
            "uid": 1001,
            "group": "web",
            "create_home": False,
            "locked": True,
            "home": "/srv/bob",
            "shell": "/bin/sh",
        },
    }
    assert left_out == [("alice", "its `password_hash` is a secret")]
    assert HASH not in str((found, left_out))


async def test_locks_that_cannot_be_read_are_named(host: Host) -> None:
    del host.files.nodes["/etc/shadow"]

    found, left_out = await host.find(find_users)

    assert "locked" not in found["bob"]
    assert left_out == [
        ("/etc/shadow", "cannot be read, so locks and expiry dates are not in the manifest; run it as root")
    ]


async def test_the_range_of_numbers_is_that_of_the_host(host: Host) -> None:
    host.files.put("/etc/login.defs", "# comment\nUID_MIN  1001\nUID_MAX 1001\nGID_MIN\t2001\n")

    users, _ = await host.find(find_users)
    groups, _ = await host.find(find_groups)

    assert list(users) == ["bob"]
    assert list(groups) == ["empty"]


async def test_a_user_that_no_manifest_can_describe_is_named(host: Host) -> None:
    host.files.put(
        "/etc/passwd", "alice:x:1000:1000::/home/../x:/bin/sh\n\x1b[2J:x:1001:5::/home/b:/bin/sh\n"
    )

    found, left_out = await host.find(find_users)

    assert found == {}
    assert [name for name, _ in left_out] == ["alice", "alice", "\ufffd[2J"]
    assert "`home` must be an absolute path" in left_out[0][1]


async def test_options_of_a_key_with_a_secret_are_named(host: Host) -> None:
    line = f'environment="API_TOKEN=hunter2222" {A}\n'
    host.keys.files["/home/alice"] = KeyFile(content=line.encode())

    found, left_out = await host.find(find_users)

    assert "authorized_keys" not in found["alice"]
    assert ("alice", "its `authorized_keys` contains what looks like a password or token") in left_out
    assert "hunter2222" not in str((found, left_out))


async def test_keys_that_cannot_be_managed_are_named(host: Host) -> None:
    host.keys.files["/home/alice"] = KeyFile(error="/home/alice/.ssh is a symlink")

    found, left_out = await host.find(find_users)

    assert "authorized_keys" not in found["alice"]
    assert ("alice", "/home/alice/.ssh is a symlink") in left_out


async def test_groups_have_the_members_that_are_no_people(host: Host) -> None:
    found, left_out = await host.find(find_groups)

    assert found == {"web": {"gid": 2000, "members": ["www-data"]}, "empty": {"gid": 2001}}
    assert left_out == []


async def test_a_host_without_account_files_is_an_error(host: Host) -> None:
    del host.files.nodes["/etc/passwd"]

    for find in (find_users, find_groups):
        with pytest.raises(FileError, match="/etc/passwd"):
            await host.find(find)


async def test_jobs_as_this_type_writes_them_are_found(host: Host) -> None:
    host.files.put("/etc/cron.d/report", JOB)
    host.files.put("/etc/cron.d/other", "5 4 * * * root  two   spaces\n")
    host.files.put("/etc/cron.d/key", "# Managed by ccm\nAPI_TOKEN=hunter2222\n@daily root /srv/report\n")
    host.files.put("/etc/cron.d/e2scrub", "@weekly root x\n")
    host.owners = "e2fsprogs: /etc/cron.d/e2scrub\n"
    host.conffiles = " /etc/cron.d/e2scrub 4d1f8af8ee8a5ed2c8f2e8a1f16ed5c5\n"

    found, left_out = await host.find(find_jobs)

    assert found == {
        "report": {
            "schedule": "@daily",
            "user": "root",
            "command": "/srv/report",
            "environment": ["MAILTO=ops@example.com"],
        }
    }
    foreign = "differs from what this type writes; use `ccm import file:/etc/cron.d`"
    assert left_out == [
        ("e2scrub", foreign),  # its package has another content
        ("key", "contains what looks like a password or token"),
        ("other", foreign),
    ]


async def test_jobs_of_packages_are_not_found(host: Host) -> None:
    host.files.put("/etc/cron.d/e2scrub", JOB)
    host.owners = "e2fsprogs: /etc/cron.d/e2scrub\n"
    digest = hashlib.md5(JOB.encode(), usedforsecurity=False).hexdigest()
    host.conffiles = f" /etc/cron.d/e2scrub {digest}\n"

    assert await host.find(find_jobs) == ({}, [])


async def test_a_private_job_and_a_password_of_a_command_are_named(host: Host) -> None:
    host.files.put("/etc/cron.d/private", JOB, mode=0o600)
    host.files.put("/etc/cron.d/dump", "# Managed by ccm\n@daily root mysqldump -uroot -phunter22 app\n")

    found, left_out = await host.find(find_jobs)

    assert found == {}
    assert left_out == [
        ("dump", "contains what looks like a password"),
        ("private", "is private (mode 0600)"),
    ]


async def test_secrets_of_the_kernel_are_named(host: Host) -> None:
    lines = (
        "net.ipv6.conf.default.stable_secret = ::1\nnet.ipv4.tcp_fastopen_key = 1-2-3-4\nvm.swappiness = 5\n"
    )
    host.files.put("/etc/sysctl.d/10-a.conf", lines)

    found, left_out = await host.find(find_parameters)

    assert list(found) == ["vm.swappiness"]
    assert [reason for _, reason in left_out] == ["is a secret"] * 2


async def test_huge_numbers_are_no_accounts(host: Host) -> None:
    host.files.put("/etc/passwd", f"alice:x:{'9' * 5000}:5::/home/alice:/bin/sh\n")
    host.files.put("/etc/group", f"web:x:{'9' * 5000}:\n")

    assert await host.find(find_users) == ({}, [])
    assert await host.find(find_groups) == ({}, [])


async def test_a_host_without_the_folders_has_nothing(host: Host) -> None:
    for folder in ("/etc/cron.d", "/etc/sysctl.d"):
        del host.files.nodes[folder]

    assert await host.find(find_jobs) == ({}, [])
    assert await host.find(find_parameters) == ({}, [])


async def test_of_several_files_the_last_one_sets_a_parameter(host: Host) -> None:
    host.files.put("/etc/sysctl.d/10-a.conf", "vm.swappiness = 5\nkernel/pid_max=4194304\n")
    host.files.put("/etc/sysctl.d/20-b.conf", "vm.swappiness = 10\nnet.ipv4.conf.eth0/100.forwarding = 1\n")
    host.files.put("/etc/sysctl.d/README", "vm.swappiness = 99\n")
    host.files.put("/etc/sysctl.conf", "# nothing\nvm.overcommit_memory =\n")

    found, left_out = await host.find(find_parameters)

    assert found == {
        "kernel.pid_max": {"value": "4194304", "file": "/etc/sysctl.d/10-a.conf"},
        "net.ipv4.conf.eth0/100.forwarding": {"value": "1", "file": "/etc/sysctl.d/20-b.conf"},
        "vm.swappiness": {"value": "10", "file": "/etc/sysctl.d/20-b.conf"},
    }
    assert left_out == [
        ("vm.swappiness", "also in /etc/sysctl.d/10-a.conf, which is read before /etc/sysctl.d/20-b.conf"),
        ("vm.overcommit_memory", "`value` is required: the value of the parameter"),
    ]


async def test_entries_of_fstab_are_found_without_those_of_the_installer(host: Host) -> None:
    host.files.put(
        "/etc/fstab",
        "UUID=1 / ext4 errors=remount-ro 0 1\nUUID=2 /boot ext4 defaults 0 2\nUUID=3 none swap sw 0 0\n"
        "tmpfs /var/scratch tmpfs size=64m 0 0\n//nas/a /mnt/nas cifs user=a,password=hunter2222 0 0\n"
        "//b:hunter2222@nas/b /mnt/b cifs ro 0 0\nmon:/ /mnt/ceph ceph name=a,secret=hunter2222 0 0\n"
        "nas:/x /mnt/x nfs noauto 0 0\n-bad /mnt/bad ext4 defaults 0 0\n/swapfile /swap swap sw 0 0\n",
    )
    mounted = "36 35 0:40 / /var/scratch rw shared:1 - tmpfs tmpfs rw,size=65536k\n"
    host.files.put("/proc/self/mountinfo", mounted)

    found, left_out = await host.find(find_mounts)

    assert found == {
        "/var/scratch": {
            "ensure": "mounted",
            "device": "tmpfs",
            "fstype": "tmpfs",
            "options": "size=64m",
            "dump": 0,
            "passno": 0,
        },
        "/mnt/x": {
            "ensure": "present",
            "device": "nas:/x",
            "fstype": "nfs",
            "options": "noauto",
            "dump": 0,
            "passno": 0,
        },
    }
    assert [name for name, _ in left_out] == ["/mnt/nas", "/mnt/b", "/mnt/ceph", "/mnt/bad", "/swap"]
    assert "hunter2222" not in str((found, left_out))


async def test_hosts_are_found_without_those_of_the_distribution(host: Host) -> None:
    host.files.put(
        "/etc/hosts",
        "# a comment\n127.0.0.1 localhost localhost4\n::1 localhost ip6-localhost\nff02::1 ip6-allnodes\n"
        "127.0.1.1 web1.example.net web1\n192.0.2.7 db.example.net db db-main # rack 3\n"
        "192.0.2.8 Mail.example.net\n2001:db8:0::8 mail.EXAMPLE.net\n"
        "192.0.2.9 odd a\n192.0.2.10 odd b\n192.0.2.11 two\n192.0.2.11 two\n192.0.2.12 bad/name\nnot-an-address x\n",
    )

    found, left_out = await host.find(find_hosts)

    assert found == {
        "db.example.net": {"address": "192.0.2.7", "aliases": ["db", "db-main"]},
        "mail.example.net": {"address": ["192.0.2.8", "2001:db8::8"]},
    }
    assert [name for name, _ in left_out] == ["odd", "two", "bad/name"]
    assert left_out[0][1] == "its lines have different aliases"
    assert "the address 192.0.2.11 is given twice" in left_out[1][1]


async def test_an_alias_that_was_added_to_localhost_is_found(host: Host) -> None:
    host.files.put("/etc/hosts", "127.0.0.1 localhost app.test\n")

    found, _ = await host.find(find_hosts)

    assert found == {"localhost": {"address": "127.0.0.1", "aliases": ["app.test"]}}


async def test_a_huge_hosts_file_is_an_error(host: Host) -> None:
    host.files.put("/etc/hosts", "192.0.2.1 a\n" * (1 << 19))

    with pytest.raises(FileError, match="/etc/hosts: is larger than"):
        await host.find(find_hosts)


SETTINGS = {"hostname": "web1\n", "default/locale": "LANG=de_DE.UTF-8\n", "debian_version": "12.5\n"}


@pytest.mark.parametrize(
    ("kernel", "zone", "files", "expected", "left_out"),
    [
        pytest.param(
            "web1",
            "../usr/share/zoneinfo/Europe/Berlin",
            SETTINGS,
            {"hostname": "web1", "timezone": "Europe/Berlin", "locale": "de_DE.UTF-8"},
            [],
            id="everything was chosen",
        ),
        pytest.param(
            "localhost",
            "/usr/share/zoneinfo/Etc/UTC",
            {"hostname": "localhost", "timezone": "Etc/UTC", "locale.conf": "LANG=C.UTF-8"},
            {},
            [],
            id="nothing was chosen",
        ),
        pytest.param("", "", {}, {}, [], id="nothing is set"),
        pytest.param(
            "web1",
            "../usr/share/zoneinfo/Europe/Berlin",
            {"hostname": "web2", "timezone": "Asia/Tokyo"},
            {},
            [
                f"has different values: web1 in {KERNEL_HOSTNAME}, web2 in /etc/hostname",
                "has different values: Europe/Berlin in /etc/localtime, Asia/Tokyo in /etc/timezone",
            ],
            id="the places differ",
        ),
        pytest.param(
            "web1\x1b[2J",
            "/srv/zones/mine",
            {"hostname": "web1\x1b[2J", "locale.conf": "LANG=../../etc/passwd"},
            {},
            ["is not a host name", "is not a time zone", "is not a locale"],
            id="hostile values",
        ),
    ],
)
async def test_settings_that_were_chosen_are_found(
    host: Host, kernel: str, zone: str, files: dict[str, str], expected: dict[str, str], left_out: list[str]
) -> None:
    host.kernel.values[KERNEL_HOSTNAME] = kernel
    host.files.put_directory("/etc/default")
    for name, text in files.items():
        host.files.put(f"/etc/{name}", text)
    if zone:
        host.files.put_symlink("/etc/localtime", zone)

    found, named = await host.find(find_settings)

    assert found == {name: {"value": value} for name, value in expected.items()}
    assert len(named) == len(left_out)
    assert all(sentence in reason for sentence, (_, reason) in zip(left_out, named, strict=True))


async def test_modules_that_no_package_lists_are_found(host: Host) -> None:
    host.files.put(
        "/proc/modules", "br_netfilter 1 0 - Live 0x0\nkvm_intel 1 0 - Live 0x0\nnbd 1 0 - Live 0x0\n"
    )
    host.files.put("/proc/sys/kernel/osrelease", "6.1.0\n")
    host.files.put("/lib/modules/6.1.0/modules.builtin", "kernel/fs/ext4/ext4.ko\n")
    host.files.put("/etc/modules", "# of this host\nloop\next4\nnbd max=8\n")
    host.files.put("/etc/modules-load.d/k8s.conf", "br-netfilter\n")
    host.files.put("/etc/modules-load.d/package.conf", "fuse\n")
    host.files.put("/etc/modules-load.d/README", "nothing\n")
    host.files.put("/etc/modules-load.d/ccm-kvm_intel.conf", "# Managed by ccm\nkvm_intel\n")
    host.files.put("/etc/modprobe.d/ccm-kvm_intel.conf", "# Managed by ccm\noptions kvm_intel nested=1\n")
    host.files.put("/etc/modprobe.d/ccm-floppy.conf", "# Managed by ccm\nblacklist floppy\n")
    host.files.put("/etc/modprobe.d/ccm-nbd.conf", "# Managed by ccm\nblacklist nbd\n")
    host.files.put("/etc/modprobe.d/ccm-dummy.conf", "# Managed by ccm\noptions dummy password=hunter22\n")
    host.files.put("/etc/modprobe.d/ccm-odd.conf", "options odd a=1\n")
    host.files.put("/etc/modprobe.d/site.conf", "softdep a pre: b\n")
    host.files.put("/usr/lib/modprobe.d/package.conf", "blacklist br_netfilter\n")
    host.owners = "fuse: /etc/modules-load.d/package.conf\n"
    host.conffiles = f" /etc/modules-load.d/package.conf {hashlib.md5(b'fuse' + bytes([10])).hexdigest()}\n"

    found, left_out = await host.find(find_modules)

    assert found == {
        "ext4": {},
        "floppy": {"ensure": "absent", "blacklisted": True},
        "kvm_intel": {"options": {"nested": "1"}},
        "loop": {"apply": False},
        "nbd": {"ensure": "absent", "blacklisted": True, "apply": False},
    }
    reasons = dict(left_out)
    assert set(reasons) == {"/etc/modprobe.d/site.conf", "br_netfilter", "dummy", "nbd max=8", "odd"}
    assert "package.conf blacklists it" in reasons["br_netfilter"]
    assert reasons["dummy"] == "contains what looks like a password or token"
    assert reasons["odd"] == "its file differed from what this type writes"
