"""What commands wrote, nodes with the same output folded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from ccm_agent.clikit.table import Style, paint
from ccm_agent.clikit.text import fold_names, one_line, plural, safe

INDENT = "  │ "


class OutputLimits(Struct, frozen=True):
    """How much is shown: how many last lines of each output, and how many different outputs."""

    lines: int
    outputs: int


IN_BRIEF = OutputLimits(lines=12, outputs=10)
"""Beside the table of a run."""

IN_FULL = OutputLimits(lines=1000, outputs=1000)
"""For a single command that an operator ran to see what it writes."""


class CommandOutput(Struct, frozen=True):
    """
    What a command wrote.

    Attributes:
        resource: `type#name`.
        text: The end of it.
        is_cut: It wrote more than that.
        is_logged: The resource says that its output is to be shown (`logoutput`).
    """

    resource: str
    text: str
    is_cut: bool = False
    is_logged: bool = False


def output_blocks(
    found: Iterable[tuple[str, Sequence[CommandOutput]]], limits: OutputLimits, style: Style
) -> list[str]:
    """
    A block for each different output, with the nodes and the resource in its first line.

    Args:
        found: Each node's name with its outputs.
        limits: How much is shown; the rest is counted.
        style: Width and color.
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
    """The last lines of an output, made safe and indented; the first line says if lines are left out above it."""
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
