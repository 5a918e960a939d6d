"""Containers of a real podman with quadlet: created, stable, repaired, undone, pruned, removed, and refused before a change."""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import testenv

from ccm_agent.testing.nats_server import find_server
from tests.host.test_undo import PROGRAM

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]

FOLDER = "/etc/containers/systemd"
each_kind = pytest.mark.parametrize("podman_machine", ["apt", "dnf"], indirect=True)


class Site:
    """One manifest with one container of the machine, by its name."""

    def __init__(self, machine: testenv.Node, program: str, name: str) -> None:
        self.machine, self.name, self._program = machine, name, program
        self.quadlet, self.variables = f"{FOLDER}/{name}.container", f"{FOLDER}/{name}.env"
        digest = machine.run(
            "podman", "image", "inspect", "--format", "{{.Digest}}", "localhost/box:1"
        ).stdout
        self.image = f"localhost/box@{digest.strip()}"

    def write(self, *extra: dict[str, Any], prune: str = "", **properties: Any) -> None:
        """Write the manifest."""
        usual = {"image": self.image, "command": ["/bin/serve"], "network": "none"}
        mine = [{self.name: {**usual, **properties}}] if properties.get("ensure") != "gone" else []
        listed = [{"container": mine}] if mine else []
        ccm = {"resources": [*extra, *listed]} | ({"prune": prune} if prune else {})
        self.machine.path(f"/root/{self.name}.yaml").write_text(json.dumps({"ccm": ccm}))

    def apply(self, *extra: dict[str, Any], **properties: Any) -> str:
        """Write and apply the manifest; "changed", "stable" or the error of the container, "" if no event is of it."""
        self.write(*extra, **properties)
        return self.again()

    def again(self, *options: str) -> str:
        """Apply the manifest once more."""
        log = f"/root/{self.name}.events"
        self.machine.run("rm", "-f", log)
        path = f"/root/{self.name}.yaml"
        done = self.machine.run(
            self._program, "apply", path, "--events", log, *options, check=False, timeout=200
        )
        assert self.machine.path(log).exists(), done.stdout + done.stderr
        events = [json.loads(line) for line in self.machine.path(log).read_text().splitlines()]
        mine = [one for one in events if one.get("name") == self.name]
        for one in mine:
            return "; ".join(one["error"]) or ("changed" if one["changed"] else "stable")
        return ""

    def sh(self, line: str) -> str:
        """The output of a command line in the machine."""
        return str(self.machine.run("sh", "-c", f"exec 2>&1; {line}", check=False).stdout)

    @property
    def active(self) -> str:
        """What systemd and podman say of the container."""
        shown = self.sh(
            f"systemctl is-active {self.name}; podman ps -a --format '{{{{.State}}}}' --filter name=^{self.name}$"
        )
        return " ".join(shown.split())


@each_kind
def test_a_container_is_created_stable_repaired_and_removed(
    podman_machine: testenv.Node, program: str
) -> None:
    web = Site(podman_machine, program, "web")
    properties: dict[str, Any] = {
        "command": ["/bin/sh", "-c", 'echo "$PW" 100% $$ > /srv/told; exec serve'],
        "environment": ['PW=a "b" $HOME %n'],
        "labels": {"owner": 'the "web" team $HOME %n \\ '},
        "volumes": ["/srv/web:/srv"],
        "user": "0:0",
    }
    web.sh("mkdir -p /srv/web")

    assert web.apply(**properties) == "changed"
    assert (web.again(), web.active) == ("stable", "active running")
    assert web.sh("cat /srv/web/told") == 'a "b" $HOME %n 100% 1\n'
    assert web.sh("podman inspect web --format '{{.Config.Labels.owner}}'") == 'the "web" team $HOME %n \\ \n'
    assert web.sh(f"stat -c '%a %U' {web.quadlet} {web.variables}") == "644 root\n600 root\n"
    assert (
        web.sh("ls -d /run/ccm-quadlet")
        == "ls: cannot access '/run/ccm-quadlet': No such file or directory\n"
    )

    web.sh("systemctl stop web")
    assert (web.again(), web.again(), web.active) == ("changed", "stable", "active running")

    web.sh(f"sed -i 's/^Network=.*/Network=host/' {web.quadlet}")
    assert (web.again(), web.again(), web.active) == ("changed", "stable", "active running")
    assert web.sh("podman inspect web --format '{{.HostConfig.NetworkMode}}'") == "none\n"

    web.sh(f"echo B=1 >> {web.variables}; systemctl daemon-reload; podman kill web")
    assert (web.again(), web.again(), web.active) == ("changed", "stable", "active running")

    assert (web.apply(**properties, ensure="stopped"), web.again(), web.active) == (
        "changed",
        "stable",
        "inactive",
    )
    assert (web.apply(**properties), web.again(), web.active) == ("changed", "stable", "active running")

    assert (web.apply(ensure="absent"), web.again(), web.active) == ("changed", "stable", "inactive")
    assert web.sh(f"ls {FOLDER}/web*; systemctl show -P LoadState web").endswith("\nnot-found\n")


