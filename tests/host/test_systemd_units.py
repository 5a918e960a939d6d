"""Units and drop-ins on real machines, with systemd and systemd-analyze."""

from __future__ import annotations

import json
from typing import Any

import pytest
import testenv

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]

SERVICE = "[Service]\nExecStart=/bin/sleep infinity\n"
FOLDER = "/etc/systemd/system"
COUNTING = """\
#!/bin/sh
echo "$1" >> /run/calls
exec /usr/bin/{program} "$@"
"""


def apply(
    machine: testenv.Node, program: str, *resources: dict[str, Any], noop: bool = False
) -> tuple[int, list[dict[str, Any]]]:
    """Apply resources; the exit status and the events."""
    machine.path("/root/m.yaml").write_text(json.dumps({"ccm": {"resources": list(resources)}}))
    arguments = ["apply", "/root/m.yaml", "--events", "/root/events", *(["--noop"] if noop else [])]
    done = machine.run(program, *arguments, check=False, timeout=240)
    lines = machine.path("/root/events").read_text().splitlines()
    machine.path("/root/events").unlink()
    events = [json.loads(line) for line in lines]
    return done.returncode, [event for event in events if event["protocol"].endswith("transaction.event")]


def calls(machine: testenv.Node, program: str, *resources: dict[str, Any]) -> list[str]:
    """Apply resources; the verbs of systemctl and systemd-analyze that this took."""
    for name in ("systemctl", "systemd-analyze"):
        path = machine.path(f"/usr/local/bin/{name}")
        path.write_text(COUNTING.format(program=name))
        path.chmod(0o755)
    machine.run("rm", "-f", "/run/calls")
    machine.run("touch", "/run/calls")
    try:
        code, events = apply(machine, program, *resources)
        assert (code, [event["error"] for event in events if event["error"]]) == (0, [])
        return machine.path("/run/calls").read_text().split()
    finally:
        machine.run("rm", "-f", "/usr/local/bin/systemctl", "/usr/local/bin/systemd-analyze")


def show(machine: testenv.Node, name: str, value: str) -> str:
    """A property of a unit, as systemd has it."""
    return machine.run("systemctl", "show", "-P", value, name).stdout.strip()


def test_many_changed_units_are_one_verification_and_one_reload(machine: testenv.Node, program: str) -> None:
    names = [f"t-many-{number}.service" for number in range(50)]
    units = {"systemd_unit": [{name: {"content": SERVICE}} for name in names]}
    calls(machine, program, units)
    machine.run("systemctl", "start", *names)
    changed = {"systemd_unit": [{name: {"content": f"{SERVICE}Nice=3\n"}} for name in names]}

    first = calls(machine, program, changed)
    second = calls(machine, program, changed)

    assert first == ["verify", "show", "daemon-reload"]
    assert second == ["show"]
    assert {show(machine, name, "Nice") for name in names} == {"3"}
    machine.run("systemctl", "stop", *names)


def test_a_service_restarts_with_the_new_unit_after_one_reload(machine: testenv.Node, program: str) -> None:
    unit = {"systemd_unit": [{"t-web.service": {"content": SERVICE}}]}
    service = {"service": [{"t-web": {"ensure": "running", "subscribe": ["systemd_unit#t-web.service"]}}]}
    apply(machine, program, unit, service)
    before = show(machine, "t-web", "MainPID")
    unit["systemd_unit"][0]["t-web.service"]["content"] = f"{SERVICE}Environment=A=new\n"

    verbs = calls(machine, program, unit, service)

    assert verbs.count("daemon-reload") == 1
    pid = show(machine, "t-web", "MainPID")
    assert pid not in ("0", before)
    assert "A=new" in machine.run("cat", f"/proc/{pid}/environ").stdout.split("\0")


def test_what_needs_systemd_comes_after_the_reload(machine: testenv.Node, program: str) -> None:
    unit = {"systemd_unit": [{"t-exec.service": {"content": SERVICE}}]}
    apply(machine, program, unit)
    machine.run("systemctl", "start", "t-exec")
    unit["systemd_unit"][0]["t-exec.service"]["content"] = f"{SERVICE}Nice=5\n"
    ask = {"exec": [{"systemctl show -P Nice t-exec > /run/t-nice": {"provider": "shell"}}]}

    apply(machine, program, unit, ask)

    assert machine.path("/run/t-nice").read_text() == "5\n"


@pytest.mark.parametrize(
    ("drop_in", "content", "value"),
    [
        pytest.param("", f"{SERVICE}Nice=7\n", "7", id="a file in place of the distribution's"),
        pytest.param("nice.conf", "[Service]\nNice=7\n", "7", id="the first drop-in"),
    ],
)
def test_systemd_reads_what_it_does_not_notice_by_itself(
    machine: testenv.Node, program: str, drop_in: str, content: str, value: str
) -> None:
    name = f"t-own{len(drop_in)}.service"
    machine.path(f"/usr/lib/systemd/system/{name}").write_text(SERVICE)
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "start", name)
    unit = {"systemd_unit": [{name: {"content": content, "drop_in": drop_in}}]}

    code, events = apply(machine, program, unit)
    nice = show(machine, name, "Nice")
    _, again = apply(machine, program, unit)

    assert (code, events[0]["changed"], nice, again[0]["changed"]) == (0, True, value, False)


def test_a_reload_that_a_killed_run_left_is_made_up_for(machine: testenv.Node, program: str) -> None:
    unit = {"systemd_unit": [{"t-late.service": {"content": f"{SERVICE}Nice=9\n"}}]}
    machine.path(f"{FOLDER}/t-late.service").write_text(SERVICE)
    machine.run("systemctl", "start", "t-late")
    machine.path(f"{FOLDER}/t-late.service").write_text(f"{SERVICE}Nice=9\n")

    _, (planned,) = apply(machine, program, unit, noop=True)
    _, (event,) = apply(machine, program, unit)
    _, (again,) = apply(machine, program, unit)

    assert planned["noop_message"] == "Would have reloaded systemd"
    assert (event["changed"], again["changed"], show(machine, "t-late", "Nice")) == (True, False, "9")


