"""Completion in bash, zsh and fish: the script that a shell sources, and the completions that the shell requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from ccm_agent.model.formats.patterns import lazy_pattern

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

SHELLS = ("bash", "zsh", "fish")

MOST = 200
"""The maximum number of completions. The user types more letters to reduce their number."""

FILES = frozenset({"FILE", "FILE|-", "FILE|DIR", "URL|FILE", "MANIFEST", "INPUT", "URL"})
"""The metavars of words that may be files."""

PLAIN = lazy_pattern(r"[A-Za-z0-9._/@](?:[A-Za-z0-9._/@+=-]|!(?==))*")
"""Words that shells neither split nor expand. Node names are untrusted, so a name may look like an option or a command."""

Values = Callable[[click.Context, str, str], "list[CompletionItem]"]
"""Returns completions for the context, the word's metavar and the typed part."""


class Word(click.types.StringParamType):
    """A text that a shell completes according to its metavar, such as FILE, NODE or RUN."""

    def __init__(self, values: Values) -> None:
        self._values = values

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the completions for the typed part."""
        return self._values(ctx, param.metavar or (param.name or "").upper(), incomplete)


class AnyWord(Word):
    """A `Word` that may look like an option, and is not checked."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the word unchanged."""
        return value


def completed(params: Sequence[click.Parameter], values: Values) -> list[click.Parameter]:
    """Return the parameters. Those that accept any text get `values` as their completions."""
    for param in params:
        if param.type is click.STRING:
            param.type = Word(values)
        elif param.type is click.UNPROCESSED:
            param.type = AnyWord(values)
    return list(params)


def offer(known: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Return the words that begin with the typed text and that no shell expands."""
    from click.shell_completion import CompletionItem

    found = {word for word in known if word.startswith(incomplete) and PLAIN.fullmatch(word)}
    return [CompletionItem(word) for word in sorted(found)[:MOST]]


def offer_files(incomplete: str, kind: str = "file") -> list[CompletionItem]:
    """Return a completion that makes the shell itself complete files or directories."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type=kind)]


def script(root: click.Command, program: str, shell: str) -> str:
    """Return the script that a shell sources to complete a program's commands."""
    return f"{_engine(shell)(root, {}, program, variable(program)).source()}\n"


def variable(program: str) -> str:
    """Return the environment variable in which a shell requests completions from a program."""
    return f"_{program.upper()}_COMPLETE"


def answer(root: click.Command, program: str, instruction: str, context: Mapping[str, Any]) -> str:
    """
    Return the completions that a shell requested.

    Args:
        root: The program's root command.
        program: The program's name.
        instruction: The value of `variable`: `bash_complete`, or `bash_source` for the script.
        context: Arguments of click's outermost context.
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
