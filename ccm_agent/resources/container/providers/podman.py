"""
Manages quadlets in /etc/containers/systemd. podman's generator converts them to systemd units.

Source: podman-systemd.unit(5), systemctl(1), systemd.generator(7); podman 5.4, systemd 257 (Debian 13).
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ccm_agent.model.errors import CommandError, FileError
from ccm_agent.model.ports import Clock, Command, Completed, FileInfo, Files, Locks, Runner
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.container.checks import opened_paths
from ccm_agent.resources.container.model import (
    DIRECTORY,
    RUNNING,
    SECRET_MODE,
    STOPPED,
    ContainerProperties,
    ContainerState,
)
from ccm_agent.resources.container.quadlet import (
    START_LIMIT_S,
    is_written_by_us,
    parse,
    render,
    render_variables,
)
from ccm_agent.resources.container.resource import ACTIVE, UNHEALTHY, describe_unsafe_link, digest
from ccm_agent.resources.container.source_links import find_unsafe_link
from ccm_agent.resources.host_tools import run_tool, trial_folder
from ccm_agent.resources.registry import SEARCH_PATH

if TYPE_CHECKING:
    from ccm_agent.resources.changes import FileChange

GENERATOR = "/usr/lib/systemd/system-generators/podman-system-generator"
FOLDER = "/run/ccm-quadlet"
"""The folder in which the generator checks a new quadlet."""
LOCK = "quadlet"
RUNNING_SYSTEMD = "/run/systemd/system"
"""This path exists if systemd manages this host; see sd_booted(3)."""
LIMIT_BYTES = 1 << 20
LOOK_LIMIT_S = 60
RELOAD_LIMIT_S = 5 * 60
CHANGE_LIMIT_S = START_LIMIT_S + 60
"""The time limit of systemctl when it changes a unit. It exceeds the unit's own time limit for the start."""
HEALTH_EVERY_S = 1.0
SAID_BYTES = 1000
WORD_LENGTH = 20
_PROPERTIES = "Id,LoadState,ActiveState,FragmentPath,SourcePath,NeedDaemonReload"
_PROGRESS = "Loading source unit file"
"""The generator prints this for each file that it reads."""


