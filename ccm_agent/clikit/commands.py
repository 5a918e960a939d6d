"""
Commands and groups of commands for both programs.

For an unknown name, a group suggests the nearest known name. It lists each command with its complete first sentence. Help screens
end with examples. `LazyGroup` imports the module of a command when the command is called.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import click

from ccm_agent.clikit.completion import completed

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

HELP_NAMES = {"help_option_names": ["-h", "--help"]}
"""Settings of a program's root command, which apply to all commands below it."""

EVERYWHERE = {"ls": "list", "delete": "rm", "remove": "rm"}
"""Aliases in every group that has these commands."""

WHOLE = 1_000
"""A length limit that no description exceeds."""


def examples(*lines: str) -> str:
    """Return the end of a help screen with examples of command lines."""
    return "Examples:\n" + "\n".join(f"  {line}" for line in lines)


def version_option(show: Callable[[click.Context], None]) -> click.Option:
    """
    Return the option `--version`, which calls `show` and exits. If it is the only argument, it is handled before any import.
    """

    def print_version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
        if value:
            show(ctx)
            ctx.exit()

    return click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=print_version,
        help="Print the version.",
    )


class Option(click.Option):
    """
    An option with an optional section on the help screen and optional former spellings.

    Args:
        section: The section of the help screen; "" for the last section, `Options`.
        former: Former spellings. They are accepted, but not shown in help or completion.
    """

    def __init__(self, *given: Any, section: str = "", former: Sequence[str] = (), **settings: Any) -> None:
        super().__init__(*given, **settings)
        self.section = section
        self.former = former

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Register the former spellings with the parser."""
        shown, self.opts = self.opts, [*self.opts, *self.former]
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = shown


class Argument(click.Argument):
    """An argument with an explanation on the help screen."""

    def __init__(self, *given: Any, about: str = "", **settings: Any) -> None:
        super().__init__(*given, **settings)
        self.about = about


class BaseCommand(click.Command):
    """
    A command. Its epilog is printed without wrapping; see `examples`.

    A program's own class adds the options that all of its commands accept, with `shared_params` and `take_shared`.
    """

    prefix: ClassVar[str] = "shared_"
    """The prefix of the names of shared parameters. It is needed because a command may have an argument of the same name."""

    def shared_params(self, ctx: click.Context) -> Sequence[click.Parameter]:
        """Return the options of every command of the program. Their parameter names begin with `prefix`."""
        return ()

    def take_shared(self, ctx: click.Context, given: dict[str, Any]) -> None:
        """Use the values of the shared options. The keys are the names of the options without the prefix."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the command's own options, then the shared options, then --help."""
        own = super().get_params(ctx)
        return completed([*own[:-1], *self.shared_params(ctx), *own[-1:]], self.offer)

    def offer(self, ctx: click.Context, metavar: str, incomplete: str) -> list[CompletionItem]:
        """Return completions for a word, based on its metavar; see `completion.Word`."""
        return []

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, and remove the shared options from the parameters."""
        try:
            rest = super().parse_args(ctx, args)
        except click.UsageError as err:
            # the parser does not set the command, but the error refers to its help
            err.ctx = err.ctx or ctx
            raise
        shared = [name for name in ctx.params if name.startswith(self.prefix)]
        self.take_shared(ctx, {name.removeprefix(self.prefix): ctx.params.pop(name) for name in shared})
        return rest

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """Return the option `--help`, which writes with `write_text`."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.callback = self._print_help
        return option

    def _print_help(self, ctx: click.Context, _param: click.Parameter, value: bool) -> None:
        if value and not ctx.resilient_parsing:
            self.write_text(ctx, f"{ctx.get_help()}\n")
            ctx.exit()

    def write_text(self, ctx: click.Context, text: str) -> None:
        """Write a text about the command line itself, such as a help screen."""
        sys.stdout.write(text)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the arguments with an explanation, then the options by section."""
        params = self.get_params(ctx)
        arguments = [
            (one.make_metavar(ctx), about)
            for one in params
            if isinstance(one, Argument) and (about := self.explain(ctx, one))
        ]
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": arguments}
        last: list[tuple[str, str]] = []
        for one in params:
            if isinstance(one, click.Option) and (row := one.get_help_record(ctx)):
                title = one.section if isinstance(one, Option) else ""
                (sections.setdefault(title, []) if title else last).append(row)
        sections["Options"] = last
        for title, rows in sections.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def explain(self, ctx: click.Context, argument: Argument) -> str:
        """Return the explanation of an argument for the help screen."""
        return argument.about

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples without wrapping."""
        if self.epilog:
            formatter.write(f"\n{self.epilog}\n")


class Group(BaseCommand, click.Group):
    """
    A command with subcommands.

    Attributes:
        aliases: Alternative names of commands, which help does not list.
    """

    command_class: type[click.Command] | None = BaseCommand
    aliases: Mapping[str, str] = {}

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command with this name or alias."""
        name = self.aliases.get(cmd_name, cmd_name)
        return super().get_command(ctx, name) or super().get_command(ctx, EVERYWHERE.get(name, name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve as click does, but suggest the nearest name for an unknown one."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise click.UsageError(self.unknown(args[0], self.list_commands(ctx)), ctx=ctx)
        return super().resolve_command(ctx, args)

    def unknown(self, name: str, known: Sequence[str]) -> str:
        """Return the error for a name that is not a command."""
        from ccm_agent.model.suggestions import did_you_mean

        return f"unknown command `{name}`{did_you_mean(name, known)}"

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, then the commands."""
        super().format_options(ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names and complete descriptions of commands. click would truncate them to the width of the terminal."""
        below = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, one.get_short_help_str(limit=WHOLE)) for name, one in below if one and not one.hidden]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


class LazyGroup(Group):
    """A group that has the names and descriptions of its commands. A command is imported when it is called."""

    def __init__(
        self,
        name: str | None = None,
        *,
        table: Mapping[str, str] = {},
        hidden: Collection[str] = (),
        tasks: Mapping[str, Sequence[str]] = {},
        load: Callable[[str], click.Command] | None = None,
        **settings: Any,
    ) -> None:
        """
        Args:
            name: The group's name.
            table: The commands in the order of the help screen, each with its description.
            hidden: Commands that help does not list.
            tasks: The titles of the help screen's sections, each with its commands. If empty, there is one list of all commands.
            load: Imports a command.
            settings: All other settings of click's group.
        """
        super().__init__(name, **settings)
        self.table = table
        self.tasks = tasks
        self.hidden_commands = frozenset(hidden)
        self._load = load

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command with this name."""
        name = self.aliases.get(cmd_name, cmd_name)
        is_known = name in self.table or name in self.hidden_commands
        return self._load(name) if self._load is not None and is_known else None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, then the options, because a program has many options."""
        self.format_commands(ctx, formatter)
        BaseCommand.format_options(self, ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names and descriptions of commands by task, without importing the commands."""
        listed = {name for names in self.tasks.values() for name in names}
        rest = [name for name in self.table if name not in listed]
        width = max(map(len, self.table))
        for title, names in [*self.tasks.items(), ("Commands", rest)]:
            rows = [(name.ljust(width), self.table[name]) for name in names if name in self.table]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def imported(module: str, attribute: str) -> click.Command:
    """Import a module, and return the command in one of its attributes."""
    command = getattr(importlib.import_module(module), attribute)
    assert isinstance(command, click.Command)
    return command
