"""What holds for each chain of subscriptions, wherever runs are killed or stopped and whatever fails in between."""

from __future__ import annotations

import asyncio
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from ccm_agent.model.outcome import Outcome
from tests.support.refreshes import Act, Fate, Host, fresh_host


class Piece(Struct, frozen=True):
    """A resource of a chain: its reference, and the places of what it subscribes to."""

    kind: str
    number: int
    subscribes: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"{self.kind}{self.number}"

    @property
    def reference(self) -> str:
        return f"{self.kind}#{self.name}"


class Disturbance(Struct, frozen=True):
    """A run that does not go as it should, and the notes whose wanted text is another one from then on."""

    edits: frozenset[int]
    failing: frozenset[int]
    how: str
    kill_at: int
    stop_at: int


@st.composite
def chains(draw: st.DrawFn) -> list[Piece]:
    pieces: list[Piece] = []
    for number in range(draw(st.integers(2, 6))):
        earlier = st.lists(st.integers(0, number - 1), unique=True, max_size=3) if number else st.just([])
        subscribes = tuple(draw(earlier))
        kinds = ["note"] if not subscribes else ["note", "exec", "exec", "service"]
        pieces.append(Piece(draw(st.sampled_from(kinds)), number, subscribes))
    return pieces


PLACES = st.frozensets(st.integers(0, 5), max_size=3)
DISTURBANCES = st.builds(
    Disturbance,
    edits=PLACES,
    failing=st.one_of(st.just(frozenset[int]()), PLACES),
    how=st.sampled_from(["unable", "wrong", "late"]),
    kill_at=st.one_of(st.just(0), st.integers(1, 40)),
    stop_at=st.one_of(st.just(0), st.integers(1, 40)),
)


def written(
    pieces: list[Piece], texts: dict[int, int], child_from: int, *, fail_on_error: bool
) -> dict[str, str]:
    """The manifest of a chain; its end stands in a child manifest."""

    def resource(piece: Piece) -> dict[str, Any]:
        wanted: dict[str, Any] = {"name": piece.name}
        if piece.subscribes:
            wanted["subscribe"] = [pieces[one].reference for one in piece.subscribes]
        if piece.kind == "note":
            wanted["text"] = f"version {texts.get(piece.number, 0)}"
        if piece.kind == "exec":
            wanted["refreshonly"] = True
        return {piece.kind: wanted}

    def manifest(resources: list[dict[str, Any]]) -> str:
        return yaml.safe_dump({"ccm": {"resources": resources, "fail_on_error": fail_on_error}})

    top = [resource(one) for one in pieces[:child_from]]
    rest = [resource(one) for one in pieces[child_from:]]
    if not rest:
        return {"m.yaml": manifest(top)}
    return {"m.yaml": manifest([*top, {"apply": {"name": "child.yaml"}}]), "child.yaml": manifest(rest)}


def last(acts: list[Act], act: Act) -> int:
    """Place of the last time that something happened; -1 when it never did."""
    return max((place for place, one in enumerate(acts) if one == act), default=-1)


def assert_refreshed(pieces: list[Piece], acts: list[Act]) -> None:
    """Each subscriber has run after all of its triggers had changed."""
    for piece in pieces:
        for one in piece.subscribes:
            trigger = last(acts, Act("changed", pieces[one].reference))
            assert trigger < 0 or last(acts, Act("changed", piece.reference)) > trigger, (piece, acts)


def assert_caused(pieces: list[Piece], acts: list[Act]) -> None:
    """No command ran again after it had worked, unless a trigger tried to change since, or the agent died before it noticed."""
    for piece in pieces:
        if piece.kind != "exec":
            continue
        triggers = {Act("tried", pieces[one].reference) for one in piece.subscribes}
        is_caused, has_worked = False, False
        for act in acts:
            if act in triggers:
                is_caused = True
            elif act == Act("tried", piece.reference):
                assert is_caused, (piece, acts)
            elif act == Act("changed", piece.reference):
                has_worked = True
            elif act.what == "began":
                has_worked = False
            elif act == Act("told", piece.reference) and has_worked:
                is_caused = has_worked = False


@settings(max_examples=150)
@given(chains(), st.lists(DISTURBANCES, min_size=1, max_size=4), st.integers(1, 6), st.booleans())
def test_after_one_undisturbed_apply_each_subscriber_has_run_after_its_triggers(
    pieces: list[Piece], disturbances: list[Disturbance], child_from: int, fail_on_error: bool
) -> None:
    asyncio.run(_go_through(pieces, disturbances, child_from, fail_on_error=fail_on_error))


async def _go_through(
    pieces: list[Piece], disturbances: list[Disturbance], child_from: int, *, fail_on_error: bool
) -> None:
    texts: dict[int, int] = {}
    with fresh_host() as host:
        for disturbance in disturbances:
            for one in disturbance.edits:
                texts[one] = texts.get(one, 0) + 1
            host.failing = {pieces[n].name: disturbance.how for n in disturbance.failing if n < len(pieces)}
            host.files = written(pieces, texts, child_from, fail_on_error=fail_on_error)
            await host.apply(Fate(disturbance.kill_at, disturbance.stop_at))
        host.failing = {}
        summary = await host.apply()

        assert summary is not None
        assert summary.reason == ""
        assert summary.refresh_pending == []
        assert_refreshed(pieces, host.acts)
        await _assert_quiet(host)
        assert_caused(pieces, host.acts)


async def _assert_quiet(host: Host) -> None:
    """Nothing is left to do, and nothing is left on disk."""
    summary = await host.apply()

    assert summary is not None
    assert (summary.state, {event.outcome for event in host.events}) == ("stable", {Outcome.STABLE})
    assert not list(host.folder.glob("*.log"))