class Podman:
    """
    The provider `podman`.

    Args:
        runner: Runs systemctl, podman and its generator.
        files: Reads and writes the files.
        locks: Provides the lock of services.
        clock: Used to wait until a container is healthy.
        asks_systemd: Whether programs may run. In a restricted plan they may not run, and only files are compared.
    """

    def __init__(
        self, runner: Runner, files: Files, locks: Locks, clock: Clock, *, asks_systemd: bool = True
    ) -> None:
        self._runner = runner
        self._files = files
        self._locks = locks
        self._clock = clock
        self._asks_systemd = asks_systemd
        self._must_reload = False
        self._fetched: set[str] = set()

    async def status(self, wanted: ContainerProperties) -> ContainerState:
        """Return the state of one container."""
        return (await self._look([wanted]))[0]

    async def look_ahead(self, wanted: Sequence[ContainerProperties]) -> Sequence[ContainerState | None]:
        """Return the result of `status` for each container, with one query to systemd and one to podman."""
        try:
            return await self._look(wanted)
        except CommandError:
            return [None] * len(wanted)

    async def compare(self, wanted: ContainerProperties) -> list[FileChange]:
        """Return the contents of both files before and after, for a diff."""
        from ccm_agent.resources.changes import compare_file

        is_there = wanted.ensure != ABSENT
        quadlet = render(wanted) if is_there else None
        variables = render_variables(wanted) if is_there else b""
        compared = [
            await compare_file(self._files, wanted.path, wanted.mode_bits, quadlet),
            await compare_file(self._files, wanted.variables_path, SECRET_MODE, variables or None),
        ]
        # variables are private even if the current file is readable by all users
        compared[1] = replace(compared[1], is_private=True)
        return [one for one in compared if one.was_there or one.stays]

    async def store(self, wanted: ContainerProperties) -> None:
        """
        Fetch the image if the container should run, then write both files, each atomically.

        Raises:
            CommandError: The image cannot be fetched. The files are unchanged.
            FileError: podman's generator refuses the quadlet. The files are unchanged.
        """
        await self._verify(wanted)
        await self._fetch(wanted)
        await self._files.set_attributes(DIRECTORY, owner="root", group="root", mode=0o755, directory=True)
        variables = render_variables(wanted)
        # Write the quadlet first. If the run is killed before the variables are written, the next run detects that they differ.
        # If it is killed afterwards, the next run detects that systemd has not read the quadlet. In the reverse order, a new file
        # of variables could remain without any detectable difference, so no later run would restart the container.
        await self._files.write(
            wanted.path, render(wanted), owner="root", group="root", mode=wanted.mode_bits
        )
        if variables:
            await self._files.write(
                wanted.variables_path, variables, owner="root", group="root", mode=SECRET_MODE
            )
        else:
            await self._files.remove(wanted.variables_path)
        await self.reload(wanted)

    async def remove(self, wanted: ContainerProperties) -> None:
        """Remove both files. systemd removes the unit at the next reload."""
        if not self._asks_systemd:
            raise FileError(
                f"{wanted.path} is not removed: its container must be stopped, but the node's policy forbids commands"
            )
        await self._files.remove(wanted.path)
        await self._files.remove(wanted.variables_path)
        await self.reload(wanted)

    async def reload(self, wanted: ContainerProperties) -> None:
        """Make systemd read the quadlet. This is deferred until a container is started, or until `finish`."""
        self._must_reload = True
        if wanted.health_checks:
            await self.finish()  # health checks run before the next resource

    async def start(self, wanted: ContainerProperties) -> None:
        """
        Start the container and wait until it is healthy. Raises CommandError if it does not start or is not healthy in time.
        """
        await self._run("start", wanted)
        await self._wait_until_healthy(wanted)

    async def restart(self, wanted: ContainerProperties) -> None:
        """Stop the container and start it; see `start`."""
        await self._run("restart", wanted)
        await self._wait_until_healthy(wanted)

    async def stop(self, wanted: ContainerProperties) -> None:
        """Stop the container. podman then removes it."""
        await self._change("stop", wanted)
        # systemd keeps a failed unit in memory. For other units it reports that they are not loaded.
        argv = ("systemctl", "reset-failed", "--system", "--", wanted.unit)
        await self._runner.run(Command(argv=argv, search_path=SEARCH_PATH, time_limit_s=LOOK_LIMIT_S))

    async def finish(self) -> None:
        """Reload systemd if a file has changed since the last reload."""
        if not self._must_reload or not self._asks_systemd:
            return
        (look,) = await self._files.inspect([RUNNING_SYSTEMD], digest=False)
        if look.kind != "absent":
            async with self._locks.hold("service"):
                await self._systemctl(
                    "systemd cannot load the quadlets", "daemon-reload", "--system", limit_s=RELOAD_LIMIT_S
                )
        self._must_reload = False

    # ---- internal ----

    async def _look(self, wanted: Sequence[ContainerProperties]) -> list[ContainerState]:
        paths = [path for one in wanted for path in (one.path, one.variables_path)]
        parent = posixpath.dirname(DIRECTORY)
        tools = await self._files.inspect([RUNNING_SYSTEMD, GENERATOR, parent], digest=False)
        looks = await self._files.inspect(paths, follow=False)
        states = [
            await self._state(one, *looks[2 * index : 2 * index + 2]) for index, one in enumerate(wanted)
        ]
        for state in states:
            state.has_quadlet = tools[1].kind == "file"
        for one, state in zip(wanted, states, strict=True):
            if opened := opened_paths(one):
                state.unsafe_link = await find_unsafe_link(self._files, opened)
        if self._asks_systemd and tools[0].kind != "absent":
            # quadlet resolves symlinks before it reports the paths of its files
            folder = posixpath.join(posixpath.dirname(parent), tools[2].link or parent, "systemd")
            await self._ask_systemd(wanted, states, posixpath.normpath(folder))
            await self._ask_podman(wanted, states)
        return states

    async def _state(
        self, wanted: ContainerProperties, quadlet: FileInfo, variables: FileInfo
    ) -> ContainerState:
        is_there = "file" in (quadlet.kind, variables.kind)
        state = ContainerState(
            protocol="io.choria.ccm.v1.resource.container.state",
            type="container",
            name=wanted.name,
            ensure=PRESENT if is_there else ABSENT,
            path=wanted.path,
            kind=quadlet.kind,
            variables_kind=variables.kind,
            checksum=quadlet.sha256,
            variables_checksum=variables.sha256,
            mode=f"{quadlet.mode:04o}" if quadlet.kind == "file" else "",
            variables_mode=f"{variables.mode:04o}" if variables.kind == "file" else "",
            uid=quadlet.uid if quadlet.kind == "file" else -1,
            variables_uid=variables.uid if variables.kind == "file" else -1,
            error=quadlet.error or quadlet.undigested or variables.error or variables.undigested,
        )
        if quadlet.kind == "file" and not state.error:
            await self._read(wanted, state)
        return state

    async def _read(self, wanted: ContainerProperties, state: ContainerState) -> None:
        """Read the files if they differ from the desired content, to determine their earlier properties."""
        expected = (digest(render(wanted)), digest(render_variables(wanted)) if wanted.environment else "")
        if wanted.image and (state.checksum, state.variables_checksum) == expected:
            state.image = wanted.image
            return
        quadlet = await self._files.read(wanted.path, LIMIT_BYTES)
        has_variables = state.variables_kind == "file"
        variables = await self._files.read(wanted.variables_path, LIMIT_BYTES) if has_variables else b""
        state.is_foreign = not is_written_by_us(quadlet)
        if earlier := parse(wanted.name, quadlet, variables):
            state.keep(earlier)

    async def _ask_systemd(
        self, wanted: Sequence[ContainerProperties], states: Sequence[ContainerState], folder: str
    ) -> None:
        argv = ("show", "--system", f"--property={_PROPERTIES}", "--", *(one.unit for one in wanted))
        shown = await self._systemctl("cannot read the units of the containers from systemd", *argv)
        blocks = shown.strip("\n").split("\n\n")
        units = [dict(line.partition("=")[::2] for line in block.splitlines()) for block in blocks]
        if len(units) != len(states):
            raise CommandError(
                f"systemd returned {len(units)} of {len(states)} units of the containers", output=shown
            )
        for state, unit in zip(states, units, strict=True):
            _set_unit(state, unit, folder)

    async def _ask_podman(
        self, wanted: Sequence[ContainerProperties], states: Sequence[ContainerState]
    ) -> None:
        asked = {
            one.name: state
            for one, state in zip(wanted, states, strict=True)
            if one.health_command and state.active in ACTIVE
        }
        if asked:
            for name, health in (await self._health(list(asked))).items():
                if name in asked:
                    asked[name].health = health

    async def _health(self, names: Sequence[str]) -> dict[str, str]:
        """Return the health of each existing container, as reported by podman."""
        argv = (
            "podman",
            "container",
            "inspect",
            "--format",
            "{{.Name}} {{if .State.Health}}{{.State.Health.Status}}{{end}}",
            "--",
            *names,
        )
        done = await self._runner.run(Command(argv=argv, search_path=SEARCH_PATH, time_limit_s=LOOK_LIMIT_S))
        if done.timed_out:
            raise CommandError(
                f"the health of the containers is unknown: `podman` ran for {LOOK_LIMIT_S} s and was killed"
            )
        # if one container does not exist, the command fails, but its output still contains the others
        lines = done.stdout.decode(errors="replace").splitlines()
        said = (line.partition(" ")[::2] for line in lines)
        return {name: word for name, word in said if len(word) <= WORD_LENGTH and word.isalpha()}

    async def _wait_until_healthy(self, wanted: ContainerProperties) -> None:
        if not wanted.health_command:
            return
        end = self._clock.monotonic() + wanted.health_timeout
        while (health := (await self._health([wanted.name])).get(wanted.name, "")) != "healthy":
            if health == UNHEALTHY:
                raise CommandError(
                    f"the container {wanted.name} is unhealthy; `podman healthcheck run {wanted.name}` shows why"
                )
            if self._clock.monotonic() >= end:
                raise CommandError(
                    f"the container {wanted.name} was not healthy within {wanted.health_timeout} s: it is "
                    f"{health or 'missing'}; increase `health_timeout` if it needs more time"
                )
            await self._clock.sleep(HEALTH_EVERY_S)

    async def _verify(self, wanted: ContainerProperties) -> None:
        """Verify the quadlet: make podman's generator read a copy in a private folder."""
        why = f"{wanted.path} cannot be verified, so nothing was written"
        async with trial_folder(self._files, self._locks, FOLDER, lock=LOCK, why=why):
            path = f"{FOLDER}/{posixpath.basename(wanted.path)}"
            await self._files.write(path, render(wanted), mode=SECRET_MODE)
            done = await self._generate(why)
        lines = done.stderr.decode(errors="replace").splitlines()
        said = "; ".join(line.strip() for line in lines if _PROGRESS not in line)[-SAID_BYTES:]
        if done.timed_out:
            raise CommandError(f"{why}: podman's generator ran for {LOOK_LIMIT_S} s and was killed")
        if done.code or f"---{wanted.unit}---" not in done.stdout.decode(errors="replace"):
            raise FileError(
                f"{wanted.path} is not valid for this host's podman, so nothing was written: "
                f"{said.replace(FOLDER, DIRECTORY) or 'its generator creates no unit for it'}"
            )

    async def _generate(self, why: str) -> Completed:
        try:
            return await self._runner.run(
                Command(
                    argv=(GENERATOR, "--dryrun"), env={"QUADLET_UNIT_DIRS": FOLDER}, time_limit_s=LOOK_LIMIT_S
                )
            )
        except CommandError as err:
            raise CommandError(f"{why}: {err.message}") from err

    async def _fetch(self, wanted: ContainerProperties) -> None:
        """Fetch the image before anything is changed. Otherwise the only error would be systemd's report of a failed start."""
        image = wanted.image
        if wanted.ensure != RUNNING or not self._asks_systemd or image in self._fetched:
            return
        exists = ("podman", "image", "exists", "--", image)
        done = await self._runner.run(
            Command(argv=exists, search_path=SEARCH_PATH, time_limit_s=LOOK_LIMIT_S)
        )
        if done.timed_out or done.code:
            what = f"the image {image} cannot be fetched, so nothing was changed"
            await run_tool(
                self._runner, what, "podman", "pull", "--quiet", "--", image, limit_s=START_LIMIT_S
            )
        self._fetched.add(image)

    async def _run(self, verb: str, wanted: ContainerProperties) -> None:
        """Start or restart a container, unless another user has replaced one of its paths since the policy check."""
        await self._fetch(wanted)
        opened = opened_paths(wanted)
        if link := await find_unsafe_link(self._files, opened):
            raise FileError(describe_unsafe_link(link))
        await self._change(verb, wanted)
        if link := await find_unsafe_link(self._files, opened):  # replaced during the start
            await self._change("stop", wanted)
            raise FileError(f"the container {wanted.name} was stopped: {describe_unsafe_link(link)}")

    async def _change(self, verb: str, wanted: ContainerProperties) -> None:
        await self.finish()
        async with self._locks.hold("service"):
            await self._systemctl(
                f"`systemctl {verb} {wanted.unit}` failed",
                verb,
                "--system",
                "--",
                wanted.unit,
                limit_s=CHANGE_LIMIT_S,
            )

    async def _systemctl(self, what: str, *argv: str, limit_s: float = LOOK_LIMIT_S) -> str:
        return await run_tool(self._runner, what, "systemctl", *argv, limit_s=limit_s)


def _set_unit(state: ContainerState, unit: dict[str, str], folder: str) -> None:
    fragment = unit.get("FragmentPath", "")
    source = unit.get("SourcePath", "")
    if fragment and source != f"{folder}/{posixpath.basename(state.path)}":
        # this includes a quadlet in another folder, because the folder determines which of the two takes precedence
        name = posixpath.basename(fragment)
        state.error = f"{name} already exists in {source or fragment}: choose another name for the container"
        return
    state.active = unit.get("ActiveState", "")
    is_loaded = unit.get("LoadState") == "loaded"
    state.needs_reload = unit.get("NeedDaemonReload") == "yes" or (state.kind == "file" and not is_loaded)
    if state.ensure == PRESENT:
        state.ensure = RUNNING if state.active in ACTIVE else STOPPED
