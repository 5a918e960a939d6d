"""Health checks: what may be written, tries and pauses, and what each format makes of its outcome."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ccm_agent.health.run import normalise, run_check
from ccm_agent.model.errors import PropertyError
from ccm_agent.model.health import HealthCheck, HealthResult, HealthStatus
from ccm_agent.testing.clock import FakeClock
from ccm_agent.testing.files import FakeFiles
from ccm_agent.testing.runner import FakeRunner


class Host:
    """Scripted ports."""

    def __init__(self) -> None:
        self.runner = FakeRunner()
        self.files = FakeFiles()
        self.clock = FakeClock()

    def port(self, name: str) -> Any:
        raise KeyError(name)


@pytest.mark.parametrize(
    ("check", "message"),
    [
        pytest.param(
            HealthCheck(), "a health check has neither `command` nor `goss_rules`; add one", id="neither"
        ),
        pytest.param(
            HealthCheck(command="x", goss_rules={"file": {}}),
            "a health check has both `command` and `goss_rules`; use one",
            id="both",
        ),
        pytest.param(
            HealthCheck(command="x", format="goss"),
            "the format `goss` cannot be used with `command`; leave it out or write nagios",
            id="the format of the other",
        ),
        pytest.param(
            HealthCheck(goss_rules=["file"]),
            "`goss_rules` must be a mapping from kinds such as `file` to expectations",
            id="a list of rules",
        ),
    ],
)
def test_invalid_checks_are_refused_before_anything_runs(check: HealthCheck, message: str) -> None:
    with pytest.raises(PropertyError) as caught:
        normalise(check)

    assert caught.value.message.startswith(message)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        pytest.param(
            {"fil": {"/x": {"exists": True}}},
            "found 0 tests: `goss_rules` has none of file, package, service, port, process, command, "
            "http, addr, dns, group, user, interface, kernel-param, mount, matching",
            id="an unknown kind alone",
        ),
        pytest.param({}, "found 0 tests: ", id="no rules"),
        pytest.param(
            {"gossfile": {"/x.yaml": {}}},
            "the rules of `gossfile` were not read",
            id="a file that was not read",
        ),
        pytest.param(
            {"file": {"/x": {"exists": True, "moed": "0644"}}},
            "`goss_rules`, file `/x`: there is no `moed`, did you mean `mode`?",
            id="an unknown attribute",
        ),
        pytest.param(
            {"file": {"/x": {"mode": "0644"}}},
            "`goss_rules`, file `/x`: `exists` is missing; it is checked first",
            id="without what must hold first",
        ),
        pytest.param(
            {"file": {"/x": {"exists": True, "contents": ["/(/"]}}},
            "`goss_rules`, file `/x`: `contents`: the regular expression `/(/` is invalid: ",
            id="an expression that does not parse",
        ),
    ],
)
async def test_rules_that_goss_refuses_are_an_unknown_check(rules: Any, message: str) -> None:
    result = await run_check(normalise(HealthCheck(goss_rules=rules)), Host())

    assert result.status == HealthStatus.UNKNOWN
    assert result.output.startswith(message)


async def test_an_unknown_kind_beside_a_known_one_is_ignored() -> None:
    rules = {"nosuch": {"a": {"b": 1}}, "service": None, "file": {"/nosuch": {"exists": False}}}

    result = await run_check(normalise(HealthCheck(goss_rules=rules)), Host())

    assert result == HealthResult(status=HealthStatus.OK, output="Count: 1, Failed: 0, Skipped: 0")


async def test_a_negative_timeout_is_none() -> None:
    rules = {"file": {"/nosuch": {"exists": False}}}
    check = HealthCheck(goss_rules=rules, timeout="-1s", try_sleep="-1s", tries=2)

    result = await run_check(normalise(check), Host())

    assert result.status == HealthStatus.OK


def test_rules_that_are_templates_are_looked_at_when_they_are_rendered() -> None:
    rules = {"file": {"{{ Data.path }}": {"{{ Data.what }}": True}}}

    assert normalise(HealthCheck(goss_rules=rules, name="x")) == HealthCheck(
        goss_rules=rules, name="x", format="goss"
    )


async def test_tries_continue_until_one_is_right_with_the_pause_between() -> None:
    host = Host()
    host.runner.when("sh", "-c", "probe", code=1)
    host.runner.when("sh", "-c", "probe", code=0)
    check = normalise(
        HealthCheck(goss_rules={"command": {"probe": {"exit-status": 0}}}, name="up", tries=3, try_sleep="2s")
    )

    async with asyncio.TaskGroup() as group:
        task = group.create_task(run_check(check, host))
        while not host.clock.sleepers:  # noqa: ASYNC110 - the clock has no event for a new sleeper
            await asyncio.sleep(0)
        await host.clock.advance(2)

    assert task.result() == HealthResult(
        status=0, tries=2, name="up", output="Count: 1, Failed: 0, Skipped: 0"
    )


async def test_the_limit_of_time_of_a_check_makes_it_unknown() -> None:
    host = Host()
    host.runner.when("/opt/probe", hangs=True)
    check = normalise(HealthCheck(command="/opt/probe", timeout="1s"))

    assert await run_check(check, host) == HealthResult(
        status=3, output="did not end within 1s", name="probe"
    )


@pytest.mark.parametrize(("code", "status"), [(0, 0), (1, 1), (2, 2), (3, 3), (7, 3)])
async def test_a_plugins_exit_status_is_the_result(code: int, status: int) -> None:
    host = Host()
    host.runner.when("/opt/probe", "-w", "5 6", code=code, stdout="all of it\n")
    check = normalise(HealthCheck(command="/opt/probe -w '5 6'", name="p"))

    assert await run_check(check, host) == HealthResult(status=status, output="all of it", name="p")
