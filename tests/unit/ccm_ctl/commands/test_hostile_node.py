"""What the holder of a node's key can make the terminal of an operator do: nothing, by any text of the node."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from tests.support.controller import Desk, FakeNode, event

CANARY = "canary5d1f"
HOSTILE = f"{CANARY}\x1b]0;owned\x07\x1b[2J\x9b2J\u202e\u2066\x00\x7f\r\nline"
"""A title, a cleared screen in two forms, a reversed text, a zero byte, and another line."""

COMMANDS = [
    "node list",
    "node show web1",
    "why web1",
    "run list",
    "run show last",
    "run show last --events",
    "events --since 1h --no-follow",
    "lock list",
]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A fleet with a hostile node, after a run."""
    said = [
        event(f"/etc/{HOSTILE}", 1, error=[HOSTILE], failed=True, output=HOSTILE, unknown=HOSTILE),
        event(
            HOSTILE, 2, changed=True, noop_message=HOSTILE, provider=HOSTILE, triggered_by=f"exec#{HOSTILE}"
        ),
    ]
    node = FakeNode(
        "web1",
        {"role": "web", "motd": HOSTILE, f"x{HOSTILE}": "y"},
        said,
        record={"disabled": {"why": HOSTILE, "by": HOSTILE, "since": "2026-01-01T00:00:00Z"}},
    )
    made = Desk(node)
    manifest = tmp_path / "site.yaml"
    manifest.write_text("ccm:\n  resources:\n    - exec: [{'true': {}}]\n")
    made.ccmctl("apply", str(manifest), "--targets", "role=web", "--yes")
    return made


@pytest.mark.parametrize("form", ["", "--json"])
def test_no_command_obeys_a_text_of_a_node(desk: Desk, form: str) -> None:
    shown, obeyed = set(), {}
    for command in COMMANDS:
        said = desk.ccmctl(*command.split(), *form.split())
        text = said.out + said.err
        if CANARY in text:
            shown.add(command)
        if bad := {character for character in text if is_control(character)}:
            obeyed[command] = bad

    assert obeyed == {}
    # the texts are shown, without what a terminal would obey
    assert shown >= {"node list", "node show web1", "run show last --events", "events --since 1h --no-follow"}


def is_control(character: str) -> bool:
    """A character that a terminal may obey, or that changes the direction of what follows."""
    return character != "\n" and unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp")
