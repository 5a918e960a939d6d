"""Rules about a host: what each kind finds, and what is said of what does not hold."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import pytest

from ccm_agent.health.goss.check import attempt
from ccm_agent.health.goss.network import listeners
from ccm_agent.model.health import HealthCheck, HealthResult
from ccm_agent.model.network import HttpRequest, HttpResponse
from ccm_agent.model.secret import Secret
from ccm_agent.testing.clock import FakeClock
from ccm_agent.testing.files import FakeFiles
from ccm_agent.testing.network import FakeNetwork
from ccm_agent.testing.runner import FakeRunner

TCP = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:0019 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   1: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 2 1 0 100 0 0 10 0
   2: 0100007F:1F90 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 3 1 0 100 0 0 10 0
"""
TCP6 = """  sl  local_address                         remote_address                        st
   0: 00000000000000000000000001000000:0277 00000000000000000000000000000000:0000 0A
"""
MOUNTS = """22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
40 22 0:30 / /srv/my\\040data ro,nosuid - nfs4 host:/data rw,vers=4.2
"""


class Host:
    """Scripted ports."""

    def __init__(self) -> None:
        self.runner = FakeRunner()
        self.files = FakeFiles()
        self.clock = FakeClock()
        self.network = FakeNetwork()

    def port(self, name: str) -> Any:
        return {"network": self.network}[name]


@pytest.fixture
def host() -> Host:
    """A small Debian host."""
    made = Host()
    files = made.files
    files.put("/etc/motd", "hello\nworld\n", mode=0o640, gid=1)
    files.put_symlink("/etc/link", "/etc/motd")
    files.put(
        "/etc/passwd", "root:x:0:0:root:/root:/bin/bash\nbroken\nweb:x:33:33::/var/www:/usr/sbin/nologin\n"
    )
    files.put("/etc/group", "root:x:0:\nweb:x:33:\nssl:x:9:web,other\n")
    files.put("/proc/net/tcp", TCP)
    files.put("/proc/net/tcp6", TCP6)
    files.put("/proc/net/udp", TCP.splitlines()[0])
    files.put("/proc/sys/net/core/somaxconn", "128\n")
    files.put("/proc/self/mountinfo", MOUNTS)
    files.put("/sys/class/net/eth0/mtu", "1500\n")
    files.put("/var/lib/dpkg/status", "Package: zsh\n")
    made.runner.when("dpkg-query", stdout="install ok installed 5.9-8\n")
    made.runner.when(
        "dpkg-query",
        "-W",
        "-f",
        "${Status} ${Version}\\n",
        "--",
        "gone",
        stdout="deinstall ok config-files 1\n",
    )
    made.runner.when("dpkg-query", "-W", "-f", "${Status} ${Version}\\n", "--", "never", code=1)
    made.runner.when("systemctl", "--quiet", "is-enabled", "--", "sshd", code=1)
    made.runner.when("systemctl", "--quiet", "is-active", "--", "sshd", code=0)
    made.runner.when("find", stdout="systemd\nchromium-browse\nfind\n")
    made.runner.when(
        "df", stdout="Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/sda1 10 4 6 40% /\n"
    )
    made.runner.when(
        "ip",
        stdout='[{"addr_info":[{"local":"10.0.0.2","prefixlen":24},{"local":"fe80::1","prefixlen":64}]}]',
    )
    made.runner.when("sh", "-c", "go version", stdout="go version go1.6 linux/amd64\n", stderr="careful\n")
    made.runner.when("sh", "-c", "sleep 99", hangs=True)
    made.runner.when("sh", "-c", "crash", code=-11)
    made.network.answers["http://localhost/"] = HttpResponse(
        status=200, headers=(("content-type", "text/html"), ("X-A", "b")), body=b"<h1>Acme Inc</h1>\nmore"
    )
    made.network.answers["http://slow/"] = None
    made.network.listening = {"tcp://db:5432"}
    made.network.zones = {
        ("ns1:53", "example.com", "A"): ["10.0.0.1"],
        ("ns1:53", "example.com", "MX"): ["10 mail.example.com."],
        ("::1:5353", "10.0.0.1", "PTR"): ["example.com."],
    }
    made.network.names = {"localhost": ["127.0.0.1", "::1"]}
    return made  # fmt: skip


