"""Looking ahead: how often is looked, and when what was seen no longer holds."""

from __future__ import annotations

from typing import Annotated, Any

from ccm_agent.engine.prefetch import HostChanges, StatePrefetcher
from ccm_agent.model.formats.field_rules import Deferred, NeededByLookAhead
from ccm_agent.model.health import HealthCheck
from ccm_agent.resources.contract import ResolvedResource
from tests.support.engine import Board, NoteProperties, NoteState, note_type


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


class PairBoard(Board):
    """A board that is read in pairs after a change: the names of each pair are in `pairs`."""

    def __init__(self, *, knows_following: bool = True) -> None:
        super().__init__()
        self.pairs: list[list[str]] = []
        self._knows_following = knows_following

    async def look_after(
        self, changed: NoteProperties, following: NoteProperties
    ) -> tuple[NoteState, NoteState | None]:
        self.pairs.append([changed.name, following.name])
        return self._state(changed), self._state(following) if self._knows_following else None


async def test_each_change_is_verified_together_with_a_look_at_the_next_resource() -> None:
    board, changes = PairBoard(), HostChanges()
    resources = declared(board, *"abc")
    ahead = StatePrefetcher(resources, changes)
    seen = []

    for one in resources:
        seen.append((await ahead.look(one, board)).text)
        changes.note()
        board.notes |= {"a": f"after {one.wanted.name}", "c": f"after {one.wanted.name}"}
        seen.append((await ahead.look_after(one, board, one.wanted)).text)

    assert seen == ["", "after a", "", "", "after b", "after c"]
    assert (board.looks_ahead, board.pairs, board.looks) == (
        [list("abc")],
        [["a", "b"], ["b", "c"]],
        ["c"],
    )


async def test_after_a_pair_two_and_then_four_are_read() -> None:
    board, changes = PairBoard(), HostChanges()
    resources = declared(board, *"abcdefgh")
    ahead = StatePrefetcher(resources, changes)

    for number, one in enumerate(resources):
        await ahead.look(one, board)
        if number == 0:
            changes.note()
            await ahead.look_after(one, board, one.wanted)

    assert board.pairs == [["a", "b"]]
    assert board.looks_ahead == [list("abcdefgh"), ["c", "d"], ["e", "f", "g", "h"]]


async def test_a_change_of_another_resource_discards_the_state_of_the_next_one() -> None:
    board, changes = PairBoard(), HostChanges()
    first, second = declared(board, "a", "b")
    ahead = StatePrefetcher([first, second], changes)

    changes.note()
    await ahead.look_after(first, board, first.wanted)
    board.notes["b"] = "new"
    changes.note()

    assert (await ahead.look(second, board)).text == "new"


async def test_a_next_resource_that_cannot_be_read_with_the_changed_one_is_read_in_its_turn() -> None:
    board, changes = PairBoard(knows_following=False), HostChanges()
    first, second = declared(board, "a", "b")
    ahead = StatePrefetcher([first, second], changes)

    changes.note()
    await ahead.look_after(first, board, first.wanted)
    await ahead.look(second, board)

    assert (board.pairs, board.looks_ahead, board.looks) == ([["a", "b"]], [["b"]], [])


async def test_only_a_direct_neighbor_that_is_ready_is_read_with_a_change() -> None:
    async def looks(resources: list[ResolvedResource], board: PairBoard, *, may_look: bool = True) -> Any:
        ahead = StatePrefetcher(resources, HostChanges(), lambda _: may_look)
        await ahead.look_after(resources[0], board, resources[0].wanted)
        return board.pairs, board.looks

    alone = PairBoard(), PairBoard(), PairBoard(), PairBoard(), PairBoard(), PairBoard()
    neighbors = declared(alone[0], "a", "b")
    apart = declared(alone[1], "a", "x", "b")
    pending = declared(alone[2], "a", "b", pending=("later",))
    checked = declared(alone[3], "a", "b")
    checked[0].wanted.health_checks = [HealthCheck(command="true")]

    assert await looks(neighbors, alone[0]) == ([["a", "b"]], [])
    assert await looks([apart[0], apart[2]], alone[1]) == ([], ["a"])
    assert await looks(pending, alone[2]) == ([], ["a"])
    assert await looks(checked, alone[3]) == ([], ["a"])
    assert await looks(declared(alone[4], "a", "b"), alone[4], may_look=False) == ([], ["a"])
    assert await looks(declared(alone[5], "a"), alone[5]) == ([], ["a"])
