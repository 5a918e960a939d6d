"""What apt and dpkg are asked and told, and what their answers mean."""

from __future__ import annotations

import pytest

from ccm_agent.model.errors import CommandError, LockError, PropertyError
from ccm_agent.model.ports import Command
from ccm_agent.resources import package_tool
from ccm_agent.resources.package.model import PackageMetadata, PackageProperties, PackageState
from ccm_agent.resources.package.providers.apt import Apt
from ccm_agent.testing.locks import FakeLocks
from ccm_agent.testing.runner import FakeRunner

FORMAT = "-f=${Package} ${Version} ${Architecture} ${db:Status-Status}\n"
CONFOLD = ("-o", "DPkg::Options::=--force-confold")
# apt-cache policy zsh, apt 2.6.1, Debian 12, 2026-11
POLICY = """\
zsh:
  Installed: 5.9-4+b1
  Candidate: 5.9-8+b18
  Version table:
     5.9-8+b18 500
        500 http://deb.debian.org/debian bookworm/main amd64 Packages
 *** 5.9-4+b1 100
        100 /var/lib/dpkg/status
"""
LOCKED = (
    "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 4242 (apt-get)\n"
    "N: Be aware that removing the lock file is not a solution and may break your system.\n"
)


class Host:
    """apt on a host that answers what it is told to."""

    def __init__(self) -> None:
        self.runner = FakeRunner()
        self.locks = FakeLocks()
        self.apt = Apt(self.runner, self.locks)

    @property
    def asked(self) -> list[tuple[str, ...]]:
        return [command.argv for command in self.runner.commands]


def wanted(name: str = "zsh") -> PackageProperties:
    return PackageProperties(name=name, ensure="present")


def state(version: str, *, word: str, arch: str = "", name: str = "zsh") -> PackageState:
    return PackageState(
        protocol="io.choria.ccm.v1.resource.package.state",
        type="package",
        name=name,
        ensure=version,
        metadata=PackageMetadata(
            name="zsh", version=version, arch=arch, provider="apt", extended={"status": word}
        ),
    )


class TestStatus:
    @pytest.mark.parametrize(
        ("answer", "found"),
        [
            pytest.param(
                "zsh 5.9-8 amd64 installed\n", state("5.9-8", word="installed", arch="amd64"), id="installed"
            ),
            pytest.param(
                "zsh 5.9-8 amd64 config-files\n", state("absent", word="config-files"), id="config-files"
            ),
            pytest.param(
                "zsh 5.9-8 amd64 half-installed\n",
                state("absent", word="half-installed"),
                id="half-installed",
            ),
            pytest.param(
                "zsh 5.9-8 amd64 half-configured\n",
                state("absent", word="half-configured"),
                id="half-configured",
            ),
            pytest.param("zsh 5.9-8 amd64 unpacked\n", state("absent", word="unpacked"), id="unpacked"),
            pytest.param(
                "zsh  amd64 not-installed\n", state("absent", word="not-installed"), id="not-installed"
            ),
            pytest.param("", state("absent", word="unknown"), id="never heard of"),
            pytest.param(
                "zsh 2:5.9-8 all installed\n",
                state("2:5.9-8", word="installed", arch="all"),
                id="an epoch is kept",
            ),
            pytest.param(
                "zsh 5.9-8 i386 config-files\nzsh 5.9-9 amd64 installed\n",
                state("5.9-9", word="installed", arch="amd64"),
                id="of two architectures the installed one",
            ),
        ],
    )
    async def test_each_word_of_dpkg_means_present_or_absent(self, answer: str, found: PackageState) -> None:
        host = Host()
        host.runner.when("dpkg-query", stdout=answer, code=0 if answer else 1)

        assert await host.apt.status(wanted()) == found
        assert host.asked == [("dpkg-query", "-W", FORMAT, "--", "zsh")]

    async def test_a_name_with_an_architecture_means_that_one(self) -> None:
        host = Host()
        host.runner.when("dpkg-query", stdout="zsh 5.9-8 i386 installed\nzsh 5.9-9 amd64 installed\n")

        assert await host.apt.status(wanted("zsh:i386")) == state(
            "5.9-8", word="installed", arch="i386", name="zsh:i386"
        )

    async def test_one_question_answers_for_all(self) -> None:
        host = Host()
        host.runner.when("dpkg-query", stdout="zsh 5.9-8 amd64 installed\n", code=1)

        found = await host.apt.look_ahead([wanted(), wanted("nano"), wanted()])

        assert [one.ensure if one else None for one in found] == ["5.9-8", "absent", "5.9-8"]
        assert host.asked == [("dpkg-query", "-W", FORMAT, "--", "nano", "zsh")]


