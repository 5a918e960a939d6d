"""Lines for programs."""

from __future__ import annotations

from datetime import UTC, datetime

from ccm_ctl.render.records import record


def test_a_record_is_one_line_and_leaves_out_what_is_not_there() -> None:
    line = record(
        "node", node="web1", time=datetime(2026, 11, 21, tzinfo=UTC), note=None, text="a\n\x1b", kind="x"
    )

    assert line == (
        '{"record":"node","node":"web1","time":"2026-11-21T00:00:00Z","text":"a\\n\\u001b","kind":"x"}\n'
    )
