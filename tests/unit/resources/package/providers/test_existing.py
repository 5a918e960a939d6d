"""What `ccm import package` finds: manually installed packages."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ccm_agent.model.errors import CommandError, UsageError
from ccm_agent.resources.contract import ResourceContext
from ccm_agent.resources.package.providers.existing import find_with_apt, find_with_dnf
from ccm_agent.testing.locks import FakeLocks
from ccm_agent.testing.runner import FakeRunner


def make_context(runner: FakeRunner) -> ResourceContext:
    return cast(
        "ResourceContext", cast("Any", SimpleNamespace(runner=runner, port=lambda _name: FakeLocks()))
    )


async def test_apt_lists_manual_packages_without_the_base_system() -> None:
    runner = FakeRunner()
    runner.when("apt-mark", stdout="nginx\nbash\nlibc6:i386\ngone\ncurl\napt\n")
    runner.when(
        "dpkg-query",
        stdout="nginx no optional installed\nbash yes required installed\nlibc6 no optional installed\n"
        "gone no optional config-files\ncurl no optional installed\napt no important installed\n",
    )

    found = await find_with_apt(make_context(runner), "")

    assert [one.name for one in found.resources] == ["curl", "libc6:i386", "nginx"]
    assert {str(one.properties) for one in found.resources} == {"{'ensure': 'present'}"}


async def test_dnf_lists_what_users_installed() -> None:
    runner = FakeRunner()
    runner.when("dnf", stdout="nginx\n\nbash\nnginx\n")

    found = await find_with_dnf(make_context(runner), "")

    assert [one.name for one in found.resources] == ["bash", "nginx"]


@pytest.mark.parametrize("find", [find_with_apt, find_with_dnf])
async def test_a_failing_tool_is_an_error(find: Any) -> None:
    runner = FakeRunner()
    for program in ("apt-mark", "dpkg-query", "dnf"):
        runner.when(program, code=2, stderr="broken database")

    with pytest.raises(CommandError, match=r"could not list the packages: .*broken database"):
        await find(make_context(runner), "")


@pytest.mark.parametrize("find", [find_with_apt, find_with_dnf])
async def test_packages_cannot_be_narrowed(find: Any) -> None:
    runner = FakeRunner()

    with pytest.raises(UsageError, match="use `package`"):
        await find(make_context(runner), "nginx")

    assert runner.commands == []
