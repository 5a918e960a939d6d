"""What systemctl is asked and told, and what its answers mean."""

from __future__ import annotations

import pytest

from ccm_agent.model.errors import CommandError
from ccm_agent.resources.service.model import ServiceMetadata, ServiceProperties, ServiceState
from ccm_agent.resources.service.providers.systemd import PROPERTIES, Systemd
from ccm_agent.testing.locks import FakeLocks
from ccm_agent.testing.runner import FakeRunner

SHOW = ("systemctl", "show", "--system", f"--property={PROPERTIES}", "--")


AMBIGUOUS = "generated"
"""A word of `systemctl show` that is-enabled may answer otherwise."""


class Host:
    """systemd on a host that answers what it is told to."""

    def __init__(self) -> None:
        self.runner = FakeRunner()
        self.locks = FakeLocks()
        self.systemd = Systemd(self.runner, self.locks)

    def knows(self, *units: str) -> None:
        """Answer `systemctl show`."""
        self.runner.when("systemctl", "show", stdout="\n".join(units))

    @property
    def asked(self) -> list[str]:
        return [" ".join(command.argv[1:]) for command in self.runner.commands]


def wanted(name: str = "httpd") -> ServiceProperties:
    return ServiceProperties(name=name, ensure="running")


def unit(
    name: str = "httpd",
    *,
    active: str = "active",
    sub: str = "running",
    file: str = "enabled",
    load: str = "loaded",
    reload: str = "no",
) -> str:
    """What `systemctl show` says of a unit; systemd 252, Debian 12."""
    return (
        f"Id={name}.service\nLoadState={load}\nActiveState={active}\nSubState={sub}\nUnitFileState={file}\n"
        f"NeedDaemonReload={reload}\n"
    )


def state(running: bool, enabled: bool, name: str = "httpd") -> ServiceState:
    return ServiceState(
        protocol="io.choria.ccm.v1.resource.service.state",
        type="service",
        name=name,
        ensure="running" if running else "stopped",
        metadata=ServiceMetadata(name=name, provider="systemd", enabled=enabled, running=running),
    )


class TestStatus:
    async def test_one_question_answers_when_nothing_is_ambiguous(self) -> None:
        host = Host()
        host.knows(unit(active="failed", sub="failed"))

        assert await host.systemd.status(wanted()) == state(False, True)
        assert host.asked == [" ".join((*SHOW, "httpd"))[len("systemctl ") :]]

    async def test_a_service_that_was_enabled_is_asked_for_that(self) -> None:
        """`systemctl show` would tell the state from before."""
        host = Host()
        host.runner.when("systemctl", "enable")
        host.knows(unit(file="disabled"))
        host.runner.when("systemctl", "is-enabled", stdout="enabled\n")

        await host.systemd.enable("httpd")

        assert await host.systemd.status(wanted()) == state(True, True)
        assert [line.split()[0] for line in host.asked] == ["enable", "show", "is-enabled"]

    @pytest.mark.parametrize(
        ("word", "running"),
        [("active", True), ("inactive", False), ("failed", False), ("activating", False)],
    )
    async def test_is_active_reports_whether_it_runs(self, word: str, running: bool) -> None:
        host = Host()
        host.knows(unit(sub="start", file=AMBIGUOUS))
        host.runner.when("systemctl", "is-active", stdout=f"{word}\n", code=0 if running else 3)
        host.runner.when("systemctl", "is-enabled", stdout="enabled\n")

        assert await host.systemd.status(wanted()) == state(running, True)
        assert "is-active --system -- httpd" in host.asked

    @pytest.mark.parametrize("word", ["deactivating", "reloading", "maintenance", "unknown", ""])
    async def test_unknown_running_state_is_an_error(self, word: str) -> None:
        host = Host()
        host.knows(unit(file=AMBIGUOUS))
        host.runner.when("systemctl", "is-active", stdout=f"{word}\n", code=3)

        with pytest.raises(CommandError, match=f"invalid systemctl is-active output: '{word}'"):
            await host.systemd.status(wanted())

    @pytest.mark.parametrize(
        ("word", "enabled"),
        [
            ("enabled", True),
            ("enabled-runtime", True),
            ("alias", True),
            ("static", True),
            ("indirect", True),
            ("generated", True),
            ("transient", True),
            ("linked", False),
            ("linked-runtime", False),
            ("masked", False),
            ("masked-runtime", False),
            ("disabled", False),
        ],
    )
    async def test_is_enabled_reports_whether_it_starts_at_boot(self, word: str, enabled: bool) -> None:
        host = Host()
        host.knows(unit(file=AMBIGUOUS))
        host.runner.when("systemctl", "is-active", stdout="active\n")
        host.runner.when("systemctl", "is-enabled", stdout=f"{word}\n", code=0 if enabled else 1)

        assert await host.systemd.status(wanted()) == state(True, enabled)
        assert host.asked[-1] == "is-enabled --system -- httpd"

    @pytest.mark.parametrize(
        ("stdout", "stderr"),
        [
            pytest.param("not-found\n", "", id="not-found, systemd 254"),
            pytest.param(
                "",
                "Failed to get unit file state for httpd.service: No such file or directory\n",
                id="no word, systemd 252",
            ),
        ],
    )
    async def test_a_unit_that_is_missing_is_named(self, stdout: str, stderr: str) -> None:
        host = Host()
        host.knows(unit(active="inactive", load="not-found", file=""))
        host.runner.when("systemctl", "is-active", stdout="inactive\n", code=4)
        host.runner.when("systemctl", "is-enabled", stdout=stdout, stderr=stderr, code=1)

        with pytest.raises(CommandError) as caught:
            await host.systemd.status(wanted())

        assert caught.value.message == "service httpd not found: systemd has no unit of that name"

    async def test_unknown_boot_state_is_an_error(self) -> None:
        host = Host()
        host.knows(unit(file=AMBIGUOUS))
        host.runner.when("systemctl", "is-active", stdout="active\n")
        host.runner.when("systemctl", "is-enabled", stdout="bad\n", code=1)

        with pytest.raises(CommandError, match="invalid systemctl is-enabled output: 'bad'"):
            await host.systemd.status(wanted())

    async def test_a_unit_that_waits_for_its_restart_runs(self) -> None:
        host = Host()
        host.knows(unit(active="activating", sub="auto-restart"))
        host.runner.when("systemctl", "is-active", stdout="activating\n", code=3)
        host.runner.when("systemctl", "is-enabled", stdout="enabled\n")

        assert await host.systemd.status(wanted()) == state(True, True)

    async def test_units_are_read_again_where_their_files_are_newer(self) -> None:
        host = Host()
        host.knows(unit(reload="yes"))
        host.runner.when("systemctl", "daemon-reload")
        host.runner.when("systemctl", "is-active", stdout="active\n")
        host.runner.when("systemctl", "is-enabled", stdout="enabled\n")

        await host.systemd.status(wanted())

        assert [line.split()[0] for line in host.asked] == [
            "show",
            "daemon-reload",
            "is-active",
            "is-enabled",
        ]
        assert host.locks.held == ["service"]


