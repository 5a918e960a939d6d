"""
The tree of commands: loaded one by one when they are asked for, with the options that all of them share.

A command is a function decorated with `verb`; it is given the `Application` and its own options, and returns an exit code. Words
about the broker and the output may stand before the command or after it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, cast

import click
import msgspec

from ccm_agent.model.errors import UsageError
from ccm_agent.model.exits import Exit
from ccm_agent.model.suggestions import did_you_mean, nearest
from ccm_ctl.app import Application

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PROGRAM = "ccmctl"

WHOLE = 1_000
"""No sentence of help is as long as this."""


def shared_options(*, hidden: bool) -> list[click.Option]:
    """The options that every command takes; a command's own help shows the first one only."""
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
    ]


_PREFIX = "shared_"
"""A command may have an argument of the same name as a shared option."""


class Word(click.types.StringParamType):
    """A text that a shell completes by what help calls it: FILE, NODE, RUN and so on."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        """What it may become; nothing of that is loaded before somebody presses Tab."""
        from ccm_ctl.commands.completion_values import complete

        return complete(ctx, param.metavar or "", incomplete)


def _completed(params: Sequence[click.Parameter]) -> list[click.Parameter]:
    for param in params:
        if param.type is click.STRING:
            param.type = Word()
    return list(params)


def _shared(
    name: str, text: str, metavar: str | None = None, short: str = "", **settings: Any
) -> click.Option:
    names = [name, f"{_PREFIX}{name.removeprefix('--')}", *([short] if short else [])]
    return click.Option(names, metavar=metavar, help=text, type=Word() if metavar else None, **settings)


class _Shared(click.Command):
    """A command that takes the shared options and shows its examples as they are written."""

    examples: Sequence[str] = ()

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The command's own options, then the shared ones, then --help."""
        own = super().get_params(ctx)
        return [*own[:-1], *shared_options(hidden=ctx.parent is not None), *own[-1:]]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, and take the shared options to the application."""
        rest = super().parse_args(ctx, args)
        application = cast("Application", ctx.find_object(Application))
        shared = [name for name in ctx.params if name.startswith(_PREFIX)]
        given = {name.removeprefix(_PREFIX): ctx.params.pop(name) for name in shared}
        application.debug |= bool(given.pop("debug"))
        application.terminal.json |= bool(given.pop("json"))
        reach = {name: value for name, value in given.items() if value}
        application.reach = msgspec.structs.replace(application.reach, **reach)
        return rest

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """`--help`, whose text goes where all of ours goes."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.callback = _print_help
        return option

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Examples, unwrapped; then where the other options are told of."""
        if self.examples:
            formatter.write("\nExamples:\n" + "".join(f"  {line}\n" for line in self.examples))
        if ctx.parent is not None:
            formatter.write(f"\nConnection options: {PROGRAM} --help\n")


class Verb(_Shared):
    """A command."""


class VerbGroup(_Shared, click.Group):
    """A command with commands below it; called without one it does its own work, or shows its help."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with the nearest name for one that is unknown."""
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            near = did_you_mean(args[0], self.list_commands(ctx))
            ctx.fail(f"unknown command `{args[0]}`{near}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Names and the whole first sentence of each: click would cut it off at the width of the terminal."""
        below = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.get_short_help_str(limit=WHOLE)) for name, one in below if one])


class Root(VerbGroup):
    """`ccmctl` itself: knows the names and help lines of all verbs, and imports the one that is called."""

    def __init__(self, verbs: Mapping[str, str]) -> None:
        super().__init__(
            name=PROGRAM,
            help="Manage a fleet of agents over NATS.",
            params=[
                click.Option(
                    ["--version"],
                    is_flag=True,
                    is_eager=True,
                    expose_value=False,
                    callback=_print_version,
                    help="Print the version.",
                )
            ],
            no_args_is_help=True,
            context_settings={"help_option_names": ["-h", "--help"]},
        )
        self._verbs = verbs
        self.examples = (
            f"{PROGRAM} init",
            f"{PROGRAM} facts set web1 role=web",
            f"{PROGRAM} apply site/ --targets role=web --noop",
            f"{PROGRAM} run watch last",
        )

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the list."""
        return list(self._verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name, from the module of that name."""
        if cmd_name not in self._verbs:
            return None
        module = importlib.import_module(f"ccm_ctl.commands.{cmd_name}")
        return cast("click.Command", getattr(module, cmd_name))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Names and help lines, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self._verbs.items()))


