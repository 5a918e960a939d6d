"""`retry`: a resource that fails is tried again; the event has the final outcome alone."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from ccm_agent.engine.request import PAUSED, ManifestSource, StopFlag
from ccm_agent.manifest.document import make_document
from ccm_agent.manifest.lint import lint
from ccm_agent.model.errors import (
    BusDeniedError,
    BusUnavailableError,
    CcmError,
    CommandError,
    HostError,
    InputError,
    NoProviderError,
    PolicyError,
    PropertyError,
)
from ccm_agent.model.outcome import SessionSummary
from ccm_agent.model.records.slots import SlotError
from ccm_agent.resources.catalog import Catalog
from ccm_agent.testing.clock import FakeClock
from tests.support.engine import Bench, Board, NoteProperties, NoteState, bench, note_type


class QuickClock(FakeClock):
    """
    Time passes as soon as it is waited for.

    Attributes:
        on_sleep: Called at each sleep.
    """

    def __init__(self) -> None:
        super().__init__()
        self.on_sleep: Callable[[], object] = lambda: None

    async def sleep(self, seconds: float) -> None:
        self.on_sleep()
        self._pass(seconds)


class FailingBoard(Board):
    """
    A board that fails at first.

    Attributes:
        errors: The errors of the first attempts to write.
        writes_first: A note is written although the attempt fails.
        tries: Number of attempts to write.
    """

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[Exception] = []
        self.writes_first = False
        self.tries = 0

    async def write(self, wanted: NoteProperties) -> None:
        self.tries += 1
        if wanted.name == "a" and self.errors:
            if self.writes_first:
                await super().write(wanted)
            raise self.errors.pop(0)
        await super().write(wanted)


TEXT = """ccm:
  resources:
    - note: {name: a, text: x, retry: {tries: 3, every: 10s}}
    - note: {name: b, text: y, subscribe: [note#a]}
"""


class Host:
    """A bench whose board fails, and whose clock does not wait."""

    def __init__(self, *errors: Exception) -> None:
        self.board, self.clock = FailingBoard(), QuickClock()
        self.board.errors = list(errors)
        self.on: Bench = bench(board=self.board, clock=self.clock)

    async def apply(self, text: str = TEXT, **options: Any) -> SessionSummary:
        self.on.files.put("/work/m.yaml", text)
        return await self.on.engine.apply(ManifestSource(path="/work/m.yaml"), self.on.options(**options))

    @property
    def failed_attempts(self) -> list[dict[str, object]]:
        return [fields for _, message, fields in self.on.notes if message == "Attempt failed"]


def errors(count: int) -> list[Exception]:
    return [CommandError(f"error {number}", output=f"output {number}") for number in range(1, count + 1)]


async def test_a_resource_that_succeeds_at_the_second_attempt_has_changed() -> None:
    host = Host(*errors(1))

    summary = await host.apply()

    assert summary.state == "changed"
    assert host.on.outcomes == [("a", "changed"), ("b", "refreshed")]
    assert (host.on.events[0].error, host.on.events[0].output) == ([], "")
    assert host.failed_attempts == [
        {"resource": "note#a", "attempt": "1 of 3", "error": "error 1", "next": "10s"}
    ]
    assert host.clock.monotonic() == 10


async def test_the_last_error_is_the_outcome() -> None:
    host = Host(*errors(5))

    summary = await host.apply()

    event = host.on.events[0]
    assert (summary.state, host.board.tries) == ("failed", 3 + 1)
    assert (event.error, event.code, event.output) == (
        ["error 3 (attempt 3 of 3)"],
        "host.command",
        "output 3",
    )
    assert [one["attempt"] for one in host.failed_attempts] == ["1 of 3", "2 of 3"]
    assert host.clock.monotonic() == 20


async def test_a_change_of_a_failed_attempt_is_not_lost() -> None:
    host = Host(*errors(1))
    host.board.writes_first = True

    await host.apply(diff=True)

    assert host.board.tries == 2
    assert host.on.outcomes == [("a", "changed"), ("b", "refreshed")]
    assert (host.on.events[0].status.changed, host.on.events[0].status.stable) == (True, False)
    assert host.on.events[0].diff is not None


async def test_a_type_that_compares_states_compares_with_the_first_one() -> None:
    host = Host(*errors(1))
    host.board.writes_first = True
    kind = note_type(host.board, has_changed=lambda before, after: before.text != after.text)
    host.on.engine.deps.catalog._found["note"] = kind  # type: ignore[attr-defined]

    await host.apply()

    assert host.on.outcomes[0] == ("a", "changed")


async def test_a_resource_that_a_failed_attempt_created_still_gets_what_is_ignored_later() -> None:
    host = Host(*errors(1))
    host.board.writes_first, host.board.broken = True, {"a": "wrong"}
    host.clock.on_sleep = host.board.broken.clear
    kind = note_type(host.board, ignorable={"text": {"text": ""}})
    host.on.engine.deps.catalog._found["note"] = kind  # type: ignore[attr-defined]

    await host.apply(TEXT.replace("text: x,", "text: x, ignore: [text],"))

    assert host.on.outcomes[0] == ("a", "changed")
    assert host.board.notes["a"] == "x"


async def test_a_look_that_fails_is_tried_again() -> None:
    host = Host()
    found = host.board.status

    async def look(wanted: NoteProperties) -> Any:
        if not host.failed_attempts:
            raise HostError("busy")
        return await found(wanted)

    host.board.look_ahead = None  # type: ignore[assignment, method-assign]
    host.board.status = look  # type: ignore[method-assign]
    await host.apply()

    assert host.on.outcomes[0] == ("a", "changed")


async def test_a_plan_tries_once() -> None:
    host = Host()

    async def look(_wanted: NoteProperties) -> Any:
        raise HostError("busy")

    host.board.look_ahead = None  # type: ignore[assignment, method-assign]
    host.board.status = look  # type: ignore[method-assign]
    await host.apply(noop=True)

    assert (host.on.outcomes[0], host.on.events[0].error) == (("a", "failed"), ["busy"])
    assert (host.failed_attempts, host.clock.monotonic()) == ([], 0)


@pytest.mark.parametrize(
    "error",
    [
        PropertyError("a wrong value"),
        PolicyError("forbidden"),
        SlotError("not free"),
        NoProviderError("none"),
        BusDeniedError("no permission"),
        ZeroDivisionError("a bug"),
    ],
    ids=lambda one: type(one).__name__,
)
async def test_an_error_that_stays_is_not_tried_again(error: Exception) -> None:
    host = Host(error)

    await host.apply()

    assert (host.on.outcomes[0], host.failed_attempts) == (("a", "failed"), [])


@pytest.mark.parametrize(
    "error", [HostError("x"), BusUnavailableError("x")], ids=lambda one: type(one).__name__
)
async def test_an_error_that_may_pass_is_tried_again(error: CcmError) -> None:
    host = Host(error)

    await host.apply()

    assert (host.on.outcomes[0], len(host.failed_attempts)) == (("a", "changed"), 1)


async def test_a_stop_ends_the_wait() -> None:
    host, stop = Host(*errors(5)), StopFlag()
    host.clock.on_sleep = lambda: stop.set("stopped by ann")

    summary = await host.apply(stop=stop)

    assert (summary.state, summary.reason) == ("stopped", "stopped by ann")
    assert host.on.outcomes == [("a", "failed"), ("b", "skipped")]
    assert host.on.events[0].error == ["error 1"]
    assert host.clock.monotonic() < 1


async def test_a_paused_run_leaves_the_resource_to_the_next_process() -> None:
    host, stop = Host(*errors(1)), StopFlag()
    host.clock.on_sleep = stop.pause

    paused = await host.apply(stop=stop)
    told = list(host.on.events)
    host.clock.on_sleep = lambda: None
    resumed = await host.apply(done=told)

    assert (paused.code, told) == (PAUSED, [])
    assert (resumed.state, host.on.outcomes) == ("changed", [("a", "changed"), ("b", "refreshed")])


async def test_a_single_resource_has_its_outcome_also_in_a_pause() -> None:
    host, stop = Host(*errors(1)), StopFlag()
    host.clock.on_sleep = stop.pause
    properties = {"name": "a", "text": "x", "retry": {"tries": 3}}

    event = await host.on.engine.ensure("note", properties, host.on.options(stop=stop))

    assert (event.outcome.value, len(host.on.events)) == ("failed", 1)


async def test_cancelling_ends_the_wait() -> None:
    clock = FakeClock()
    board = FailingBoard()
    board.errors = errors(5)
    on = bench(board=board, clock=clock)
    on.files.put("/work/m.yaml", TEXT)
    run = asyncio.create_task(on.engine.apply(ManifestSource(path="/work/m.yaml"), on.options()))
    async with asyncio.timeout(10):
        while not on.notes or on.notes[-1][1] != "Attempt failed":  # noqa: ASYNC110
            await asyncio.sleep(0)
        run.cancel()

        with pytest.raises(asyncio.CancelledError):
            await run

    assert board.tries == 1


async def test_the_error_of_a_sensitive_resource_is_hidden() -> None:
    host = Host(CommandError("password hunter2 is wrong"))

    await host.apply(TEXT.replace("text: x", "text: x, sensitive: true"))

    assert [one["error"] for one in host.failed_attempts] == ["hidden: the resource is `sensitive`"]


async def test_a_secret_in_the_error_is_masked() -> None:
    host = Host(CommandError("password hunter2hunter2 is wrong"))

    await host.apply(TEXT.replace("text: x", "text: x, pin: hunter2hunter2"))

    assert [one["error"] for one in host.failed_attempts] == ["password *** is wrong"]


async def test_a_slot_is_taken_once_and_given_back_once() -> None:
    host = Host(*errors(2))
    calls: list[str] = []

    class Slots:
        async def take(self, claim: Any) -> bool:
            calls.append("take")
            return False

        async def leave(self, name: str) -> None:
            calls.append("leave")

    host.on.engine.deps = replace(host.on.engine.deps, slots=Slots())
    await host.apply(TEXT.replace("text: x", "text: x, control: {slots: web/1}"))

    assert (host.on.outcomes[0], calls) == (("a", "changed"), ["take", "leave"])


class Booting(FailingBoard):
    """A board whose notes are read as `starting` until time has passed."""

    def __init__(self) -> None:
        super().__init__()
        self.is_up = False

    def _state(self, wanted: NoteProperties) -> NoteState:
        found = super()._state(wanted)
        found.ensure = found.ensure if self.is_up else "starting"
        return found


def booting(*, comes_up: bool) -> Host:
    host = Host()
    board = Booting()
    kind = note_type(board, verify=False)
    host.board, host.on = board, bench(kind, board=board, clock=host.clock)
    if comes_up:
        host.clock.on_sleep = lambda: setattr(board, "is_up", True)
    return host


UNTIL = TEXT.replace("every: 10s", "every: 10s, until: \"result.ensure == 'present'\"")


async def test_a_change_after_which_until_is_not_true_is_tried_again() -> None:
    host = booting(comes_up=True)

    summary = await host.apply(UNTIL)

    assert summary.state == "changed"
    assert [one["error"] for one in host.failed_attempts] == [
        "`until` is not true: result.ensure == 'present'"
    ]
    assert host.on.outcomes == [("a", "changed"), ("b", "refreshed")]


async def test_a_resource_fails_if_until_never_becomes_true() -> None:
    host = booting(comes_up=False)

    summary = await host.apply(UNTIL)

    assert (summary.state, len(host.failed_attempts)) == ("failed", 2)
    assert host.on.events[0].error == ["`until` is not true: result.ensure == 'present' (attempt 3 of 3)"]
    assert host.on.events[0].changed  # the note was written


async def test_until_is_not_asked_of_a_resource_that_needs_no_change() -> None:
    host = Host()
    host.board.notes["a"] = "x"

    await host.apply(TEXT.replace("every: 10s", "until: 'false'"))

    assert (host.on.outcomes[0], host.failed_attempts) == (("a", "stable"), [])


async def test_until_sees_the_item_too() -> None:
    host = Host()

    await host.apply("""ccm:
  resources:
    - note:
        - "{{ item }}":
            for_each: [a, b]
            text: x
            retry: {tries: 2, until: "item == 'a' && result.ensure == 'present' && lookup('result.output') == ''"}
""")

    assert host.on.outcomes == [("a", "changed"), ("b", "failed")]


@pytest.mark.parametrize("value", ["{{ Data.word }}", "${ Data.word }"])
async def test_data_does_not_become_a_part_of_until(value: str) -> None:
    text = TEXT.replace("every: 10s", f"every: '${{ Data.wait }}', until: \"result.ensure == '{value}'\"")
    data = "data: {wait: 1s, word: \"' || true || '\"}\n"
    host = Host()

    with pytest.raises(InputError, match=re.escape("`until` is an expression: write it without")) as caught:
        await host.apply(text + data)

    assert caught.value.place is not None
    assert host.on.events == []
    # the other values may be templates, and an expression reads data by itself
    await host.apply(text.replace(f"'{value}'", "Data.word") + data)
    assert [one["next"] for one in host.failed_attempts] == ["1s", "1s"]


async def test_an_expression_of_until_that_fails_is_not_tried_again() -> None:
    host = Host()

    await host.apply(TEXT.replace("every: 10s", "until: \"lookup('data.none') == 1\""))

    assert (host.on.outcomes[0], host.failed_attempts) == (("a", "failed"), [])
    assert "data.none" in host.on.events[0].error[0]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{tries: 0}", "`tries` is 0: it must be from 1 to 100"),
        ("{tries: 101}", "`tries` is 101: it must be from 1 to 100"),
        ("{tries: -1}", "`tries` is -1: it must be from 1 to 100"),
        ("{tries: 2.5}", "expected a whole number, got a number"),
        ("{tries: many}", "expected a whole number, got text"),
        ("{every: [5s]}", "expected text, got a list"),
        ("3", "expected a mapping or nothing, got a whole number"),
        ("[3]", "expected a mapping or nothing, got a list"),
        ("{tries: 2, evry: 5s}", "unknown key `evry`, did you mean `every`?"),
        ("{tries: 2, untl: ok}", "unknown key `untl`, did you mean `until`?"),
        ("{until: [ok]}", "expected text, got a list"),
        (
            "{tries: 2, every: soon}",
            "`soon` is not a duration: write a number and a unit, such as 30s, 5m or 1h30m",
        ),
        ("{tries: 2, every: -5s}", "`every` is `-5s`: it must be from 0 to 1h"),
        ("{tries: 2, every: 2h}", "`every` is `2h`: it must be from 0 to 1h"),
        ("{tries: 2, every: 1y}", "`every` is `1y`: it must be from 0 to 1h"),
    ],
)
def test_a_wrong_value_is_an_error_of_the_resource(value: str, message: str) -> None:
    text = f"ccm:\n  resources:\n    - package: {{name: zsh, ensure: present, retry: {value}}}\n"

    found = lint(make_document(text.encode(), "m.yaml", "/"), Catalog())

    assert [(one.place.line, one.message) for one in found] == [(3, f"package#zsh: {message}")]


@pytest.mark.parametrize(
    ("until", "message"),
    [
        ("result.output ==", "unexpected end of expression (at character 17 of `result.output ==`)"),
        (
            "reslt.ensure == 'x'",
            "unknown name reslt; did you mean result? (at character 1 of `reslt.ensure == 'x'`)",
        ),
        ("1 + 1", "a condition must return a boolean, not an integer (at character 1 of `1 + 1`)"),
        ("result.output contains 'ok' and result.exit_code == 0", ""),
    ],
)
def test_lint_checks_the_expression_of_until(until: str, message: str) -> None:
    text = f'ccm:\n  resources:\n    - package: {{name: zsh, ensure: present, retry: {{until: "{until}"}}}}\n'

    found = lint(make_document(text.encode(), "m.yaml", "/"), Catalog())

    assert [(one.place.line, one.message) for one in found] == ([(3, message)] if message else [])


def test_a_child_manifest_has_no_attempts_of_its_own() -> None:
    text = b"ccm:\n  resources:\n    - apply: {name: c.yaml, retry: {tries: 2}}\n"

    (finding,) = lint(make_document(text, "m.yaml", "/"), Catalog())

    assert (
        finding.message
        == "apply#c.yaml: `apply` has no `retry`: set it for the resources of the child manifest"
    )
