"""Format a screen about one node: the reason first, then other facts, then commands."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from msgspec import Struct

from ccm_agent.clikit.table import Style, paint
from ccm_agent.clikit.text import one_line, safe

OUTPUT_LINES = 8
"""The maximum number of lines of a failed command's output. They fit on a screen. `--json` contains up to 8 KiB."""

SCREEN_LINES = 23
"""The number of lines of a typical terminal, minus one line for the prompt."""

_FEWEST = 3
_NARROWEST = 20
_HERE = "here"


class Fact(Struct, frozen=True):
    """A fact about the node: a label, a text, and its meaning (a key of COLORS)."""

    label: str
    text: str
    meaning: str = ""


class SuggestedCommand(Struct, frozen=True):
    """A helpful command, the host on which to type it, and its purpose."""

    command: str
    purpose: str
    where: str = ""


def screen(
    sentence: str,
    meaning: str,
    facts: Sequence[Fact],
    output: str,
    steps: Sequence[SuggestedCommand],
    style: Style,
) -> str:
    """
    Return the screen as text that ends with a newline. All texts are made safe.

    Args:
        sentence: The reason.
        meaning: The color of the sentence, as a key of COLORS.
        facts: Other facts about the node. Facts without a text are omitted.
        output: The failed command's output. Its last lines are shown below the sentence.
        steps: Helpful commands, the most useful first.
        style: The width and color.
    """
    blocks = [_wrapped(one_line(sentence), style, "strong" if meaning == "good" else meaning)]
    if told := _facts([fact for fact in facts if fact.text], style):
        blocks.append(told)
    if steps:
        blocks.append(_steps(steps, style))
    if output.strip():
        others = sum(block.count("\n") + 1 for block in blocks)
        blocks.insert(1, _quoted(output, max(min(OUTPUT_LINES, SCREEN_LINES - others), _FEWEST), style))
    return "\n".join(blocks)


def _wrapped(text: str, style: Style, meaning: str) -> str:
    return "".join(f"{paint(line, meaning, style)}\n" for line in _lines(text, style.width))


def _quoted(output: str, most: int, style: Style) -> str:
    lines = safe(output).rstrip().splitlines()[-most:]
    return "".join(f"{_cut(f'  │ {line.expandtabs(4)}'.rstrip(), style)}\n" for line in lines)


def _facts(facts: Sequence[Fact], style: Style) -> str:
    indent = max((len(fact.label) for fact in facts), default=0) + 2
    lines = []
    for fact in facts:
        first, *rest = _lines(one_line(fact.text), style.width - indent)
        label = paint(f"{fact.label:<{indent}}", "quiet", style)
        lines.append(f"{label}{paint(first, fact.meaning, style)}")
        lines += [f"{' ' * indent}{paint(line, fact.meaning, style)}" for line in rest]
    return "".join(f"{line}\n" for line in lines)


def _steps(steps: Sequence[SuggestedCommand], style: Style) -> str:
    places = [f"on {step.where}:" if step.where else f"{_HERE}:" for step in steps]
    first, second = max(map(len, places)) + 2, max(len(step.command) for step in steps) + 2
    lines = []
    for place, step in zip(places, steps, strict=True):
        command, purpose = safe(step.command), safe(step.purpose)
        head = f"{paint(f'{place:<{first}}', 'quiet', style)}{paint(command, 'strong', style)}"
        gap = " " * (second - len(step.command))
        if first + second + len(purpose) <= style.width:
            lines.append(f"{head}{gap}{purpose}")
        else:
            lines += [head, f"{' ' * (first + 2)}{purpose}"]
    return "".join(f"{line}\n" for line in lines)


def _lines(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, _NARROWEST), break_on_hyphens=False) or [""]


def _cut(line: str, style: Style) -> str:
    return line if len(line) <= style.width else f"{line[: style.width - 1]}…"
