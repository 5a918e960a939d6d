"""Commands that run on rendered files: when, where, how, and what is remembered of it."""

import errno
import os
import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from ccm_agent.model.errors import FileError
from ccm_agent.model.outcome import TransactionEvent
from tests.support.scaffold import TARGET, Host

SED = [{"*.conf": "sed -i s/world/WORLD/ {}"}]
TWO = {"a.conf": "name = [[ data.name ]]\n", "sub/b.conf": "nested [[ data.name ]]\n"}
ALTERED = {"a.conf": "name = WORLD\n", "sub/b.conf": "nested WORLD\n"}


def sed(host: Host) -> None:
    host.runner.when("sed", effect=host.alters("world", "WORLD"))


def outcomes(events: list[TransactionEvent]) -> list[str]:
    return [event.outcome.value for event in events]


def short(host: Host) -> list[str]:
    """What was run, with the name of the workshop left out."""
    return [re.sub("/tmp/ccm-[0-9a-f]{32}/", "…/", line) for line in host.runner.lines]


class TestOnceForEachChange:
    async def test_a_command_runs_when_its_file_changes_and_at_no_other_time(self) -> None:
        host = Host(TWO)
        sed(host)
        runs = []

        events = []
        for noop in (True, False, False, True):
            events.append(await host.apply(noop=noop, post=SED))
            runs.append(len(host.runner.commands))

        assert outcomes(events) == ["changed", "changed", "stable", "stable"]
        assert runs == [0, 2, 2, 2]
        assert host.target == ALTERED
        assert events[0].noop_message == "Would have changed 2 scaffold files"

    async def test_only_the_file_that_changes_is_worked_on(self) -> None:
        host = Host(TWO)
        sed(host)
        await host.apply(post=SED)
        host.source("a.conf", "new [[ data.name ]]\n")

        event = await host.apply(post=SED)

        assert (event.outcome.value, short(host)[2:]) == ("changed", ["sed -i s/world/WORLD/ …/1/a.conf"])
        assert host.target == {**ALTERED, "a.conf": "new WORLD\n"}

    async def test_drift_of_an_altered_file_is_repaired(self) -> None:
        host = Host(TWO)
        sed(host)
        await host.apply(post=SED)
        host.put("a.conf", "name = world\n")  # as rendered, but not as it is to be

        events = [await host.apply(noop=noop, post=SED) for noop in (True, False, False)]

        assert outcomes(events) == ["changed", "changed", "stable"]
        assert (host.target, len(host.runner.commands)) == (ALTERED, 3)

    @pytest.mark.parametrize(
        "post",
        [
            pytest.param([{"*.conf": "sed -i s/world/WORLD/g {}"}], id="another command"),
            pytest.param([*SED, {"a*": "sed -i s/x/y/ {}"}], id="one more command"),
            pytest.param([], id="no command"),
        ],
    )
    async def test_other_commands_are_a_change(self, post: list[dict[str, str]]) -> None:
        host = Host(TWO)
        sed(host)
        await host.apply(post=SED)

        events = [await host.apply(post=post), await host.apply(post=post)]

        assert outcomes(events) == ["changed", "stable"]

    async def test_a_command_that_came_later_runs_on_files_that_exist(self) -> None:
        host = Host({"run.sh": "#!/bin/sh\n"})
        host.runner.when("chmod")
        await host.apply()

        events = [await host.apply(post=[{"*.sh": "chmod 0755 {}"}]) for _ in range(2)]

        assert (outcomes(events), len(host.runner.commands)) == (["changed", "stable"], 1)

    async def test_without_memory_it_runs_once_more(self) -> None:
        host = Host(TWO)
        sed(host)
        await host.apply(post=SED)
        host.port("records").documents.clear()

        events = [await host.apply(post=SED), await host.apply(post=SED)]

        assert (outcomes(events), len(host.runner.commands)) == (["changed", "stable"], 4)

    async def test_no_command_runs_for_removed_files(self) -> None:
        host = Host(TWO)
        host.put("a.conf", "x")

        event = await host.apply(ensure="absent", post=SED)

        assert (event.outcome.value, host.runner.commands, TARGET in host.files.nodes) == (
            "changed",
            [],
            False,
        )

    async def test_no_command_runs_for_skipped_files(self) -> None:
        host = Host({"a": "\n", "b": "b"})

        event = await host.apply(post=[{"a": "false"}], skip_empty=True)

        assert (event.outcome.value, host.target) == ("changed", {"b": "b"})

    async def test_a_command_runs_for_files_that_a_template_writes(self) -> None:
        host = Host({"a": '[[ write("x.conf", "world") ]]'})
        sed(host)

        await host.apply(post=SED)

        assert host.target == {"a": "", "x.conf": "WORLD"}