def check(rules: Any, **words: Any) -> HealthCheck:
    return HealthCheck(goss_rules=rules, format="goss", **words)


@pytest.mark.parametrize(
    ("links", "levels"),
    [
        pytest.param(
            "/etc/rc3.d/S01sshd\n/etc/rc2.d/S01sshd\n/etc/rc3.d/K01cron\n", ["2", "3"], id="System V"
        ),
        pytest.param("/etc/runlevels/default/sshd\n/etc/rc3.d/S01sshd-extra\n", ["default"], id="OpenRC"),
        pytest.param("/etc/rc3.d/K01sshd\n", [], id="only stopped"),
    ],
)
async def test_run_levels_are_those_that_start_a_service(host: Host, links: str, levels: list[str]) -> None:
    host.runner.when("find", "/etc", stdout=links)

    found = await attempt(check({"service": {"sshd": {"runlevels": {"consist-of": levels}}}}), host)

    assert (found.status, found.output) == (0, "Count: 1, Failed: 0, Skipped: 0")


async def test_a_host_with_systemd_has_no_run_levels(host: Host) -> None:
    host.files.put_directory("/run/systemd/system")
    host.runner.when("find", "/etc", stdout="/etc/rc3.d/S01sshd\n")

    found = await attempt(check({"service": {"sshd": {"runlevels": {"have-len": 0}}}}), host)

    assert (found.status, found.output) == (0, "Count: 1, Failed: 0, Skipped: 0")


