"""Format the screen of `ccmctl doctor`: the results by group, and for each problem the command that fixes it."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from ccm_agent.clikit.table import Style, paint
from ccm_agent.clikit.text import one_line, plural, safe

TITLES = {
    "broker": "Broker",
    "credentials": "Your credentials",
    "keys": "Keys of the fleet",
    "signers": "Signers list",
    "stream": "Streams and buckets",
    "sites": "Sites",
    "nodes": "Nodes",
}
"""The titles of the groups, in display order."""

MEANINGS = {"ok": "good", "warning": "change", "problem": "bad", "unknown": "quiet"}
"""The color of each state, as a key of COLORS."""

_STATE_WIDTH = 9
_NARROWEST = 20
_LABEL = "fix: "


class CheckLine(Struct, frozen=True):
    """One result: its ID, its state (a key of MEANINGS), a description, and the command that fixes the problem."""

    id: str
    state: str
    sentence: str
    fix: str = ""


def screen(lines: Sequence[CheckLine], style: Style, *, show_all: bool) -> str:
    """
    Return the screen as text that ends with a newline. Control characters in the results are escaped.

    Args:
        lines: The results.
        style: The width and color.
        show_all: Whether to list the checks that passed.
    """
    shown = [line for line in lines if show_all or line.state != "ok"]
    blocks = [
        _block(title, _select_group(shown, group), style)
        for group, title in TITLES.items()
        if _select_group(shown, group)
    ]
    return "\n".join([*blocks, f"{summary(lines)}\n"])


def summary(lines: Sequence[CheckLine]) -> str:
    """Format the counts: `14 checks passed, 2 warnings, 1 problem, 3 unknown`."""
    counts = Counter(line.state for line in lines)
    parts = [f"{plural(counts['ok'], 'check')} passed"]
    parts += [plural(counts[state], state) for state in ("warning", "problem") if counts[state]]
    parts += [f"{counts['unknown']} unknown"] if counts["unknown"] else []
    return ", ".join(parts)


def _select_group(lines: Sequence[CheckLine], group: str) -> list[CheckLine]:
    return [line for line in lines if line.id.partition(".")[0] == group]


def _block(title: str, lines: Sequence[CheckLine], style: Style) -> str:
    known = [line for line in lines if line.state != "unknown"]
    entries = [
        _entry(line, style) for line in [*known, *_folded(line for line in lines if line.state == "unknown")]
    ]
    return "".join([f"{paint(title, 'strong', style)}\n", *entries])


def _folded(unknown: Iterable[CheckLine]) -> list[CheckLine]:
    """Merge the checks of a group that are unknown for the same reason into one line with their names."""
    names: dict[str, list[str]] = {}
    for line in unknown:
        names.setdefault(line.sentence, []).append(line.id.partition(".")[2])
    return [CheckLine("", "unknown", f"{', '.join(found)}: {sentence}") for sentence, found in names.items()]


def _entry(line: CheckLine, style: Style) -> str:
    indent = " " * (_STATE_WIDTH + 2)
    width = max(style.width - len(indent), _NARROWEST)
    first, *rest = textwrap.wrap(one_line(line.sentence), width, break_on_hyphens=False) or [""]
    state = paint(f"{line.state:<{_STATE_WIDTH}}", MEANINGS[line.state], style)
    text = [f"  {state}{first}", *(f"{indent}{more}" for more in rest)]
    text += _fix(safe(line.fix), indent, width, style) if line.fix else []
    return "".join(f"{one}\n" for one in text)


def _fix(fix: str, indent: str, width: int, style: Style) -> list[str]:
    """
    Return the lines of a fix. The command is never wrapped, so that it can be copied. A long comment is below the command.
    """
    command, mark, comment = fix.partition("   # ")
    label = paint(_LABEL.rstrip(), "quiet", style)
    if len(_LABEL) + len(fix) <= width or not mark:
        return [f"{indent}{label} {paint(fix, 'strong', style)}"]
    below = textwrap.wrap(comment, max(width - len(_LABEL), _NARROWEST), break_on_hyphens=False)
    return [f"{indent}{label} {paint(command, 'strong', style)}", *(f"{indent}     {line}" for line in below)]