class TestHow:
    async def test_commands_run_in_order_on_the_previous_result(self) -> None:
        host = Host({"a.conf": "one"})
        host.runner.when("first", effect=host.alters("one", "two"))
        host.runner.when("second", effect=host.alters("two", "three"))

        await host.apply(post=[{"*.conf": "first {}"}, {"a*": "second {}"}, {"b*": "third {}"}])

        assert (short(host), host.target) == (["first …/1/a.conf", "second …/1/a.conf"], {"a.conf": "three"})

    @pytest.mark.parametrize(
        ("command", "line"),
        [
            ("tool {}", "tool …/1/d/a.conf"),
            ("tool -x", "tool -x …/1/d/a.conf"),
            ("tool '--in={}' out", "tool --in=…/1/d/a.conf out"),
            ("tool 'two words' {}", "tool two words …/1/d/a.conf"),
            ("{} -x", "{} -x …/1/d/a.conf"),
        ],
    )
    async def test_the_file_takes_the_place_of_the_braces_or_the_last_one(
        self, command: str, line: str
    ) -> None:
        host = Host({"d/a.conf": "x"})
        host.runner.when("tool")
        host.runner.when("{}")

        await host.apply(post=[{"a.conf": command}])

        assert short(host) == [line]

    async def test_commands_do_not_see_our_environment(self) -> None:
        host = Host({"a": "x"})
        host.environ |= {
            "NATS_PASSWORD": "hidden",
            "CCM_CREDS": "/hidden",
            "NOTIFY_SOCKET": "/run/systemd/notify",
        }
        host.environ |= {"NATSUME": "kept"}
        host.runner.when("tool")

        await host.apply(post=[{"a": "tool"}])

        (run,) = host.runner.commands
        assert run.env == {"LC_ALL": "", "PATH": "/bin", "APP_ENV": "prod", "NATSUME": "kept"}

    async def test_they_see_our_environment_and_stand_where_we_do(self) -> None:
        host = Host({"a": "x"})
        host.runner.when("tool")

        await host.apply(post=[{"a": "tool"}])

        (run,) = host.runner.commands
        assert (run.env, run.search_path, run.stdin) == (
            {"LC_ALL": "", "PATH": "/bin", "APP_ENV": "prod"},
            "/bin",
            None,
        )
        assert run.cwd.startswith("/")

    @pytest.mark.parametrize(("mode", "uid"), [(0o777, 0), (0o770, 0), (0o755, 1), (0o1777, 1)])
    async def test_a_directory_that_other_users_can_move_is_refused(self, mode: int, uid: int) -> None:
        host = Host({"a": "x"})
        host.environ["TMPDIR"] = "/shared"
        host.files.put_directory("/shared", mode=mode, uid=uid)

        event = await host.apply(post=[{"a": "tool"}])

        assert event.error == [
            "TMPDIR /shared: other users can move its content; use a directory such as /tmp"
        ]
        assert host.runner.commands == []

    @pytest.mark.parametrize(
        ("tmpdir", "start"), [("/var/tmp", "/var/tmp/ccm-"), ("here", "/tmp/ccm-"), ("", "/tmp/ccm-")]
    )
    async def test_they_work_in_a_directory_that_only_we_may_enter(self, tmpdir: str, start: str) -> None:
        host = Host({"a": "x"})
        host.environ["TMPDIR"] = tmpdir
        modes: list[int] = []

        def look() -> None:
            staged = host.runner.commands[-1].argv[-1]
            assert staged.startswith(start)
            modes.append(host.files.nodes["/".join(staged.split("/")[:-2])].mode)

        host.runner.when("tool", effect=look)

        await host.apply(post=[{"a": "tool"}])

        assert modes == [0o700]
        assert not any("/ccm-" in path for path in host.files.nodes)

    async def test_mode_and_owner_that_a_command_sets_are_kept_but_no_setuid(self) -> None:
        host = Host({"run.sh": "x", "b.sh": "x"})
        other_uid, other_gid = os.geteuid() + 1, os.getegid() + 1

        def change() -> None:
            node = host.files.nodes[host.runner.commands[-1].argv[-1]]
            node.mode, node.uid, node.gid = 0o4750, other_uid, other_gid

        host.runner.when("chown", effect=change)

        await host.apply(post=[{"run.sh": "chown"}])

        node = host.files.nodes["/out/run.sh"]
        assert (node.mode, node.uid, node.gid) == (0o750, other_uid, other_gid)
        assert host.files.nodes["/out/b.sh"].mode == 0o644

    async def test_mode_drift_is_not_noticed(self) -> None:
        host = Host({"run.sh": "x"})
        host.runner.when("chmod")
        await host.apply(post=[{"*.sh": "chmod 0755 {}"}])
        host.files.nodes["/out/run.sh"].mode = 0o600

        event = await host.apply(post=[{"*.sh": "chmod 0755 {}"}])

        assert (event.outcome.value, len(host.runner.commands)) == ("stable", 1)