class TestLookAhead:
    async def test_one_question_answers_for_all(self) -> None:
        host = Host()
        host.knows(unit("a"), unit("b", active="failed", sub="failed", file="disabled"))

        found = await host.systemd.look_ahead([wanted("a"), wanted("b")])

        assert list(found) == [state(True, True, "a"), state(False, False, "b")]
        assert host.asked == [" ".join((*SHOW, "a", "b"))[len("systemctl ") :]]

    @pytest.mark.parametrize(
        "shown",
        [
            pytest.param(unit(file=AMBIGUOUS), id="a word that is-enabled may answer otherwise"),
            pytest.param(unit(load="not-found", file=""), id="not there"),
            pytest.param(unit("other"), id="an alias of another unit"),
            pytest.param(unit(active="deactivating"), id="being stopped"),
        ],
    )
    async def test_an_ambiguous_answer_leads_to_a_closer_query(self, shown: str) -> None:
        host = Host()
        host.knows(shown)

        assert list(await host.systemd.look_ahead([wanted()])) == [None]

    async def test_units_are_read_again_once_for_all(self) -> None:
        host = Host()
        host.knows(unit("a", reload="yes"), unit("b", reload="yes"))
        host.knows(unit("a"), unit("b"))
        host.runner.when("systemctl", "daemon-reload")

        found = await host.systemd.look_ahead([wanted("a"), wanted("b")])

        assert [one is not None for one in found] == [True, True]
        assert [line.split()[0] for line in host.asked] == ["show", "daemon-reload", "show"]

    async def test_an_answer_about_fewer_units_is_rejected(self) -> None:
        host = Host()
        host.knows(unit("a"))

        assert list(await host.systemd.look_ahead([wanted("a"), wanted("b")])) == [None, None]


