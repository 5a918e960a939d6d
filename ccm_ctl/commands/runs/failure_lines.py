"""Print a line on standard error for each failed node, while a command waits for other nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccm_agent.clikit.text import one_line, plural, shortened

if TYPE_CHECKING:
    from ccm_agent.clikit.terminal import Terminal

LINES_MOST = 20
"""The maximum number of lines. The live line and the table at the end count all failures."""

LINE_WIDTH = 200
"""The maximum number of characters in a line. A narrower terminal limits it further."""


class FailureLines:
    """
    Prints failures as they happen, each once. With `--json`, there is a record for each node instead.

    Args:
        terminal: Prints the lines.
    """

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._named: dict[str, tuple[str, str]] = {}
        self._unnamed = 0
        self._left = LINES_MOST

    @property
    def has_named(self) -> bool:
        """Whether a failure was printed. If so, all others must be printed too, because readers expect a complete list."""
        return bool(self._named)

    def name(self, node: str, state: str, why: str, run: str = "") -> None:
        """
        Print a failed node, unless the same failure was already printed.

        Args:
            node: The node.
            state: Its end state, such as "failed" or "lost".
            why: The failed resource and the error. Only the first line is shown. The text may be from the node.
            run: The run. The same node may also fail in another run.
        """
        if self._terminal.json or self._named.get(node) == (state, run):
            return
        self._named[node] = state, run
        if not self._left:
            self._unnamed += 1
            return
        self._left -= 1
        reason = one_line(why.strip().partition("\n")[0])
        line = one_line(f"{node}: {state}: {reason}" if reason else f"{node}: {state}")
        self._terminal.note(shortened(line, min(self._terminal.live_style.width, LINE_WIDTH)))

    def close(self) -> None:
        """Print the number of failures that were not printed, before the table shows all of them."""
        if self._unnamed:
            self._terminal.note(f"and {plural(self._unnamed, 'more failure')}, listed below")
            self._unnamed = 0
