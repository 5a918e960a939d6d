"""Lines for programs."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from ccm_agent.clikit.records import record


def test_a_record_is_one_line_and_leaves_out_the_missing_part() -> None:
    line = record(
        "node", node="web1", time=datetime(2026, 11, 21, tzinfo=UTC), note=None, text="a\n\x1b", kind="x"
    )

    assert line == (
        '{"record":"node","node":"web1","time":"2026-11-21T00:00:00Z","text":"a\\n\\u001b","kind":"x"}\n'
    )


def test_texts_of_a_node_cannot_control_the_terminal_or_break_lines() -> None:
    said = "\x1b[2J \x7f \x85 \x9b2J \u061c \u202e \u2028 \u2069 ä 東 😀"

    line = record("node", said=said)

    assert line == (
        r'{"record":"node","said":"\u001b[2J \u007f \u0085 \u009b2J \u061c \u202e \u2028 \u2069 ä 東 😀"}'
        + "\n"
    )
    assert json.loads(line)["said"] == said
