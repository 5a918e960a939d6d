"""apt and dpkg themselves: versions up and down, what is held, locked or asks, and names that mean something else to apt."""

from __future__ import annotations

import json
from typing import Any

import pytest
import testenv

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]

RESET = (
    "p=$(dpkg-query -W -f='${Package} ' 'cmtest-*' 2>/dev/null); "
    '[ -z "$p" ] || dpkg --purge --force-all $p >/dev/null; rm -rf /etc/cmtest-*; apt-mark unhold cmtest-tool >/dev/null; true'
)


@pytest.fixture(autouse=True)
def clean(machine: testenv.Node) -> None:
    machine.run("sh", "-c", RESET)


def apply(
    machine: testenv.Node, program: str, resources: list[dict[str, Any]], *options: str
) -> tuple[int, list[dict[str, Any]]]:
    """Apply packages; the exit status and the events."""
    machine.path("/root/m.yaml").write_text(json.dumps({"ccm": {"resources": [{"package": resources}]}}))
    done = machine.run(
        program, "apply", "/root/m.yaml", "--events", "/root/events", *options, check=False, timeout=120
    )
    lines = machine.path("/root/events").read_text().splitlines()
    machine.path("/root/events").unlink()
    events = [json.loads(line) for line in lines]
    return done.returncode, [event for event in events if event["protocol"].endswith("transaction.event")]


def installed(machine: testenv.Node, name: str) -> str:
    """dpkg's word and version."""
    shown = machine.run("dpkg-query", "-W", "-f=${Version} ${db:Status-Status}", name, check=False).stdout
    return str(shown.strip())


def one(ensure: str, name: str = "cmtest-tool") -> list[dict[str, Any]]:
    return [{name: {"ensure": ensure, "provider": "apt"}}]


@pytest.mark.parametrize(
    ("name", "before", "ensure", "after"),
    [
        ("cmtest-tool", "", "1.0-1", "1.0-1"),
        ("cmtest-tool", "1.0-1", "2.0-1", "2.0-1"),
        ("cmtest-tool", "2.0-1", "1.1-1", "1.1-1"),
        ("cmtest-tool", "1.0-1", "latest", "2.0-1"),
        ("cmtest-epoch", "3.0-1", "1:1.0-2", "1:1.0-2"),
        ("cmtest-epoch", "1:1.5-1", "3.0-1", "3.0-1"),
        ("cmtest-tilde", "1.0~rc1-1", "1.0-1", "1.0-1"),
        ("cmtest-tilde", "1.0-1", "1.0~rc1-1", "1.0~rc1-1"),
        ("cmtest-native", "1.9", "1.10", "1.10"),
    ],
)  # fmt: skip
def test_versions_go_up_and_down(
    machine: testenv.Node, program: str, name: str, before: str, ensure: str, after: str
) -> None:
    if before:
        machine.run("apt-get", "install", "-y", "-q", "--allow-downgrades", f"{name}={before}")

    first, events = apply(machine, program, one(ensure, name))
    second, again = apply(machine, program, one(ensure, name))

    assert (first, [event["changed"] for event in events]) == (0, [True])
    assert (second, [event["changed"] for event in again]) == (0, [False])
    assert installed(machine, name) == f"{after} installed"


def test_a_changed_configuration_file_is_kept(machine: testenv.Node, program: str) -> None:
    machine.run("apt-get", "install", "-y", "-q", "cmtest-tool=1.0-1")
    machine.path("/etc/cmtest-tool/conf").write_text("mine\n")

    code, _ = apply(machine, program, one("2.0-1"))

    assert code == 0
    assert machine.path("/etc/cmtest-tool/conf").read_text() == "mine\n"


def test_a_package_that_asks_gets_no_answer_and_does_not_block(machine: testenv.Node, program: str) -> None:
    code, _ = apply(machine, program, one("present", "cmtest-asks"))

    assert code == 0
    assert machine.path("/run/cmtest-answer").read_text() == "none\n"


def test_a_held_lock_is_reported_with_its_holder(machine: testenv.Node, program: str) -> None:
    hold = (
        "import fcntl, time; f = open('/var/lib/dpkg/lock-frontend', 'w'); fcntl.lockf(f, fcntl.LOCK_EX); "
        "print('held', flush=True); time.sleep(120)"
    )
    holder = machine.popen("python3", "-c", hold, stdout=testenv.subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"

        code, (event,) = apply(machine, program, one("present"))
    finally:
        holder.kill()
        holder.communicate()

    assert code == 2
    assert event["code"] == "host.lock"
    assert "the package database is in use" in event["error"][0]
    assert "python3" in event["error"][0]


def test_a_held_package_is_not_changed(machine: testenv.Node, program: str) -> None:
    machine.run("apt-get", "install", "-y", "-q", "cmtest-tool=1.0-1")
    machine.run("apt-mark", "hold", "cmtest-tool")

    code, (event,) = apply(machine, program, one("2.0-1"))

    assert code == 2
    assert "held packages" in (event["error"][0] + event.get("output", "")).lower()
    assert installed(machine, "cmtest-tool") == "1.0-1 installed"


@pytest.mark.parametrize("name", ["cmtest-tool-", "cmtest-tool+", "cmtest-t.ol", "cmtest.*"])
def test_a_name_that_means_something_else_to_apt_changes_nothing(
    machine: testenv.Node, program: str, name: str
) -> None:
    machine.run("apt-get", "install", "-y", "-q", "cmtest-tool=1.0-1")

    machine.path("/root/m.yaml").write_text(
        json.dumps({"ccm": {"resources": [{"package": one("present", name)}]}})
    )
    done = machine.run(program, "apply", "/root/m.yaml", check=False)

    assert done.returncode != 0
    assert installed(machine, "cmtest-tool") == "1.0-1 installed"
    assert machine.run("dpkg-query", "-W", "-f=${Package} ", "cmtest-*").stdout.split() == ["cmtest-tool"]


def test_a_name_with_a_dot_is_matched_exactly(machine: testenv.Node, program: str) -> None:
    assert apply(machine, program, one("present", "cmtest-dot.ted"))[0] == 0
    assert installed(machine, "cmtest-dot.ted") == "1.0-1 installed"


def test_package_with_a_failing_script_fails(machine: testenv.Node, program: str) -> None:
    code, (event,) = apply(machine, program, one("present", "cmtest-badpost"))

    assert (code, event["failed"], event["code"]) == (2, True, "host.command")
    assert "exit status 100" in event["error"][0]


def test_all_packages_of_a_manifest_are_looked_at_by_one_question(
    machine: testenv.Node, program: str
) -> None:
    machine.run("apt-get", "install", "-y", "-q", "cmtest-tool", "cmtest-lib", "cmtest-app")
    script = '#!/bin/sh\\necho x >> /run/asked\\nexec /usr/bin/dpkg-query "$@"\\n'
    machine.run(
        "sh",
        "-c",
        f"printf '{script}' > /usr/local/bin/dpkg-query; chmod 755 /usr/local/bin/dpkg-query; rm -f /run/asked",
    )
    try:
        code, events = apply(
            machine, program, [*one("present"), *one("present", "cmtest-lib"), *one("present", "cmtest-app")]
        )
        asked = machine.path("/run/asked").read_text().count("x")
    finally:
        machine.run("rm", "-f", "/usr/local/bin/dpkg-query")

    assert (code, len(events), asked) == (0, 3, 1)
