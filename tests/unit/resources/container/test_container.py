"""The container type: its checks, its decisions, and its provider on a host that is not real."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ccm_agent.model.errors import CommandError, PropertyError
from ccm_agent.model.records.undo import EarlierFile
from ccm_agent.resources.container import TYPE
from ccm_agent.resources.container.checks import check
from ccm_agent.resources.container.model import ContainerProperties, ContainerState
from ccm_agent.resources.container.providers import podman
from ccm_agent.resources.container.providers.podman import GENERATOR, Podman
from ccm_agent.resources.container.quadlet import parse, render, render_variables
from ccm_agent.resources.container.resource import decide, describe_unsafe_link, digest, reach
from ccm_agent.resources.container.source_links import find_unsafe_link
from ccm_agent.resources.container.undo import FOREIGN, RESTARTED, UNKNOWN_VARIABLES, earlier, identify
from ccm_agent.resources.contract import Decision, DecisionContext
from ccm_agent.testing.clock import FakeClock
from ccm_agent.testing.files import FakeFiles
from ccm_agent.testing.locks import FakeLocks
from ccm_agent.testing.runner import FakeRunner
from tests.support.resources import manage

DIGEST = f"sha256:{'ab' * 32}"
IMAGE = f"docker.io/library/nginx@{DIGEST}"
PATH = "/etc/containers/systemd/web.container"
VARIABLES = "/etc/containers/systemd/web.env"


def wanted(name: str = "web", **properties: Any) -> ContainerProperties:
    return ContainerProperties(name=name, **{"ensure": "running", "image": IMAGE, **properties})


def unit(active: str = "inactive", **values: str) -> str:
    shown = {
        "Id": "web.service",
        "LoadState": "loaded",
        "ActiveState": active,
        "FragmentPath": "/run/systemd/generator/web.service",
        "SourcePath": PATH,
        "NeedDaemonReload": "no",
        **values,
    }
    return "".join(f"{key}={value}\n" for key, value in shown.items())


NONE = unit(LoadState="not-found", FragmentPath="", SourcePath="")


class Host:
    """A host with podman; `shown` are the answers of `systemctl show`, in order."""

    def __init__(
        self, *shown: str, quadlet: ContainerProperties | None = None, has_quadlet: bool = True
    ) -> None:
        self.files, self.runner, self.locks, self.clock = FakeFiles(), FakeRunner(), FakeLocks(), FakeClock()
        self.files.put_directory("/etc/containers/systemd")
        self.files.put_directory("/run/systemd/system")
        if has_quadlet:
            self.files.put(GENERATOR, "")
        if quadlet is not None:
            self.files.put(PATH, render(quadlet).decode())
            if quadlet.environment:
                self.files.put(VARIABLES, render_variables(quadlet).decode(), mode=0o600)
        for answer in shown or (NONE, unit("active")):
            self.runner.when("systemctl", "show", stdout=answer)
        for verb in ("daemon-reload", "reset-failed", "start", "stop", "restart"):
            self.runner.when("systemctl", verb)
        self.runner.when(GENERATOR, stdout="---web.service---\n[Service]\n")
        self.runner.when("podman", "image", "exists")
        self.provider = Podman(self.runner, self.files, self.locks, self.clock)

    async def manage(self, one: ContainerProperties) -> Any:
        """Manage a container while the time passes."""
        managing = asyncio.create_task(manage(TYPE, self.provider, one))
        while not managing.done():
            await self.clock.advance(1)
            await asyncio.sleep(0)
        return await managing

    @property
    def verbs(self) -> list[str]:
        return [
            " ".join(one.argv[:2]).removeprefix("systemctl ")
            for one in self.runner.commands
            if one.argv[:3] != ("podman", "image", "exists")
        ]

    def text(self, path: str = PATH) -> str | None:
        node = self.files.nodes.get(path)
        return node.content.decode() if node else None


@pytest.mark.parametrize(
    ("properties", "place"),
    [
        pytest.param({"name": ""}, "name", id="no name"),
        pytest.param({"name": "-rf"}, "name", id="an option"),
        pytest.param({"name": "../web"}, "name", id="a path upwards"),
        pytest.param({"name": "web\n"}, "name", id="a newline in the name"),
        pytest.param({"name": "we\0b"}, "name", id="a NUL in the name"),
        pytest.param({"name": "web@1"}, "name", id="a template"),
        pytest.param({"name": "%n"}, "name", id="a specifier in the name"),
        pytest.param({"name": "a" * 101}, "name", id="an overlong name"),
        pytest.param({"image": ""}, "image", id="no image"),
        pytest.param({"image": "docker.io/library/nginx"}, "image", id="no digest"),
        pytest.param({"image": "docker.io/library/nginx:1.27"}, "image", id="a tag"),
        pytest.param({"image": f"nginx@{DIGEST}"}, "image", id="no registry"),
        pytest.param({"image": f"{IMAGE}\nPodmanArgs=--privileged"}, "image", id="a line in the image"),
        pytest.param({"image": f"-v/:/host@{DIGEST}"}, "image", id="an option for an image"),
        pytest.param({"image": f"library/nginx@{DIGEST}"}, "image", id="a path without a registry"),
        pytest.param(
            {"image": "docker-archive:/home/eve/x.tar", "allow_tag": True},
            "image",
            id="an archive of the host",
        ),
        pytest.param({"image": "dir:/home/eve/x", "allow_tag": True}, "image", id="a folder of the host"),
        pytest.param(
            {"image": "dir:5000/x", "allow_tag": True}, "image", id="a folder that looks like a port"
        ),
        pytest.param({"image": f"oci:/home/eve/x@{DIGEST}"}, "image", id="an OCI folder of the host"),
        pytest.param({"image": "docker.io/x@sha256:ab"}, "image", id="a short digest"),
        pytest.param({"command": ["a\n[Service]\nExecStartPre=/bin/sh"]}, "command[0]", id="a section"),
        pytest.param({"command": ["a", "b\0"]}, "command[1]", id="a NUL in the command"),
        pytest.param({"command": ["a" * 4097]}, "command[0]", id="a huge argument"),
        pytest.param({"command": ["a\ud800"]}, "command[0]", id="no UTF-8"),
        pytest.param({"command": ["a"] * 201}, "command", id="too many arguments"),
        pytest.param({"environment": ["A"]}, "environment[0]", id="a variable without a value"),
        pytest.param({"environment": ["A=1\nB=2"]}, "environment[0]", id="a newline in a variable"),
        pytest.param({"environment": ["A B=1"]}, "environment[0]", id="a space in a variable's name"),
        pytest.param({"environment": ["A=1", "A=2"]}, "environment[1]", id="a variable twice"),
        pytest.param({"environment": ["A= 1"]}, "environment[0]", id="a space that podman removes"),
        pytest.param({"environment_files": ["x.env"]}, "environment_files[0]", id="a relative file"),
        pytest.param({"environment_files": ["/a\nImage=x"]}, "environment_files[0]", id="a line in a file"),
        pytest.param({"environment_files": ["/a/../b"]}, "environment_files[0]", id="a file upwards"),
        pytest.param({"environment_files": [VARIABLES]}, "environment_files[0]", id="the type's own file"),
        pytest.param({"ports": ["80;reboot"]}, "ports[0]", id="no port"),
        pytest.param({"ports": ["80:99999"]}, "ports[0]", id="a port that is too high"),
        pytest.param({"ports": ["80:80\nImage=x"]}, "ports[0]", id="a line in a port"),
        pytest.param({"volumes": ["/a"]}, "volumes[0]", id="no target"),
        pytest.param({"volumes": ["../a:/b"]}, "volumes[0]", id="a relative source"),
        pytest.param({"volumes": ["/a/../etc:/b"]}, "volumes[0]", id="a source upwards"),
        pytest.param({"volumes": ["%h:/b"]}, "volumes[0]", id="a specifier in a volume"),
        pytest.param({"volumes": ['/a":/b']}, "volumes[0]", id="a quote in a volume"),
        pytest.param({"volumes": ["data.volume:/b"]}, "volumes[0]", id="a quadlet for a volume"),
        pytest.param({"network": "container:other"}, "network", id="the network of another container"),
        pytest.param({"network": "x.network"}, "network", id="a quadlet for a network"),
        pytest.param({"network": "host\nPodmanArgs=--privileged"}, "network", id="a line in the network"),
        pytest.param({"user": "a b"}, "user", id="a space in the user"),
        pytest.param({"user": "--privileged"}, "user", id="an option for a user"),
        pytest.param({"labels": {"a b": "1"}}, "labels", id="a space in a label"),
        pytest.param({"labels": {"a": "1\n2"}}, "labels.a", id="a line in a label"),
        pytest.param({"memory": "1m --privileged"}, "memory", id="an option after the memory"),
        pytest.param({"restart": "always\nUser=x"}, "restart", id="a line in the restart"),
        pytest.param(
            {"health_command": ["CMD-SHELL", "x"]}, "health_command[0]", id="a shell for the health"
        ),
        pytest.param({"health_command": ["a && b"]}, "health_command", id="a shell's line for the health"),
        pytest.param(
            {"health_command": ["a"], "health_interval": "1 s"}, "health_interval", id="no interval"
        ),
        pytest.param({"health_interval": "1s"}, "health_interval", id="an interval without a command"),
    ],
)
def test_hostile_properties_are_refused(properties: dict[str, Any], place: str) -> None:
    with pytest.raises(PropertyError) as caught:
        check(wanted(**properties))

    assert caught.value.place is not None
    assert caught.value.place.path == f"$.{place}"


@pytest.mark.parametrize(
    "registry", ["docker.io", "localhost", "localhost:5000", "registry:5000", "10.0.0.1", "10.0.0.1:5000"]
)
def test_a_registry_has_a_dot_or_a_port_or_is_this_host(registry: str) -> None:
    check(wanted(image=f"{registry}/team/web@{DIGEST}"))


FULL = wanted(
    allow_tag=False,
    command=["/bin/sh", "-c", 'echo "$HOME" 100% \\n', "", 'x" ', '" "', "\\x22", "ä"],
    environment=["A=1", 'B="x" $y %z'],
    environment_files=["/etc/web.env"],
    ports=["8080:80", "127.0.0.1:53:53/udp", "[::1]:81:81", "9000-9010:9000-9010"],
    volumes=["/srv/www:/var/www:ro", "/srv/data:/data", "cache:/cache"],
    network="host",
    user="1000:www",
    labels={"a": 'b c% $HOME "q" \\', "io.x/y": ""},
    memory="512m",
    restart="always",
    enable=False,
    health_command=["curl", "-f", 'http://localhost/%$"'],
    health_interval="10s",
)


@pytest.mark.parametrize("one", [FULL, wanted(), wanted(image="registry:5000/a/b:1", allow_tag=True)])
def test_a_quadlet_has_all_that_is_wanted_and_is_read_again(one: ContainerProperties) -> None:
    check(one)
    found = parse("web", render(one), render_variables(one))

    assert found is not None
    assert (render(found), found.environment, found.command) == (render(one), one.environment, one.command)
    assert (found.labels, found.health_command, found.volumes) == (
        one.labels,
        one.health_command,
        one.volumes,
    )


def test_a_quadlet_is_written_as_podman_reads_it() -> None:
    text = render(FULL).decode()

    assert (
        'Exec="/bin/sh" "-c" "echo \\x22$$HOME\\x22 100%% \\\\n" "" "x\\x22 " "\\x22 \\x22" "\\\\x22" "ä"\n'
        in text
    )
    assert 'Label="a=b c%% $$HOME \\x22q\\x22 \\\\"\n' in text
    assert "PodmanArgs=--memory=512m\n" in text
    assert "A=1" not in text
    assert "[Install]" not in text


@pytest.mark.parametrize(
    "text", [b"[Container]\nImage=x\n", b"\xff", b"[Container]\nPodmanArgs=--privileged\n"]
)
def test_a_quadlet_of_another_hand_is_not_read(text: bytes) -> None:
    assert parse("web", text, b"") is None


def state(**values: Any) -> ContainerState:
    usual = {"ensure": "absent", "path": PATH, "active": "inactive"}
    return ContainerState(protocol=TYPE.state_protocol, type="container", name="web", **{**usual, **values})


AS_WANTED: dict[str, Any] = {
    "ensure": "running",
    "kind": "file",
    "checksum": digest(render(wanted())),
    "mode": "0644",
    "uid": 0,
    "active": "active",
}
CREATED, CHANGED = "Would have created the container", "Would have changed the container"
STARTED, RESTART = "Would have started the container", "Would have restarted the container"
RELOAD = "Would have reloaded systemd"
STOP, REMOVE = "Would have stopped the container", "Would have removed the container"


@pytest.mark.parametrize(
    ("properties", "found", "noop"),
    [
        pytest.param({}, AS_WANTED, [], id="as wanted"),
        pytest.param({}, {}, [CREATED, STARTED], id="not there"),
        pytest.param({"ensure": "present"}, {}, [CREATED], id="not there, and not to be started"),
        pytest.param({"ensure": "stopped"}, {}, [CREATED], id="not there, and to be stopped"),
        pytest.param({}, {**AS_WANTED, "checksum": "x"}, [CHANGED, RESTART], id="other content"),
        pytest.param({"ensure": "present"}, {**AS_WANTED, "checksum": "x"}, [CHANGED], id="only the file"),
        pytest.param({}, {**AS_WANTED, "mode": "0666"}, [CHANGED, RESTART], id="other mode"),
        pytest.param({}, {**AS_WANTED, "uid": 7}, [CHANGED, RESTART], id="other owner"),
        pytest.param({"environment": ["A=1"]}, AS_WANTED, [CHANGED, RESTART], id="no variables yet"),
        pytest.param({}, {**AS_WANTED, "variables_kind": "file"}, [CHANGED, RESTART], id="old variables"),
        pytest.param({}, {**AS_WANTED, "active": "failed"}, [STARTED], id="failed"),
        pytest.param({}, {**AS_WANTED, "active": "activating"}, [STARTED], id="about to be restarted"),
        pytest.param({}, {**AS_WANTED, "health": "unhealthy"}, [RESTART], id="unhealthy"),
        pytest.param({}, {**AS_WANTED, "health": "starting"}, [], id="not known to be healthy yet"),
        pytest.param({}, {**AS_WANTED, "needs_reload": True}, [RELOAD, RESTART], id="not read"),
        pytest.param(
            {"ensure": "present"}, {**AS_WANTED, "needs_reload": True}, [RELOAD], id="only a file, not read"
        ),
        pytest.param({"ensure": "stopped"}, AS_WANTED, [STOP], id="to be stopped"),
        pytest.param({"ensure": "absent"}, AS_WANTED, [STOP, REMOVE], id="to be removed"),
        pytest.param({"ensure": "stopped"}, {**AS_WANTED, "active": "activating"}, [STOP], id="on its way"),
        pytest.param(
            {"ensure": "absent"}, {**AS_WANTED, "active": "failed"}, [STOP, REMOVE], id="failed, to go"
        ),
        pytest.param({"ensure": "absent"}, {"variables_kind": "file"}, [REMOVE], id="variables are left"),
        pytest.param({"ensure": "absent"}, {}, [], id="absent"),
    ],
)
def test_what_must_be_done_follows_from_what_is_wanted_and_there(
    properties: dict[str, Any], found: dict[str, Any], noop: list[str]
) -> None:
    decision = decide(wanted(**properties), state(**found), DecisionContext())

    assert [step.noop for step in decision.steps] == noop
    assert bool(decision.reason) == bool(decision.steps)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({"kind": "symlink"}, "is not a regular file: it is a symlink"),
        ({"variables_kind": "directory"}, "web.env is not a regular file"),
        ({"error": "web.service is another unit"}, "is another unit"),
        ({"has_quadlet": False}, "install podman 4.4 or later"),
    ],
)
def test_what_cannot_be_managed_is_left_alone(found: dict[str, Any], message: str) -> None:
    decision = decide(wanted(), state(**found), DecisionContext())

    assert decision.steps == ()
    assert message in str(decision.error)


def test_a_plan_may_count_on_podman_being_installed_by_then() -> None:
    assert decide(wanted(), state(has_quadlet=False), DecisionContext(noop=True)).error is None


def test_a_subscription_restarts_what_runs() -> None:
    context = DecisionContext(triggered_by="file#/etc/web.conf")

    running = decide(wanted(), state(**AS_WANTED), context)
    stopped = decide(wanted(ensure="stopped"), state(**AS_WANTED), context)

    assert ([one.noop for one in running.steps], running.refreshed) == (
        ["Would have restarted via subscribe"],
        True,
    )
    assert stopped.refreshed is False


def test_a_restricted_plan_does_not_tell_what_runs() -> None:
    context = DecisionContext(noop=True, is_restricted=True)

    assert decide(wanted(), state(**{**AS_WANTED, "active": ""}), context).unknown
    assert decide(wanted(), state(active=""), context).steps


def test_a_plan_names_the_image_before_and_after() -> None:
    changes = decide(
        wanted(), state(**{**AS_WANTED, "checksum": "x", "image": "old"}), DecisionContext()
    ).changes

    assert [(one.property, one.before, one.after) for one in changes] == [("image", "old", IMAGE)]


def test_the_policy_sees_files_unit_and_volumes() -> None:
    access = reach(FULL)

    assert access.paths == (PATH, VARIABLES)
    assert (access.trees, access.reads_trees) == (("/srv/data",), ("/srv/www",))
    assert (access.reads, access.services) == (("/etc/web.env",), ("web.service",))


@pytest.mark.parametrize(
    ("options", "changes"),
    [("ro", False), ("ro,O", False), ("ro,U", True), ("ro,z", True), ("Z,ro", True), ("ro,rw", True)],
)
def test_a_mount_whose_source_podman_changes_is_no_mere_reading(options: str, changes: bool) -> None:
    one = wanted(volumes=[f"/srv/www:/www:{options}"])
    check(one)
    access = reach(one)

    assert (access.trees, access.reads_trees) == ((("/srv/www",), ()) if changes else ((), ("/srv/www",)))


async def test_a_container_is_verified_written_and_started_after_one_reload() -> None:
    host = Host()

    event = await manage(TYPE, host.provider, wanted(environment=["A=secret"]))
    await host.provider.finish()

    assert (event.error, event.changed) == ([], True)
    assert host.verbs == ["show", f"{GENERATOR} --dryrun", "daemon-reload", "start", "show"]
    assert host.files.nodes[VARIABLES].mode == 0o600
    assert host.text(VARIABLES) == "A=secret\n"
    assert "secret" not in (host.text() or "")
    assert not [path for path in host.files.nodes if path.startswith(podman.FOLDER)]


async def test_what_a_killed_process_left_is_removed_under_the_lock() -> None:
    host = Host()
    host.files.put(f"{podman.FOLDER}/stale.container", "[Container]")
    seen: list[list[str]] = []

    def look() -> None:
        seen.append([path for path in host.files.nodes if path.startswith(f"{podman.FOLDER}/")])

    host.runner.when(GENERATOR, "--dryrun", stdout="---web.service---\n", effect=look)

    event = await manage(TYPE, host.provider, wanted())

    assert event.error == []
    assert seen == [[f"{podman.FOLDER}/web.container"]]
    assert podman.LOCK in host.locks.held
    assert podman.FOLDER not in host.files.nodes


async def test_a_folder_of_another_process_is_not_touched() -> None:
    host = Host()
    host.files.put(f"{podman.FOLDER}/theirs.container", "x")
    host.locks.foreign[podman.LOCK] = "ccm agent (pid 7)"

    event = await manage(TYPE, host.provider, wanted())

    assert "is still held by ccm agent (pid 7)" in event.error[0]
    assert f"{podman.FOLDER}/theirs.container" in host.files.nodes
    assert host.text() is None


async def test_containers_that_are_not_started_share_one_reload() -> None:
    host = Host(NONE)

    for _ in range(3):
        await host.provider.store(wanted(ensure="present"))
    await host.provider.finish()
    await host.provider.finish()

    assert host.verbs.count("daemon-reload") == 1


async def test_a_container_that_is_removed_is_stopped_first() -> None:
    host = Host(unit("active"), unit(), quadlet=wanted(environment=["A=1"]))

    event = await manage(TYPE, host.provider, wanted(ensure="absent", image=""))

    assert (event.error, event.changed) == ([], True)
    assert host.verbs == ["show", "stop", "reset-failed", "show"]
    assert (host.text(), host.text(VARIABLES)) == (None, None)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            {"code": 1, "stderr": "quadlet[1]: Loading source unit file /x\nunsupported key 'Foo'\n"},
            "is not valid for this host's podman, so nothing was written: unsupported key 'Foo'",
        ),
        ({"stdout": ""}, "its generator creates no unit for it"),
        ({"hangs": True}, "ran for 60 s and was killed"),
        ({"error": "no such file"}, "cannot be verified, so nothing was written"),
    ],
)
async def test_a_quadlet_that_podman_does_not_read_is_not_written(
    answer: dict[str, Any], message: str
) -> None:
    host = Host(unit("active"), quadlet=wanted(ports=["1:1"]))
    host.runner.when(GENERATOR, "--dryrun", **answer)

    event = await manage(TYPE, host.provider, wanted())

    assert message in event.error[0]
    assert host.text() == render(wanted(ports=["1:1"])).decode()
    assert not [path for path in host.files.nodes if path.startswith(podman.FOLDER)]


@pytest.mark.parametrize(
    "shown",
    [
        {"FragmentPath": "/usr/lib/systemd/system/web.service", "SourcePath": ""},
        {"SourcePath": "/usr/share/containers/systemd/web.container"},
        {"SourcePath": "/run/containers/systemd/web.container"},
        {"FragmentPath": "/run/systemd/generator.late/web.service", "SourcePath": "/etc/init.d/web"},
    ],
)
@pytest.mark.parametrize("ensure", ["running", "stopped", "absent"])
async def test_a_unit_of_the_same_name_is_not_taken_over(shown: dict[str, str], ensure: str) -> None:
    host = Host(unit("active", **shown))

    event = await manage(TYPE, host.provider, wanted(ensure=ensure))

    place = shown["SourcePath"] or shown["FragmentPath"]
    assert event.error == [f"web.service already exists in {place}: choose another name for the container"]
    assert (host.text(), host.verbs) == (None, ["show"])


@pytest.mark.parametrize("text", ["[Container]\nImage=x\n", "", "# Managed by another program\n"])
@pytest.mark.parametrize("ensure", ["running", "stopped", "present", "absent"])
async def test_a_quadlet_of_another_hand_is_neither_replaced_nor_removed(ensure: str, text: str) -> None:
    host = Host(unit("active"))
    host.files.put(PATH, text)

    event = await manage(
        TYPE, host.provider, wanted(ensure=ensure) if ensure != "absent" else wanted(ensure=ensure, image="")
    )

    assert event.error == [
        f"{PATH} was not written by the type `container`, so it was kept: remove it by hand"
    ]
    assert (host.text(), host.verbs) == (text, ["show"])


@pytest.mark.parametrize("text", [render(wanted()).decode(), render(wanted()).decode() + "# by hand\n"])
async def test_a_quadlet_of_this_type_is_removed_also_when_it_was_edited(text: str) -> None:
    host = Host(unit(), quadlet=wanted())
    host.files.put(PATH, text)

    event = await manage(TYPE, host.provider, wanted(ensure="absent", image=""))

    assert (event.error, host.text()) == ([], None)


async def test_an_image_is_fetched_before_anything_is_written() -> None:
    host = Host()
    host.runner.when("podman", "image", "exists", "--", code=1)
    seen: list[str | None] = []
    host.runner.when("podman", "pull", effect=lambda: seen.append(host.text()))

    event = await manage(TYPE, host.provider, wanted())

    assert (event.error, seen) == ([], [None])
    assert host.verbs.count("podman pull") == 1
    pull = next(one for one in host.runner.commands if one.argv[1] == "pull")
    assert pull.argv == ("podman", "pull", "--quiet", "--", IMAGE)


async def test_an_image_that_cannot_be_fetched_changes_nothing() -> None:
    before = wanted(ports=["1:1"])
    host = Host(unit("active"), quadlet=before)
    host.runner.when("podman", "image", "exists", "--", code=1)
    host.runner.when("podman", "pull", code=125, stderr="manifest unknown")

    event = await manage(TYPE, host.provider, wanted())

    assert event.error == [f"the image {IMAGE} cannot be fetched, so nothing was changed: manifest unknown"]
    assert host.text() == render(before).decode()
    assert "restart" not in host.verbs


async def test_only_a_container_that_is_to_run_needs_its_image() -> None:
    host = Host(NONE, unit())

    event = await manage(TYPE, host.provider, wanted(ensure="present"))

    assert event.error == []
    assert not [one for one in host.runner.commands if one.argv[0] == "podman"]


LINKED = {"volumes": ["/home/eve/data/site:/www:ro"]}


def swap(host: Host, owner: int = 1000, folder_owner: int = 1000, mode: int = 0o755) -> None:
    """Put a symlink in the path of a volume."""
    host.files.put_directory("/home/eve", mode=mode, uid=folder_owner)
    host.files.put_symlink("/home/eve/data", "/etc")
    host.files.nodes["/home/eve/data"].uid = owner


@pytest.mark.parametrize(
    ("owner", "folder_owner", "mode", "is_refused"),
    [
        pytest.param(1000, 0, 0o755, True, id="of another user"),
        pytest.param(0, 1000, 0o755, True, id="in a folder of another user"),
        pytest.param(0, 0, 0o1777, True, id="in a folder that everyone can write"),
        pytest.param(0, 0, 0o775, True, id="in a folder that a group can write"),
        pytest.param(0, 0, 0o755, False, id="of root"),
    ],
)
@pytest.mark.parametrize("properties", [LINKED, {"environment_files": ["/home/eve/data/x.env"]}])
async def test_a_symlink_that_another_user_can_replace_is_not_followed(
    properties: dict[str, Any], owner: int, folder_owner: int, mode: int, is_refused: bool
) -> None:
    host = Host()
    swap(host, owner, folder_owner, mode)

    event = await manage(TYPE, host.provider, wanted(**properties))

    assert event.error == ([describe_unsafe_link("/home/eve/data")] if is_refused else [])
    assert (host.text() is None) == is_refused


async def test_a_path_that_is_replaced_after_the_look_is_not_mounted() -> None:
    host = Host()
    host.runner.when("podman", "image", "exists", "--", code=1)
    host.runner.when("podman", "pull", effect=lambda: swap(host))

    event = await manage(TYPE, host.provider, wanted(**LINKED))

    assert event.error == [describe_unsafe_link("/home/eve/data")]
    assert "start" not in host.verbs


async def test_a_container_whose_path_is_replaced_while_it_starts_is_stopped() -> None:
    host = Host()
    host.runner.when("systemctl", "start", "--system", effect=lambda: swap(host))

    event = await manage(TYPE, host.provider, wanted(**LINKED))

    assert event.error == [f"the container web was stopped: {describe_unsafe_link('/home/eve/data')}"]
    assert host.verbs[-2:] == ["start", "stop"]


async def test_symlinks_of_root_are_followed_to_one_of_another_user_and_not_forever() -> None:
    files = FakeFiles()
    files.put_symlink("/var/run", "/run")
    files.put_symlink("/run/data", "../home/eve/data")
    files.put_directory("/home/eve", uid=1000)
    files.put_symlink("/home/eve/data", "/etc")
    files.nodes["/home/eve/data"].uid = 1000
    files.put_symlink("/loop", "/loop")

    assert await find_unsafe_link(files, ["/srv", "/var/run/data/x"]) == "/home/eve/data"
    assert await find_unsafe_link(files, ["/var/run/docker.sock", "/", "/none/there"]) == ""
    assert await find_unsafe_link(files, ["/loop/x"]) == "/loop/x"


@pytest.mark.parametrize("path", [PATH, VARIABLES])
async def test_variables_of_a_run_that_ended_between_two_writes_reach_the_container(path: str) -> None:
    host = Host(unit("active"), quadlet=wanted(environment=["A=1"]))
    host.files.refuses[path] = "no space left on device"

    failed = await manage(TYPE, host.provider, wanted(environment=["A=2"]))
    del host.files.refuses[path]
    await manage(TYPE, host.provider, wanted(environment=["A=2"]))

    assert "no space left on device" in failed.error[0]
    assert host.text(VARIABLES) == "A=2\n"
    assert host.verbs.count("restart") == 1


async def test_a_run_that_was_killed_before_the_restart_is_repaired_by_the_next_one() -> None:
    one = wanted(environment=["A=1"])
    host = Host(unit("active", NeedDaemonReload="yes"), unit("active"), quadlet=one)

    event = await manage(TYPE, host.provider, one)

    assert (event.error, event.changed) == ([], True)
    assert host.verbs == ["show", "daemon-reload", "restart", "show"]


async def test_a_start_ends_when_the_container_is_healthy() -> None:
    host = Host()
    for health in ("starting", "starting", "healthy"):
        host.runner.when("podman", "container", "inspect", stdout=f"web {health}\n")

    event = await host.manage(wanted(health_command=["true"]))

    assert (event.error, event.changed) == ([], True)
    assert host.verbs.count("podman container") == 4


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"stdout": "web unhealthy\n"}, "the container web is unhealthy; `podman healthcheck run web`"),
        ({"stdout": "web starting\n"}, "was not healthy within 3 s: it is starting"),
        ({"stdout": "web x\x1b[31m\n"}, "was not healthy within 3 s: it is missing"),
        ({"stdout": f"web {'x' * 9999}\n"}, "was not healthy within 3 s: it is missing"),
        ({"code": 125, "stderr": "no such object"}, "was not healthy within 3 s: it is missing"),
        ({"hangs": True}, "`podman` ran for 60 s and was killed"),
    ],
)
async def test_a_container_that_does_not_become_healthy_fails(answer: dict[str, Any], message: str) -> None:
    host = Host()
    host.runner.when("podman", "container", "inspect", **answer)

    event = await host.manage(wanted(health_command=["true"], health_timeout=3))

    assert message in event.error[0]


async def test_a_start_that_fails_is_an_error() -> None:
    host = Host()
    host.runner.when("systemctl", "start", "--system", code=1, stderr="Job for web.service failed")

    event = await manage(TYPE, host.provider, wanted())

    assert event.error == ["`systemctl start web.service` failed: Job for web.service failed"]


async def test_a_reload_that_fails_is_an_error_until_it_works() -> None:
    host = Host()
    host.runner.when("systemctl", "daemon-reload", "--system", code=1, stderr="Access denied")
    host.runner.when("systemctl", "daemon-reload", "--system")

    await host.provider.store(wanted())
    with pytest.raises(CommandError, match="systemd cannot load the quadlets: Access denied"):
        await host.provider.finish()
    await host.provider.finish()

    assert host.verbs.count("daemon-reload") == 2


async def test_a_thousand_containers_are_two_looks_and_one_question_to_each_tool() -> None:
    many = [wanted(f"web{number}", health_command=["true"]) for number in range(1000)]
    host = Host("\n".join(unit("active", Id=one.unit, SourcePath=one.path) for one in many))
    host.runner.when("podman", "container", stdout="".join(f"{one.name} healthy\n" for one in many))
    for one in many:
        host.files.put(one.path, render(one).decode())

    states = await host.provider.look_ahead(many)

    assert {(one.ensure, one.health) for one in states if one} == {("running", "healthy")}
    assert host.verbs == ["show", "podman container"]
    assert len(host.files.looked_at) == 2


async def test_a_container_is_not_removed_where_commands_are_forbidden() -> None:
    host = Host(quadlet=wanted())
    provider = Podman(host.runner, host.files, host.locks, host.clock, asks_systemd=False)

    event = await manage(TYPE, provider, wanted(ensure="absent", image=""))

    assert "the node's policy forbids commands" in event.error[0]
    assert host.text() is not None
    assert host.runner.commands == []


async def keep(path: str, *, with_content: bool) -> EarlierFile:
    raise AssertionError(path)


async def test_an_undo_brings_the_earlier_properties_back() -> None:
    before = wanted(environment=["A=1"], command=["x"], image="docker.io/x/y:1", allow_tag=True)
    host = Host(unit("active"), quadlet=before)
    found = await host.provider.status(wanted())

    back = await earlier(wanted(environment=["A=1", "B=2"]), found, Decision(), keep)

    assert back.why_not == ""
    again = ContainerProperties(name="web", **back.properties)
    assert (again.ensure, render(again), again.environment) == ("running", render(before), ["A=1"])
    check(again)


@pytest.mark.parametrize("environment", [[], ["PASSWORD=other"], ["OTHER=1"]])
async def test_an_undo_does_not_keep_variables_that_the_run_does_not_know(environment: list[str]) -> None:
    host = Host(unit("active"), quadlet=wanted(environment=["PASSWORD=s3cr3t", "OTHER=1"]))
    now = wanted(environment=environment)

    back = await earlier(now, await host.provider.status(now), Decision(), keep)

    assert back.why_not == UNKNOWN_VARIABLES
    assert "s3cr3t" not in repr(back)


async def test_an_undo_leaves_alone_what_it_cannot_bring_back() -> None:
    host = Host(unit("active"))
    host.files.put(PATH, "[Container]\nImage=x\n")
    foreign = await earlier(wanted(), await host.provider.status(wanted()), Decision(), keep)
    refreshed = decide(wanted(), state(**AS_WANTED), DecisionContext(triggered_by="file#/x"))
    restarted = await earlier(wanted(), state(**AS_WANTED), refreshed, keep)
    new = await earlier(wanted(), state(), Decision(), keep)

    assert (foreign.why_not, restarted.why_not, new.properties) == (FOREIGN, RESTARTED, {"ensure": "absent"})


def test_a_state_is_recognized_by_its_files_and_whether_it_runs() -> None:
    assert identify(state(**AS_WANTED)) != identify(state(**{**AS_WANTED, "variables_checksum": "x"}))
    assert identify(state(**AS_WANTED)) == identify(state(**AS_WANTED, health="healthy"))


async def test_a_diff_shows_both_files() -> None:
    host = Host(quadlet=wanted())

    changes = await host.provider.compare(wanted(environment=["A=1"]))
    removed = await host.provider.compare(wanted(ensure="absent", image=""))

    assert [(one.path, one.is_private, one.after is not None) for one in changes] == [
        (PATH, False, True),
        (VARIABLES, True, True),
    ]
    assert [(one.path, one.stays) for one in removed] == [(PATH, False)]


async def test_a_diff_hides_variables_that_everyone_could_read() -> None:
    host = Host(quadlet=wanted(environment=["A=secret"]))
    host.files.put(VARIABLES, "A=secret\n", mode=0o644)

    changes = await host.provider.compare(wanted())

    assert [(one.path, one.is_private) for one in changes] == [(PATH, False), (VARIABLES, True)]


@pytest.mark.parametrize("target", ["/srv/containers", "../srv/containers"])
async def test_a_quadlet_below_a_symlink_is_its_own(target: str) -> None:
    host = Host(unit("active", SourcePath="/srv/containers/systemd/web.container"))
    del host.files.nodes["/etc/containers/systemd"], host.files.nodes["/etc/containers"]
    host.files.put_directory("/srv/containers/systemd")
    host.files.put_symlink("/etc/containers", target)

    found = await host.provider.status(wanted())

    assert (found.error, found.active) == ("", "active")