class TestChanges:
    @pytest.mark.parametrize("verb", ["install", "upgrade"])
    @pytest.mark.parametrize(
        ("version", "commands"),
        [
            pytest.param(
                "present", [("apt-get", "install", "-y", "-q", *CONFOLD, "--", "zsh")], id="any version"
            ),
            pytest.param(
                "latest",
                [
                    ("apt-cache", "policy", "--", "zsh"),
                    ("apt-get", "install", "-y", "-q", *CONFOLD, "--", "zsh=5.9-8+b18"),
                ],
                id="the latest is asked for, and never downgraded to",
            ),
            pytest.param(
                "5.9-1",
                [("apt-get", "install", "-y", "-q", *CONFOLD, "--allow-downgrades", "--", "zsh=5.9-1")],
                id="a version, up or down",
            ),
        ],
    )
    async def test_installing_is_one_command(
        self, verb: str, version: str, commands: list[tuple[str, ...]]
    ) -> None:
        host = Host()
        host.runner.when("apt-cache", "policy", stdout=POLICY)
        host.runner.when("apt-get")

        await getattr(host.apt, verb)("zsh", version)

        assert (host.asked, host.locks.held) == (commands, ["package"])

    async def test_a_downgrade_is_an_install_of_a_version(self) -> None:
        host = Host()
        host.runner.when("apt-get")

        await host.apt.downgrade("zsh", "5.8-1")

        assert host.asked == [
            ("apt-get", "install", "-y", "-q", *CONFOLD, "--allow-downgrades", "--", "zsh=5.8-1")
        ]

    async def test_removing_keeps_configuration_files(self) -> None:
        host = Host()
        host.runner.when("apt-get")

        await host.apt.uninstall("zsh")

        assert (host.asked, host.locks.held) == (
            [("apt-get", "-q", "-y", *CONFOLD, "remove", "--", "zsh")],
            ["package"],
        )

    @pytest.mark.parametrize(
        ("variable", "value"),
        [
            ("DEBIAN_FRONTEND", "noninteractive"),
            ("APT_LISTBUGS_FRONTEND", "none"),
            ("APT_LISTCHANGES_FRONTEND", "none"),
            ("NEEDRESTART_MODE", "a"),
            ("UCF_FORCE_CONFFOLD", "1"),
            ("LC_ALL", "C.UTF-8"),
        ],
    )
    async def test_the_environment_disables_prompts(self, variable: str, value: str) -> None:
        host = Host()
        host.runner.when("dpkg-query")
        host.runner.when("apt-get")

        await host.apt.status(wanted())
        await host.apt.install("zsh", "present")

        assert [command.env[variable] for command in host.runner.commands] == [value, value]


class TestFailures:
    async def test_missing_candidate_is_reported_and_nothing_is_installed(self) -> None:
        host = Host()
        host.runner.when("apt-cache", "policy", stdout="zsh:\n  Installed: (none)\n  Candidate: (none)\n")

        with pytest.raises(CommandError, match="no version of zsh can be installed: apt has no candidate"):
            await host.apt.install("zsh", "latest")

        assert len(host.asked) == 1

    async def test_an_ordinary_user_is_told_that_root_is_needed(self) -> None:
        host = Host()
        # apt 2.6 run by an ordinary user, Debian 12, 2026-11
        host.runner.when(
            "apt-get",
            code=100,
            stderr="E: Could not open lock file /var/lib/dpkg/lock-frontend - open (13: Permission denied)\n"
            "E: Unable to acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend), are you root?\n",
        )

        with pytest.raises(CommandError) as caught:
            await host.apt.install("zsh", "present")

        assert caught.value.message == (
            "could not install zsh: only root can change packages; run it as root, for example with sudo"
        )

    async def test_a_lock_of_another_owner_is_waited_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(package_tool, "LOCK_RETRY_S", 0.0)
        host = Host()
        host.runner.when("apt-get", code=100, stderr=LOCKED)
        host.runner.when("apt-get")

        await host.apt.install("zsh", "present")

        assert len(host.asked) == 2

    async def test_lock_that_is_not_released_is_reported_with_its_holder(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(package_tool, "LOCK_WAIT_S", 0.0)
        host = Host()
        host.runner.when("apt-get", code=100, stderr=LOCKED)

        with pytest.raises(LockError, match=r"the package database is in use .* process 4242 \(apt-get\)"):
            await host.apt.install("zsh", "present")

    async def test_failure_shows_the_last_lines_of_apt(self) -> None:
        host = Host()
        host.runner.when("apt-get", code=100, stderr="E: Unable to locate package zsh\n")

        with pytest.raises(CommandError) as caught:
            await host.apt.install("zsh", "present")

        assert caught.value.message == (
            "could not install zsh: exit status 100: E: Unable to locate package zsh"
        )

    async def test_a_hanging_command_is_killed_and_named(self) -> None:
        host = Host()
        host.runner.when("apt-get", hangs=True, stdout="Setting up zsh ...\n")

        with pytest.raises(
            CommandError, match="ran for 1800 s and was killed because it hung; its last output: Setting up"
        ):
            await host.apt.install("zsh", "present")

    @pytest.mark.parametrize("name", ["zsh-", "zsh+", "z.h"])
    async def test_a_name_that_apt_would_read_as_something_else_is_looked_up_first(self, name: str) -> None:
        host = Host()
        host.runner.when("apt-cache", "show", stdout="Package: zsh\n")

        with pytest.raises(PropertyError, match=r"apt has no package named"):
            await host.apt.install(name, "present")

        assert host.asked == [("apt-cache", "show", "--no-all-versions", "--", name)]

    async def test_a_name_with_a_dot_that_exists_is_installed(self) -> None:
        host = Host()
        host.runner.when("apt-cache", "show", stdout="Package: python3.11\nVersion: 3.11.2\n")
        host.runner.when("apt-get")

        await host.apt.install("python3.11", "present")

        assert host.asked[1][-1] == "python3.11"


async def test_every_command_is_bounded() -> None:
    host = Host()
    host.runner.when("dpkg-query")
    host.runner.when("apt-get")

    await host.apt.status(wanted())
    await host.apt.install("zsh", "present")

    def limit(command: Command) -> float:
        return command.time_limit_s

    assert list(map(limit, host.runner.commands)) == [120.0, 1800.0]
