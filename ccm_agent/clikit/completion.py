"""Completion in bash, zsh and fish: the script that a shell sources, and words that a shell completes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

SHELLS = ("bash", "zsh", "fish")

Values = Callable[[click.Context, str, str], "list[CompletionItem]"]
"""What a word may become: the context, what help calls the word (its metavar), and the part that is typed."""


class Word(click.types.StringParamType):
    """A text that a shell completes by what help calls it: FILE, NODE, RUN and so on."""

    def __init__(self, values: Values) -> None:
        self._values = values

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """What the word may become; nothing when the operator does not wait for the answer."""
        try:
            return self._values(ctx, param.metavar or "", incomplete)
        except KeyboardInterrupt:
            return []


def completed(params: Sequence[click.Parameter], values: Values) -> list[click.Parameter]:
    """The parameters, with those that take any text completed by these values."""
    for param in params:
        if param.type is click.STRING:
            param.type = Word(values)
    return list(params)


def script(root: click.Command, program: str, shell: str) -> str:
    """What a shell sources to complete a program's commands."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    return kind(root, {}, program, variable(program)).source() + "\n"


def variable(program: str) -> str:
    """The environment variable in which a shell asks a program for completions."""
    return f"_{program.upper()}_COMPLETE"
