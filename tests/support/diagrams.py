"""Mermaid diagrams of the docs as data, so that tests can compare them with the code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

TOP = Path(__file__).resolve().parents[2]
START = "start"
"""The id of the box in which a node begins."""

_FENCE = re.compile(r"^```mermaid\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_BOX = r"(?P<%s>\w+)(?P<%s_text>[\[(]+.*?[\])]+)?"
_EDGE = re.compile(
    rf"\s*{_BOX % (('begin',) * 2)} (?:-- .* -->|<-- .* -->|-\. .* \.->) {_BOX % (('end',) * 2)}"
)
_BOTH_WAYS = re.compile(r"\w+(?:[\[(]+.*?[\])]+)? <-- ")


class StateDiagram(Struct, frozen=True):
    """
    A flowchart whose boxes name states, one a line.

    Attributes:
        boxes: The states of each box, by its id; the box START has none.
        edges: The pairs of boxes with an arrow between them.
    """

    boxes: dict[str, set[str]]
    edges: set[tuple[str, str]]

    @property
    def states(self) -> set[str]:
        """All states."""
        return set[str]().union(*self.boxes.values())

    def box(self, state: str) -> str:
        """The box that names a state."""
        [box] = [box for box, states in self.boxes.items() if state in states]
        return box

    def reachable(self, box: str) -> set[str]:
        """A box, and those to which arrows lead from it."""
        found, fresh = {box}, {box}
        while fresh:
            fresh = {end for begin, end in self.edges if begin in fresh} - found
            found |= fresh
        return found


def fences(markdown: str) -> list[str]:
    """The Mermaid diagrams of a page."""
    return _FENCE.findall(markdown)


def pages_with_diagrams() -> Iterator[tuple[str, str]]:
    """Each diagram of the documentation, and the page that shows it."""
    for path in sorted([TOP / "README.md", *(TOP / "docs").rglob("*.md")]):
        for text in fences(path.read_text()):
            yield str(path.relative_to(TOP)), text


def read_state_diagram(text: str) -> StateDiagram:
    """A flowchart of states; AssertionError for a line that is not an arrow with a label."""
    boxes: dict[str, set[str]] = {}
    edges: set[tuple[str, str]] = set()
    for line in text.splitlines()[1:]:
        edge = _EDGE.fullmatch(line)
        assert edge is not None, line
        for side in ("begin", "end"):
            box, shown = edge[side], edge[f"{side}_text"]
            if shown is not None:
                boxes[box] = set(shown.strip('[]()" ').split("<br>")) - {""}
            boxes.setdefault(box, {box})
        edges.add((edge["begin"], edge["end"]))
        if _BOTH_WAYS.match(line.strip()):
            edges.add((edge["end"], edge["begin"]))
    return StateDiagram(boxes, edges)
