"""Files of state that a disk damaged: the agent starts without them, and says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ccm_agent.agent.runs.admission import read_disabled
from ccm_agent.storage.state_file import StateFile


@pytest.mark.parametrize("content", [b"", b"{", b'{"a": "\xff"}', b"[" * 100_000, b"\0" * 100])
def test_a_file_that_holds_anything_is_skipped(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.json").write_bytes(content)

    assert StateFile(tmp_path / "a.json", dict[str, Any]).load() is None
    assert "a state file is skipped" in caplog.text


def test_damaged_disabled_state_does_not_stop_the_agent(tmp_path: Path) -> None:
    for name in ("disabled.json", "disabled"):
        (tmp_path / name).write_bytes(b'{"reason": "\xff"}')

    read_disabled(tmp_path)
