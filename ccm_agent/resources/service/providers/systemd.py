"""
Manages services with systemd.

Source: systemctl(1), org.freedesktop.systemd1(5); systemd 252 (Debian 12).
"""

from __future__ import annotations

from collections.abc import Sequence

from ccm_agent.model.errors import CommandError
from ccm_agent.model.ports import Command, Completed, Locks, Runner
from ccm_agent.resources.service.model import (
    RUNNING,
    STOPPED,
    ServiceMetadata,
    ServiceProperties,
    ServiceState,
)

PROVIDER = "systemd"
PROTOCOL = "io.choria.ccm.v1.resource.service.state"
ENABLED = frozenset({"enabled", "enabled-runtime", "alias", "static", "indirect", "generated", "transient"})
DISABLED = frozenset({"linked", "linked-runtime", "masked", "masked-runtime", "disabled"})
ACTIVE = "active"
INACTIVE = frozenset({"inactive", "failed", "activating"})
WAITING = "auto-restart"
"""The sub-state of a failed unit that systemd will restart automatically."""

PROPERTIES = "Id,LoadState,ActiveState,SubState,UnitFileState,NeedDaemonReload"
PLAIN = frozenset({"enabled", "disabled", "static", "indirect", "masked", "enabled-runtime"})
"""Values of `UnitFileState` that `is-enabled` would also print. For other values, `is-enabled` is called."""

NO_RELOAD = "--no-reload"
LOOK_LIMIT_S = 60
CHANGE_LIMIT_S = 15 * 60
"""
The time limit for commands that change a unit. It is relevant only for units without their own time limit. By default, systemd
limits the start and the stop of a unit to 90 s each.
"""
SAID_BYTES = 1000


