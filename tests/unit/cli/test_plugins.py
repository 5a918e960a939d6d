"""Commands that plugins add to `ccm`, as they are typed."""

from __future__ import annotations

import json
import os
import pty
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from blockbuster import BlockBuster

from ccm_agent.cli import main
from tests.support.controller import keyboard

DEPLOY = """\
name: deploy
description: Deploy applications
commands:
  - name: web
    aliases: [w]
    description: Deploy the web server
    type: exec
    environment: ["TO={{ .Arguments.version }}"]
    command: sh -c 'echo "$TO $# $1 $BUILDER_TRY"' sh {{ .Arguments.version | escape }} '{{ .Flags.force }}' {{ .Flags.level }}
    arguments:
      - name: version
        description: What to deploy
        required: true
        validate: len(value) < 20 && is_shellsafe(value)
    flags:
      - {name: force, description: Replace what is there, bool: true, short: f}
      - {name: level, description: How much, type: int, default: "3", env: DEPLOY_LEVEL}
  - name: db
    description: The database
    type: parent
    commands:
      - name: fail
        description: Fail
        type: exec
        script: |
          . "{{ BashHelperPath }}"
          ab_say loading
          ab_panic gone
      - {name: keys, description: Read a bucket, type: kv, action: get, bucket: B}
      - {name: query, description: Query, type: exec, command: "true", transform: {jq: {query: .a}}}
"""