class TestLookAfter:
    async def test_one_question_verifies_a_change_and_answers_for_the_next_service(self) -> None:
        host = Host()
        for verb in ("start", "enable"):
            host.runner.when("systemctl", verb)
        host.knows(unit("a"), unit("b", active="inactive", sub="dead", file="disabled"))

        await host.systemd.start("a")
        await host.systemd.enable("a")
        found = await host.systemd.look_after(wanted("a"), wanted("b"))

        assert found == (state(True, True, "a"), state(False, False, "b"))
        assert host.asked[2:] == [" ".join((*SHOW, "a", "b"))[len("systemctl ") :]]

    @pytest.mark.parametrize(("verb", "stale"), [("enable", "disabled"), ("disable", "enabled")])
    async def test_an_earlier_word_of_show_is_not_trusted_after_a_change(self, verb: str, stale: str) -> None:
        host = Host()
        host.runner.when("systemctl", verb)
        host.knows(unit("a", file=stale), unit("b"))
        host.runner.when("systemctl", "is-enabled", stdout=f"{verb}d\n")

        await getattr(host.systemd, verb)("a")
        changed, _ = await host.systemd.look_after(wanted("a"), wanted("b"))

        assert changed == state(True, verb == "enable", "a")
        assert [line.split()[0] for line in host.asked] == [verb, "show", "is-enabled"]

    async def test_the_new_word_of_show_is_not_trusted_after_a_command_that_failed(self) -> None:
        host = Host()
        host.runner.when("systemctl", "enable", code=1)
        host.knows(unit("a", file="enabled"), unit("b"))
        host.runner.when("systemctl", "is-enabled", stdout="disabled\n", code=1)

        await host.systemd.enable("a")
        changed, _ = await host.systemd.look_after(wanted("a"), wanted("b"))

        assert changed == state(True, False, "a")

    async def test_the_new_word_of_show_is_not_trusted_after_two_commands(self) -> None:
        host = Host()
        for verb in ("disable", "enable"):
            host.runner.when("systemctl", verb)
        host.knows(unit("a", file="enabled"), unit("b"))
        host.runner.when("systemctl", "is-enabled", stdout="disabled\n", code=1)

        await host.systemd.disable("a")
        await host.systemd.enable("a")
        changed, _ = await host.systemd.look_after(wanted("a"), wanted("b"))

        assert changed == state(True, False, "a")

    @pytest.mark.parametrize(
        "shown",
        [
            pytest.param([unit("a"), unit("b", file=AMBIGUOUS)], id="ambiguous"),
            pytest.param([unit("a"), unit("other")], id="an alias"),
            pytest.param([unit("a"), unit("b", reload="yes")], id="its file is newer"),
            pytest.param([unit("a", reload="yes"), unit("b")], id="the file of the changed one is newer"),
            pytest.param([unit("a")], id="one answer for two"),
        ],
    )
    async def test_the_next_service_is_asked_in_its_turn_when_the_answer_is_not_sufficient(
        self, shown: list[str]
    ) -> None:
        host = Host()
        host.knows(*shown)
        host.runner.when("systemctl", "daemon-reload")
        host.runner.when("systemctl", "is-active", stdout="active\n")
        host.runner.when("systemctl", "is-enabled", stdout="enabled\n")

        found = await host.systemd.look_after(wanted("a"), wanted("b"))

        assert found == (state(True, True, "a"), None)

    async def test_a_next_service_that_was_enabled_before_is_asked_in_its_turn(self) -> None:
        host = Host()
        host.runner.when("systemctl", "enable")
        host.knows(unit("a"), unit("b"))

        await host.systemd.enable("b")

        assert await host.systemd.look_after(wanted("a"), wanted("b")) == (state(True, True, "a"), None)


class TestChanges:
    @pytest.mark.parametrize("verb", ["start", "stop", "restart", "enable", "disable"])
    async def test_each_verb_is_one_command_for_the_system(self, verb: str) -> None:
        host = Host()
        host.runner.when("systemctl", verb)

        await getattr(host.systemd, verb)("httpd")

        options = "--system --no-reload" if verb in ("enable", "disable") else "--system"
        assert (host.asked, host.locks.held) == ([f"{verb} {options} -- httpd"], ["service"])

    async def test_systemd_reads_once_which_services_are_enabled(self) -> None:
        host = Host()
        for verb in ("enable", "disable", "start", "daemon-reload"):
            host.runner.when("systemctl", verb)

        await host.systemd.start("a")
        await host.systemd.finish()
        before = len(host.asked)
        await host.systemd.enable("a")
        await host.systemd.disable("b")
        await host.systemd.finish()
        await host.systemd.finish()

        assert before == 1
        assert [line.split()[0] for line in host.asked[1:]] == ["enable", "disable", "daemon-reload"]

    async def test_a_service_that_was_disabled_is_not_looked_at_before_systemd_has_read_that(self) -> None:
        host = Host()
        for verb in ("disable", "daemon-reload"):
            host.runner.when("systemctl", verb)
        host.knows(unit("b"))
        host.knows(unit("a"))

        await host.systemd.disable("a")
        await host.systemd.look_ahead([wanted("b")])
        await host.systemd.look_ahead([wanted("a")])

        assert [line.split()[0] for line in host.asked] == ["disable", "show", "daemon-reload", "show"]

    async def test_a_warning_of_a_verb_is_in_the_next_state(self) -> None:
        host = Host()
        host.runner.when("systemctl", "start", code=1, stderr="Unit httpd.service is masked.\n")
        host.knows(unit(active="inactive", sub="dead", load="masked", file="masked"))

        await host.systemd.start("httpd")
        (found,) = await host.systemd.look_ahead([wanted()])

        assert found is not None
        assert found.metadata.said == "Unit httpd.service is masked."

    async def test_a_verb_that_hangs_is_ended_and_named(self) -> None:
        host = Host()
        host.runner.when("systemctl", "stop", hangs=True)

        with pytest.raises(CommandError, match="`systemctl stop httpd` ran for 900 s and was killed"):
            await host.systemd.stop("httpd")
