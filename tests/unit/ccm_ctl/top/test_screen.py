"""`ccmctl top`: the screen, driven by keys, on a broker in memory."""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator, Callable

import pytest
from textual.pilot import Pilot

from ccm_agent.clikit.terminal import Terminal
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.app import Application
from ccm_ctl.commands.screens.top import node_page, run_page
from ccm_ctl.top.fleet_watch import KEPT_EVENTS, FleetWatch
from ccm_ctl.top.screen import TopApp, TopPages
from tests.support.controller import NOW, Desk, FakeNode, event, fleet_on

RUN = "3Gb1YlnzjY5hvvqJBrE4G7Yv5Qe"
HOSTILE = "[red]x[/red] \x1b]0;title\x07\x1b[2J\u202e"
WEB, DB = {"role": "web"}, {"role": "db"}


class Driven:
    """The view on a terminal of 80 columns and 24 lines."""

    def __init__(self, app: TopApp, pilot: Pilot[None], broker: MemoryBroker) -> None:
        self.app = app
        self.pilot = pilot
        self.broker = broker

    def text(self) -> str:
        """What the terminal shows, line by line."""
        lines = self.app.screen._compositor.render_strips()
        return "\n".join(line.text.rstrip() for line in lines)

    async def until(self, shows: Callable[[str], bool]) -> str:
        """The text, as soon as it shows this."""
        try:
            async with asyncio.timeout(10):
                while not shows(text := self.text()):
                    await self.pilot.pause()
                    self.app.draw()
                    await asyncio.sleep(0)
        except TimeoutError:
            raise AssertionError(f"never shown:\n{self.text()}") from None
        return text


@contextlib.asynccontextmanager
async def driven(*nodes: FakeNode) -> AsyncIterator[Driven]:
    broker = MemoryBroker(now=lambda: NOW)
    fleet = fleet_on(MemoryBus(broker, "op"))
    for node in nodes:
        await node.begin(broker)
    application = Application(Terminal("ccmctl", out=io.StringIO(), err=io.StringIO()), {})
    pages = TopPages(
        lambda node, width: node_page(fleet, node, width),
        lambda run, width: run_page(application, fleet, run, width),
    )
    app = TopApp(fleet, pages, FleetWatch(fleet))
    async with app.run_test(size=(80, 24)) as pilot:
        yield Driven(app, pilot, broker)


async def test_nodes_are_counted_and_those_that_need_attention_come_first() -> None:
    gone, failed = FakeNode("a", is_present=False), FakeNode("z", record={"last_state": "failed"})

    async with driven(gone, failed, FakeNode("m")) as view:
        text = await view.until(lambda text: text.startswith("3 nodes"))

    lines = text.splitlines()
    assert lines[0].startswith("3 nodes  1 failed  1 offline  1 unassigned  0.0 events/s")
    assert [line.split()[:2] for line in lines[3:6]] == [
        ["z", "failed"],
        ["a", "offline"],
        ["m", "unassigned"],
    ]
    assert len(lines) == 24
    assert lines[-1] == "1 nodes  2 runs  3 events  4 failing  / filter  Enter open  ? keys  q quit"


async def test_a_filter_shows_the_nodes_that_a_selector_matches() -> None:
    async with driven(FakeNode("web1", WEB), FakeNode("db1", DB)) as view:
        await view.until(lambda text: text.startswith("2 nodes"))

        await view.pilot.press("slash", *"role=web", "enter")
        text = await view.until(lambda text: text.startswith("1 node  "))

    assert "nodes that match role=web" in text
    assert "web1" in text
    assert "db1" not in text


async def test_a_filter_that_does_not_parse_is_explained_and_changes_nothing() -> None:
    async with driven(FakeNode("web1", WEB)) as view:
        await view.until(lambda text: text.startswith("1 node  "))

        await view.pilot.press("slash", *"role=", "comma", "comma", "enter")
        await view.pilot.pause()

        assert view.app.watch_fleet.selector == ""
        assert "role=,," in view.text()


async def test_enter_opens_the_explanation_of_a_node() -> None:
    async with driven(FakeNode("web1", is_present=False)) as view:
        await view.until(lambda text: "1 offline" in text)

        await view.pilot.press("enter")
        await view.until(lambda text: "no assignment selects this node" in text)
        await view.pilot.press("escape")

        await view.until(lambda text: "1 offline" in text)


async def test_an_event_opens_and_leads_to_its_run() -> None:
    node = FakeNode("web1", does=[event("/etc/motd", 2, failed=True, error=["disk full"])])

    async with driven(node) as view:
        await node.converge(view.broker, RUN, "schedule", "nightly")
        await view.pilot.press("4")
        await view.until(lambda text: "file#/etc/motd" in text and "web1: disk full" in text)

        await view.pilot.press("enter")
        await view.until(lambda text: f"run {RUN}" in text)
        await view.pilot.press("r")
        text = await view.until(lambda text: "ccmctl run show" in text)

    assert f"run {RUN}" in text
    assert "web1: file#/etc/motd failed\n  disk full" in text
    assert "missing" not in text


async def test_texts_of_nodes_are_neither_markup_nor_terminal_sequences() -> None:
    node = FakeNode("web1", does=[event(HOSTILE, 1, failed=True, error=[HOSTILE])])

    async with driven(node) as view:
        await node.converge(view.broker, RUN, "schedule", HOSTILE)
        await view.until(lambda text: text.startswith("1 node  "))
        for key in "34":
            await view.pilot.press(key)
            text = await view.until(lambda text: "[red]x[/red] \\x1b]0;title" in text)
            assert not {"\x1b", "\x07", "\u202e"} & set(text)
        await view.pilot.press("enter")
        text = await view.until(lambda text: "Esc closes" in text and f"run {RUN}" in text)

    assert "[red]x[/red] \\x1b]0;title" in text
    assert not {"\x1b", "\x07", "\u202e"} & set(text)


async def test_lost_broker_is_shown_and_the_view_recovers() -> None:
    async with driven(FakeNode("web1")) as view:
        await view.until(lambda text: text.startswith("1 node  "))

        view.broker.stop()
        view.app.watch_fleet.look_soon()
        text = await view.until(lambda text: "broker unavailable, trying again" in text)
        assert "web1" in text

        view.broker.start()
        view.app.watch_fleet.look_soon()
        await view.until(lambda text: "all nodes" in text)


async def test_only_the_newest_events_are_kept() -> None:
    node = FakeNode("web1", does=[event(f"/f{number}", number) for number in range(1, KEPT_EVENTS + 100)])

    async with driven(node) as view:
        await node.converge(view.broker, RUN, "schedule", "nightly")
        await view.pilot.press("3")
        await view.until(lambda text: "ended changed" in text)

        assert len(view.app.watch_fleet.events) == KEPT_EVENTS


async def test_q_quits() -> None:
    async with driven() as view:
        await view.pilot.press("question_mark")
        await view.until(lambda text: "failing resources" in text)
        await view.pilot.press("q", "q")

    assert view.app.return_code == 0


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_without_a_terminal_it_is_refused(words: tuple[str, ...]) -> None:
    said = Desk().ccmctl("top", *words)

    assert said.code == 1
    assert "top requires a terminal" in said.err
