"""Checks run side by side, and one that hangs or fails leaves the others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from ccm_agent.model.errors import BusDeniedError, BusError
from ccm_ctl.fleet.doctor.results import (
    NAMES_KEPT,
    Check,
    CheckResult,
    DoctorContext,
    MissingError,
    listed,
    ok,
    run_checks,
    unknown,
    warning,
)
from ccm_ctl.fleet.keys.keys import Keys
from tests.support.doctor import context


async def hangs(_: DoctorContext) -> Sequence[CheckResult]:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


async def passes(_: DoctorContext) -> Sequence[CheckResult]:
    return [ok("a.passes", "All is well.")]


def fails(error: BusError) -> Check:
    async def look(_: DoctorContext) -> Sequence[CheckResult]:
        raise error

    return Check(ids=("a.first", "a.second"), look=look, needs_broker=False)


async def test_check_that_hangs_is_unknown_and_the_others_continue(tmp_path: Path) -> None:
    checks = [
        Check(ids=("a.hangs",), look=hangs, limit_s=0.01, needs_broker=False),
        Check(ids=("a.passes",), look=passes, needs_broker=False),
    ]

    results = await run_checks(checks, context(tmp_path))

    assert results == [unknown("a.hangs", "no answer within 0.01s"), ok("a.passes", "All is well.")]


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (BusError("the broker says no"), "the broker says no"),
        (
            BusDeniedError("$JS.API.X: denied"),
            "the broker does not allow this request with these credentials",
        ),
    ],
)
async def test_every_result_of_a_check_that_fails_is_unknown(
    error: BusError, why: str, tmp_path: Path
) -> None:
    results = await run_checks([fails(error)], context(tmp_path))

    assert results == [unknown("a.first", why), unknown("a.second", why)]


async def test_without_a_connection_only_checks_that_need_one_are_unknown(tmp_path: Path) -> None:
    checks = [Check(ids=("a.asks",), look=hangs), Check(ids=("a.passes",), look=passes, needs_broker=False)]

    results = await run_checks(checks, context(tmp_path))

    assert results == [
        unknown("a.asks", "there is no connection to the broker"),
        ok("a.passes", "All is well."),
    ]


async def test_progress_names_the_checks_that_are_left(tmp_path: Path) -> None:
    told: list[tuple[int, list[str]]] = []
    checks = [
        Check(ids=("a.hangs",), look=hangs, limit_s=0.01, needs_broker=False),
        Check(ids=("a.passes",), look=passes, needs_broker=False),
    ]

    await run_checks(checks, context(tmp_path), lambda done, pending: told.append((done, list(pending))))

    assert told == [(1, ["a.hangs"]), (2, [])]


def test_names_in_a_sentence_and_in_a_result_are_bounded() -> None:
    names = [f"n{number}" for number in range(NAMES_KEPT + 5)]

    result = warning("a.b", listed(names), names=names)

    assert result.sentence == "n0, n1, n2, n3, n4, n5, n6, n7 and 997 more"
    assert (len(result.names), result.count) == (NAMES_KEPT, NAMES_KEPT + 5)


def test_keys_of_another_fleet_are_not_used(tmp_path: Path) -> None:
    for name in ("ours", "theirs"):
        keys = Keys(tmp_path / name)
        keys.make()
        keys.make_root()
        keys.signers.allow_unsigned(0)
    ours, theirs = (Keys(tmp_path / name) for name in ("ours", "theirs"))

    with pytest.raises(MissingError, match="belong to another fleet"):
        context(tmp_path, keys=theirs, trust=ours.signers.trust()).fleet_keys()
    assert context(tmp_path, keys=ours, trust=ours.signers.trust()).fleet_keys() is ours
