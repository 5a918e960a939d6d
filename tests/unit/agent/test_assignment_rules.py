from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ccm_agent.agent.desired.assignments import (
    BUCKET,
    MatchingAssignment,
    StoredAssignment,
    conflicts,
    read_assignment,
    select_by_precedence,
)
from ccm_agent.bus.subjects import assignment_key
from ccm_agent.model.bundle import Bundle
from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.ports import KeyValueEntry
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.model.wire import Assignment
from tests.support.signing import unsigned_stamps

DIGEST = "ab" * 32


def known(name: str, scope: str, sequence: int = 1, number: int = 1) -> StoredAssignment:
    assignment = Assignment(name=name, scope=scope, bundle=Bundle(digest=DIGEST, size_bytes=1))
    return StoredAssignment(
        key=assignment_key(scope, name), number=number, sequence=sequence, assignment=assignment
    )


@pytest.mark.parametrize(
    ("present", "winner"),
    [
        pytest.param([("all", 9), ("fact.role.web", 8), ("node.web1", 7)], "node.web1", id="node over all"),
        pytest.param([("all", 9), ("fact.role.web", 8)], "fact.role.web", id="fact over all"),
        pytest.param([("fact.role.web", 8), ("fact.site.a", 9)], "fact.site.a", id="then the newest"),
        pytest.param([("all", 1)], "all", id="the only one"),
    ],
)
def test_of_one_name_the_nearest_wins_and_then_the_newest(
    present: list[tuple[str, int]], winner: str
) -> None:
    candidates = [MatchingAssignment(known=known("site", scope, sequence)) for scope, sequence in present]

    best = select_by_precedence(candidates)

    assert {name: one.known.assignment.scope for name, one in best.items()} == {"site": winner}


def test_other_names_have_winners_of_their_own() -> None:
    best = select_by_precedence(
        [MatchingAssignment(known=known("a", "all")), MatchingAssignment(known=known("b", "node.web1"))]
    )

    assert sorted(best) == ["a", "b"]


def named(*paths: str) -> dict[str, str]:
    """What an assignment manages: files at these paths."""
    return {path: f"file#{path}" for path in paths}


def test_resources_of_only_one_assignment_do_not_conflict() -> None:
    assert conflicts({"a": named("/a"), "b": named("/b"), "c": {}}) == {}


def test_conflicting_assignments_are_refused_and_the_message_names_two() -> None:
    shared = named(*(f"/{i}" for i in range(5)))

    found = conflicts({"a": shared, "b": shared | named("/b"), "c": named("/b"), "d": named("/d")})

    assert {name: (one.code, str(one).partition(":")[0]) for name, one in found.items()} == {
        "a": (
            "assignment.conflict",
            "the assignments a and b both manage file#/0, file#/1, file#/2 and 2 more",
        ),
        "b": (
            "assignment.conflict",
            "the assignments a and b both manage file#/0, file#/1, file#/2 and 2 more",
        ),
        "c": ("assignment.conflict", "the assignments b and c both manage file#/b"),
    }


def test_a_conflict_over_a_name_with_a_secret_shows_it_masked() -> None:
    found = conflicts({"a": {"1": "exec#login hunter22"}, "b": {"1": "exec#login *** (ab12)"}})

    assert "both manage exec#login *** (ab12):" in str(found["a"])
    assert "hunter22" not in str(found["a"]) + str(found["b"])


def entry(key: str = "all.site", number: int = 1, **changes: Any) -> KeyValueEntry:
    body: Mapping[str, Any] = {
        "name": "site",
        "scope": "all",
        "bundle": {"digest": DIGEST, "size_bytes": 1},
        **changes,
    }
    stamped = Stamped(bucket=BUCKET, key="all.site", number=number, body=body)
    return KeyValueEntry(
        key=key, value=msgspec.json.encode(stamped), revision=7, created=datetime(2030, 1, 1, tzinfo=UTC)
    )


def test_an_assignment_is_read_out_of_its_stamp(tmp_path: Path) -> None:
    found = read_assignment(
        unsigned_stamps(tmp_path / "d.json"), entry(number=3, deadline="2030-01-01T00:00:00Z", later=1)
    )

    assert (found.key, found.number, found.sequence, found.pins) == ("all.site", 3, 7, {})
    assert found.assignment.deadline == datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        pytest.param(entry(key="all.other"), "was copied here", id="another key's"),
        pytest.param(entry(name="other"), "which is stored under another key", id="another name"),
        pytest.param(entry(scope="node.web1"), "which is stored under another key", id="another scope"),
        pytest.param(entry(scope="planet"), "not a valid scope", id="not a valid scope"),
        pytest.param(entry(mode="ponder"), "unknown mode ponder", id="an unknown mode"),
        pytest.param(entry(data_revision=-1), "its revision is negative", id="no revision"),
        pytest.param(entry(deadline="2030-01-01T00:00:00"), "with a timezone", id="a time of nowhere"),
        pytest.param(entry(bundle=None), "not a valid assignment", id="no bundle"),
        pytest.param(entry(number=1), "older than 2", id="an older number"),
    ],
)
def test_unauthorized_document_is_refused_with_the_reason(
    tmp_path: Path, found: KeyValueEntry, why: str
) -> None:
    revision_guard = unsigned_stamps(tmp_path / "d.json")
    revision_guard.numbers[f"{BUCKET}/all.site"] = 2 if "older" in why else 0

    with pytest.raises(ProtocolError, match=why):
        read_assignment(revision_guard, found)
