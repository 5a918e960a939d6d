"""Help screens: commands are grouped by task, and each command has an example that its own parser accepts."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

import click
import pytest

from ccm_agent.cli import program as host
from ccm_agent.resources.catalog import Catalog
from ccm_ctl.__main__ import VERBS
from ccm_ctl.commands import command_tree
from ccm_ctl.commands.command_tree import CtlProgram

TOP = "Most used commands"
PROGRAMS: dict[str, tuple[click.Command, Mapping[str, str], Mapping[str, Sequence[str]]]] = {
    "ccm": (host.program, host.VERBS, host.TASKS),
    "ccmctl": (CtlProgram(VERBS), VERBS, command_tree.TASKS),
}


def walk(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command with its words."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None, name
            yield from walk(below, (*path, name))


COMMANDS = {
    path: command for name, (program, _, _) in PROGRAMS.items() for path, command in walk(program, (name,))
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_command_belongs_to_one_task_and_six_stand_on_top(name: str) -> None:
    program, verbs, tasks = PROGRAMS[name]
    listed = [verb for names in tasks.values() for verb in names]
    with click.Context(program, info_name=name) as context:
        shown = program.get_help(context)

    assert sorted(listed) == sorted(verbs)
    assert (next(iter(tasks)), len(tasks[TOP])) == (TOP, 6)
    assert [shown.index(f"\n{title}:\n") for title in tasks] == sorted(
        shown.index(f"\n{title}:\n") for title in tasks
    )
    assert shown.index(f"\n{TOP}:\n") < shown.index("\nOptions:\n")
    assert all(f"\n  {verb} " in shown for verb in verbs)


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_each_command_has_an_example_of_itself(path: tuple[str, ...]) -> None:
    epilog = COMMANDS[path].epilog or ""
    lines = [line.strip() for line in epilog.splitlines()[1:]]

    assert epilog.startswith("Examples:\n"), path
    assert any(" ".join(path) in line for line in lines), lines


@pytest.mark.parametrize("kind", [one.name for one in Catalog().all() if one.command.is_offered])
def test_examples_of_each_type_are_accepted(kind: str) -> None:
    command = COMMANDS["ccm", "ensure", kind]
    lines = [line.strip() for line in (command.epilog or "").splitlines()[1:]]

    for line in lines:
        words = shlex.split(line)
        assert words[:3] == ["ccm", "ensure", kind]
        with click.Context(click.Command("ensure"), obj={}) as parent:
            command.make_context(kind, words[3:], parent=parent)
    with pytest.raises(click.UsageError):
        command.make_context(kind, ["--nope"])
