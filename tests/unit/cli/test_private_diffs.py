"""Diffs of files that not every user may read: complete on the terminal of the user who runs `ccm`, and nowhere else."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any, TextIO

import pytest
from blockbuster import BlockBuster

from ccm_agent.cli import main

CANARY = "canary-5d1f"
SHOWN = "+canary-5d1f"
COUNTED = "not shown: not all users can read the file"


@pytest.fixture(autouse=True)
def own_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blockbuster: BlockBuster
) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    for name in ("CCM_SESSION_STORE", "CCM_HIERA_DATA", "NATS_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    blockbuster.deactivate()
    yield
    blockbuster.activate()


class Terminal:
    """A terminal as standard output."""

    def __init__(self) -> None:
        self._above, below = os.openpty()
        os.set_blocking(self._above, False)
        self._below: TextIO = os.fdopen(below, "w")

    def run(self, *words: str) -> str:
        """What `ccm` writes to the terminal; it succeeds."""
        with redirect_stdout(self._below):
            assert main.run(list(words)) == 0
        self._below.flush()
        read = b""
        with suppress(BlockingIOError):
            while part := os.read(self._above, 1 << 16):
                read += part
        return read.decode()

    def close(self) -> None:
        self._below.close()
        os.close(self._above)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    yield made
    made.close()


def private_file(folder: Path, **more: Any) -> str:
    """A manifest that changes a readable file in a folder that other users cannot enter."""
    (folder / "private").mkdir(mode=0o700)
    path = folder / "private" / "app.conf"
    path.write_text("old\n")
    path.chmod(0o644)
    properties = {
        "ensure": "present",
        "owner": "*",
        "group": "*",
        "mode": "0644",
        "content": f"{CANARY}\n",
        **more,
    }
    (folder / "m.json").write_text(json.dumps({"ccm": {"resources": [{"file": [{str(path): properties}]}]}}))
    return "m.json"


def diffs(lines: str) -> list[str]:
    """The diffs of events, or of records with events."""
    found = [json.loads(line) for line in lines.splitlines()]
    events = [one.get("event", one) for one in found]
    return [json.dumps(event["diff"]) for event in events if "diff" in event]


def test_a_terminal_shows_the_lines_of_a_file_below_a_private_folder(
    tmp_path: Path, terminal: Terminal
) -> None:
    shown = terminal.run("apply", private_file(tmp_path), "--noop", "--diff", "--events", "events")

    [diff] = diffs((tmp_path / "events").read_text())
    assert SHOWN in shown
    assert COUNTED not in shown
    assert CANARY not in diff
    assert COUNTED.removeprefix("not shown: ") in diff


def test_a_terminal_shows_the_lines_of_a_single_resource(tmp_path: Path, terminal: Terminal) -> None:
    private_file(tmp_path)
    flags = [
        "--owner",
        "*",
        "--group",
        "*",
        "--mode",
        "0644",
        "--content",
        f"{CANARY}\n",
        "--noop",
        "--diff",
    ]

    shown = terminal.run("ensure", "file", str(tmp_path / "private" / "app.conf"), *flags)

    assert SHOWN in shown


def test_what_is_not_a_terminal_gets_the_number_of_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = private_file(tmp_path)

    assert main.run(["apply", given, "--noop", "--diff"]) == 0
    printed = capsys.readouterr().out
    assert main.run(["apply", given, "--noop", "--diff", "--json"]) == 0
    [diff] = diffs(capsys.readouterr().out)

    for shown in (printed, diff):
        assert CANARY not in shown
        assert COUNTED.removeprefix("not shown: ") in shown


def test_what_a_resource_shows_itself_is_shown_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = private_file(tmp_path, diff=True)

    assert main.run(["apply", given, "--noop", "--diff", "--events", "events"]) == 0

    assert SHOWN in capsys.readouterr().out
    [diff] = diffs((tmp_path / "events").read_text())
    assert CANARY in diff


def test_a_secret_in_the_file_is_masked_on_the_terminal(tmp_path: Path, terminal: Terminal) -> None:
    given = private_file(tmp_path, content="user=app\npassword={{ lookup('data.password') }}\n")
    document = json.loads((tmp_path / given).read_text())
    (tmp_path / given).write_text(json.dumps({**document, "data": {"password": CANARY}}))

    shown = terminal.run("apply", given, "--noop", "--diff")

    assert CANARY not in shown
    assert "+user=app" in shown
    assert "+password=***" in shown
