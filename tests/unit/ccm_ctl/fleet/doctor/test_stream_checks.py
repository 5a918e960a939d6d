"""What `ccmctl doctor` says about streams whose settings are not those of `ccmctl init`."""

from __future__ import annotations

from typing import Any

import pytest

from ccm_agent.bus.layout import Layout, plan
from ccm_agent.bus.stream_settings import WantedStream
from ccm_ctl.fleet.doctor.results import CheckResult
from ccm_ctl.fleet.doctor.stream_checks import judge_stream, wanted_streams
from tests.support.doctor import SECURED

INIT = "ccmctl init --security"


def wanted(name: str) -> WantedStream:
    [found] = [one for one in plan(Layout(secure=True), with_schedules=True) if one.name == name]
    return found


def judge(
    name: str, *, cluster: dict[str, Any] | None = None, is_clustered: bool = False, **altered: Any
) -> CheckResult:
    """The result for a stream with the settings of `ccmctl init`, but for some."""
    found = wanted(name)
    config = {key: value for key, value in found.config.items() if value is not None}
    info = {"config": config | {"num_replicas": 1} | altered, "cluster": cluster or {}}
    return judge_stream(found, info, INIT, is_clustered=is_clustered)


@pytest.mark.parametrize("name", [one.name for one in plan(Layout(secure=True), with_schedules=True)])
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


def test_copies_in_a_cluster_are_looked_at() -> None:
    replicas = [{"name": "n2", "current": True}, {"name": "n3", "current": False}]

    single = judge("CCM_EVENTS", is_clustered=True)
    behind = judge("CCM_EVENTS", is_clustered=True, num_replicas=3, cluster={"replicas": replicas})
    fine = judge("CCM_EVENTS", is_clustered=True, num_replicas=3, cluster={"replicas": replicas[:1]})

    assert [single.state, behind.state, fine.state] == ["warning", "warning", "ok"]
    assert behind.names == ("n3",)


def test_without_a_description_of_the_server_all_streams_are_looked_at() -> None:
    assert {one.name for one in wanted_streams(None)} == {one.name for one in wanted_streams(SECURED)}
