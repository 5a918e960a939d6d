"""The first picture of `ccmctl top`: what Textual draws, without Textual."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import termios
from typing import TextIO

import pytest

from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.top.first_screen import first_screen, silent_second_screen
from ccm_ctl.top.fleet_watch import FleetWatch
from tests.support.controller import NOW, FakeNode, fleet_on
from tests.unit.ccm_ctl.top.test_screen import HOSTILE, driven

SGR = re.compile(r"\x1b\[([0-9;]*)m")
NODES = [
    FakeNode("a", is_present=False),
    FakeNode("web1", record={"last_state": "failed", "last_run": "r", "last_time": NOW}),
    FakeNode("web2"),
]


async def watch_of(*nodes: FakeNode) -> FleetWatch:
    broker = MemoryBroker(now=lambda: NOW)
    for node in nodes:
        await node.begin(broker)
    watch = FleetWatch(fleet_on(MemoryBus(broker, "op")))
    await watch.refresh()
    return watch


def plain(lines: list[str]) -> list[str]:
    return [SGR.sub("", line).rstrip() for line in lines]


async def test_first_picture_is_the_one_that_textual_draws_then() -> None:
    async with driven(*NODES) as view:
        text = await view.until(lambda text: text.startswith("3 nodes"))
        drawn = first_screen(view.app.watch_fleet, NOW, 80, 24, color=True)

    assert plain(drawn) == text.splitlines()


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (20, 5), (20, 3), (1, 1)])
async def test_first_picture_fits_a_small_terminal(columns: int, lines: int) -> None:
    watch = await watch_of(*(FakeNode(f"web{number}") for number in range(40)))

    drawn = plain(first_screen(watch, NOW, columns, lines, color=True))

    assert len(drawn) == lines
    assert max(map(len, drawn)) <= columns


async def test_first_picture_without_color_has_only_bold_underlined_and_reversed_text() -> None:
    watch = await watch_of(*NODES)

    drawn = "".join(first_screen(watch, NOW, 80, 24, color=False))

    assert set(";".join(SGR.findall(drawn)).split(";")) == {"0", "1", "4", "7"}


async def test_text_of_a_node_is_no_terminal_sequence_in_the_first_picture() -> None:
    hostile = {"last_state": HOSTILE, "last_run": "r", "last_time": NOW}

    drawn = plain(first_screen(await watch_of(FakeNode("web1", record=hostile)), NOW, 300, 24, color=True))

    assert "\\x1b]0;title" in drawn[3]
    assert not {"\x1b", "\x07", "\u202e"} & set("".join(drawn))


def test_broker_that_cannot_be_read_is_said_in_the_first_picture() -> None:
    watch = FleetWatch(fleet_on(MemoryBus(MemoryBroker(now=lambda: NOW), "op")))
    watch.problem = "permission denied"

    assert plain(first_screen(watch, NOW, 80, 24, color=True))[:2] == [
        "reading the fleet …",
        "cannot be read, trying again: permission denied",
    ]


def test_an_error_gives_the_terminal_back_as_it_was() -> None:
    master, slave = pty.openpty()
    echoed: list[bool] = []

    def fail(out: TextIO, keyboard: TextIO) -> None:
        with silent_second_screen(out, keyboard):
            echoed.append(bool(termios.tcgetattr(slave)[3] & termios.ECHO))
            raise RuntimeError

    with (
        os.fdopen(master, "rb", 0) as shown,
        os.fdopen(slave, "w") as out,
        os.fdopen(os.dup(slave)) as keyboard,
    ):
        before = termios.tcgetattr(slave)

        with pytest.raises(RuntimeError):
            fail(out, keyboard)

        assert echoed == [False]
        assert termios.tcgetattr(slave) == before
        screen = b""
        while not screen.endswith(b"\x1b[?7h\x1b[?25h\x1b[?1049l"):  # one read may get a part
            screen += shown.read(100)


def test_neither_textual_nor_rich_is_imported_for_the_first_picture() -> None:
    code = (
        "import sys, ccm_ctl.commands.screens.top, ccm_ctl.top.first_screen, ccm_ctl.top.fleet_watch;"
        "print(sorted({'textual', 'rich', 'ccm_ctl.fleet.runs.run_list'} & set(sys.modules)))"
    )

    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert done.stdout == "[]\n"