def test_a_container_is_healthy_when_its_start_ends(podman_machine: testenv.Node, program: str) -> None:
    ill = Site(podman_machine, program, "ill")
    command = ["/bin/sh", "-c", "sleep 3; echo > /tmp/well; exec serve"]
    health = {"health_command": ["test", "-e", "/tmp/well"], "health_interval": "1s"}
    other = Site(podman_machine, program, "other")
    assert other.apply() == "changed"

    assert ill.apply(command=command, **health) == "changed"

    assert ill.sh("podman inspect ill --format '{{.State.Health.Status}}'") == "healthy\n"
    assert ill.again() == "stable"
    # the other one has no health check yet, and its failure does not hide the health of this one
    ill.sh("podman exec ill busybox rm /tmp/well; for i in $(seq 5); do podman healthcheck run ill; done")
    mine = {"ill": {"image": ill.image, "command": command, "network": "none", **health}}
    theirs = {"other": {"image": ill.image, "command": ["/bin/serve"], "network": "none", **health}}
    podman_machine.path("/root/ill.yaml").write_text(
        json.dumps({"ccm": {"resources": [{"container": [theirs, mine]}]}})
    )
    assert ill.again() == "changed"
    assert ill.sh("podman inspect ill --format '{{.State.Health.Status}}'") == "healthy\n"

    failed = ill.apply(command=["/bin/serve"], **health, health_timeout=20)
    assert "the container ill is unhealthy; `podman healthcheck run ill` shows why" in failed


def test_an_image_that_is_not_there_is_an_error_before_any_change(
    podman_machine: testenv.Node, program: str
) -> None:
    lost = Site(podman_machine, program, "lost")
    wrong = f"localhost/box@sha256:{'0' * 64}"

    error = lost.apply(image=wrong)

    assert error.startswith(f"the image {wrong} cannot be fetched, so nothing was changed: "), error
    assert "connection refused" in error
    assert lost.sh(f"ls {lost.quadlet}") == f"ls: cannot access '{lost.quadlet}': No such file or directory\n"
    assert lost.apply() == "changed"
    before = lost.sh(f"cat {lost.quadlet}; systemctl show -P MainPID lost")
    assert "so nothing was changed" in lost.apply(image=wrong)
    assert lost.sh(f"cat {lost.quadlet}; systemctl show -P MainPID lost") == before


@each_kind
def test_an_undo_restores_the_earlier_container(podman_machine: testenv.Node, program: str) -> None:
    old = Site(podman_machine, program, "old")
    assert old.apply(labels={"number": "1"}, environment=["A=1"]) == "changed"
    old.write(labels={"number": "2"}, environment=["A=1"])
    podman_machine.path("/root/m.yaml").write_text(podman_machine.path("/root/old.yaml").read_text())
    podman_machine.path("/root/undo.py").write_text(PROGRAM)
    show = "podman inspect old --format '{{.Config.Labels.number}} {{.State.Status}}'"

    done = podman_machine.run(sys.executable, "/root/undo.py", show, timeout=200)

    told = [line for line in done.stdout.splitlines() if line and not line.startswith("[")]
    assert told == ["2 running", "1 running", "2 running"], done.stdout


@each_kind
def test_a_new_container_is_removed_by_its_undo_and_by_prune(
    podman_machine: testenv.Node, program: str
) -> None:
    new = Site(podman_machine, program, "new")
    new.write()
    podman_machine.path("/root/m.yaml").write_text(podman_machine.path("/root/new.yaml").read_text())
    podman_machine.path("/root/undo.py").write_text(PROGRAM)

    done = podman_machine.run(sys.executable, "/root/undo.py", "systemctl is-active new", timeout=200)

    told = [line for line in done.stdout.splitlines() if line and not line.startswith("[")]
    assert told == ["active", "inactive", "active"], done.stdout
    assert new.apply(ensure="absent") == "changed"
    assert (new.apply(prune="apply"), new.active) == ("changed", "active running")
    assert (
        new.apply(
            {
                "file": [
                    {"/root/kept": {"ensure": "directory", "owner": "root", "group": "root", "mode": "0755"}}
                ]
            },
            ensure="gone",
            prune="apply",
        )
        == "changed"
    )
    assert (new.active, new.sh(f"ls {new.quadlet}")[:10]) == ("inactive", "ls: cannot")


