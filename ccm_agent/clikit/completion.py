"""Completion in bash, zsh and fish: the script that a shell sources, and the answers that it asks for at each Tab."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from ccm_agent.model.formats.patterns import lazy_pattern

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

SHELLS = ("bash", "zsh", "fish")

MOST = 200
"""At most this many words are offered; with another letter there are fewer."""

FILES = frozenset({"FILE", "FILE|-", "FILE|DIR", "URL|FILE", "MANIFEST", "INPUT", "URL"})
"""What help calls words that may be files."""

PLAIN = lazy_pattern(r"[A-Za-z0-9._/@](?:[A-Za-z0-9._/@+=-]|!(?==))*")
"""Shells split and expand what they are offered. Names were chosen by others, and one may look like an option or a command."""

Values = Callable[[click.Context, str, str], "list[CompletionItem]"]
"""What a word may become: the context, what help calls the word (its metavar), and the part that is typed."""


class Word(click.types.StringParamType):
    """A text that a shell completes by what help calls it: FILE, NODE, RUN and so on."""

    def __init__(self, values: Values) -> None:
        self._values = values

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """What the word may become."""
        return self._values(ctx, param.metavar or (param.name or "").upper(), incomplete)


class AnyWord(Word):
    """The same for words that keep their form, which may look like options."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The word as it is."""
        return value


def completed(params: Sequence[click.Parameter], values: Values) -> list[click.Parameter]:
    """The parameters, with those that take any text completed by these values."""
    for param in params:
        if param.type is click.STRING:
            param.type = Word(values)
        elif param.type is click.UNPROCESSED:
            param.type = AnyWord(values)
    return list(params)


def offer(known: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Those of the words that begin with what is typed and that no shell expands."""
    from click.shell_completion import CompletionItem

    found = {word for word in known if word.startswith(incomplete) and PLAIN.fullmatch(word)}
    return [CompletionItem(word) for word in sorted(found)[:MOST]]


def offer_files(incomplete: str, kind: str = "file") -> list[CompletionItem]:
    """Files or directories, which the shell finds itself."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type=kind)]


def script(root: click.Command, program: str, shell: str) -> str:
    """What a shell sources to complete a program's commands."""
    return f"{_engine(shell)(root, {}, program, variable(program)).source()}\n"


def variable(program: str) -> str:
    """The environment variable in which a shell asks a program for completions."""
    return f"_{program.upper()}_COMPLETE"


def answer(root: click.Command, program: str, instruction: str, context: Mapping[str, Any]) -> str:
    """
    The answer to a shell.

    Args:
        root: The program's root command.
        program: Its name.
        instruction: The value of `variable`: `bash_complete`, or `bash_source` for the script.
        context: What click's outermost context takes.
    """
    shell, _, wanted = instruction.partition("_")
    if shell not in SHELLS:
        return ""
    engine = _engine(shell)(root, dict(context), program, variable(program))
    return f"{engine.source() if wanted == 'source' else engine.complete()}\n"


def _engine(shell: str) -> Any:
    if shell == "bash":
        from ccm_agent.clikit.bash_completion import LineComplete

        return LineComplete
    from click.shell_completion import get_completion_class

    return get_completion_class(shell)
