"""What `ccm import service` finds: services that are not as they are preset."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ccm_agent.model.errors import CommandError, UsageError
from ccm_agent.resources.contract import ResourceContext
from ccm_agent.resources.service.providers.existing import find_with_systemd
from ccm_agent.testing.locks import FakeLocks
from ccm_agent.testing.runner import FakeRunner

LISTED = """\
app.service enabled disabled
cron.service enabled enabled
getty@.service disabled enabled
idle.service disabled enabled
mask.service masked enabled
once.service enabled disabled
static.service static -
"""
SHOWN = (
    "Id={0}.service\nLoadState=loaded\nActiveState={1}\nSubState=x\nUnitFileState={2}\nNeedDaemonReload=no"
)


def make_context(runner: FakeRunner) -> ResourceContext:
    return cast(
        "ResourceContext", cast("Any", SimpleNamespace(runner=runner, port=lambda _name: FakeLocks()))
    )


async def test_services_that_differ_from_their_preset_are_found() -> None:
    runner = FakeRunner()
    runner.when("systemctl", "list-unit-files", stdout=LISTED)
    units = [("app", "active", "enabled"), ("idle", "inactive", "disabled"), ("once", "inactive", "enabled")]
    runner.when("systemctl", "show", stdout="\n\n".join(SHOWN.format(*unit) for unit in units))

    found = await find_with_systemd(make_context(runner), "")

    assert [(one.name, one.properties) for one in found.resources] == [
        ("app", {"ensure": "running", "enable": True}),
        ("idle", {"ensure": "stopped", "enable": False}),
    ]
    assert [(one.name, one.reason) for one in found.left_out] == [("once", "is enabled, but is not running")]


async def test_a_host_without_changes_needs_one_call() -> None:
    runner = FakeRunner()
    runner.when("systemctl", "list-unit-files", stdout="cron.service enabled enabled\n")

    assert (await find_with_systemd(make_context(runner), "")).resources == ()
    assert len(runner.commands) == 1


async def test_a_host_without_systemd_is_an_error() -> None:
    runner = FakeRunner()
    runner.when("systemctl", code=1, stderr="System has not been booted with systemd")

    with pytest.raises(CommandError, match="System has not been booted"):
        await find_with_systemd(make_context(runner), "")


async def test_services_cannot_be_narrowed() -> None:
    with pytest.raises(UsageError, match="use `service`"):
        await find_with_systemd(make_context(FakeRunner()), "nginx")
