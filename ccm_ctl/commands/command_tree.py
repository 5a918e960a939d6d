"""
The command tree, whose commands are loaded on demand, and the options that all commands share.

A command is a function with the decorator `verb`. It receives the `Application` and its own options, and returns an exit code.
Options for the broker and the output may precede or follow the command.
"""

from __future__ import annotations

import functools
import keyword
from typing import TYPE_CHECKING, Any, cast

import click
import msgspec

from ccm_agent.clikit import commands
from ccm_agent.clikit.program import invoke
from ccm_ctl.app import Application

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from click.shell_completion import CompletionItem

    from ccm_agent.model.exits import Exit

PROGRAM = "ccmctl"

TASKS = {
    "Most used commands": ("apply", "exec", "node", "run", "undo", "why"),
    "Set up a fleet": ("demo", "init", "doctor", "operator", "signers", "token", "join"),
    "Change nodes": (
        "plan",
        "ensure",
        "import",
        "schedule",
        "rollout",
        "slots",
        "disable",
        "enable",
        "lock",
        "unlock",
    ),
    "Keep nodes converged": ("assign", "assignment", "unassign", "rollback", "run-now", "bundle"),
    "Facts and data": ("facts", "group", "data", "secret"),
    "Observe": ("ping", "top", "dashboard", "events", "history", "state", "report", "audit", "notify"),
    "Other commands": ("studio", "completion", "help"),
}
"""The commands by task, in the order of the help screen. Every operator needs the commands of the first section."""

FOLDERS = {
    "runs": ("apply", "exec", "ensure", "import", "plan", "report", "run", "undo"),
    "rollouts": ("rollout", "slots"),
    "assignments": ("assign", "assignment", "assignments", "bundle", "rollback", "unassign"),
    "schedules": ("schedule",),
    "data": ("data", "facts", "hiera"),
    "nodes": (
        "disable", "enable", "group", "history", "lock", "node", "nodes", "ping", "run-now", "state", "unlock", "why",
    ),
    "keys": ("doctor", "init", "join", "operator", "secret", "signers", "token"),
    "events": ("audit", "events", "notify"),
    "screens": ("dashboard", "demo", "studio", "top"),
}  # fmt: skip
"""The commands by the folder of their module. All other modules are in the folder of this file."""

FORMER = ("assignments", "hiera", "nodes")
"""Commands of earlier versions, which still work. They are now `assignment list`, `data explain` and `node list`."""


def shared_options(*, hidden: bool) -> list[click.Option]:
    """Return the options that every command accepts. With `hidden`, the help shows only the first one."""
    return [
        _shared("--json", "Print one JSON object per result.", is_flag=True),
        _shared("--debug", "Show a traceback for errors.", is_flag=True, hidden=hidden),
        _shared("--context", "NATS context. [CCM_CONTEXT, NATS_CONTEXT]", "NAME", hidden=hidden),
        _shared(
            "--server",
            "Broker URL, such as nats://host:4222. [CCM_SERVER, NATS_URL]",
            "URL",
            "-s",
            hidden=hidden,
        ),
        _shared("--creds", "Credentials file. [CCM_CREDS, NATS_CREDS]", "FILE", hidden=hidden),
        _shared("--nkey", "File that contains an NKey seed.", "FILE", hidden=hidden),
        _shared("--user", "User name. The password is read from NATS_PASSWORD.", "NAME", hidden=hidden),
        _shared("--ca", "Certificate authority of the broker's certificate. [CCM_CA]", "FILE", hidden=hidden),
        _shared("--cert", "Client certificate for TLS.", "FILE", hidden=hidden),
        _shared("--key", "Private key of the client certificate.", "FILE", hidden=hidden),
        _shared("--operator", "Operator name to send requests as. [CCM_OPERATOR]", "NAME", hidden=hidden),
        _shared(
            "--insecure",
            "Accept a broker without authentication or TLS. [CCM_INSECURE=1]",
            is_flag=True,
            hidden=hidden,
        ),
        _shared("--no-cache", "Read all nodes again, not only changed ones.", is_flag=True, hidden=hidden),
    ]


def _shared(
    name: str, text: str, metavar: str | None = None, short: str = "", **settings: Any
) -> click.Option:
    own = f"{commands.BaseCommand.prefix}{name.removeprefix('--').replace('-', '_')}"
    names = [name, own, *([short] if short else [])]
    return click.Option(names, metavar=metavar, help=text, **settings)