@pytest.mark.parametrize(
    ("name", "properties", "message"),
    [
        pytest.param(
            "t-bad.service", {"content": f"{SERVICE}Foo=1\n"}, "t-bad.service:3: Unknown key", id="a key"
        ),
        pytest.param(
            "t-bad.service", {"content": f"{SERVICE}[Instal]\nA=1\n"}, "Unknown section", id="a section"
        ),
        pytest.param(
            "t-bad.service", {"content": f"{SERVICE}Restart=maybe\n"}, "Failed to parse", id="a value"
        ),
        pytest.param(
            "t-bad.service", {"content": "[Unit]\nDescription=x\n"}, "has no ExecStart=", id="no command"
        ),
        pytest.param(
            "t-bad.service", {"content": "[Service]\nExecStart=bin/x\n"}, "absolute path", id="a path"
        ),
        pytest.param(
            "t-bad.service", {"content": "[Service\nA=1\n"}, "Invalid section header", id="a header"
        ),
        pytest.param("t-bad.service", {"content": "not a unit\n"}, "Assignment outside", id="no unit"),
        pytest.param("t-bad.timer", {"content": "[Timer]\nOnCalendar=x\n"}, "calendar", id="a calendar"),
        pytest.param(
            "t-bad@.service", {"content": f"{SERVICE}Foo=1\n"}, "t-bad@.service:3: Unknown", id="a template"
        ),
        pytest.param(
            "t-good.service",
            {"drop_in": "x.conf", "content": "[Service]\nFoo=1\n"},
            "x.conf:2: Unknown key",
            id="a drop-in",
        ),
        pytest.param(
            "t-good.service",
            {"drop_in": "x.conf", "content": "[Service]\nExecStart=/bin/true\n"},
            "more than one ExecStart=",
            id="a drop-in that breaks its unit",
        ),
        pytest.param(
            "t-later.service",
            {"drop_in": "x.conf", "content": "[Service]\nFoo=1\n"},
            "x.conf:2: Unknown key",
            id="a drop-in of a unit that does not exist yet",
        ),
        pytest.param("t-bad.mount", {"content": "[Mount]\nWhat=/x\nWhere=/y\n"}, "Where=", id="a mount"),
    ],
)
def test_what_systemd_would_not_read_is_refused_and_the_file_stays(
    machine: testenv.Node, program: str, name: str, properties: dict[str, str], message: str
) -> None:
    machine.path(f"{FOLDER}/t-good.service").write_text(SERVICE)
    path = f"{FOLDER}/{name}" if "drop_in" not in properties else f"{FOLDER}/{name}.d/x.conf"
    good = {"systemd_unit": [{"t-other.service": {"content": SERVICE}}, {name: properties}]}
    machine.run("rm", "-f", f"{FOLDER}/t-other.service")

    code, (other, event) = apply(machine, program, good)

    assert (code, other["changed"], other["error"]) == (2, True, [])
    assert event["failed"]
    assert f"{path} is not valid, so nothing was written: " in event["error"][0]
    assert message in event["error"][0]
    assert machine.run("test", "-e", path, check=False).returncode == 1
    assert machine.run("sh", "-c", "ls -d /run/ccm-verify 2>/dev/null | wc -l").stdout.strip() == "0"


@pytest.mark.parametrize(
    ("name", "properties"),
    [
        pytest.param("t-ok1.service", {"content": "[Service]\nExecStart=/opt/later/bin\n"}, id="a program"),
        pytest.param(
            "t-ok2.service", {"content": f"[Unit]\nRequires=t-none.service\n{SERVICE}"}, id="another unit"
        ),
        pytest.param(
            "t-ok3.socket", {"content": "[Socket]\nListenStream=80\n"}, id="the service of a socket"
        ),
        pytest.param(
            "t-none.service",
            {"drop_in": "a.conf", "content": "[Service]\nExecStart=\nExecStart=/opt/x\nRestart=always\n"},
            id="the unit of a drop-in",
        ),
        pytest.param(
            "t-old.service",
            {"content": f"{SERVICE}StandardOutput=syslog\nX-Own=1\n[X-Section]\nA=1\n"},
            id="obsolete values, and keys of others",
        ),
        pytest.param(
            "t-pre-.service", {"drop_in": "a.conf", "content": "[Service]\nNice=1\n"}, id="a common prefix"
        ),
        pytest.param(r"srv-a\x2db.mount", {"content": "[Mount]\nWhat=/x\nWhere=/srv/a-b\n"}, id="escapes"),
    ],
)
def test_what_a_later_resource_may_install_is_accepted(
    machine: testenv.Node, program: str, name: str, properties: dict[str, str]
) -> None:
    unit = {"systemd_unit": [{name: properties}]}

    code, (event,) = apply(machine, program, unit)
    again, (stable,) = apply(machine, program, unit)

    assert (code, event["error"], event["changed"]) == (0, [], True)
    assert (again, stable["error"], stable["changed"]) == (0, [], False)


def test_a_masked_unit_stays_masked(machine: testenv.Node, program: str) -> None:
    machine.run("systemctl", "mask", "t-masked.service")

    code, (event,) = apply(machine, program, {"systemd_unit": [{"t-masked.service": {"content": SERVICE}}]})

    assert code == 2
    assert "the unit is masked" in event["error"][0]
    assert machine.run("readlink", f"{FOLDER}/t-masked.service").stdout.strip() == "/dev/null"
