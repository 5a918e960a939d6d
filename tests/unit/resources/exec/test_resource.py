"""Every row of the exec type's decision table, every end of a command, and every property it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET

from ccm_agent.model.errors import CommandError, PropertyError
from ccm_agent.resources.contract import DecisionContext
from ccm_agent.resources.exec import TYPE
from ccm_agent.resources.exec.model import ExecProperties, ExecState, Execution
from ccm_agent.resources.exec.resource import check, check_in_manifest, decide, judge
from tests.support.resources import manage

EXECUTE = "Would have executed"
REFRESH = "Would have executed via subscribe"
PROTOCOL = "io.choria.ccm.v1.resource.exec.state"


def wanted(**properties: Any) -> ExecProperties:
    return ExecProperties(**{"name": "run", "ensure": "present", "command": "/bin/do", **properties})


def state(**satisfied: Any) -> ExecState:
    return ExecState(protocol=PROTOCOL, type="exec", name="run", ensure="present", **satisfied)


@pytest.mark.parametrize(
    ("properties", "found", "steps"),
    [
        pytest.param({}, {}, [EXECUTE], id="nothing keeps it from running"),
        pytest.param({"ensure": "absent"}, {}, [EXECUTE], id="ensure has no say"),
        pytest.param({"creates": "/made"}, {}, [EXECUTE], id="creates is missing"),
        pytest.param({"creates": "/made"}, {"creates_satisfied": True}, [], id="creates is there"),
        pytest.param({"onlyif": "yes"}, {"onlyif_satisfied": True}, [EXECUTE], id="onlyif exits with 0"),
        pytest.param({"onlyif": "no"}, {}, [], id="onlyif exits otherwise"),
        pytest.param({"unless": "no"}, {}, [EXECUTE], id="unless exits otherwise"),
        pytest.param({"unless": "yes"}, {"unless_satisfied": True}, [], id="unless exits with 0"),
        pytest.param(
            {"onlyif": "yes", "unless": "no"},
            {"onlyif_satisfied": True},
            [EXECUTE],
            id="both guards let it run",
        ),
        pytest.param(
            {"onlyif": "yes", "unless": "yes"},
            {"onlyif_satisfied": True, "unless_satisfied": True},
            [],
            id="one guard is enough to keep it: unless",
        ),
        pytest.param({"onlyif": "no", "unless": "no"}, {}, [], id="one guard is enough to keep it: onlyif"),
        pytest.param(
            {"creates": "/made", "onlyif": "yes"},
            {"creates_satisfied": True, "onlyif_satisfied": True},
            [],
            id="creates comes before the guards",
        ),
        pytest.param({"refreshonly": True}, {}, [], id="refresh only, and nothing changed"),
        pytest.param(
            {"refreshonly": True, "onlyif": "yes"},
            {"onlyif_satisfied": True},
            [],
            id="refresh only, and a guard would let it run",
        ),
    ],
)
def test_a_row_of_the_decision_table(
    properties: dict[str, Any], found: dict[str, Any], steps: list[str]
) -> None:
    decision = decide(wanted(**properties), state(**found), DecisionContext())

    assert [step.noop for step in decision.steps] == steps
    assert (decision.refreshed, decision.is_stable) == (False, not steps)


@pytest.mark.parametrize(
    ("properties", "found", "triggered_by", "unknown"),
    [
        pytest.param({"onlyif": "yes"}, {}, "", "the guards are not run", id="onlyif"),
        pytest.param({"unless": "yes"}, {}, "", "the guards are not run", id="unless"),
        pytest.param({"creates": "/made", "unless": "yes"}, {}, "", "the guards are not run", id="creates is missing"),
        pytest.param({"creates": "/made", "unless": "yes"}, {"creates_satisfied": True}, "", "", id="creates is there"),
        pytest.param({"refreshonly": True, "unless": "yes"}, {}, "", "", id="refresh only"),
        pytest.param({"unless": "yes"}, {}, "file#/a", "", id="a subscription wins over guards"),
        pytest.param({}, {}, "", "", id="no guard"),
    ],
)  # fmt: skip
def test_a_restricted_plan_is_unknown_where_only_guards_decide(
    properties: dict[str, Any], found: dict[str, Any], triggered_by: str, unknown: str
) -> None:
    context = DecisionContext(noop=True, is_restricted=True, triggered_by=triggered_by)

    assert decide(wanted(**properties), state(**found), context).unknown == unknown


@pytest.mark.parametrize(
    ("properties", "found", "was_stable"),
    [
        pytest.param({"refreshonly": True}, {}, True, id="refresh only"),
        pytest.param({}, {}, False, id="it would have run anyway"),
        pytest.param({"creates": "/made"}, {"creates_satisfied": True}, True, id="creates is there"),
        pytest.param({"onlyif": "no"}, {}, True, id="onlyif exits otherwise"),
        pytest.param({"unless": "yes"}, {"unless_satisfied": True}, True, id="unless exits with 0"),
    ],
)
def test_a_change_of_a_subscribed_resource_overrides_everything(
    properties: dict[str, Any], found: dict[str, Any], was_stable: bool
) -> None:
    decision = decide(wanted(**properties), state(**found), DecisionContext(triggered_by="file#/a"))

    assert [step.noop for step in decision.steps] == [REFRESH]
    assert (decision.refreshed, decision.is_stable) == (True, was_stable)


@pytest.mark.parametrize(
    ("properties", "done", "state_left"),
    [
        pytest.param({}, {"exitcode": 0}, {"exitcode": 0}, id="0"),
        pytest.param({"returns": [2, 3]}, {"exitcode": 3}, {"exitcode": 3}, id="one of those given"),
        pytest.param({"returns": [127]}, {"exitcode": 127}, {"exitcode": 127}, id="even a shell's own"),
        pytest.param(
            {"creates": "/made"},
            {"exitcode": 0, "creates_satisfied": True},
            {"exitcode": 0, "creates_satisfied": True},
            id="0, and it made what it was to make",
        ),
        pytest.param({"creates": "/made"}, {"exitcode": 0}, {"exitcode": 0}, id="0, and it made nothing"),
        pytest.param(
            {"creates": "/made", "returns": [5]},
            {"exitcode": 0, "creates_satisfied": True},
            {"exitcode": 0, "creates_satisfied": True},
            id="0 is right for one that made it, whatever is given",
        ),
    ],
)
def test_a_command_that_worked_leaves_a_state(
    properties: dict[str, Any], done: dict[str, Any], state_left: dict[str, Any]
) -> None:
    assert judge(wanted(**properties), Execution(**done)) == state(**state_left)


@pytest.mark.parametrize(
    ("properties", "done", "message"),
    [
        pytest.param({}, {"exitcode": 3}, "exit code 3 is not a success code: expected 0", id="not 0"),
        pytest.param(
            {"returns": [3, 4]},
            {"exitcode": 0},
            "exit code 0 is not a success code: expected 3, 4",
            id="not given",
        ),
        pytest.param(
            {"creates": "/made"},
            {"exitcode": 1, "creates_satisfied": True},
            "exit code 1 is not a success code: expected 0",
            id="it failed although it made what it was to make",
        ),
        pytest.param({}, {"exitcode": -9}, "the command was killed by SIGKILL", id="a signal"),
        pytest.param(
            {}, {"exitcode": -99}, "the command was killed by signal 99", id="a signal without a name"
        ),
        pytest.param(
            {"timeout": "5m", "returns": [0, -15]},
            {"exitcode": 0, "timed_out": True},
            "the command took longer than 5m and was killed",
            id="too long, whatever its exit code",
        ),
        pytest.param(
            {"timeout": "1.000000s"},
            {"exitcode": 0, "timed_out": True},
            "the command took longer than 1s and was killed",
            id="too long, with a limit of a request",
        ),
    ],
)
def test_a_failed_command_reports_exit_code_and_output(
    properties: dict[str, Any], done: dict[str, Any], message: str
) -> None:
    with pytest.raises(CommandError) as caught:
        judge(wanted(**properties), Execution(output="last words", **done))

    assert (caught.value.message, caught.value.output) == (message, "last words")


@pytest.mark.parametrize(
    "right",
    [
        pytest.param(wanted(), id="a command"),
        pytest.param(ExecProperties(name="/bin/echo 'a b'"), id="a name that is the command"),
        pytest.param(wanted(timeout="1h 30m"), id="a timeout"),
        pytest.param(wanted(timeout="-5s"), id="no timeout at all"),
        pytest.param(wanted(path="/usr/bin:/bin"), id="a path"),
        pytest.param(wanted(environment=["A=1", "B=x=y", "C-D={{ x }}"]), id="variables"),
        pytest.param(wanted(subscribe=["file#/etc/motd", "exec#a b"]), id="subscriptions"),
        pytest.param(wanted(command="echo 'x"), id="a command is only read when it is run"),
    ],
)
def test_valid_properties_pass(right: ExecProperties) -> None:
    check(right)


@pytest.mark.parametrize(
    ("wrong", "field", "message"),
    [
        pytest.param(
            {"name": "echo 'x"},
            "name",
            "the name of an exec must be shell words: a single quote is not closed: echo 'x",
            id="a name with an open quote, even with a command",
        ),
        pytest.param(
            {"name": "echo x\\"},
            "name",
            "the name of an exec must be shell words: nothing follows the backslash at the end: echo x\\",
            id="a name with a backslash at its end",
        ),
        pytest.param(
            {"name": "  "},
            "name",
            "the name of an exec must be shell words, and this one is blank",
            id="a blank name",
        ),
        pytest.param(
            {"timeout": "soon"},
            "timeout",
            "`soon` is not a duration: write a number and a unit, such as 30s, 5m or 1h30m",
            id="a timeout in words",
        ),
        pytest.param(
            {"timeout": "5"},
            "timeout",
            "`5` is not a duration: write a number and a unit, such as 30s, 5m or 1h30m",
            id="a timeout without a unit",
        ),
        pytest.param(
            {"timeout": "1x"},
            "timeout",
            "`1x`: unknown unit `x`; use ns, us, ms, s, m, h, d, w, M or y",
            id="a timeout in a unit of its own",
        ),
        pytest.param(
            {"subscribe": ["file#/a", "file#a#b"]},
            "subscribe[1]",
            "invalid subscribe format `file#a#b`: write `type#name`, with one `#`",
            id="a subscription with two marks",
        ),
        pytest.param(
            {"subscribe": ["motd"]},
            "subscribe[0]",
            "invalid subscribe format `motd`: write `type#name`, with one `#`",
            id="a subscription without a type",
        ),
        pytest.param(
            {"path": "/usr/bin:bin"},
            "path",
            "invalid path: `bin` is not an absolute path",
            id="a relative directory",
        ),
        pytest.param(
            {"path": "/usr/bin::/bin"},
            "path",
            "invalid path `/usr/bin::/bin`: a directory in it is empty",
            id="an empty directory",
        ),
        pytest.param(
            {"path": "/usr/bin:"},
            "path",
            "invalid path `/usr/bin:`: a directory in it is empty",
            id="a colon at the end",
        ),
        pytest.param(
            {"environment": ["A=1", "B"]},
            "environment[1]",
            "invalid environment variable `B`: it has no `=`, write NAME=value",
            id="a variable without a value",
        ),
        pytest.param(
            {"environment": ["=secret"]},
            "environment[0]",
            "invalid environment variable: it has no name, write NAME=value",
            id="a variable without a name",
        ),
        pytest.param(
            {"environment": ["A="]},
            "environment[0]",
            "invalid environment variable `A`: its value is empty",
            id="a variable with nothing in it",
        ),
        pytest.param(
            {"environment": ["1A=secret"]},
            "environment[0]",
            "invalid environment variable `1A`: its name must begin with a letter or an underscore",
            id="a variable that begins with a digit",
        ),
    ],
)
def test_an_invalid_combination_is_refused(wrong: dict[str, Any], field: str, message: str) -> None:
    with pytest.raises(PropertyError) as caught:
        check(wanted(**wrong))

    assert caught.value.message == message
    assert caught.value.place is not None
    assert caught.value.place.path == f"$.{field}"


def test_manifest_properties_pass() -> None:
    variables = ["A_1=x", "_a=b", "C-D={{ x }}", "{{ name }}=x", "${ name }=y", "E=a-b"]

    check_in_manifest(wanted(environment=variables))
    check_in_manifest(wanted(ensure="absent"))


@pytest.mark.parametrize(
    ("wrong", "field", "message"),
    [
        pytest.param(
            {"ensure": "running"},
            "ensure",
            "`ensure` can only be `present` for a command, not `running`; omit it",
            id="an ensure of another type",
        ),
        pytest.param(
            {"environment": ["A=1", "B-C=secret"]},
            "environment[1]",
            "invalid environment variable `B-C`: its name has characters other than letters, digits and underscores",
            id="a variable with a dash",
        ),
        pytest.param(
            {"environment": ["A =secret"]},
            "environment[0]",
            "invalid environment variable `A `: its name has characters other than letters, digits and underscores",
            id="a variable with a space",
        ),
    ],
)
def test_properties_of_requests_only_are_refused_in_a_manifest(
    wrong: dict[str, Any], field: str, message: str
) -> None:
    check(wanted(**wrong))
    with pytest.raises(PropertyError) as caught:
        check_in_manifest(wanted(**wrong))

    assert caught.value.message == message
    assert caught.value.place is not None
    assert caught.value.place.path == f"$.{field}"


class Scripted:
    """A provider that finds and does what a test says."""

    def __init__(self, found: ExecState, done: Execution) -> None:
        self.found, self.done, self.ran = found, done, 0

    async def status(self, wanted: ExecProperties) -> ExecState:
        return self.found

    async def execute(self, wanted: ExecProperties) -> Execution:
        self.ran += 1
        return self.done


class TestInTheFlow:
    async def test_a_command_that_ran_has_changed_something(self) -> None:
        provider = Scripted(state(), Execution(exitcode=0))

        event = await manage(TYPE, provider, wanted())

        assert (provider.ran, event.changed, event.failed, event.status.exitcode) == (1, True, False, 0)
        assert (event.final_ensure, event.status.stable, event.refreshed) == ("present", False, False)

    async def test_noop_runs_nothing_and_reports_it(self) -> None:
        provider = Scripted(state(), Execution(exitcode=0))

        event = await manage(TYPE, provider, wanted(), noop=True)

        assert (provider.ran, event.changed, event.noop_message) == (0, True, EXECUTE)
        assert event.status.exitcode is UNSET

    async def test_a_subscription_refreshes(self) -> None:
        provider = Scripted(state(creates_satisfied=True), Execution(exitcode=0, creates_satisfied=True))
        properties = wanted(creates="/made", refreshonly=True, subscribe=["file#/a"])

        event = await manage(TYPE, provider, properties, changed=["file#/a"])

        assert (provider.ran, event.refreshed, event.changed, event.triggered_by) == (
            1,
            True,
            True,
            "file#/a",
        )
        assert event.status.stable

    async def test_without_a_change_of_a_subscribed_resource_it_is_stable(self) -> None:
        provider = Scripted(state(), Execution(exitcode=0))

        event = await manage(TYPE, provider, wanted(refreshonly=True, subscribe=["file#/a"]))

        assert (provider.ran, event.changed, event.status.stable) == (0, False, True)

    async def test_a_failure_carries_the_commands_output(self) -> None:
        provider = Scripted(state(), Execution(exitcode=1, output="no such host"))

        event = await manage(TYPE, provider, wanted())

        assert (event.failed, event.changed, event.code, event.output) == (
            True,
            False,
            "host.command",
            "no such host",
        )
        assert event.error == ["exit code 1 is not a success code: expected 0"]


class Speaks:
    """A provider whose command writes a text."""

    def __init__(self, output: str, *, is_cut: bool = False) -> None:
        self.done = Execution(exitcode=0, output=output, is_cut=is_cut)

    async def status(self, wanted: ExecProperties) -> ExecState:
        return state()

    async def execute(self, wanted: ExecProperties) -> Execution:
        return self.done


@pytest.mark.parametrize(
    ("properties", "is_cut", "kept", "cut"),
    [
        pytest.param({}, False, 8 * 1024, ["output"], id="its end"),
        pytest.param({"logoutput": True}, False, 20_000, [], id="more of it with logoutput"),
        pytest.param({"logoutput": True}, True, 20_000, ["output"], id="what was left of it"),
    ],
)
async def test_the_event_of_a_successful_command_contains_its_output(
    properties: dict[str, Any], is_cut: bool, kept: int, cut: list[str]
) -> None:
    written = "x" * 19_996 + "end\n"

    found = await manage(TYPE, Speaks(written, is_cut=is_cut), wanted(**properties))

    assert (found.output, found.cut, found.changed) == (written[-kept:], cut, True)


async def test_a_plan_holds_no_output() -> None:
    assert (await manage(TYPE, Speaks("words"), wanted(), noop=True)).output == ""
