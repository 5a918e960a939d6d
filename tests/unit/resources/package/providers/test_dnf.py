"""What dnf and rpm are asked and told, and what their answers mean."""

from __future__ import annotations

import pytest

from ccm_agent.model.errors import CommandError, LockError
from ccm_agent.resources import package_tool
from ccm_agent.resources.package.model import PackageMetadata, PackageProperties, PackageState
from ccm_agent.resources.package.providers.dnf import Dnf
from ccm_agent.testing.locks import FakeLocks
from ccm_agent.testing.runner import FakeRunner

FORMAT = "%{NAME} %|EPOCH?{%{EPOCH}}:{0}| %{VERSION} %{RELEASE} %{ARCH}\\n"
YES = ("-y", "--setopt=exit_on_lock=True")
# dnf 4.14 while a process 69, `sleep`, holds its lock, Debian 12, 2026-11
LOCKED = """\
RPMDB already locked by 69
  The application with PID 69 is: sleep
    Memory : 1.8 M RSS (2.9 MB VSZ)
    Started: Sat Nov 21 15:51:18 2026 - 00:00 ago
    State  : Sleeping
"""


class Host:
    """dnf on a host that answers what it is told to."""

    def __init__(self) -> None:
        self.runner = FakeRunner()
        self.locks = FakeLocks()
        self.dnf = Dnf(self.runner, self.locks)

    @property
    def asked(self) -> list[tuple[str, ...]]:
        return [command.argv for command in self.runner.commands]


def wanted(name: str = "zsh") -> PackageProperties:
    return PackageProperties(name=name, ensure="present")


def state(version: str, metadata: PackageMetadata) -> PackageState:
    return PackageState(
        protocol="io.choria.ccm.v1.resource.package.state",
        type="package",
        name="zsh",
        ensure=version,
        metadata=metadata,
    )


def row(version: str, release: str, epoch: str, arch: str) -> PackageState:
    return state(
        version,
        PackageMetadata(
            name="zsh",
            version=f"{version}-{release}",
            arch=arch,
            provider="dnf",
            extended={"epoch": epoch, "release": release},
        ),
    )


@pytest.mark.parametrize(
    ("answer", "code", "found"),
    [
        pytest.param("zsh 0 5.8 9.el9 x86_64\n", 0, row("5.8", "9.el9", "0", "x86_64"), id="no epoch is 0"),
        pytest.param("zsh 1 2.0 3.fc39 noarch\n", 0, row("2.0", "3.fc39", "1", "noarch"), id="an epoch"),
        pytest.param(
            "zsh 0 5.8 1.el9 x86_64\nzsh 0 5.9 1.el9 x86_64\n",
            0,
            row("5.9", "1.el9", "0", "x86_64"),
            id="of several the newest",
        ),
        pytest.param(
            "package zsh is not installed\n",
            1,
            state("absent", PackageMetadata(name="zsh", version="absent", provider="dnf")),
            id="not installed",
        ),
    ],
)
async def test_rpm_lists_installed_packages(answer: str, code: int, found: PackageState) -> None:
    host = Host()
    host.runner.when("rpm", stdout=answer, code=code)

    assert await host.dnf.status(wanted()) == found
    assert host.asked == [("rpm", "-q", "--queryformat", FORMAT, "--", "zsh")]


async def test_one_question_answers_for_all() -> None:
    host = Host()
    host.runner.when("rpm", stdout="package nano is not installed\nzsh 0 5.8 9.el9 x86_64\n", code=1)

    found = await host.dnf.look_ahead([wanted(), wanted("nano")])

    assert [one.ensure if one else None for one in found] == ["5.8", "absent"]
    assert host.asked == [("rpm", "-q", "--queryformat", FORMAT, "--", "nano", "zsh")]


@pytest.mark.parametrize(
    ("verb", "version", "command"),
    [
        pytest.param("install", "present", ("dnf", "install", *YES, "--", "zsh"), id="any version"),
        pytest.param("install", "latest", ("dnf", "install", *YES, "--", "zsh"), id="the latest"),
        pytest.param("install", "5.8-9.el9", ("dnf", "install", *YES, "--", "zsh-5.8-9.el9"), id="a version"),
        pytest.param("upgrade", "5.9", ("dnf", "install", *YES, "--", "zsh-5.9"), id="up to a version"),
        pytest.param("upgrade", "latest", ("dnf", "upgrade", *YES, "--", "zsh"), id="up to the latest"),
    ],
)
async def test_a_change_is_one_command(verb: str, version: str, command: tuple[str, ...]) -> None:
    host = Host()
    host.runner.when("dnf")

    await getattr(host.dnf, verb)("zsh", version)

    assert (host.asked, host.locks.held) == ([command], ["package"])


async def test_removing_is_one_command() -> None:
    host = Host()
    host.runner.when("dnf")

    await host.dnf.uninstall("zsh")

    assert (host.asked, host.locks.held) == ([("dnf", "remove", *YES, "--", "zsh")], ["package"])


async def test_downgrade_is_reported_as_a_downgrade() -> None:
    host = Host()
    host.runner.when("rpm", stdout="zsh-5.9-1.noarch\n")
    host.runner.when("rpm", stdout="zsh-5.8-1.noarch\n")
    host.runner.when("dnf")

    await host.dnf.downgrade("zsh", "5.8")

    assert [argv for argv in host.asked if argv[0] == "dnf"] == [("dnf", "downgrade", *YES, "--", "zsh-5.8")]


async def test_a_downgrade_that_changed_nothing_is_installed_instead() -> None:
    host = Host()
    host.runner.when("rpm", stdout="zsh-5.9-1.noarch\n")
    host.runner.when("dnf")

    await host.dnf.downgrade("zsh", "5.8")

    assert [argv[1] for argv in host.asked if argv[0] == "dnf"] == ["downgrade", "install"]


async def test_a_lock_of_another_owner_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_tool, "LOCK_RETRY_S", 0.0)
    host = Host()
    host.runner.when("dnf", code=200, stderr=LOCKED)
    host.runner.when("dnf")

    await host.dnf.install("zsh", "present")

    assert len(host.asked) == 2


async def test_lock_that_is_not_released_is_reported_with_its_holder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_tool, "LOCK_RETRY_S", 0.0)
    monkeypatch.setattr(package_tool, "LOCK_WAIT_S", 0.0)
    host = Host()
    host.runner.when("dnf", code=200, stderr=LOCKED)

    with pytest.raises(LockError) as caught:
        await host.dnf.install("zsh", "present")

    assert caught.value.message == (
        "dnf install zsh: the package database is in use (waited 0.0 s): RPMDB already locked by 69, "
        "The application with PID 69 is: sleep; try again later"
    )


async def test_an_ordinary_user_is_told_that_root_is_needed() -> None:
    host = Host()
    host.runner.when(
        "dnf",
        code=1,
        stderr="Error: This command has to be run with superuser privileges (under the root user on most systems).\n",
    )

    with pytest.raises(CommandError) as caught:
        await host.dnf.install("zsh", "present")

    assert caught.value.message == (
        "could not install zsh: only root can change packages; run it as root, for example with sudo"
    )


async def test_failure_shows_the_last_lines_of_dnf() -> None:
    host = Host()
    host.runner.when("dnf", code=1, stderr="Error: Unable to find a match: zsh\n")

    with pytest.raises(CommandError) as caught:
        await host.dnf.install("zsh", "present")

    assert caught.value.message == "could not install zsh: exit status 1: Error: Unable to find a match: zsh"