@pytest.fixture(autouse=True)
def unguarded(blockbuster: BlockBuster) -> Iterator[None]:
    """The command line reads files and starts programs; nothing else waits for it."""
    blockbuster.deactivate()
    yield
    blockbuster.activate()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder of plugins, with one in it."""
    made = tmp_path / "choria/ccm/plugins"
    made.mkdir(parents=True)
    (made / "deploy-plugin.yaml").write_text(DEPLOY)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("BUILDER_DRY_RUN", raising=False)
    return made


Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ccm(folder: Path, capfd: pytest.CaptureFixture[str]) -> Call:
    """Runs a command line: its exit code, output and errors."""

    def call(*words: str) -> tuple[int, str, str]:
        code = main.run(words)
        said = capfd.readouterr()
        return code, said.out, said.err

    return call


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("web",), id="as Choria CCM adds it"),
        pytest.param(("w",), id="by its alias"),
        pytest.param(("deploy", "web"), id="as its documentation says"),
        pytest.param(("deploy", "w"), id="by its alias in the plugin"),
    ],
)
def test_a_plugins_command_runs_a_program_without_a_shell(ccm: Call, words: tuple[str, ...]) -> None:
    assert ccm(*words, "1.2 *") == (0, "1.2 * 3 1.2 * 1\n", "")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ((), "missing argument 'VERSION'; see `ccm web --help`"),
        (("1", "2"), "got unexpected extra argument (2); see `ccm web --help`"),
        (
            ("a;b",),
            "invalid value for 'VERSION': it does not satisfy `len(value) < 20 && is_shellsafe(value)`",
        ),
        (("1", "--level", "x"), "invalid value for '--level': `x` is not a whole number"),
        (("1", "--forc"), "unknown option `--forc`, did you mean `--force`?"),
    ],
)
def test_values_are_checked_before_anything_runs(ccm: Call, words: tuple[str, ...], error: str) -> None:
    code, out, err = ccm("web", *words)

    assert (code, out) == (1, "")
    assert err.startswith(f"ccm: {error}")


def test_flags_come_from_the_command_line_the_environment_or_their_default(
    folder: Path, ccm: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "show-plugin.yaml").write_text(
        DEPLOY.replace("name: web", "name: show").replace("$TO $# $1 $BUILDER_TRY", "$2 $3")
    )
    plain = ccm("show", "1")
    monkeypatch.setenv("DEPLOY_LEVEL", "5")

    assert plain == (0, "false 3\n", "")
    assert ccm("show", "1", "-f") == (0, "true 5\n", "")
    assert ccm("show", "1", "--level", "7") == (0, "false 7\n", "")


def test_a_script_gets_a_shell_and_the_helper_functions_and_its_failure_is_reported(
    ccm: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setenv("SHELL", "/bin/sh")

    said = ">>> loading\n!!!\n!!! gone\n!!!\n"
    assert ccm("db", "fail") == (1, said, "ccm: `/bin/sh` ended with exit status 1\n")
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("keys", "--any", "x"), "commands of the type `kv` are not supported"),
        (("query",), "`transform` is not supported"),
    ],
)
def test_what_is_not_supported_is_refused_and_the_rest_works(
    ccm: Call, folder: Path, words: tuple[str, ...], why: str
) -> None:
    name = words[0]

    code, out, err = ccm("deploy", "db", *words)

    assert (code, out) == (1, "")
    assert (
        err == f"ccm: `{name}` of {folder}/deploy-plugin.yaml: {why}; use App Builder to run this command\n"
    )


def test_help_lists_what_plugins_add(ccm: Call) -> None:
    _, screen, _ = ccm("--help")
    _, below, _ = ccm("deploy", "--help")
    _, one, _ = ccm("web", "--help")

    assert "Plugins:\n  web  Deploy the web server\n  db   The database\n" in screen
    assert "Deploy applications" in below
    assert "  db   The database\n  web  Deploy the web server\n" in below
    assert "VERSION  What to deploy\n" in one
    assert "--level INTEGER RANGE  How much" in one


@pytest.mark.parametrize(("typed", "ran"), [("y\n", "ran\n"), ("\n", ""), ("", "")])
def test_a_command_with_a_prompt_asks_first(
    folder: Path, ccm: Call, monkeypatch: pytest.MonkeyPatch, typed: str, ran: str
) -> None:
    (folder / "ask-plugin.yaml").write_text(
        "commands: [{name: wipe, type: exec, confirm_prompt: 'Really?', command: echo ran}]"
    )
    with keyboard(typed) as source:
        if typed:
            monkeypatch.setattr("sys.stdin", source)
            monkeypatch.setattr("ccm_agent.clikit.terminal.Terminal.can_ask", True)
        code, out, err = ccm("wipe")

    assert (code, out) == (0 if ran else 1, ran)
    assert ("Really? [y/N] " in err) is bool(typed)
    assert ("use --no-prompt" in err) is not bool(typed)
    assert ccm("wipe", "--no-prompt") == (0, "ran\n", "")


def test_a_failing_program_is_run_again(folder: Path, ccm: Call, tmp_path: Path) -> None:
    (folder / "again-plugin.yaml").write_text(
        "commands:\n- name: again\n  type: exec\n  dir: '{{ .Arguments.where }}'\n"
        "  arguments: [{name: where, type: existing_dir}]\n"
        "  backoff: {max_attempts: 3, min_sleep: 1ms, max_sleep: 1ms}\n"
        "  command: sh -c 'echo $BUILDER_TRY $PWD; test $BUILDER_TRY = 2'\n"
    )

    code, out, err = ccm("again", str(tmp_path))

    assert (code, out) == (0, f"1 {tmp_path}\n2 {tmp_path}\n")
    assert err.startswith("`sh` ended with exit status 1 in attempt 1 of 3; the next attempt starts in ")


def test_with_the_variable_of_a_dry_run_nothing_is_run(ccm: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUILDER_DRY_RUN", "1")

    code, out, err = ccm("web", "1")

    assert (code, out) == (1, "")
    assert err.startswith("BUILDER_DRY_RUN is set, so this was not run: sh -c ")


def test_a_program_that_is_not_there_is_named(folder: Path, ccm: Call) -> None:
    (folder / "gone-plugin.yaml").write_text("commands: [{name: gone, type: exec, command: nosuch-program}]")

    assert ccm("gone")[::2] == (
        1,
        "ccm: `nosuch-program` cannot be started: nosuch-program: No such file or directory\n",
    )


def test_a_plugin_does_not_replace_a_verb(folder: Path, ccm: Call) -> None:
    (folder / "facts-plugin.yaml").write_text("commands: [{name: help, type: exec, command: echo stolen}]")

    assert "stolen" not in ccm("help")[1]


def test_a_broken_plugin_breaks_no_other_command_and_is_named_for_an_unknown_one(
    folder: Path, ccm: Call
) -> None:
    (folder / "a-plugin.yaml").write_text("commands:\n- {name: x, type: exec, comand: 'true'}\n")
    why = f"{folder}/a-plugin.yaml:2:25: unknown key `comand`, did you mean `command`?"

    works, own, unknown = ccm("web", "1"), ccm("a"), ccm("x")

    assert works[0] == 0
    assert own == (1, "", f"ccm: {why}\n")
    assert unknown[2].splitlines()[0] == f"ccm: warning: {why}"
    assert "unknown command `x`" in unknown[2]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root does not trust files of others")
def test_root_runs_no_plugin_below_a_directory_of_another_user(folder: Path, ccm: Call) -> None:
    assert ccm("deploy", "web", "1")[0] == 0

    os.chown(folder.parent.parent, 65534, -1)
    code, out, err = ccm("deploy", "web", "1")

    assert (code, out) == (1, "")
    assert f"root does not run this plugin: {folder.parent.parent} belongs to " in err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root does not trust files of others")
@pytest.mark.parametrize("what", ["file", "folder", "include"])
def test_root_runs_no_plugin_that_another_user_could_have_written(folder: Path, ccm: Call, what: str) -> None:
    included = folder / "part.yaml"
    included.write_text("commands: [{name: below, type: exec, command: echo ran}]")
    own = folder / "own-plugin.yaml"
    own.write_text("commands: [{name: own, type: parent, include_file: part.yaml}]")
    assert ccm("own", "below") == (0, "ran\n", "")

    target = {"file": own, "folder": folder, "include": included}[what]
    target.chmod(stat.S_IMODE(target.stat().st_mode) | stat.S_IWOTH)
    code, out, err = ccm("own", "below")

    assert (code, out) == (1, "")
    assert "root does not run this plugin: other users can " in err


def test_a_command_that_is_a_path_is_not_looked_up_among_the_plugins(folder: Path, ccm: Call) -> None:
    (folder.parent / "x-plugin.yaml").write_text("commands: [{name: x, type: exec, command: echo ran}]")

    code, out, err = ccm("../x")

    assert (code, out) == (1, "")
    assert "unknown command `../x`" in err


FORM = """\
commands:
- name: setup
  type: form
  description: Make a configuration
  properties:
  - {name: listen, help: An address, default: "::1", validation: isIP(value)}
  - {name: workers, type: integer}
"""


def test_a_form_asks_on_the_terminal_and_prints_json(folder: Path) -> None:
    (folder / "setup-plugin.yaml").write_text(FORM)
    master, slave = pty.openpty()
    os.write(master, b"?\n\nx\n8\n")
    with os.fdopen(slave) as terminal:
        done = subprocess.run(
            [sys.executable, "-m", "ccm_agent", "setup"],
            stdin=terminal,
            capture_output=True,
            text=True,
            check=False,
        )
    os.close(master)

    assert (done.returncode, json.loads(done.stdout)) == (0, {"listen": "::1", "workers": 8})
    assert "Make a configuration" in done.stderr
    assert "An address" in done.stderr
    assert "The answer does not satisfy `isInt(value)`." in done.stderr


def test_a_form_without_a_terminal_is_refused(folder: Path) -> None:
    (folder / "setup-plugin.yaml").write_text(FORM)

    done = subprocess.run(
        [sys.executable, "-m", "ccm_agent", "setup"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "ccm: `setup` prompts for input, but standard input is not a terminal\n"