def test_what_another_hand_wrote_is_neither_replaced_nor_removed(
    podman_machine: testenv.Node, program: str
) -> None:
    theirs = Site(podman_machine, program, "theirs")
    text = f"[Container]\nImage={theirs.image}\nContainerName=theirs\nExec=/bin/serve\nNetwork=none\n"
    podman_machine.path(theirs.quadlet).write_text(text)
    theirs.sh("systemctl daemon-reload; systemctl start theirs")

    refused = f"{theirs.quadlet} was not written by the type `container`, so it was kept: remove it by hand"
    assert [theirs.apply(ensure=ensure) for ensure in ("running", "stopped", "absent")] == [refused] * 3

    assert (theirs.active, theirs.sh(f"cat {theirs.quadlet}")) == ("active running", text)
    unit = Site(podman_machine, program, "dbus")
    assert "dbus.service already exists in /usr/lib/systemd/system/dbus.service" in unit.apply(
        ensure="absent"
    )
    assert unit.sh("systemctl is-active dbus") == "active\n"


def test_variables_that_a_run_no_longer_names_are_not_in_its_undo_record(
    podman_machine: testenv.Node, program: str
) -> None:
    private = Site(podman_machine, program, "private")
    assert private.apply(environment=["PW=s3cr3t"], labels={"a": "first"}) == "changed"
    private.write(labels={"a": "second"})
    podman_machine.path("/root/m.yaml").write_text(podman_machine.path("/root/private.yaml").read_text())
    podman_machine.path("/root/undo.py").write_text(PROGRAM)
    private.sh("rm -rf /root/undo")
    show = "echo $(grep -ra s3cr3t /root/undo | wc -l) $(grep -ra private /root/undo | wc -l)"

    # an undo that changes nothing leaves no record, so it cannot be undone
    done = podman_machine.run(sys.executable, "/root/undo.py", show, check=False, timeout=200)

    told = [line for line in done.stdout.splitlines() if line and not line.startswith("[")]
    assert [line.split()[0] for line in told] == ["0"] * 2, done.stdout
    assert int(told[0].split()[1]) > 0
    assert "they may be secret" in done.stdout


def test_a_volume_below_a_symlink_of_another_user_is_not_mounted(
    podman_machine: testenv.Node, program: str
) -> None:
    linked = Site(podman_machine, program, "linked")
    linked.sh("mkdir -p /srv/nobody/data; chown nobody /srv/nobody; ln -s /srv/nobody /srv/roots")
    properties: dict[str, Any] = {"volumes": ["/srv/roots/data:/data"]}
    assert linked.apply(**properties) == "changed"
    linked.sh("rmdir /srv/nobody/data; setpriv --reuid=nobody --clear-groups ln -s /etc /srv/nobody/data")

    error = linked.again()

    assert error.startswith("/srv/nobody/data is a symlink that a user other than root can replace"), error
    linked.sh("systemctl stop linked")
    assert (linked.again(), linked.active) == (error, "inactive")


@each_kind
def test_an_import_is_stable_names_what_it_cannot_have_and_restores(
    podman_machine: testenv.Node, program: str
) -> None:
    web = Site(podman_machine, program, "iweb")
    rest = Site(podman_machine, program, "irest")
    secret = Site(podman_machine, program, "isecret")
    web.sh("mkdir -p /srv/iweb; echo MORE=1 > /srv/iweb.more")
    made = [
        web.apply(
            environment_files=["/srv/iweb.more"],
            labels={"team": "web 50%"},
            volumes=["/srv/iweb:/srv:ro"],
            user="0:0",
            restart="always",
        ),
        # the machine has no controller of memory, so only a stopped container has a limit
        rest.apply(ensure="stopped", enable=False, memory="64m"),
        secret.apply(environment=["DB_PASSWORD=hunter2"]),
    ]
    assert made == ["changed"] * 3
    web.sh(f"printf '[Container]\\nImage=localhost/box:1\\nAutoUpdate=local\\n' > {FOLDER}/itag.container")
    web.sh(f"sed 's/^Image=/AutoUpdate=local\\n&/' {web.quadlet} > {FOLDER}/iauto.container")
    web.sh(f"printf '[Volume]\\n' > {FOLDER}/idata.volume; chmod 644 {FOLDER}/i*; chmod 600 {FOLDER}/*.env")

    told = json.loads(podman_machine.run(program, "import", "container", "-o", "/root/site", "--json").stdout)

    found = [one["name"] for one in told["resources"] if one["name"].startswith("i")]
    assert found == ["irest", "iweb"]
    left_out = {one["name"]: one["reason"] for one in told["left_out"]}
    assert left_out["isecret"] == "has variables, which are private (mode 0600)"
    assert left_out["itag"] == "its image `localhost/box:1` has no digest, so its content may change"
    assert left_out["iauto"].startswith("has `AutoUpdate`, which this type does not have")
    assert left_out["idata.volume"].startswith("is not the quadlet of a container")
    assert "hunter2" not in web.sh("cat /root/site/manifest.yaml")

    def apply() -> list[str]:
        done = podman_machine.run(program, "apply", "/root/site/manifest.yaml", "--json", timeout=200)
        events = [
            line["event"] for line in map(json.loads, done.stdout.splitlines()) if line["record"] == "event"
        ]
        assert not any(event["failed"] for event in events)
        return [event["name"] for event in events if event["changed"]]

    assert apply() == []
    before = web.sh(f"cat {FOLDER}/iweb.* {FOLDER}/irest.container")
    web.sh(f"systemctl stop iweb; rm {FOLDER}/iweb.* {FOLDER}/irest.container; systemctl daemon-reload")
    assert apply() == ["irest", "iweb"]
    assert web.sh(f"cat {FOLDER}/iweb.* {FOLDER}/irest.container") == before
    assert (web.active, rest.active) == ("active running", "inactive")
    assert apply() == []
    web.sh(f"systemctl stop iweb isecret; rm {FOLDER}/i*; systemctl daemon-reload")


