"""What `ccmctl doctor` says about streams whose settings are not those of `ccmctl init`."""

from __future__ import annotations

from typing import Any

import pytest

from ccm_agent.bus.layout import LayoutOptions, plan
from ccm_agent.bus.stream_settings import WantedStream
from ccm_ctl.fleet.doctor.results import CheckResult
from ccm_ctl.fleet.doctor.stream_checks import judge_copies, judge_stream, wanted_streams
from tests.support.doctor import SECURED

INIT = "ccmctl init --security"


def wanted(name: str) -> WantedStream:
    [found] = [one for one in plan(LayoutOptions(secure=True), with_schedules=True) if one.name == name]
    return found


def judge(name: str, **altered: Any) -> CheckResult:
    """The result for a stream with the settings of `ccmctl init`, but for some."""
    found = wanted(name)
    config = {key: value for key, value in found.config.items() if value is not None}
    return judge_stream(found, {"config": config | {"num_replicas": 1} | altered}, INIT)


def copies(number: int, *current: bool) -> dict[str, Any]:
    """A stream with this number of copies, of which all but the leader's are up to date or not."""
    replicas = [{"name": f"n{place}", "current": is_current} for place, is_current in enumerate(current, 2)]
    return {"config": {"num_replicas": number}, "cluster": {"replicas": replicas}}


@pytest.mark.parametrize("name", [one.name for one in plan(LayoutOptions(secure=True), with_schedules=True)])
def test_stream_as_init_makes_it_passes(name: str) -> None:
    assert judge(name).state == "ok"


@pytest.mark.parametrize(
    ("name", "altered"),
    [
        ("CCM_FACTS", {"allow_rollup_hdrs": True}),
        ("CCM_DATA", {"allow_rollup_hdrs": True}),
        ("CCM_NODES", {"republish": {"src": ">", "dest": "evil.>"}}),
        ("CCM_ASSIGNMENTS", {"republish": None}),
        ("CCM_TRUST", {"deny_purge": False}),
        ("CCM_EVENTS", {"deny_delete": False}),
        ("CCM_RUNS", {"max_bytes": -1}),
    ],
)
def test_setting_that_was_altered_is_a_problem(name: str, altered: dict[str, Any]) -> None:
    result = judge(name, **altered)

    assert (result.state, result.fix) == ("problem", INIT)
    assert f"{next(iter(altered))} is " in result.sentence


def test_limit_that_init_would_not_lower_is_a_warning() -> None:
    result = judge("CCM_NODES", max_msg_size=-1)

    assert (result.state, result.fix) == ("warning", "nats stream edit KV_CCM_NODES")


def test_shorter_history_of_events_may_be_a_choice() -> None:
    result = judge("CCM_EVENTS", max_age=3_600_000_000_000)

    assert result.state == "warning"
    assert "max_age is 3600 s instead of 2.592e+06 s" in result.sentence
    assert judge("CCM_EVENTS", max_age=0).state == "ok"


def test_copies_that_are_not_up_to_date_are_reported_once() -> None:
    result = judge_copies({"A": copies(3, True, False), "B": copies(3, True, False)}, INIT)

    assert (result.state, result.names) == ("warning", ("n3",))


def test_single_copy_in_a_cluster_is_a_warning() -> None:
    result = judge_copies({"A": copies(3, True, True), "B": copies(1)}, INIT)

    assert (result.state, result.names, result.fix) == ("warning", ("B",), INIT)


def test_up_to_date_copies_pass_and_missing_ones_are_unknown() -> None:
    assert judge_copies({"A": copies(3, True, True)}, INIT).state == "ok"
    assert judge_copies({}, INIT).state == "unknown"


def test_without_a_description_of_the_server_all_streams_are_looked_at() -> None:
    assert {one.name for one in wanted_streams(None)} == {one.name for one in wanted_streams(SECURED)}
