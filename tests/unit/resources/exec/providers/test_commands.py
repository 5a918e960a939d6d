"""Both providers, on runner and files that are fakes."""

from __future__ import annotations

import os
from typing import Any

import pytest

from ccm_agent.model.errors import CommandError
from ccm_agent.model.ports import Command
from ccm_agent.resources.exec.model import ExecProperties, ExecState, Execution
from ccm_agent.resources.exec.providers.posix import PosixExec
from ccm_agent.resources.exec.providers.shell import Shell
from ccm_agent.testing.files import FakeFiles
from ccm_agent.testing.runner import FakeRunner

KEPT = 16 * 1024


@pytest.fixture
def runner() -> FakeRunner:
    runner = FakeRunner()
    runner.when("true")
    runner.when("false", code=1)
    runner.when("/bin/sh", "-c", "true")
    runner.when("/bin/sh", "-c", "false", code=1)
    return runner


@pytest.fixture
def files() -> FakeFiles:
    return FakeFiles()


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture(params=[PosixExec, Shell])
def provider(
    request: pytest.FixtureRequest, runner: FakeRunner, files: FakeFiles, said: list[str]
) -> PosixExec | Shell:
    made: PosixExec | Shell = request.param(runner, files, lambda message, **fields: said.append(message))
    return made


def wanted(**properties: Any) -> ExecProperties:
    return ExecProperties(**{"name": "run", "ensure": "present", "command": "true", **properties})


def state(**satisfied: Any) -> ExecState:
    protocol = "io.choria.ccm.v1.resource.exec.state"
    return ExecState(protocol=protocol, type="exec", name="run", ensure="present", **satisfied)


class TestStatus:
    async def test_without_creates_and_guards_nothing_is_asked(
        self, provider: PosixExec | Shell, runner: FakeRunner, files: FakeFiles
    ) -> None:
        assert await provider.status(wanted()) == state()
        assert (runner.commands, files.looked_at) == ([], [])

    @pytest.mark.parametrize(
        ("path", "is_there"),
        [
            pytest.param("/file", True, id="a file"),
            pytest.param("/d", True, id="a directory"),
            pytest.param("/fifo", True, id="a FIFO"),
            pytest.param("/link", True, id="a symlink to something"),
            pytest.param("/dangling", False, id="a symlink to nothing"),
            pytest.param("/file/below", False, id="a path below a file"),
            pytest.param("/none", False, id="nothing"),
        ],
    )
    async def test_creates_is_looked_for(
        self, provider: PosixExec | Shell, files: FakeFiles, path: str, is_there: bool
    ) -> None:
        files.put("/file")
        files.put_directory("/d")
        files.put_fifo("/fifo")
        files.put_symlink("/link", "file")
        files.put_symlink("/dangling", "none")

        assert await provider.status(wanted(creates=path)) == state(creates_satisfied=is_there)

    async def test_a_relative_creates_is_below_the_current_directory(
        self, provider: PosixExec | Shell, files: FakeFiles
    ) -> None:
        files.put(f"{os.getcwd()}/made")

        assert await provider.status(wanted(creates="made")) == state(creates_satisfied=True)

    @pytest.mark.parametrize(
        ("guards", "satisfied"),
        [
            ({"onlyif": "true"}, {"onlyif_satisfied": True}),
            ({"onlyif": "false"}, {}),
            ({"unless": "true"}, {"unless_satisfied": True}),
            ({"unless": "false"}, {}),
            ({"onlyif": "true", "unless": "true"}, {"onlyif_satisfied": True, "unless_satisfied": True}),
        ],
    )
    async def test_guards_are_run(
        self, provider: PosixExec | Shell, guards: dict[str, str], satisfied: dict[str, bool]
    ) -> None:
        assert await provider.status(wanted(**guards)) == state(**satisfied)

    async def test_both_guards_run_even_where_creates_has_decided(
        self, provider: PosixExec | Shell, runner: FakeRunner, files: FakeFiles
    ) -> None:
        files.put("/made")

        await provider.status(wanted(creates="/made", onlyif="false", unless="false"))

        assert [command.argv[-1] for command in runner.commands] == ["false", "false"]

    @pytest.mark.parametrize(
        ("answer", "message"),
        [
            pytest.param(
                {"error": "guard: no such program in /bin"},
                "the guard in `onlyif` cannot be run: guard: no such program in /bin",
                id="it cannot be started",
            ),
            pytest.param({"code": -9}, "the guard in `onlyif` was killed by signal 9", id="it is killed"),
            pytest.param(
                {"hangs": True}, "the guard in `onlyif` took longer than 5s and was killed", id="it hangs"
            ),
        ],
    )
    async def test_a_guard_that_gives_no_answer_is_an_error(
        self, provider: PosixExec | Shell, runner: FakeRunner, answer: dict[str, Any], message: str
    ) -> None:
        runner.when("guard", **answer)
        runner.when("/bin/sh", "-c", "guard", **answer)

        with pytest.raises(CommandError) as caught:
            await provider.status(wanted(onlyif="guard", timeout="5s"))

        assert caught.value.message == message

    async def test_a_shell_without_the_guard_program_reports_false(
        self, runner: FakeRunner, files: FakeFiles
    ) -> None:
        runner.when("/bin/sh", "-c", "no-such-guard", code=127)

        assert await Shell(runner, files, print).status(wanted(onlyif="no-such-guard")) == state()

    async def test_an_invalid_command_line_as_guard_is_an_error_without_a_shell(
        self, runner: FakeRunner, files: FakeFiles
    ) -> None:
        posix = PosixExec(runner, files, print)

        with pytest.raises(CommandError) as open_quote:
            await posix.status(wanted(unless="echo 'x"))
        with pytest.raises(CommandError) as blank:
            await posix.status(wanted(onlyif=" "))

        assert open_quote.value.message == (
            "the guard in `unless` cannot be run: a single quote is not closed: echo 'x"
        )
        assert (
            blank.value.message
            == "the guard in `onlyif` cannot be run: there is no command: the line is blank"
        )


