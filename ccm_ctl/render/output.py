"""Format the output of commands. Nodes with the same output share a block."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from ccm_agent.clikit.table import Style, paint
from ccm_agent.clikit.text import fold_names, one_line, plural, safe

INDENT = "  │ "


class OutputLimits(Struct, frozen=True):
    """Limits of the displayed output: the number of lines from the end of each output, and the number of different outputs."""

    lines: int
    outputs: int


IN_BRIEF = OutputLimits(lines=12, outputs=10)
"""The limits for outputs below the table of a run."""

IN_FULL = OutputLimits(lines=1000, outputs=1000)
"""The limits for a single command whose output was requested."""


class CommandOutput(Struct, frozen=True):
    """
    The output of a command.

    Attributes:
        resource: `type#name`.
        text: The end of the output.
        is_cut: Whether the beginning of the output is missing.
        is_logged: Whether the resource requests that its output is shown (`logoutput`).
    """

    resource: str
    text: str
    is_cut: bool = False
    is_logged: bool = False


def output_blocks(
    found: Iterable[tuple[str, Sequence[CommandOutput]]], limits: OutputLimits, style: Style
) -> list[str]:
    """
    Return a block for each different output, with the nodes and the resource in its first line.

    Args:
        found: The outputs of each node, by its name.
        limits: The limits. Outputs above the limit are only counted.
        style: The width and color.
    """
    nodes: dict[CommandOutput, list[str]] = {}
    for node, outputs in found:
        for output in outputs:
            nodes.setdefault(output, []).append(node)
    blocks = [_block(output, names, limits.lines, style) for output, names in nodes.items()]
    left = len(blocks) - limits.outputs
    if left <= 0:
        return blocks
    rest = f"and {plural(left, 'other output')}; `ccmctl run show RUN --json` has all\n"
    return [*blocks[: limits.outputs], rest]


def output_lines(text: str, most: int, *, is_cut: bool = False) -> list[str]:
    """Return the last lines of an output, made safe and indented. The first line shows whether earlier lines are missing."""
    lines = [line.rstrip() for line in safe(text).rstrip().splitlines()]
    shown = lines[-most:]
    if len(lines) > len(shown) or is_cut:
        count = len(lines) - len(shown)
        more = "more than " if is_cut else ""
        shown = [f"… {more}{plural(count, 'line')} above" if count else "… cut above", *shown]
    return [f"{INDENT}{line.expandtabs(4)}".rstrip() for line in shown]


def _block(output: CommandOutput, nodes: list[str], most: int, style: Style) -> str:
    head = paint(f"{fold_names(nodes)}: {one_line(output.resource)}", "strong", style)
    return "\n".join([head, *output_lines(output.text, most, is_cut=output.is_cut)]) + "\n"
