import asyncio
from datetime import timedelta
from pathlib import Path

from msgspec.structs import replace

from ccm_agent.agent.desired.assignment_status import AssignmentStatus
from ccm_agent.model.wire import AssignmentState
from ccm_agent.testing.clock import NOON, FakeClock

STABLE = AssignmentState(key="all.site", revision=1, digest="d1", state="stable", run="r1")


class Stage:
    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.changes = 0
        self.path = folder / "states.json"

    def states(self, node: str = "web1", pending: tuple[str, ...] = ()) -> AssignmentStatus:
        return AssignmentStatus(node, self.path, self.clock, self._changed, lambda _name: list(pending))

    def _changed(self, _published: object, soon: bool) -> None:
        self.changes += soon


async def test_run_with_the_same_result_is_stored_but_not_published(tmp_path: Path) -> None:
    at = Stage(tmp_path)
    states = at.states()
    states.update("site", STABLE)
    await at.clock.advance(60)

    states.update("site", replace(STABLE, run="r2", next_time=NOON))

    assert (states.published, at.changes) == ({"site": replace(STABLE, since=NOON)}, 1)
    assert states.now == {"site": replace(STABLE, run="r2", since=NOON, next_time=NOON)}


async def test_one_that_fails_is_news_each_time_and_since_says_when_it_began(tmp_path: Path) -> None:
    at = Stage(tmp_path)
    states = at.states()
    failed = replace(STABLE, state="failed", reason="no", next_time=NOON)
    states.update("site", failed)
    await at.clock.advance(60)

    states.update("site", replace(failed, run="r2", next_time=NOON + timedelta(seconds=60)))

    assert states.published["site"] == replace(
        failed, run="r2", since=NOON, next_time=NOON + timedelta(seconds=60)
    )
    assert at.changes == 2


async def test_another_revision_in_the_same_state_has_come_to_it_again(tmp_path: Path) -> None:
    at = Stage(tmp_path)
    states = at.states()
    states.update("site", STABLE)
    await at.clock.advance(60)

    states.update("site", replace(STABLE, revision=2, digest="d2"))

    assert states.published["site"].since == NOON + timedelta(seconds=60)


async def test_known_state_survives_a_restart_but_not_a_new_node_name(tmp_path: Path) -> None:
    at = Stage(tmp_path)
    before = at.states()
    before.update("site", STABLE)
    before.set_started("all.site", 1)
    await before.save()
    after, renamed = at.states(), at.states("web2")

    await asyncio.to_thread(after.open)
    await asyncio.to_thread(renamed.open)

    assert (after.published, after.has_started("all.site", 1)) == (before.published, True)
    assert (after.has_started("all.site", 2), renamed.published) == (False, {})


async def test_assignment_that_no_longer_matches_the_node_is_dropped(tmp_path: Path) -> None:
    at = Stage(tmp_path)
    states = at.states()
    states.update("site", STABLE)
    states.set_started("all.site", 1)

    states.retain(set(), set())

    assert (states.published, states.now, states.has_started("all.site", 1), at.changes) == ({}, {}, False, 2)


async def test_change_that_is_not_urgent_is_reported_with_the_next_report(tmp_path: Path) -> None:
    at = Stage(tmp_path)
    states = at.states()

    states.update("site", replace(STABLE, state="waiting"), is_urgent=False)

    assert (states.published["site"].state, at.changes) == ("waiting", 0)


async def test_pending_refresh_of_a_killed_process_is_not_compliant(tmp_path: Path) -> None:
    at = Stage(tmp_path)
    before = at.states()
    before.update("site", STABLE)
    await before.save()

    states = at.states(pending=("exec#reload",))
    await asyncio.to_thread(states.open)

    reason = "a refresh is pending: exec#reload"
    waiting = replace(STABLE, state="waiting", reason=reason, refresh_pending=["exec#reload"], since=NOON)
    assert (states.now, states.published) == ({"site": waiting}, {"site": waiting})