def test_an_import_over_the_bus_applies_as_stable_and_restores(
    podman_machine: testenv.Node, program: str
) -> None:
    web = Site(podman_machine, program, "fweb")
    web.sh("mkdir -p /srv/fweb; echo MORE=1 > /srv/fweb.more")
    more: dict[str, Any] = {"environment_files": ["/srv/fweb.more"], "volumes": ["/srv/fweb:/srv:ro"]}
    assert web.apply(**more, labels={"team": "web"}, restart="always") == "changed"
    web.sh(
        f"printf '[Container]\\nImage=localhost/box:1\\n' > {FOLDER}/ftag.container; chmod 644 {FOLDER}/f*"
    )
    shutil.copy(find_server(), podman_machine.path("/usr/local/bin/nats-server"))
    config = {"identity": "web1", "nats": {"url": "nats://127.0.0.1:4222"}, "state_dir": "/root/state"}
    podman_machine.path("/root/agent.json").write_text(json.dumps(config))
    started = [podman_machine.popen("nats-server", "-a", "127.0.0.1", "-js", "-sd", "/root/nats")]
    ready = "until (exec 3<>/dev/tcp/127.0.0.1/4222) 2>/dev/null; do sleep 0.05; done"
    try:
        podman_machine.run("timeout", "30", "bash", "-c", ready)

        def ctl(*words: str) -> list[dict[str, Any]]:
            ccmctl = str(Path(program).with_name("ccmctl"))
            url = ("env", "NATS_URL=nats://127.0.0.1:4222", "USER=tester", ccmctl)
            done = podman_machine.run(*url, *words, "--json", check=False, timeout=200)
            assert done.returncode == 0, done.stdout + done.stderr
            return [json.loads(line) for line in done.stdout.splitlines()]

        ctl("init")
        started.append(podman_machine.popen(program, "agent", "--config", "/root/agent.json"))
        deadline = time.monotonic() + 60
        while not any(one.get("node") == "web1" for one in ctl("node", "list")):
            assert time.monotonic() < deadline, "waited in vain for the agent"
            time.sleep(0.2)

        (told,) = (
            one
            for one in ctl("import", "--all", "--types", "container", "--out", "/root/fsite")
            if one["record"] == "import"
        )
        assert (told["nodes"], told["changes"]) == ({"web1": "imported"}, {})
        reasons = {one["name"]: one["reason"] for one in told["left_out"]["web1"]}
        assert reasons["ftag"] == "its image `localhost/box:1` has no digest, so its content may change"

        def apply() -> str:
            told = ctl("apply", "/root/fsite", "--all", "--yes")
            (state,) = (one["state"] for one in told if one["record"] == "result")
            return str(state)

        assert apply() == "stable"
        before = web.sh(f"cat {FOLDER}/fweb.container")
        web.sh(f"systemctl stop fweb; rm {FOLDER}/fweb.container; systemctl daemon-reload")
        assert (apply(), web.sh(f"cat {FOLDER}/fweb.container")) == ("changed", before)
        assert web.active == "active running"
        assert apply() == "stable"
    finally:
        for one in reversed(started):
            one.terminate()
            one.wait(timeout=30)
        web.sh(f"systemctl stop fweb; rm {FOLDER}/f*; systemctl daemon-reload")