@pytest.mark.parametrize(
    ("rules", "count"),
    [
        pytest.param(
            {
                "file": {
                    "/etc/motd": {
                        "exists": True,
                        "mode": "0640",
                        "owner": "root",
                        "uid": 0,
                        "group": "daemon",
                        "gid": 1,
                        "filetype": "file",
                        "size": {"gt": 5},
                        "contents": ["hello", "!bye", "/^wor/"],
                        "md5": hashlib.md5(b"hello\nworld\n").hexdigest(),
                        "sha256": hashlib.sha256(b"hello\nworld\n").hexdigest(),
                        "sha512": hashlib.sha512(b"hello\nworld\n").hexdigest(),
                    }
                }
            },
            12,
            id="file",
        ),
        pytest.param(
            {"file": {"x": {"path": "/etc/motd", "exists": True, "contents": "hello\nworld\n"}}},
            2,
            id="text is the whole content",
        ),
        pytest.param(
            {"file": {"/etc/motd": {"exists": True, "contains": ["hello"]}}}, 2, id="contains is contents"
        ),
        pytest.param(
            {
                "file": {
                    "/etc/link": {
                        "exists": True,
                        "filetype": "symlink",
                        "linked-to": "/etc/motd",
                        "contents": ["hello"],
                    }
                }
            },
            4,
            id="symlink",
        ),
        pytest.param({"file": {"/etc": {"exists": True, "filetype": "directory"}}}, 2, id="directory"),
        pytest.param(
            {
                "package": {
                    "zsh": {"installed": True, "versions": ["5.9-8"]},
                    "gone": {"installed": False},
                    "never": {"installed": False},
                }
            },
            4,
            id="package",
        ),
        pytest.param({"service": {"sshd": {"enabled": False, "running": True}}}, 2, id="service"),
        pytest.param(
            {
                "port": {
                    "tcp:22": {"listening": True, "ip": ["0.0.0.0"]},
                    "25": {"listening": True},
                    "tcp:8080": {"listening": False},
                }
            },
            4,
            id="port",
        ),
        pytest.param(
            {
                "port": {
                    "tcp6:631": {"listening": True, "ip": {"consist-of": ["::1"]}},
                    "udp:22": {"listening": False},
                }
            },
            3,
            id="other protocols",
        ),
        pytest.param(
            {
                "process": {
                    "systemd": {"running": True},
                    "chromium-browser": {"running": True},
                    "find": {"running": False},
                }
            },
            3,
            id="process",
        ),
        pytest.param(
            {
                "command": {
                    "x": {"exec": "go version", "exit-status": 0, "stdout": ["go1.6"], "stderr": "careful\n"}
                }
            },
            3,
            id="command",
        ),
        pytest.param(
            {
                "dns": {
                    "example.com": {"resolvable": True, "server": "ns1", "addrs": ["10.0.0.1"]},
                    "MX:example.com": {
                        "resolvable": True,
                        "server": "ns1:53",
                        "addrs": ["10 mail.example.com."],
                    },
                    "TXT:example.com": {"resolvable": False, "server": "ns1"},
                    "PTR:10.0.0.1": {"resolvable": True, "server": "[::1]:5353", "addrs": ["example.com."]},
                }
            },
            7,
            id="records of a name server",
        ),
        pytest.param({"command": {"crash": {"exit-status": -1}}}, 1, id="command that a signal ended"),
        pytest.param(
            {"command": {"go version": {"exit-status": 0, "stderr": []}}},
            1,
            id="an empty list expects nothing",
        ),
        pytest.param(
            {
                "http": {
                    "http://localhost/": {
                        "status": 200,
                        "body": ["Acme Inc"],
                        "headers": ["Content-Type: text/html"],
                    }
                }
            },
            3,
            id="http",
        ),
        pytest.param(
            {"addr": {"tcp://db:5432": {"reachable": True}, "db:1": {"reachable": False}}}, 2, id="addr"
        ),
        pytest.param(
            {
                "dns": {
                    "localhost": {"resolvable": True, "addrs": {"consist-of": ["127.0.0.1", "::1"]}},
                    "nowhere": {"resolvable": False},
                }
            },
            3,
            id="dns",
        ),
        pytest.param(
            {
                "user": {
                    "web": {
                        "exists": True,
                        "uid": 33,
                        "gid": "33",
                        "groups": ["ssl", "web"],
                        "home": "/var/www",
                        "shell": {"have-suffix": "nologin"},
                    },
                    "nobody": {"exists": False},
                }
            },
            7,
            id="user",
        ),
        pytest.param({"group": {"ssl": {"exists": True, "gid": 9}}}, 2, id="group"),
        pytest.param(
            {
                "interface": {
                    "eth0": {"exists": True, "mtu": 1500, "addrs": ["10.0.0.2/24"]},
                    "eth9": {"exists": False},
                }
            },
            4,
            id="interface",
        ),
        pytest.param(
            {
                "kernel-param": {
                    "net.core.somaxconn": {"value": "128"},
                    "x": {"name": "net.core.somaxconn", "value": {"gt": 100}},
                }
            },
            2,
            id="kernel-param",
        ),
        pytest.param(
            {
                "mount": {
                    "/": {
                        "exists": True,
                        "opts": ["rw"],
                        "source": "/dev/sda1",
                        "filesystem": "ext4",
                        "usage": {"lt": 95},
                    }
                }
            },
            5,
            id="mount",
        ),
        pytest.param(
            {"mount": {"/srv/my data": {"exists": True, "vfs-opts": ["vers=4.2"]}}},
            2,
            id="mount with a space",
        ),
        pytest.param(
            {"matching": {"x": {"content": 42, "matches": {"and": ["42", {"have-prefix": "4"}]}}}},
            1,
            id="matching",
        ),
        pytest.param(
            {"matching": {"x": {"content": "a\nb", "as-reader": True, "matches": {"have-patterns": ["b"]}}}},
            1,
            id="matching as reader",
        ),
        pytest.param("file:\n  /etc/motd:\n    exists: true\n", 1, id="rules as text"),
    ],
)
async def test_rules_that_hold_make_the_check_ok(rules: Any, count: int, host: Host) -> None:
    assert await attempt(check(rules), host) == HealthResult(
        status=0, output=f"Count: {count}, Failed: 0, Skipped: 0"
    )


