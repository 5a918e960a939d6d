"""All commands of `ccmctl` follow one grammar: an operator who knows one group can use the others."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from ccm_agent.clikit.durations import Duration, TimeOption
from ccm_ctl.__main__ import VERBS
from ccm_ctl.commands.command_tree import CtlProgram

WITHOUT_LIST = {
    "": "the program itself",
    "facts": "`facts show` prints the facts of one node",
    "operator": "the broker keeps no list of the credentials that were given to operators",
    "slots": "`slots` lists them itself",
}
"""Groups without `list`, each with the reason."""

TIMES = {"--at", "--since", "--until"}
DURATIONS = {
    *("--bake", "--every", "--expires", "--for", "--interval", "--older-than", "--splay"),
    *("--timeout", "--valid-for", "--wait"),
}
EITHER = {"--deadline"}
AS_WRITTEN = {("notify add", "--after")}
"""Durations that a file keeps in the operator's words; `check_rule` reads them."""


def walk(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """Every command with its words, without the names of earlier versions."""
    yield " ".join(path), command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None, name
            yield from walk(below, (*path, name))


COMMANDS = dict(walk(CtlProgram(VERBS)))
GROUPS = {name: one for name, one in COMMANDS.items() if isinstance(one, click.Group)}
OPTIONS = [
    (name, one)
    for name, command in COMMANDS.items()
    for one in command.params
    if isinstance(one, click.Option)
]


def test_every_group_lists_with_list_and_with_ls() -> None:
    for name, command in GROUPS.items():
        context = click.Context(command)
        found = command.get_command(context, "list")

        assert (found is None) == (name in WITHOUT_LIST), name
        assert command.get_command(context, "ls") is found, name
        assert "ls" not in command.list_commands(context), name


def test_every_option_that_agrees_is_called_yes() -> None:
    spellings = {tuple(one.opts) for _, one in OPTIONS if {"--yes", "-y"} & set(one.opts)}

    assert spellings == {("--yes", "-y")}


def test_every_module_that_asks_has_a_command_with_yes() -> None:
    modules = {inspect.getmodule(_function(one)) for one in COMMANDS.values()}
    agreeing = {inspect.getmodule(_function(COMMANDS[name])) for name, one in OPTIONS if "--yes" in one.opts}
    asking = {
        one
        for one in modules
        if one and any(word in inspect.getsource(one) for word in (".ask(", "confirm("))
    }

    assert asking
    assert {one.__name__ for one in asking - agreeing if one} == set()


FOR_NODES = "secret put"
"""Its `--for` names nodes."""


def test_every_time_and_duration_is_read_by_the_shared_types() -> None:
    kinds = ((TIMES, TimeOption), (DURATIONS, Duration), (EITHER, TimeOption | Duration))
    wrong = [
        (name, one.opts[0])
        for name, one in OPTIONS
        for names, kind in kinds
        if names & set(one.opts) and not isinstance(one.type, kind) and name != FOR_NODES
    ]

    assert wrong == []


def test_every_option_that_help_calls_a_duration_is_one() -> None:
    named = {(name, one.opts[0]) for name, one in OPTIONS if one.metavar in ("DURATION", "TIME")}
    read = {(name, one.opts[0]) for name, one in OPTIONS if isinstance(one.type, Duration | TimeOption)}

    assert named - read == AS_WRITTEN


def test_every_message_is_spelled_the_same() -> None:
    spellings = {tuple(one.opts) for _, one in OPTIONS if {"--message", "-m"} & set(one.opts)}

    assert spellings == {("--message", "-m")}


def test_only_data_is_explained() -> None:
    assert [name for name in COMMANDS if name.split()[-1:] == ["explain"]] == ["data explain"]


def _function(command: click.Command) -> object:
    """The function that a command was made of."""
    if command.callback is None:
        return type(command)
    made = inspect.getclosurevars(inspect.unwrap(command.callback)).nonlocals
    return made.get("function", type(command))
