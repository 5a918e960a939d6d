"""What the service manager says of a stop."""

from pathlib import Path

import pytest

from ccm_agent.system.systemd_restart import find_unit, is_restart, is_restarting
from ccm_agent.testing.runner import FakeRunner


@pytest.mark.parametrize(
    ("cgroups", "unit"),
    [
        pytest.param("0::/system.slice/ccm-agent.service\n", "ccm-agent.service", id="a service"),
        pytest.param("0::/system.slice/system-ccm.slice/ccm@a.service\n", "ccm@a.service", id="an instance"),
        pytest.param("0::/user.slice/user-0.slice/session-1.scope\n", "", id="a terminal"),
        pytest.param("0::/\n", "", id="a container"),
        pytest.param("12:devices:/a.service\n1:name=systemd:/b.service\n", "b.service", id="version 1"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_the_unit_is_read_from_the_control_group(cgroups: str, unit: str) -> None:
    assert find_unit(cgroups) == unit


# systemd 252, Debian 12: systemctl list-jobs --no-legend --plain
@pytest.mark.parametrize(
    ("line", "is_so"),
    [
        ("138 ccm-agent.service restart running", True),
        ("138 ccm-agent.service stop running", False),
        ("138 other.service restart running", False),
        ("No jobs running.", False),
        ("", False),
    ],
)
def test_only_a_job_of_our_own_that_restarts_is_a_restart(line: str, is_so: bool) -> None:
    assert is_restart(line, "ccm-agent.service") is is_so


async def test_a_process_outside_of_a_service_does_not_ask_systemd(tmp_path: Path) -> None:
    cgroups = tmp_path / "cgroup"
    cgroups.write_text("0::/user.slice\n")

    assert not await is_restarting(FakeRunner(), cgroups)


async def test_a_service_asks_the_service_manager(tmp_path: Path) -> None:
    cgroups = tmp_path / "cgroup"
    cgroups.write_text("0::/system.slice/ccm-agent.service\n")
    runner = FakeRunner()
    runner.when("systemctl", stdout="138 ccm-agent.service restart running\n")

    assert await is_restarting(runner, cgroups)


async def test_without_an_answer_it_is_a_stop(tmp_path: Path) -> None:
    assert not await is_restarting(FakeRunner(), tmp_path / "missing")
