"""A run that is broken off between two resources, and gone on with by another process."""

from __future__ import annotations

from typing import Any

import msgspec

from ccm_agent.engine.request import PAUSED, ApplyOptions, ManifestSource, StopFlag
from ccm_agent.model.outcome import Counts, SessionSummary, TransactionEvent
from tests.support.engine import Bench, Board, bench


def resources(*lines: str) -> str:
    return "ccm:\n  resources:\n" + "".join(f"    - {line}\n" for line in lines)


def numbers(summary: SessionSummary) -> dict[str, int]:
    """What was counted, without what is zero."""
    found = {name: getattr(summary, name) for name in Counts.__struct_fields__}
    return {name: count for name, count in found.items() if count}


class Relay:
    """The processes that carry out one run, on one board."""

    def __init__(self, text: str, **children: str) -> None:
        self.board = Board()
        self.files = {"m.yaml": text, **{f"{name}.yaml": child for name, child in children.items()}}
        self.done: list[TransactionEvent] = []

    async def go(self, pause_at: str = "") -> tuple[SessionSummary, Bench]:
        """Begin, or go on; paused while a resource of this name is worked on."""
        on, stop = bench(board=self.board), StopFlag()
        for name, text in self.files.items():
            on.files.put(f"/work/{name}", text)
        write = self.board.write

        async def pause_and_write(wanted: Any) -> None:
            if wanted.name == pause_at:
                stop.pause()
            await write(wanted)

        self.board.write = pause_and_write  # type: ignore[method-assign]
        options = ApplyOptions(on_event=on.events.append, stop=stop, done=self.done)
        summary = await on.engine.apply(ManifestSource(path="/work/m.yaml"), options)
        self.board.write = write  # type: ignore[method-assign]
        self.done += on.events
        return summary, on


async def test_the_resource_in_progress_is_finished_and_the_rest_has_no_outcome() -> None:
    relay = Relay(resources("note: {name: a, text: x}", "note: {name: b, text: y}", "note: {name: c}"))

    summary, on = await relay.go(pause_at="a")

    assert on.outcomes == [("a", "changed")]
    assert (summary.code, relay.board.notes) == (PAUSED, {"a": "x"})


async def test_the_next_process_does_the_rest_and_counts_all() -> None:
    text = resources("note: {name: a, text: x}", "note: {name: b, text: y}", "note: {name: c, text: z}")
    relay = Relay(text)

    await relay.go(pause_at="a")
    relay.board.notes["a"] = "by another process"
    summary, on = await relay.go()

    assert on.outcomes == [("b", "changed"), ("c", "changed")]
    assert relay.board.notes == {"a": "by another process", "b": "y", "c": "z"}
    assert (summary.state, summary.reason, summary.code) == ("changed", "", "")
    assert numbers(summary) == {"total_resources": 3, "unique_resources": 3, "changed_resources": 3}


async def test_requirements_and_subscriptions_include_earlier_processes() -> None:
    relay = Relay(
        resources(
            "note: {name: bad, text: x}",
            "note: {name: good, text: x}",
            "note: {name: hangs, text: x, require: [note#bad]}",
            "note: {name: hears, subscribe: [note#good]}",
        )
    )
    relay.board.broken["bad"] = "unable"
    relay.board.notes["hears"] = ""

    await relay.go(pause_at="good")
    summary, on = await relay.go()

    assert on.outcomes == [("hangs", "skipped due to unmet requirement"), ("hears", "refreshed")]
    assert (summary.state, [one.resource for one in summary.failed]) == ("failed", ["note#bad"])


async def test_a_pause_at_the_last_resource_is_a_normal_end() -> None:
    relay = Relay(resources("note: {name: a, text: x}"))

    summary, _ = await relay.go(pause_at="a")

    assert (summary.state, summary.code) == ("changed", "")


async def test_a_manifest_within_is_gone_on_with_where_it_was() -> None:
    relay = Relay(
        resources("apply: {name: child.yaml}", "note: {name: z, text: z}"),
        child=resources("note: {name: a, text: x}", "note: {name: b, text: y}"),
    )

    first, _ = await relay.go(pause_at="a")
    summary, on = await relay.go()

    assert first.code == PAUSED
    assert on.outcomes == [("b", "changed"), ("child.yaml", "changed"), ("z", "changed")]
    assert numbers(summary) == {"total_resources": 4, "unique_resources": 4, "changed_resources": 4}


async def test_a_manifest_within_that_was_at_its_end_is_not_entered_again() -> None:
    relay = Relay(
        resources("apply: {name: child.yaml}", "note: {name: y, text: y}", "note: {name: z, text: z}"),
        child=resources("note: {name: a, text: x}"),
    )

    await relay.go(pause_at="y")
    relay.files["child.yaml"] = resources("note: {name: new, text: x}")
    summary, on = await relay.go()

    assert on.outcomes == [("z", "changed")]
    assert numbers(summary) == {"total_resources": 4, "unique_resources": 4, "changed_resources": 4}


async def test_a_stop_counts_for_more_than_a_pause() -> None:
    on, stop = bench(), StopFlag()
    on.files.put("/work/m.yaml", resources("note: {name: a, text: x}", "note: {name: b, text: y}"))
    stop.pause()
    stop.set()

    summary = await on.engine.apply(
        ManifestSource(path="/work/m.yaml"), ApplyOptions(on_event=on.events.append, stop=stop)
    )

    assert on.outcomes == [("a", "skipped"), ("b", "skipped")]
    assert summary.code == "run.stopped"


async def test_finished_resources_keep_only_their_outcome() -> None:
    relay = Relay(resources("note: {name: a, text: x}", "note: {name: b, text: y}"))

    await relay.go(pause_at="a")
    relay.done = [msgspec.structs.replace(event, properties=None, status=None) for event in relay.done]
    summary, on = await relay.go()

    assert (on.outcomes, summary.changed_resources) == ([("b", "changed")], 2)