def _print_help(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value:
        cast("Application", ctx.find_object(Application)).terminal.raw(f"{ctx.get_help()}\n")
        ctx.exit()


def _print_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    """For `--version` among other options; alone it is answered before anything is imported."""
    if value:
        from ccm_agent.version import VERSION

        cast("Application", ctx.find_object(Application)).terminal.raw(f"{PROGRAM} {VERSION}\n")
        ctx.exit()


def verb(
    name: str,
    *,
    examples: Sequence[str] = (),
    options: Sequence[click.Parameter] = (),
    kind: type[Verb] = Verb,
    **settings: Any,
) -> Callable[[Callable[..., Exit]], Verb]:
    """
    Make a command of a function that takes the application and its own options; its docstring is the help.

    Args:
        name: As it is called.
        examples: Command lines, as people type them.
        options: Its options and arguments, in the order of the help.
        kind: What it is made of.
        settings: Anything else that click takes.
    """

    def made(function: Callable[..., Exit]) -> Verb:
        command = kind(
            name, params=_completed(options), help=function.__doc__, callback=_called(function), **settings
        )
        command.examples = examples
        return command

    return made


def group(
    name: str,
    *,
    examples: Sequence[str] = (),
    options: Sequence[click.Parameter] = (),
    **settings: Any,
) -> Callable[[Callable[..., Exit | None]], VerbGroup]:
    """The same for a command with commands below it; the function is called when none of them is named."""

    def made(function: Callable[..., Exit | None]) -> VerbGroup:
        command = VerbGroup(
            name, params=_completed(options), help=function.__doc__, callback=_called(function), **settings
        )
        command.examples = examples
        return command

    return made


def _called(function: Callable[..., Any]) -> Callable[..., Any]:
    @click.pass_context
    def call(ctx: click.Context, /, **params: Any) -> Any:
        if ctx.invoked_subcommand is not None:
            return None
        return function(ctx.find_object(Application), **params)

    return call


def run_command_line(argv: Sequence[str], verbs: Mapping[str, str], application: Application) -> int:
    """Parse a command line and do what it says; its exit code. CcmError for whatever is wrong."""
    application.terminal.json = "--json" in argv
    try:
        done = Root(verbs).main(
            list(argv), prog_name=PROGRAM, standalone_mode=False, obj=application, windows_expand_args=False
        )
    except click.exceptions.NoArgsIsHelpError as err:
        application.terminal.raw(err.format_message() + "\n")
        return Exit.COULD_NOT_RUN
    except click.UsageError as err:
        raise UsageError(_sentence(err)) from err
    except click.ClickException as err:
        raise UsageError(err.format_message()) from err
    except click.Abort:
        return Exit.COULD_NOT_RUN
    return int(done) if isinstance(done, int) else Exit.OK


def _sentence(err: click.UsageError) -> str:
    """What is wrong with a command line, in one line of ours."""
    if isinstance(err, click.NoSuchOption):
        # the dashes, which all of them have, make none of them near
        known = {one.removeprefix("--"): one for one in err.possibilities or [] if one.startswith("--")}
        near = nearest(err.option_name.removeprefix("--"), known)
        hint = f", did you mean `{known[near]}`?" if near else ""
        message = f"unknown option `{err.option_name}`{hint}"
    else:
        message = " ".join(err.format_message().split()).rstrip(".")
    where = err.ctx.command_path if err.ctx else PROGRAM
    told = "" if message.endswith("?") else f"; see `{where} --help`"
    return f"{message[:1].lower()}{message[1:]}{told}"
