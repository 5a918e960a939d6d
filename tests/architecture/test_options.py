"""A command takes its options as typed parameters or as one struct; their names are those of its click parameters."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click
import msgspec
import pytest

from ccm_agent.cli.program import program
from ccm_agent.clikit.options import PROPERTIES, Options, option_groups, takes
from ccm_ctl.__main__ import VERBS
from ccm_ctl.commands.command_tree import CtlProgram


def walk(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """Every command with its words."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None, name
            yield from walk(below, f"{path} {name}")


COMMANDS = dict([*walk(program, "ccm"), *walk(CtlProgram(VERBS), "ccmctl")])
STRUCTS = {name: struct for name, one in COMMANDS.items() if (struct := getattr(one.callback, "takes", None))}


def fields(struct: type[Options]) -> dict[str, bool]:
    """The fields of a struct and of its groups, each with whether it needs an option."""
    groups, names, defaults = option_groups(struct), struct.__struct_fields__, struct.__struct_defaults__
    found: dict[str, bool] = {}
    for name, default in zip(
        names, [*[msgspec.NODEFAULT] * (len(names) - len(defaults)), *defaults], strict=True
    ):
        found |= fields(groups[name]) if name in groups else {name: default is msgspec.NODEFAULT}
    return found


@pytest.mark.parametrize("name", STRUCTS)
def test_each_option_is_a_field_of_the_struct_of_its_command(name: str) -> None:
    known = fields(STRUCTS[name])
    params = {param.name for param in COMMANDS[name].params if param.expose_value}
    needed = {field for field, is_needed in known.items() if is_needed} - {PROPERTIES}

    assert needed - params == set()
    assert PROPERTIES in known or params - set(known) == set()


def test_no_command_takes_its_options_as_a_dictionary() -> None:
    untyped = [
        name
        for name, one in COMMANDS.items()
        if one.callback
        and any(
            param.kind is param.VAR_KEYWORD
            for param in inspect.signature(inspect.unwrap(one.callback)).parameters.values()
        )
    ]

    assert untyped == []
    assert len(STRUCTS) > 10


class Where(Options, frozen=True, kw_only=True):
    """A group."""

    node: str
    limit: int = 0


class Both(Options, frozen=True, kw_only=True):
    """A struct with a group and the flags of a type."""

    where: Where
    noop: bool
    properties: dict[str, str]


class Plain(Options, frozen=True, kw_only=True):
    """A struct without either."""

    noop: bool


def test_a_group_and_the_properties_take_their_parameters() -> None:
    @takes(Both)
    def command(context: str, options: Both) -> tuple[str, Both]:
        return context, options

    assert command("first", node="web1", noop=True, mode="0644") == (
        "first",
        Both(where=Where(node="web1"), noop=True, properties={"mode": "0644"}),
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"noop": True, "nop": True}, "Plain has no field for nop"),
        ({}, "Missing required argument 'noop'"),
    ],
)
def test_a_parameter_without_a_field_and_a_field_without_a_parameter_are_errors(
    given: dict[str, bool], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        takes(Plain)(lambda options: options)(**given)
