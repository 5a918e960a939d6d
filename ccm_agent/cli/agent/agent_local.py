"""`ccm agent status|run-once|disable|enable`: control the local agent, even if it is not running."""

from __future__ import annotations

import getpass
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from ccm_agent.cli.agent import agent_output
from ccm_agent.cli.agent.agent import CONFIG
from ccm_agent.cli.options import CcmCommand
from ccm_agent.clikit.commands import examples
from ccm_agent.model.codec import encode_json
from ccm_agent.model.errors import DocumentError, HostError, UsageError
from ccm_agent.model.exits import Exit
from ccm_agent.model.formats.durations import format_duration, parse_duration

LONGEST_S = 366 * 86_400.0
"""The maximum of `--for` in seconds. To disable a node for longer, omit the option."""

_config = click.option(
    "--config", default="", metavar="FILE", help=f"The agent's configuration file. [{CONFIG}]"
)
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _folder(given: str) -> Path:
    from ccm_agent import app_agent

    return app_agent.state_folder(_config_file(given))


def _config_file(given: str) -> str:
    return given or _outer()[0] or CONFIG


def _outer() -> tuple[str, str]:
    """Return the options `--config` and `--context` of `ccm agent` itself; "" for an option that is not given."""
    given: tuple[str, str] | None = click.get_current_context().find_object(tuple)
    return given or ("", "")


def _span(text: str, flag: str) -> float:
    try:
        seconds = parse_duration(text)
    except DocumentError as err:
        raise UsageError(f"{flag} {text}: {err.message}") from err
    if not 1 <= seconds <= LONGEST_S:
        raise UsageError(f"{flag} {text}: must be between 1 second and 1 year")
    return seconds


@click.command(
    "status",
    cls=CcmCommand,
    short_help="Show what the agent is doing.",
    epilog=examples("ccm agent status", "ccm agent status --json"),
)
@_config
@_json
def status(config: str, as_json: bool) -> int:
    """Show what the agent is doing and what it waits for. Shows the last saved status if the agent is not running."""
    from ccm_agent import app_agent

    found = app_agent.control_socket.status(_folder(config))
    if as_json:
        _print_json(found)
    else:
        sys.stdout.write(agent_output.status_text(found, datetime.now(UTC)))
    return Exit.OK


@click.command(
    "run-once",
    cls=CcmCommand,
    short_help="Converge now and wait for the result.",
    epilog=examples("ccm agent run-once", "ccm agent run-once --within 10m"),
)
@_config
@_json
@click.option(
    "--within", default="1h", show_default=True, metavar="DURATION", help="How long to wait for the result."
)
def run_once(config: str, as_json: bool, within: str) -> int:
    """
    Converge now on all of this node's manifests and assignments, and wait for the result.

    The running agent does the work, after any run that is under way. When no agent is running, this process does it.
    Exits with 2 when a resource failed, and with 1 when a run could not start or its result is unknown.
    """
    from ccm_agent import app_agent

    limit_s = _span(within, "--within")
    folder, path = _folder(config), _config_file(config)
    try:
        ended = app_agent.control_socket.converge_once(folder, _Watch(limit_s).look)
    except HostError as err:
        if not app_agent.control_socket.status(folder).get("disabled"):
            raise
        raise HostError(f"{err}; enable it with `ccm agent enable`") from err
    if ended is None:
        ended = app_agent.converge_alone(path, _outer()[1], limit_s)
    if as_json:
        _print_json(ended)
    else:
        sys.stdout.write(agent_output.ended_text(ended))
    return agent_output.exit_of(ended)


class _Watch:
    """Follows a run of the agent, and stops waiting after a timeout."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._begun = time.monotonic()
        self._told = ""

    def look(self, status: dict[str, Any]) -> None:
        """Show the progress. Raises after the timeout."""
        if time.monotonic() - self._begun > self._limit_s:
            raise HostError(
                f"the run has not ended after {format_duration(self._limit_s)} and continues in the agent; "
                "`ccm agent status` shows its progress"
            )
        at = agent_output.place_text(status)
        if at and at != self._told and sys.stderr.isatty():
            sys.stderr.write(f"{agent_output.safe(at)}\n")
        self._told = at


@click.command(
    "disable",
    cls=CcmCommand,
    short_help="Stop this node from making changes.",
    epilog=examples('ccm agent disable --for 4h --why "new disk"', "ccm agent enable"),
)
@_config
@_json
@click.option(
    "--for",
    "for_",
    default="",
    metavar="DURATION",
    help="Enable the node again after this time, such as 4h or 2d. [until `enable`]",
)
@click.option("--why", required=True, metavar="TEXT", help="The reason, shown to operators.")
def disable(config: str, as_json: bool, for_: str, why: str) -> int:
    """
    Stop this node from making changes. The agent refuses applies and reports the reason. Health checks continue.

    This also works while the agent is stopped, and persists across restarts. A run that is under way is completed.
    """
    from ccm_agent import app_agent

    if not why.strip():
        raise UsageError(
            "--why: give a reason; other operators see it in `ccmctl why` and `ccm agent status`"
        )
    for_s = _span(for_, "--for") if for_ else 0
    folder = _folder(config)
    disabled, told = app_agent.control_socket.disable(
        folder, for_s=for_s, why=" ".join(why.split()), by=_who()
    )
    if as_json:
        _print_json({"disabled": disabled, "agent": told})
    else:
        sys.stdout.write(f"{agent_output.safe(disabled.sentence)}\n{agent_output.TOLD[told]}\n")
    return Exit.OK


@click.command("enable", cls=CcmCommand, epilog=examples("ccm agent enable"))
@_config
@_json
def enable(config: str, as_json: bool) -> int:
    """Let this node make changes again. It converges immediately."""
    from ccm_agent import app_agent

    was_disabled, told = app_agent.control_socket.enable(_folder(config))
    if as_json:
        _print_json({"was_disabled": was_disabled, "agent": told})
    else:
        sys.stdout.write(f"{'enabled' if was_disabled else 'was not disabled'}\n{agent_output.TOLD[told]}\n")
    return Exit.OK


COMMANDS = {"status": status, "run-once": run_once, "disable": disable, "enable": enable}


def _who() -> str:
    """Return the name of the user. Under sudo(8), this is the user who called sudo."""
    try:
        return os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def _print_json(value: object) -> None:
    sys.stdout.write(encode_json(value, indent=2).decode() + "\n")
