"""`ccmctl exec`: run one command on many nodes."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import click
from msgspec import Struct

from ccm_agent.bus.signatures.verified import Authored
from ccm_agent.clikit.commands import Argument
from ccm_agent.clikit.durations import Duration
from ccm_agent.clikit.options import Options, takes
from ccm_agent.clikit.text import one_line, shortened
from ccm_agent.model.errors import UsageError
from ccm_agent.model.exits import Exit
from ccm_agent.model.secret import mask_urls
from ccm_agent.model.wire import RESOURCE_EXEC, ExecRequest
from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import CtlCommand, verb
from ccm_ctl.commands.rollouts.rollout_options import RolloutFlags, refuse_credentials, rollout_options
from ccm_ctl.commands.runs.apply import roll_out
from ccm_ctl.commands.runs.open_rollouts import warn_of_open
from ccm_ctl.commands.runs.targets import NOT_AGREED, RunOptions, confirm, parse_deadline, run_options
from ccm_ctl.fleet.nodes.discovery import TargetSpec, resolve
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.runs.run_request import prepare

COMMAND_BYTES = 64 * 1024
"""The maximum size of a command. A longer one would not fit into the event that reports it."""

TITLE_LENGTH = 100
"""The maximum number of characters of a command in lists of runs."""

SHELL = "/bin/sh"

MISPLACED = "ccm.exec.misplaced"
"""The key of the `MisplacedOptions` in the context."""


class MisplacedOptions(Struct, frozen=True, kw_only=True):
    """
    Options of `exec` that were given after the command. They are passed to the command.

    Attributes:
        options: The options with their values.
        is_separated: Whether `--` precedes the command. Then the options belong to the command.
        line: The command line with these options moved before the command.
    """

    options: list[str]
    is_separated: bool
    line: str


class Exec(CtlCommand):
    """The `exec` command. All words after the program's name are part of the command that nodes run."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, and store the options of `exec` that follow the command in the context."""
        given = list(args)
        rest = super().parse_args(ctx, args)
        words: tuple[str, ...] = ctx.params.get("words", ())
        own, command = _split(self.get_params(ctx), words)
        before = given[: len(given) - len(words)]
        ctx.meta[MISPLACED] = MisplacedOptions(
            options=own,
            is_separated="--" in before[-1:],
            line=shlex.join(
                ["ccmctl", "exec", *(word for word in before if word != "--"), *own, "--", *command]
            ),
        )
        return rest

    def explain(self, ctx: click.Context, argument: Argument) -> str:
        """Describe the words of the command."""
        return "The program and its arguments. Options of `exec` must precede them."


class ExecRunOptions(Options, frozen=True, kw_only=True):
    """The options of `ccmctl exec`."""

    words: tuple[str, ...]
    start: RunOptions
    rollout: RolloutFlags
    timeout: int
    shell: bool