class CtlCommand(commands.BaseCommand):
    """A command of `ccmctl`. It accepts the options for the broker and the output."""

    def shared_params(self, ctx: click.Context) -> Sequence[click.Parameter]:
        """Return the options for the broker and the output. Only the help of `ccmctl` lists all of them."""
        return shared_options(hidden=ctx.parent is not None)

    def take_shared(self, ctx: click.Context, given: dict[str, Any]) -> None:
        """Pass the values of the shared options to the application."""
        application = cast("Application", ctx.find_object(Application))
        application.debug |= bool(given.pop("debug"))
        wants_json = ctx.meta["ccm.json"] = bool(given.pop("json") or ctx.meta.get("ccm.json"))
        if wants_json or not isinstance(self, click.Group):
            # any other `--json` belongs to the command of `exec` and is ignored
            application.terminal.json = wants_json
        reach = {name: value for name, value in given.items() if value}
        application.reach = msgspec.structs.replace(application.reach, **reach)

    def offer(self, ctx: click.Context, metavar: str, incomplete: str) -> list[CompletionItem]:
        """Return names on the broker, types and files as completions. They are loaded only when an operator presses Tab."""
        from ccm_ctl.commands.completion_values import complete

        return complete(ctx, metavar, incomplete)

    def write_text(self, ctx: click.Context, text: str) -> None:
        """Write a text on the application's terminal."""
        cast("Application", ctx.find_object(Application)).terminal.raw(text)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, and a reference to the help about connection options."""
        super().format_epilog(ctx, formatter)
        if ctx.parent is not None:
            formatter.write(f"\nConnection options: {PROGRAM} --help\n")


class CtlGroup(CtlCommand, commands.Group):
    """A command with subcommands. Without a subcommand, it does its own work or shows its help."""


def _load(name: str) -> click.Command:
    attribute = f"{name}_" if keyword.iskeyword(name) else name.replace("-", "_")
    folder = next((f".{folder}" for folder, names in FOLDERS.items() if name in names), "")
    return commands.imported(f"ccm_ctl.commands{folder}.{attribute}", attribute)


class CtlProgram(CtlGroup, commands.LazyGroup):
    """The root command `ccmctl`."""

    def __init__(self, verbs: Mapping[str, str]) -> None:
        super().__init__(
            name=PROGRAM,
            table=verbs,
            hidden=FORMER,
            tasks=TASKS,
            load=_load,
            help="Manage a fleet of agents over NATS.",
            params=[commands.version_option(_show_version)],
            no_args_is_help=True,
            context_settings=commands.HELP_NAMES,
            epilog=commands.examples(
                f"{PROGRAM} init",
                f"{PROGRAM} facts set web1 role=web",
                f"{PROGRAM} apply site/ --targets role=web --noop",
                f"{PROGRAM} run watch last",
            ),
        )


def _show_version(ctx: click.Context) -> None:
    from ccm_agent.version import version_line

    cast("Application", ctx.find_object(Application)).terminal.raw(f"{version_line(PROGRAM)}\n")


def verb(
    name: str,
    *,
    examples: Sequence[str] = (),
    options: Sequence[click.Parameter] = (),
    kind: type[CtlCommand] = CtlCommand,
    **settings: Any,
) -> Callable[[Callable[..., Exit]], CtlCommand]:
    """
    Make a command from a function that receives the application and its own options. The docstring is the help.

    Args:
        name: The name on the command line.
        examples: Command lines as users type them.
        options: The options and arguments of the command, in the order of the help.
        kind: The class of the command.
        settings: Other arguments of click.
    """

    def made(function: Callable[..., Exit]) -> CtlCommand:
        return kind(name, **_described(function, examples, options), **settings)

    return made


def group(
    name: str,
    *,
    examples: Sequence[str] = (),
    options: Sequence[click.Parameter] = (),
    **settings: Any,
) -> Callable[[Callable[..., Exit | None]], CtlGroup]:
    """Make a command with subcommands. The function is called if no subcommand is given."""

    def made(function: Callable[..., Exit | None]) -> CtlGroup:
        return CtlGroup(name, **_described(function, examples, options), **settings)

    return made


def _described(
    function: Callable[..., Any], examples: Sequence[str], options: Sequence[click.Parameter]
) -> dict[str, Any]:
    """Return click's arguments for a command."""
    return {
        "params": list(options),
        "help": function.__doc__,
        "callback": _called(function),
        "epilog": commands.examples(*examples) if examples else None,
    }


def _called(function: Callable[..., Any]) -> Callable[..., Any]:
    @click.pass_context
    @functools.wraps(function)
    def call(ctx: click.Context, /, **params: Any) -> Any:
        if ctx.invoked_subcommand is not None:
            return None
        return function(ctx.find_object(Application), **params)

    return call


def run_command_line(argv: Sequence[str], verbs: Mapping[str, str], application: Application) -> int:
    """Parse and run a command line, and return its exit code. Raises CcmError for every error."""
    application.terminal.json = "--json" in argv  # already needed for errors in the command line itself
    return invoke(CtlProgram(verbs), argv, application.terminal, obj=application)