def makes(host: Host, *names: str, removes: bool = False) -> Callable[[], None]:
    """The effect of a command that makes files beside its own, and perhaps removes that."""

    def work() -> None:
        staged = host.runner.commands[-1].argv[-1]
        for name in names:
            host.files.put(f"{staged.rpartition('/')[0]}/{name}", "made")
        if removes:
            del host.files.nodes[staged]

    return work


class TestWhatIsMade:
    async def test_a_command_may_remove_its_file(self) -> None:
        host = Host({"a": "a", "b": "b"})
        host.runner.when("rm", effect=makes(host, removes=True))

        events = [await host.apply(post=[{"a": "rm {}"}]) for _ in range(2)]

        assert (outcomes(events), host.target) == (["changed", "stable"], {"b": "b"})
        assert events[0].status.metadata.stable == ["/out/b"]

    async def test_files_that_a_command_creates_belong_to_the_scaffold(self) -> None:
        host = Host({"d/a": "a"})
        host.runner.when("gzip", effect=makes(host, "a.gz", removes=True))
        post = [{"a": "gzip {}"}]

        events = [await host.apply(post=post, purge=True) for _ in range(2)]
        assert (outcomes(events), host.target) == (["changed", "stable"], {"d/a.gz": "made"})

        host.put("d/a.gz", "altered")
        events = [await host.apply(post=post, purge=True) for _ in range(2)]
        assert (outcomes(events), host.target) == (["changed", "stable"], {"d/a.gz": "made"})

        event = await host.apply(ensure="absent", post=post)
        assert (event.outcome.value, TARGET in host.files.nodes) == ("changed", False)

    async def test_files_that_a_command_no_longer_creates_are_unmanaged(self) -> None:
        host = Host({"a": "a"})
        host.runner.when("gzip", effect=makes(host, "a.gz"))
        await host.apply(post=[{"a": "gzip {}"}])

        event = await host.apply()

        assert (event.outcome.value, event.status.metadata.purged) == ("stable", ["/out/a.gz"])

    async def test_a_symlink_that_a_command_makes_is_not_taken_along(self) -> None:
        host = Host({"a": "a"})
        host.runner.when(
            "ln",
            effect=lambda: host.files.put_symlink(f"{host.runner.commands[-1].argv[-1]}.link", "/etc/shadow"),
        )

        await host.apply(post=[{"a": "ln"}])

        assert host.target == {"a": "a"}