class Systemd:
    """
    Services managed by systemd.

    Whether a command succeeded is determined from the state afterwards, not from its exit status. An init system may report
    failure although it performed the action, and success although it did not. The output of a failed command is in `said` of the
    next state.
    """

    def __init__(self, runner: Runner, locks: Locks) -> None:
        self._runner = runner
        self._locks = locks
        self._said: dict[str, str] = {}
        self._unread: dict[str, bool | None] = {}
        """
        Services that were enabled (True) or disabled (False) since systemd last read its units. `systemctl show` may still report
        their earlier state, so only the new one is trusted. None: neither is trusted, because a command failed or there were two.
        """

    async def status(self, wanted: ServiceProperties) -> ServiceState:
        """Return whether the service is running and enabled. Raises CommandError if it does not exist."""
        return await self._status(wanted.name, await self._show([wanted.name]))

    async def look_after(
        self, changed: ServiceProperties, following: ServiceProperties
    ) -> tuple[ServiceState, ServiceState | None]:
        """Return the state of a changed service, and that of the next one if the same call of systemctl provides it."""
        shown = await self._show([changed.name, following.name])
        if len(shown) != 2:
            return await self._status(changed.name, []), None
        needs_query = any(needs_reload(unit) for unit in shown) or following.name in self._unread
        ahead = None if needs_query else self._from_show(following.name, shown[1])
        return await self._status(changed.name, shown[:1]), ahead

    async def look_ahead(self, wanted: Sequence[ServiceProperties]) -> Sequence[ServiceState | None]:
        """Return the result of `status` for each service; None if a single call of systemctl does not provide it."""
        names = [properties.name for properties in wanted]
        if not self._unread.keys().isdisjoint(names):
            await self._reload()
        shown = await self._show(names)
        if any(needs_reload(unit) for unit in shown):
            await self._reload()
            shown = await self._show(names)
        if len(shown) != len(names):
            return [None] * len(names)
        return [self._from_show(name, unit) for name, unit in zip(names, shown, strict=True)]

    async def start(self, name: str) -> None:
        """Start a stopped service."""
        await self._change("start", name)

    async def stop(self, name: str) -> None:
        """Stop a running service."""
        await self._change("stop", name)

    async def restart(self, name: str) -> None:
        """Stop and start a running service."""
        await self._change("restart", name)

    async def enable(self, name: str) -> None:
        """Enable the service at boot; see `finish`."""
        await self._change_enabled("enable", name)

    async def disable(self, name: str) -> None:
        """Disable the service at boot; see `finish`."""
        await self._change_enabled("disable", name)

    async def finish(self) -> None:
        """
        Reload systemd after services were enabled or disabled. This is done once for all services, because it is the slowest
        operation.
        """
        if self._unread:
            await self._reload()

    async def _status(self, name: str, shown: Sequence[dict[str, str]]) -> ServiceState:
        """Return the state that `systemctl show` reported, with the answers of further commands if that is not sufficient."""
        state = None
        if any(needs_reload(unit) for unit in shown):
            await self._reload()
        elif len(shown) == 1:
            state = self._from_show(name, shown[0])
        if state is not None and state.metadata.enabled is self._unread.get(name, state.metadata.enabled):
            return state
        is_active = state.metadata.running if state is not None else await self._is_active(name)
        return self._state(name, is_active, await self._is_enabled(name))

    async def _show(self, names: Sequence[str]) -> list[dict[str, str]]:
        done = await self._run("show", "--system", f"--property={PROPERTIES}", "--", *names)
        return parse_show(done.stdout.decode(errors="replace"))

    async def _reload(self) -> None:
        self._unread.clear()
        async with self._locks.hold("service"):
            await self._run("daemon-reload")

    async def _change_enabled(self, verb: str, name: str) -> None:
        is_second = name in self._unread
        self._unread[name] = None
        if await self._change(verb, name, NO_RELOAD) and not is_second:
            self._unread[name] = verb == "enable"

    async def _change(self, verb: str, name: str, *options: str) -> bool:
        """Run a command that changes a unit. Return whether systemctl reports success."""
        async with self._locks.hold("service"):
            done = await self._run(verb, "--system", *options, "--", name, limit_s=CHANGE_LIMIT_S)
        if done.timed_out:
            raise CommandError(
                f"`systemctl {verb} {name}` ran for {CHANGE_LIMIT_S} s and was killed; "
                f"`systemctl status {name}` shows what it waits for"
            )
        self._said[name] = done.stderr.decode(errors="replace").strip()[-SAID_BYTES:] if done.code else ""
        return not done.code

    async def _is_active(self, name: str) -> bool:
        done = await self._run("is-active", "--system", "--", name)
        word = done.stdout.decode(errors="replace").strip()
        if word == "activating":
            # a unit that waits for its automatic restart is treated as running
            shown = await self._show([name])
            return bool(shown) and shown[0].get("SubState") == WAITING
        if word == ACTIVE:
            return True
        if word in INACTIVE:
            return False
        raise CommandError(f"cannot tell whether {name} runs: {complaint(done, 'is-active', word)}")

    async def _is_enabled(self, name: str) -> bool:
        done = await self._run("is-enabled", "--system", "--", name)
        word = done.stdout.decode(errors="replace").strip()
        if word in ENABLED:
            return True
        if word in DISABLED:
            return False
        said = done.stderr.decode(errors="replace").strip()
        if word == "not-found" or (not word and "No such file" in said):
            raise CommandError(f"service {name} not found: systemd has no unit of that name")
        raise CommandError(
            f"cannot tell whether {name} starts at boot: {complaint(done, 'is-enabled', word)}"
        )

    def _from_show(self, name: str, unit: dict[str, str]) -> ServiceState | None:
        """Return the state; None if `is-active` and `is-enabled` may report a different state than `systemctl show`."""
        own = unit.get("Id") in (name, f"{name}.service")
        active, file_state = unit.get("ActiveState", ""), unit.get("UnitFileState", "")
        if not own or unit.get("LoadState") not in ("loaded", "masked") or file_state not in PLAIN:
            return None
        if active == ACTIVE:
            is_active = True
        elif active in INACTIVE:
            is_active = unit.get("SubState") == WAITING
        else:
            return None
        return self._state(name, is_active, file_state in ENABLED)

    def _state(self, name: str, running: bool, enabled: bool) -> ServiceState:
        return ServiceState(
            protocol=PROTOCOL,
            type="service",
            name=name,
            ensure=RUNNING if running else STOPPED,
            metadata=ServiceMetadata(
                name=name, provider=PROVIDER, enabled=enabled, running=running, said=self._said.get(name, "")
            ),
        )

    async def _run(self, *argv: str, limit_s: float = LOOK_LIMIT_S) -> Completed:
        return await self._runner.run(Command(argv=("systemctl", *argv), time_limit_s=limit_s))


def parse_show(output: str) -> list[dict[str, str]]:
    """
    Parse the output of `systemctl show`: the properties of each unit, in the requested order. An empty line separates units.
    """
    blocks = output.strip("\n").split("\n\n") if output.strip() else []
    return [dict(line.partition("=")[::2] for line in block.splitlines() if "=" in line) for block in blocks]


def needs_reload(unit: dict[str, str]) -> bool:
    """Whether systemd reports that the unit's files have changed since it read them."""
    return unit.get("NeedDaemonReload") == "yes"


def complaint(done: Completed, question: str, word: str) -> str:
    """Return an error message for unusable output of systemctl."""
    said = done.stderr.decode(errors="replace").strip()[-SAID_BYTES:]
    return f"invalid systemctl {question} output: {word!r}{'; ' + said if said else ''}"