class TestLookingAhead:
    async def test_all_that_commands_make_is_looked_for_in_one_go(
        self, provider: PosixExec | Shell, runner: FakeRunner, files: FakeFiles
    ) -> None:
        files.put("/b")
        many = [wanted(creates="/a"), wanted(creates="/b"), wanted(), wanted(creates="/b", unless="true")]

        assert await provider.look_ahead(many) == [state(), state(creates_satisfied=True), state(), None]
        assert [sorted(paths) for paths in files.looked_at] == [["/a", "/b"]]
        assert runner.commands == []


class TestExecuting:
    async def test_posix_cuts_the_line_into_words(self, runner: FakeRunner, files: FakeFiles) -> None:
        runner.when("printf", stdout="out", stderr="err")

        done = await PosixExec(runner, files, print).execute(wanted(command="printf '%s' \"a b\" $HOME"))

        assert done == Execution(exitcode=0, output="outerr")
        assert runner.commands == [
            Command(argv=("printf", "%s", "a b", "$HOME"), output_limit_bytes=KEPT, merge_stderr=True)
        ]

    async def test_shell_gives_the_line_to_a_shell(self, runner: FakeRunner, files: FakeFiles) -> None:
        runner.when("/bin/sh", code=3)

        done = await Shell(runner, files, print).execute(wanted(command="echo 'x | cat > $Y"))

        assert done == Execution(exitcode=3)
        assert runner.commands == [
            Command(argv=("/bin/sh", "-c", "echo 'x | cat > $Y"), output_limit_bytes=KEPT, merge_stderr=True)
        ]

    async def test_the_name_is_the_default_command(
        self, provider: PosixExec | Shell, runner: FakeRunner
    ) -> None:
        await provider.execute(wanted(name="true", command=""))

        assert runner.commands[0].argv[-1] == "true"

    async def test_surroundings_are_as_the_properties_say(
        self, provider: PosixExec | Shell, runner: FakeRunner
    ) -> None:
        await provider.execute(
            wanted(cwd="/srv/app", path="/opt/bin:/bin", environment=["A=1", "B=x=y", "C="], timeout="1m")
        )

        command = runner.commands[0]
        assert command.cwd == "/srv/app"
        assert command.search_path == "/opt/bin:/bin"
        assert command.env == {"PATH": "/opt/bin:/bin", "A": "1", "B": "x=y", "C": ""}
        assert command.time_limit_s == 60.0

    async def test_a_path_in_the_environment_is_passed_to_the_command(
        self, provider: PosixExec | Shell, runner: FakeRunner
    ) -> None:
        await provider.execute(wanted(path="/opt/bin", environment=["PATH=/bin"]))

        assert (runner.commands[0].search_path, runner.commands[0].env) == ("/opt/bin", {"PATH": "/bin"})

    async def test_guards_have_the_same_surroundings(
        self, provider: PosixExec | Shell, runner: FakeRunner
    ) -> None:
        surroundings = {"cwd": "/srv", "path": "/opt", "environment": ["A=1"], "timeout": "5s"}

        await provider.status(wanted(onlyif="true", **surroundings))
        await provider.execute(wanted(**surroundings))

        guard, command = runner.commands
        assert guard == command

    async def test_a_relative_cwd_is_below_the_current_directory(
        self, provider: PosixExec | Shell, runner: FakeRunner
    ) -> None:
        await provider.execute(wanted(cwd="sub"))

        assert runner.commands[0].cwd == f"{os.getcwd()}/sub"

    async def test_output_is_logged_when_that_is_wanted(
        self, runner: FakeRunner, files: FakeFiles, said: list[str]
    ) -> None:
        runner.when("build", stdout="one\ntwo\n", stderr="bad\n")
        posix = PosixExec(runner, files, lambda message, **fields: said.append(message))

        quiet = await posix.execute(wanted(command="build"))
        assert said == []
        loud = await posix.execute(wanted(command="build", logoutput=True))

        assert said == ["one", "two"]
        assert quiet == loud == Execution(exitcode=0, output="one\ntwo\nbad\n")

    async def test_output_that_may_hold_secrets_is_neither_logged_nor_kept(
        self, runner: FakeRunner, files: FakeFiles, said: list[str]
    ) -> None:
        runner.when("build", stdout="one\n", stderr="bad\n")
        runner.when("guard", stdout="two", code=-9)
        posix = PosixExec(runner, files, lambda message, **fields: said.append(message))

        done = await posix.execute(wanted(command="build", logoutput=True, sensitive=True))
        with pytest.raises(CommandError) as caught:
            await posix.status(wanted(command="build", onlyif="guard", sensitive=True))

        assert (said, done, caught.value.output) == ([], Execution(exitcode=0), "")

    async def test_created_files_are_checked_afterwards(
        self, provider: PosixExec | Shell, runner: FakeRunner, files: FakeFiles
    ) -> None:
        runner.when("make", effect=lambda: files.put("/made"))
        runner.when("/bin/sh", "-c", "make", effect=lambda: files.put("/made"))

        done = await provider.execute(wanted(command="make", creates="/made"))

        assert done == Execution(exitcode=0, creates_satisfied=True)

    async def test_a_command_that_takes_too_long_is_reported_with_its_output(
        self, runner: FakeRunner, files: FakeFiles
    ) -> None:
        runner.when("slow", stdout="begun", hangs=True)

        done = await PosixExec(runner, files, print).execute(wanted(command="slow", timeout="1s"))

        assert done == Execution(exitcode=-15, output="begun", timed_out=True)

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("echo 'x", "a single quote is not closed: echo 'x"),
            ('echo "x', 'a double quote is not closed: echo "x'),
            ("  ", "there is no command: the line is blank"),
        ],
    )
    async def test_an_invalid_command_line_is_an_error_without_a_shell(
        self, runner: FakeRunner, files: FakeFiles, line: str, message: str
    ) -> None:
        with pytest.raises(CommandError) as caught:
            await PosixExec(runner, files, print).execute(wanted(command=line))

        assert caught.value.message == message

    async def test_error_about_a_changed_template_variable_does_not_show_its_value(
        self, provider: PosixExec | Shell
    ) -> None:
        with pytest.raises(CommandError) as caught:
            await provider.execute(wanted(environment=["hunter2"]))

        assert caught.value.message == "a template produced an environment variable that is not NAME=value"