class TestFailures:
    async def test_failing_command_changes_no_file(self) -> None:
        host = Host({"a": "a", "b": "b"})
        host.put("a", "old")
        host.runner.when("false", code=1)

        event = await host.apply(post=[{"b": "false {}"}], purge=True)

        assert (event.outcome.value, event.code, event.error) == (
            "failed",
            "host.command",
            ["b: the post command `false {}` ended with exit status 1"],
        )
        assert host.target == {"a": "old"}
        assert not any("/ccm-" in path for path in host.files.nodes)

    async def test_one_that_is_ended_by_a_signal_fails(self) -> None:
        host = Host({"a": "a"})
        host.runner.when("tool", code=-9)

        event = await host.apply(post=[{"a": "tool"}])

        assert event.error == ["a: the post command `tool` was killed by signal 9"]

    @pytest.mark.parametrize(
        ("given", "limit_s", "shown"), [("", 15 * 60.0, "15m"), ("90s", 90.0, "90s"), ("2m", 120.0, "2m")]
    )
    async def test_hanging_command_is_killed_and_no_file_changes(
        self, given: str, limit_s: float, shown: str
    ) -> None:
        host = Host({"a": "a", "b": "a secret line\n"})
        host.put("a", "old")
        host.runner.when("tool", stdout="waiting\na secret line\n", hangs=True)

        event = await host.apply(post=[{"b": "tool --wait"}], timeout=given)

        assert (event.outcome.value, event.code, event.error) == (
            "failed",
            "host.command",
            [f"b: the post command `tool --wait` took longer than {shown} and was killed"],
        )
        assert [command.time_limit_s for command in host.runner.commands] == [limit_s]
        assert "waiting" in event.output
        assert "a secret line" not in event.output
        assert host.target == {"a": "old"}
        assert not any("/ccm-" in path for path in host.files.nodes)

    async def test_one_that_cannot_be_started_fails(self) -> None:
        host = Host({"a": "a"})
        host.runner.when("tool", error="tool: there is no such program")

        event = await host.apply(post=[{"a": "tool"}])

        assert event.error == ["a: the post command `tool` cannot be run: tool: there is no such program"]

    @pytest.mark.parametrize(
        ("rule", "message"),
        [
            ({"[": "chmod 0600 {}"}, "`[` in `post` is not a glob"),
            ({"*": "echo 'x {}"}, "quote"),
            ({"*": "\\\n"}, "a command in `post` is blank"),
        ],
    )
    async def test_an_invalid_glob_or_command_fails_under_noop_too(
        self, rule: dict[str, str], message: str
    ) -> None:
        host = Host({"a": "a"})

        for noop in (True, False):
            event = await host.apply(noop=noop, post=[rule])

            assert (event.outcome.value, message in event.error[0]) == ("failed", True)
        assert host.target == {}

    async def test_noop_reports_an_earlier_failure_on_the_same_content(self) -> None:
        host = Host({"a": "a", "b": "[[ data.name ]]"})
        host.runner.when("tool", code=1)
        host.runner.when("tool")
        post = [{"b": "tool"}]
        await host.apply(post=post)

        same = await host.apply(noop=True, post=post)
        host.data["name"] = "moon"
        other = await host.apply(noop=True, post=post)
        host.data["name"] = "world"
        again = await host.apply(post=post)
        after = await host.apply(noop=True, post=post)

        assert outcomes([same, other, again, after]) == ["failed", "changed", "changed", "stable"]
        assert same.error == [
            "a `post` command failed in an earlier run on the rendered /out/b, and noop does not run it: apply to try again"
        ]

    async def test_a_failure_does_not_forget_existing_content(self) -> None:
        host = Host(TWO)
        sed(host)
        await host.apply(post=SED)
        host.source("a.conf", "[[ data.name ]]!")
        host.runner.when("sed", "-i", code=1)
        await host.apply(post=SED)
        host.remove_source()

        event = await host.apply(ensure="absent", post=SED)

        assert (event.outcome.value, TARGET in host.files.nodes) == ("changed", False)

    async def test_a_workshop_that_cannot_be_made_fails_the_resource(self) -> None:
        host = Host({"a": "a"})

        async def refuse(*_: Any, **__: Any) -> None:
            raise FileError("/tmp/ccm: No space left on device", errno=errno.ENOSPC)

        host.files.set_attributes = refuse  # type: ignore[method-assign]

        event = await host.apply(post=[{"a": "tool"}])

        assert event.error == ["/tmp/ccm: No space left on device"]


class TestSecrets:
    async def test_a_commands_error_does_not_quote_rendered_content(self) -> None:
        host = Host(
            {"a": "user = app\n  password = [[ data.password ]]\n"},
            data={"password": "s3cret-word", "list": [{"token": "t0ken-word"}]},
        )
        output = "line 2: password = s3cret-word\nnear t0ken-word\nunexpected s3cret-word; check the manual\n"
        host.runner.when("check", code=2, stdout=output)

        event = await host.apply(post=[{"a": "check {}"}])

        assert event.output == "line 2: ***\nnear ***\nunexpected ***; check the manual\n"
        assert b"s3cret" not in msgspec.json.encode(event)

    async def test_the_data_of_the_resource_are_not_quoted_either(self) -> None:
        host = Host({"a": "x"})
        host.runner.when("check", code=2, stdout="says s3cret-word")

        event = await host.apply(post=[{"a": "check"}], data={"password": "s3cret-word"})

        assert event.output == "says ***"

    async def test_the_record_contains_only_digests(self) -> None:
        host = Host({"a.conf": "password = [[ data.password ]]\n"}, data={"password": "s3cret-word"})
        host.runner.when("sed", effect=host.alters("password", "secret"))

        await host.apply(post=SED)

        (document,) = host.port("records").documents.values()
        assert b"s3cret" not in document
        assert [*msgspec.json.decode(document)["made"]] == ["a.conf"]