@verb(
    "exec",
    kind=Exec,
    examples=[
        "ccmctl exec -t role=web -- uptime",
        "ccmctl exec -t role=web --yes -- systemctl is-active nginx",
        "ccmctl exec -t role=web --batch 10% --max-failures 0 --yes -- systemctl restart nginx",
        "ccmctl exec -t role=web --canary 1 --bake 10m --batch 10% --detach --yes -- systemctl restart nginx",
        "ccmctl exec -t node=db1 --shell -- 'journalctl -n 100 | grep -c error'",
        "ccmctl exec --all --yes --json -- uname -r | jq -r 'select(.record == \"output\") | [.node, .output] | @tsv'",
    ],
    context_settings={"allow_interspersed_args": False},
    options=[
        Argument(["words"], metavar="COMMAND [ARG]...", nargs=-1, type=click.UNPROCESSED),
        *[option for option in run_options() if option.name != "timeout"],
        *rollout_options(),
        click.Option(
            ["--timeout"],
            type=Duration(),
            default="1m",
            show_default=True,
            metavar="TIME",
            help="Kill the command after this time.",
        ),
        click.Option(
            ["--shell"], is_flag=True, help="Run COMMAND with /bin/sh -c. By default, no shell is used."
        ),
    ],
)
@takes(ExecRunOptions)
def exec(application: Application, given: ExecRunOptions) -> Exit:
    """
    Run a command on nodes, and show its output.

    Nodes with the same exit code and output are shown together. Each node runs the command once, as root, in `/`, without
    input. The run stores exit codes and up to 64 KiB of each output. All operators can read these and the command, so do not
    put passwords in it. Requires credentials with `--exec`; a rollout also needs `--apply`.

    Exit codes: 0 the command succeeded on all nodes; 1 nothing was sent; 2 it failed on a node, or a node refused; 3 a node was
    offline, unreachable, lost or expired.
    """
    words, start, flags = given.words, given.start, given.rollout
    argv = command_of(words, is_shell=given.shell)
    _notice_misplaced(application, words, start.spec, click.get_current_context().meta[MISPLACED])

    async def work(fleet: Fleet) -> Exit:
        from ccm_ctl.commands.runs.run_view import start_and_watch

        inventory, resolved = await resolve(fleet, start.spec, is_once=True)
        rollout = flags.make_plan(inventory, resolved) if flags.is_rollout else None
        if rollout is not None:
            refuse_credentials(argv)
        title = title_of(words)
        await warn_of_open(application, fleet, resolved.nodes, is_refused=flags.is_unasked(yes=start.yes))
        if not await confirm(application, f"run `{title}` on", resolved, yes=start.yes):
            return NOT_AGREED
        request = ExecRequest(
            protocol=RESOURCE_EXEC,
            argv=argv,
            timeout_s=float(given.timeout),
            deadline=parse_deadline(start.deadline, fleet.clock.now()),
            message=start.message,
        )
        launch = prepare(fleet, request, resolved, "exec", title, base=[Authored.from_arguments()])
        if rollout is not None:
            return await roll_out(
                application, fleet, launch, rollout, flags, start.deadline, offline_ok=start.offline_ok
            )
        return await start_and_watch(application, fleet, launch, offline_ok=start.offline_ok)

    return application.run(work)


def _notice_misplaced(
    application: Application, words: Sequence[str], spec: TargetSpec, misplaced: MisplacedOptions
) -> None:
    """
    Report options of `exec` after the command. They are an error if no nodes are selected. Otherwise, the command may need them.

    Raises:
        UsageError: No nodes are selected before the command.
    """
    if not misplaced.options:
        return
    told = (
        f"`{shlex.join(misplaced.options)}` is after the command, so it is passed to `{one_line(words[0])}`"
    )
    if spec.is_empty:
        raise UsageError(
            f"no nodes selected: {told}; options of exec precede the command: `{one_line(misplaced.line)}`"
        )
    if not misplaced.is_separated and any(word.startswith("--") for word in misplaced.options):
        application.terminal.note(f"note: {told}; write `--` before the command to hide this note")


def _split(params: Sequence[click.Parameter], words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the words after a program's name into options of `exec` (with their values) and other words."""
    known = {
        name: one
        for one in params
        if isinstance(one, click.Option)
        for name in (*one.opts, *one.secondary_opts)
    }
    own: list[str] = []
    rest = list(words[:1])
    left = list(words[1:])
    while left:
        word = left.pop(0)
        name, equals, _ = word.partition("=")
        option = known.get(name)
        if option is None or name in ("-h", "--help", "--version"):
            rest.append(word)
            continue
        own.append(word)
        if not option.is_flag and not equals and left:
            own.append(left.pop(0))
    return own, rest


def command_of(words: Sequence[str], *, is_shell: bool) -> list[str]:
    """
    Check the words of a command, and return the program and its arguments.

    Raises:
        UsageError: There is no command, or nodes could not run it.
    """
    if not any(words):
        raise UsageError("no command: write it after `--`, as in `ccmctl exec -t role=web -- uptime`")
    try:
        size = sum(len(word.encode()) + 1 for word in words)
    except UnicodeEncodeError as err:
        raise UsageError("the command is not UTF-8; use --shell with printf escapes") from err
    if size > COMMAND_BYTES:
        raise UsageError("the command is longer than 64 KiB; use a file in a manifest")
    return [SHELL, "-c", " ".join(words)] if is_shell else list(words)


def title_of(words: Sequence[str]) -> str:
    """Return the command as one line for people, without credentials in URLs."""
    shown = [mask_urls(word) for word in words]
    return shortened(one_line(shown[0] if len(shown) == 1 else shlex.join(shown)), TITLE_LENGTH)
