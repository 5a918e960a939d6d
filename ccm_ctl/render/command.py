"""Format the results of one command on nodes. Nodes with equal results share a block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from ccm_agent.clikit.table import Style, paint
from ccm_agent.clikit.text import fold_names, one_line, plural, short_id, shortened
from ccm_agent.model.outcome import LOGGED_OUTPUT_TAIL, TransactionEvent
from ccm_agent.model.wire import COMPLIANT_STATES, NodeState
from ccm_ctl.render.outcome import MEANINGS, end_line
from ccm_ctl.render.output import IN_FULL, output_lines

ERROR_SHOWN = 300
"""The maximum length of an error. `--json` contains the whole error."""


class CommandResult(Struct, frozen=True, kw_only=True):
    """
    The result of a command on a node.

    Attributes:
        state: The state of the node in the run.
        exit_code: The exit code; None if the command was killed or did not run.
        why: The reason why the command did not run or failed; "" if the exit code is sufficient.
        output: The end of the command's output.
        is_cut: Whether the beginning of the output is missing.
    """

    state: NodeState
    exit_code: int | None = None
    why: str = ""
    output: str = ""
    is_cut: bool = False

    @property
    def title(self) -> str:
        """The result for a line: `exit code 3`, `refused: …`; "" after a command that succeeded."""
        if self.exit_code and not self.why:
            return f"exit code {self.exit_code}"
        word = str(self.state) if self.state not in COMPLIANT_STATES else ""
        why = shortened(one_line(self.why), ERROR_SHOWN)
        return f"{word}: {why}" if word and why else word or why


def command_result(state: NodeState, reason: str, events: Mapping[int, TransactionEvent]) -> CommandResult:
    """
    Return the result of a command on a node.

    Args:
        state: The state of the node in the run.
        reason: The reason for that state.
        events: The events of the command, by number. The first one is used.
    """
    if not events:
        return CommandResult(state=state, why=reason)
    event = events[min(events)]
    has_ended = event.exit_code is not None and event.exit_code >= 0
    return CommandResult(
        state=state,
        exit_code=event.exit_code,
        why=_why(state, reason, event) if event.exit_code == 0 or not has_ended else "",
        output=event.output[-LOGGED_OUTPUT_TAIL:],
        is_cut="output" in event.cut,
    )


def _why(state: NodeState, reason: str, event: TransactionEvent) -> str:
    """Return the reason why a command did not succeed: its own error, or a problem of the node after the command ended."""
    return "\n".join(event.error) or ("" if state in COMPLIANT_STATES else reason)


def output_fields(event: TransactionEvent) -> dict[str, Any]:
    """Return the record fields for the result of a command."""
    return {
        "exit_code": event.exit_code,
        "output": event.output[-LOGGED_OUTPUT_TAIL:],
        "cut": "output" in event.cut or None,
        "error": "; ".join(event.error) or None,
    }


def command_report(
    title: str, results: Mapping[str, CommandResult], seconds: float, run: str, style: Style
) -> str:
    """
    Return a block for each different result, successful results first, and a last line.

    Args:
        title: A description of the action.
        results: The result of the command, by node.
        seconds: The duration of the run.
        run: The ID of the run.
        style: The width and color.
    """
    nodes: dict[CommandResult, list[str]] = {}
    for name, result in results.items():
        nodes.setdefault(result, []).append(name)
    blocks = [
        _block(result, names, style)
        for result, names in sorted(nodes.items(), key=lambda item: (bool(item[0].title), item[1]))
    ]
    left = len(blocks) - IN_FULL.outputs
    if left > 0:
        rest = f"and {plural(left, 'other output')}; `ccmctl run show {short_id(run)} --json` has all\n"
        blocks = [*blocks[: IN_FULL.outputs], rest]
    counts = Counter(result.state for result in results.values())
    return "\n".join([*blocks, end_line(title, counts, seconds, run, style, plan=False)])


def _block(result: CommandResult, names: list[str], style: Style) -> str:
    title = f": {result.title}" if result.title else ""
    head = paint(
        f"{fold_names(names)}{title}", MEANINGS.get(result.state, "strong") if title else "strong", style
    )
    lines = output_lines(result.output, IN_FULL.lines, is_cut=result.is_cut) if result.output else []
    return "\n".join([head, *lines]) + "\n"
