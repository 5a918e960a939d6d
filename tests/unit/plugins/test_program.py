"""What a command of a plugin runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from ccm_agent.model.errors import CcmError, TemplateError, UsageError
from ccm_agent.plugins.definition import BackoffSetting, CommandSpec, PluginCommand
from ccm_agent.plugins.program import PluginProgram, pauses, prepare
from ccm_agent.plugins.rendering import PluginRenderer


def a_command(**fields: object) -> PluginCommand:
    return PluginCommand(spec=CommandSpec(name="x", type="exec", **fields), file="/p/x-plugin.yaml")  # type: ignore[arg-type]


def prepared(environ: dict[str, str] | None = None, /, **fields: object) -> PluginProgram:
    given = {"PATH": "/bin", "HOME": "/h", **(environ or {})}
    templates = PluginRenderer(
        {"name": "a'b; c"}, {"level": 3, "on": True}, environ=given, folder="/p", helper=lambda: "/tmp/helper"
    )
    return prepare(a_command(**fields), templates, given)


@pytest.mark.parametrize(
    ("command", "argv"),
    [
        ("echo {{ .Arguments.name | escape }} x", ("echo", "a'b; c", "x")),
        ("echo $HOME; rm -rf *", ("echo", "$HOME;", "rm", "-rf", "*")),
        ("echo {{ default .Config.x `y` }} {{ default .Arguments.none `z` }}", ("echo", "y", "z")),
        ("echo {{ AppDir }} {{ TaskDir }} {{ env `HOME` }}", ("echo", "/p", "/p", "/h")),
        ("echo {{ if .Flags.on }}on{{ end }} {{ add .Flags.level 1 }}", ("echo", "on", "4")),
        ("echo {{ require .Arguments.none `say a name` }}", "say a name"),
        ("echo {{ read_file `/nonexistent/x` }}", "No such file or directory"),
        ("echo {{ nosuch }}", "nosuch"),
    ],
)
def test_a_command_is_rendered_and_split_without_a_shell(command: str, argv: tuple[str, ...] | str) -> None:
    if isinstance(argv, str):
        with pytest.raises(TemplateError, match=argv):
            prepared(command=command)
    else:
        assert prepared(command=command).argv == argv


@pytest.mark.parametrize(
    ("shell", "environ", "argv"),
    [
        ("/bin/zsh", {}, ("/bin/zsh", "-c")),
        ("bash -eu -c", {}, ("bash", "-eu", "-c")),
        ("", {"SHELL": "/bin/fish"}, ("/bin/fish", "-c")),
        ("", {}, ("/bin/bash" if Path("/bin/bash").exists() else "/bin/sh", "-c")),
    ],
)
def test_a_script_gets_the_chosen_shell(shell: str, environ: dict[str, str], argv: tuple[str, ...]) -> None:
    program = prepared(environ, script="echo {{ .Flags.level }}; . {{ BashHelperPath }}", shell=shell)

    assert program.argv == (*argv, "echo 3; . /tmp/helper")


def test_variables_and_the_directory_are_rendered() -> None:
    program = prepared(
        command="x", environment=["LEVEL={{ .Flags.level }}", "PATH=/own=x"], dir="/srv/{{ .Flags.level }}"
    )

    assert program.environ == {"PATH": "/own=x", "HOME": "/h", "LEVEL": "3"}
    assert program.directory == "/srv/3"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"command": "echo 'S3CRET"}, "`command` of `x`: a quote is not closed"),
        ({"command": "{{ if false }}S3CRET{{ end }}"}, "`command` of `x` is empty"),
        ({"script": "S3CRET", "shell": "'"}, "`shell`: a quote is not closed"),
        ({"command": "x", "environment": ["S3CRET"]}, "`environment` of `x`: write NAME=VALUE"),
        ({"command": 'echo {{ "S3CRET\\x00" }}'}, "zero byte"),
    ],
)
def test_what_cannot_be_run_is_refused_without_its_text(fields: dict[str, object], why: str) -> None:
    with pytest.raises(UsageError) as caught:
        prepared(**fields)

    assert why in str(caught.value)
    assert "S3CRET" not in str(caught.value)


def test_pauses_grow_from_the_shortest_to_the_longest() -> None:
    backoff = BackoffSetting(max_attempts=5, min_sleep="1s", max_sleep="3s", steps=2)

    waits = list(pauses(a_command(command="x", backoff=backoff)))

    assert len(waits) == 4
    assert all(1.0 <= one <= 3.0 for one in waits)  # 2 s, half less or more
    assert list(pauses(a_command(command="x"))) == []


@pytest.mark.parametrize(
    "backoff",
    [
        BackoffSetting(max_attempts=0),
        BackoffSetting(max_attempts=1),
        BackoffSetting(max_attempts=5, steps=1),
        BackoffSetting(max_attempts=10**9, steps=2),
        BackoffSetting(max_attempts=3, min_sleep="soon"),
    ],
)
def test_a_backoff_that_makes_no_sense_is_refused(backoff: BackoffSetting) -> None:
    with pytest.raises(CcmError):
        list(pauses(a_command(command="x", backoff=backoff)))
