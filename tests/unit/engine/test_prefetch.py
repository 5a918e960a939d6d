"""Looking ahead: how often is looked, and when what was seen no longer holds."""

from __future__ import annotations

from typing import Annotated, Any

from ccm_agent.engine.prefetch import HostChanges, StatePrefetcher
from ccm_agent.model.formats.field_rules import Deferred, NeededByLookAhead
from ccm_agent.resources.contract import ResolvedResource
from tests.support.engine import Board, NoteProperties, note_type


class ReadAheadProperties(NoteProperties, kw_only=True, omit_defaults=True):
    """A note that cannot be read before `later` is known."""

    later: Annotated[str, Deferred, NeededByLookAhead] = ""


def declared(board: Board, *names: str, **fields: Any) -> list[ResolvedResource]:
    kind = note_type(board, properties=ReadAheadProperties)
    return [
        ResolvedResource(kind=kind, wanted=ReadAheadProperties(name=name), index=index, **fields)
        for index, name in enumerate(names)
    ]


async def test_one_question_is_enough_while_nothing_changes() -> None:
    board = Board()
    resources = declared(board, "a", "b", "c")
    ahead = StatePrefetcher(resources, HostChanges())

    states = [await ahead.look(one, board) for one in resources]

    assert [state.name for state in states] == ["a", "b", "c"]
    assert (board.looks_ahead, board.looks) == ([["a", "b", "c"]], [])


async def test_after_a_change_is_asked_about_the_next_then_two_then_four() -> None:
    board, changes = Board(), HostChanges()
    resources = declared(board, *"abcdefghij")
    ahead = StatePrefetcher(resources, changes)

    for number, one in enumerate(resources):
        await ahead.look(one, board)
        if number == 0:
            changes.note()

    assert board.looks_ahead == [list("abcdefghij"), ["b"], ["c", "d"], ["e", "f", "g", "h"], ["i", "j"]]


async def test_after_each_change_only_the_next_resource_is_prefetched() -> None:
    board, changes = Board(), HostChanges()
    resources = declared(board, *"abcd")
    ahead = StatePrefetcher(resources, changes)

    for one in resources:
        await ahead.look(one, board)
        changes.note()

    assert board.looks_ahead == [list("abcd"), ["b"], ["c"], ["d"]]


async def test_a_change_is_seen() -> None:
    board, changes = Board(), HostChanges()
    first, second = resources = declared(board, "a", "b")
    ahead = StatePrefetcher(resources, changes)

    await ahead.look(first, board)
    board.notes["b"] = "new"
    changes.note()

    assert (await ahead.look(second, board)).text == "new"


async def test_properties_that_decide_the_check_are_rendered_first() -> None:
    board = Board()
    resources = declared(board, "a", "b", pending=("later",))
    ahead = StatePrefetcher(resources, HostChanges())

    await ahead.look(resources[0], board)

    assert (board.looks_ahead, board.looks) == ([], ["a"])


async def test_a_provider_that_cannot_tell_is_asked_singly_and_not_again() -> None:
    class Unsure(Board):
        async def look_ahead(self, wanted: Any) -> Any:
            await super().look_ahead(wanted)
            return [None for _ in wanted]

    board = Unsure()
    resources = declared(board, "a", "b")
    ahead = StatePrefetcher(resources, HostChanges())

    for one in resources:
        await ahead.look(one, board)

    assert (board.looks_ahead, board.looks) == ([["a", "b"]], ["a", "b"])


async def test_a_provider_that_cannot_look_ahead_is_not_asked_to() -> None:
    class Simple:
        def __init__(self) -> None:
            self.looks: list[str] = []

        async def status(self, wanted: NoteProperties) -> str:
            self.looks.append(wanted.name)
            return wanted.name

    simple = Simple()
    resources = declared(Board(), "a", "b")

    assert [await StatePrefetcher(resources, HostChanges()).look(one, simple) for one in resources] == [
        "a",
        "b",
    ]