@pytest.mark.parametrize(
    ("rules", "output"),
    [
        pytest.param(
            {"file": {"/etc/motd": {"exists": True, "mode": "0600", "owner": "root"}}},
            'file /etc/motd mode: found "0640", wanted "0600"\nCount: 3, Failed: 1, Skipped: 0',
            id="one attribute",
        ),
        pytest.param(
            {"file": {"/etc/none": {"exists": True, "mode": "0600", "owner": "root"}}},
            "file /etc/none exists: found false, wanted true\nCount: 3, Failed: 1, Skipped: 2",
            id="the rest is skipped when it is not there",
        ),
        pytest.param(
            {"file": {"/etc/motd": {"exists": True, "contents": ["hello", "bye", "!world"]}}},
            'file /etc/motd contents: found "hello\\nworld\\n", wanted to have patterns ["hello", "bye", "!world"]; '
            'not met: ["bye", "!world"]\nCount: 2, Failed: 1, Skipped: 0',
            id="the patterns that were not met",
        ),
        pytest.param(
            {"file": {"/etc": {"exists": True, "contents": ["x"], "linked-to": "x"}}},
            'file /etc linked-to: found nothing (this is not a symlink), wanted "x"\n'
            'file /etc contents: found nothing (/etc: this is a directory, not a file), wanted to have patterns ["x"]\n'
            "Count: 3, Failed: 2, Skipped: 0",
            id="attributes that a thing does not have",
        ),
        pytest.param(
            {"package": {"zsh": {"installed": True, "versions": ["5.8"]}}},
            'package zsh versions: found ["5.9-8"], wanted to contain the elements ["5.8"]; not met: ["5.8"]\n'
            "Count: 2, Failed: 1, Skipped: 0",
            id="version",
        ),
        pytest.param(
            {"command": {"sleep 99": {"exit-status": 0, "timeout": 500}}},
            "command sleep 99 exit-status: found nothing (the command did not end within 0.5 s), wanted 0\n"
            "Count: 1, Failed: 1, Skipped: 0",
            id="command that does not end",
        ),
        pytest.param(
            {"http": {"http://gone/": {"status": 200, "body": ["x"]}}},
            "http http://gone/ status: found nothing (http://gone/: connection refused), wanted 200\n"
            "Count: 2, Failed: 1, Skipped: 1",
            id="server that is not there",
        ),
        pytest.param(
            {"http": {"http://slow/": {"status": 200, "timeout": 1}}},
            "http http://slow/ status: found nothing (no answer within 0.001 s), wanted 200\n"
            "Count: 1, Failed: 1, Skipped: 0",
            id="server that does not answer",
        ),
        pytest.param(
            {"dns": {"a": {"resolvable": False, "server": "ns9"}}},
            "dns a resolvable: found nothing (ns9: connection refused), wanted false\nCount: 1, Failed: 1, Skipped: 0",
            id="name server that is not there",
        ),
        pytest.param(
            {"user": {"web": {"exists": True, "shell": {"not": {"have-suffix": "nologin"}}}}},
            'user web shell: found "/usr/sbin/nologin", wanted not to have the suffix "nologin"\n'
            "Count: 2, Failed: 1, Skipped: 0",
            id="not",
        ),
        pytest.param(
            {"service": {"sshd": {"enabled": True, "running": True}}, "process": {"nginx": {"running": True}}},
            "service sshd enabled: found false, wanted true\nprocess nginx running: found false, wanted true\n"
            "Count: 3, Failed: 2, Skipped: 0",
            id="a service need not be enabled to be asked whether it runs",
        ),
        pytest.param(
            {"kernel-param": {"net.core.somaxconn": {"value": {"gt": 200}}}},
            'kernel-param net.core.somaxconn value: found "128", wanted > 200\nCount: 1, Failed: 1, Skipped: 0',
            id="number in a text",
        ),
    ],
)  # fmt: skip
async def test_a_rule_that_fails_makes_the_check_critical_and_is_named(
    rules: Any, output: str, host: Host
) -> None:
    assert await attempt(check(rules), host) == HealthResult(status=2, output=output)


