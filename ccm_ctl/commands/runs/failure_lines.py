"""Name nodes that failed while a command still waits for others: a line each on standard error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccm_agent.clikit.text import one_line, plural, shortened

if TYPE_CHECKING:
    from ccm_agent.clikit.terminal import Terminal

LINES_MOST = 20
"""The most lines; the live line and the table at the end count all failures."""

LINE_WIDTH = 200
"""The most characters of a line that does not go to a terminal; a narrower terminal limits it further."""


class FailureLines:
    """
    Name failures as they happen, each once; `--json` has a record for each node instead.

    Args:
        terminal: Where to name them.
    """

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._named: dict[str, tuple[str, str]] = {}
        self._unnamed = 0
        self._left = LINES_MOST

    @property
    def has_named(self) -> bool:
        """Whether a failure was named: then the others are, too, because the lines read as a list of all."""
        return bool(self._named)

    def name(self, node: str, state: str, why: str, run: str = "") -> None:
        """
        Name a node that failed, unless the same failure was named before.

        Args:
            node: The node.
            state: How it ended, such as "failed" or "lost".
            why: What failed, and the error; only its first line is shown. It may come from the node.
            run: The run; the same node may fail again in another one.
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
        """Say how many failures were not named, before the table shows them all."""
        if self._unnamed:
            self._terminal.note(f"and {plural(self._unnamed, 'more failure')}, listed below")
            self._unnamed = 0