@pytest.mark.parametrize(
    ("rules", "output"),
    [
        pytest.param(
            {"dns": {"MX:example.com": {"resolvable": True}}},
            "dns MX:example.com: cannot be checked: MX records require a `server`\n"
            "Count: 1, Failed: 0, Skipped: 0, Unknown: 1",
            id="a record without a server",
        ),
        pytest.param(
            {"kernel-param": {"../../etc/shadow": {"value": "x"}}},
            "kernel-param ../../etc/shadow: cannot be checked: `../../etc/shadow` is not a kernel parameter, such as "
            "net.core.somaxconn\nCount: 1, Failed: 0, Skipped: 0, Unknown: 1",
            id="a parameter that leads elsewhere",
        ),
        pytest.param(
            {"file": {"motd": {"exists": True}}},
            "file motd: cannot be checked: the path motd is not absolute: begin it with a slash\n"
            "Count: 1, Failed: 0, Skipped: 0, Unknown: 1",
            id="a relative path",
        ),
        pytest.param(
            {"port": {"http": {"listening": True}}},
            "port http: cannot be checked: `http` is not a port: write tcp:80, tcp6:80, udp:53 or udp6:53\n"
            "Count: 1, Failed: 0, Skipped: 0, Unknown: 1",
            id="no port",
        ),
        pytest.param(
            "file: [",
            "`goss_rules` cannot be read: ",
            id="rules that are no YAML",
        ),
    ],
)  # fmt: skip
async def test_a_failed_check_is_unknown_with_a_reason(rules: Any, output: str, host: Host) -> None:
    result = await attempt(check(rules), host)

    assert (result.status, result.output[: len(output)]) == (3, output)


async def test_a_tool_that_is_missing_makes_the_check_unknown() -> None:
    host = Host()
    host.runner.when("systemctl", error="systemctl: there is no such program")

    assert await attempt(check({"service": {"x": {"running": True}}}), host) == HealthResult(
        status=3,
        output="service x: cannot be checked: systemctl: there is no such program\n"
        "Count: 1, Failed: 0, Skipped: 0, Unknown: 1",
    )


async def test_a_failure_outranks_unknown(host: Host) -> None:
    rules = {"file": {"x": {"exists": True}, "/none": {"exists": True}}}

    result = await attempt(check(rules), host)

    assert (result.status, result.output.splitlines()[0]) == (
        2,
        "file /none exists: found false, wanted true",
    )


async def test_skipped_rules_are_counted_and_nothing_is_looked_at(host: Host) -> None:
    rules = {"command": {"rm -rf /": {"exit-status": 0, "stdout": ["x"], "skip": True}}}

    result = await attempt(check(rules), host)

    assert result == HealthResult(status=0, output="Count: 2, Failed: 0, Skipped: 2")
    assert host.runner.lines == []


async def test_a_rule_is_retried_as_often_as_configured(host: Host) -> None:
    host.runner.when("sh", "-c", "probe", code=1)
    host.runner.when("sh", "-c", "probe", code=0)
    rules = {"command": {"probe": {"exit-status": 0, "retry_count": 3, "retry_delay": 500}}}

    async with asyncio.TaskGroup() as group:
        task = group.create_task(attempt(check(rules), host))
        while not host.clock.sleepers:  # noqa: ASYNC110 - the clock has no event for a new sleeper
            await asyncio.sleep(0)
        await host.clock.advance(0.5)

    assert task.result().status == 0
    assert host.runner.lines == ["sh -c probe", "sh -c probe"]


async def test_a_web_server_is_requested_as_the_rule_configures(host: Host) -> None:
    rules = {
        "http": {
            "api": {
                "url": "https://api/", "status": 200, "method": "put", "request-headers": ["X-Token: t", "A: b: c"],
                "request-body": "{}", "username": "u", "password": "p", "no-follow-redirects": True,
                "allow-insecure": True, "ca-file": "/ca.pem",
            }
        }
    }  # fmt: skip

    await attempt(check(rules), host)

    assert host.network.asked == [
        HttpRequest(
            url="https://api/",
            method="PUT",
            headers=(("X-Token", "t"), ("A", "b: c")),
            body=b"{}",
            username="u",
            password=Secret("p"),
            follows_redirects=False,
            verifies=False,
            ca_file="/ca.pem",
            limit_bytes=16 << 20,
        )
    ]


def test_a_table_of_sockets_is_read_in_the_machines_byte_order() -> None:
    assert listeners(TCP, "tcp") == [("127.0.0.1", 25), ("0.0.0.0", 22)]
    assert listeners(TCP6, "tcp6") == [("::1", 631)]
