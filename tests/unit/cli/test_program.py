"""The command `ccm`: what it prints where, and its status."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from blockbuster import BlockBuster

from ccm_agent.cli import main
from ccm_agent.cli.ensure import ensure_api
from ccm_agent.cli.ensure.ensure_type import command_for
from ccm_agent.cli.program import ALIASES, VERBS, program
from ccm_agent.cli.record_types import HOST_RECORDS, HostEndLine
from ccm_agent.clikit.terminal import Terminal
from ccm_agent.model.errors import CcmError, DocumentError, InputError, ManifestError
from ccm_agent.resources.catalog import Catalog
from ccm_agent.resources.contract import CommandLine, Flag
from ccm_agent.version import VERSION
from tests.support.ccm_json import checked
from tests.support.engine import Board, note_type

REQUEST = {"protocol": ensure_api.REQUEST, "type": "exec", "properties": {"name": "true"}}


@pytest.fixture(autouse=True)
def own_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blockbuster: BlockBuster
) -> Iterator[None]:
    """A working directory of its own, no session, and the program's own blocking calls."""
    monkeypatch.chdir(tmp_path)
    for name in ("CCM_SESSION_STORE", "CCM_HIERA_DATA", "NATS_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    blockbuster.deactivate()
    yield
    blockbuster.activate()


def manifest(path: Path, *resources: dict[str, Any], **more: Any) -> str:
    document = {"ccm": {"resources": list(resources), **more}}
    (path / "manifest.yaml").write_text(json.dumps(document))
    return str(path / "manifest.yaml")


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--version"]) == 0

    assert re.fullmatch(rf"ccm {re.escape(VERSION)}( \([0-9a-f]{{8}}\))?\n", capsys.readouterr().out)


def test_a_hiera_file_that_does_not_exist_is_an_error_when_it_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["ensure", "exec", "true", "--hiera", str(tmp_path / "none.yaml")]

    assert main.run(arguments) == 1

    assert (
        capsys.readouterr().err == f"ccm: {tmp_path}/none.yaml: cannot be read: No such file or directory\n"
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param([], "Usage: ccm", id="none"),
        pytest.param(["aply"], "unknown command `aply`, did you mean `apply`?", id="verb"),
        pytest.param(["--nope"], "unknown option `--nope`; see `ccm --help`", id="option"),
        pytest.param(["apply"], "missing argument 'MANIFEST'; see `ccm ", id="argument"),
        pytest.param(["apply", "none.yaml"], "none.yaml", id="manifest"),
        pytest.param(["apply", "."], ".: is a directory; name the manifest in it", id="directory"),
        pytest.param(["apply", "m.yaml", "--fact", "x"], "--fact x: write NAME=VALUE", id="fact"),
        pytest.param(
            ["ensure", "fiel", "/a"], "unknown resource type `fiel`, did you mean `file`?", id="type"
        ),
        pytest.param(["ensure", "file"], "missing argument 'NAME'; see `ccm ", id="name"),
        pytest.param(
            ["ensure", "exec", "true", "--require", "file#/a"], "--require needs a session", id="require"
        ),
        pytest.param(["ensure", "--session", "", "exec", "true"], "--session is empty", id="session"),
        pytest.param(["session", "report"], "no session is selected", id="report"),
        pytest.param(["status", "fiel", "/a"], "fiel", id="status"),
        pytest.param(["schema", "fiel"], "fiel", id="schema"),
        pytest.param(["lint", "none.yaml"], "No such file", id="lint"),
        pytest.param(["eval", "1 +"], "1 +", id="eval"),
    ],
)
def test_a_wrong_command_line_ends_with_a_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main.run(arguments)

    printed = capsys.readouterr()
    assert (status, printed.out) == (1, "")
    assert sentence in printed.err
    assert "Traceback" not in printed.err


def test_debug_shows_where_an_error_is_from() -> None:
    with pytest.raises(CcmError):
        main.run(["apply", "none.yaml", "--debug"])


def test_a_bug_is_a_sentence_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(_arguments: list[str], _terminal: Terminal) -> int:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(main, "run_command_line", fail)

    assert main.run(["apply", "m.yaml"]) == 1
    assert (
        capsys.readouterr().err
        == "ccm: internal error: ZeroDivisionError: division by zero; rerun with --debug "
        "for a traceback\n"
    )


@pytest.mark.parametrize("verb", [*VERBS, "info"])
def test_every_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([verb, "--help"]) == 0

    assert capsys.readouterr().out.startswith(f"Usage: ccm {ALIASES.get(verb, verb)}"[:11])


def test_the_list_of_verbs_does_not_import_them() -> None:
    context = click.Context(program)

    assert program.list_commands(context) == sorted(VERBS)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "kind", [kind for kind in Catalog().all() if kind.command.is_offered], ids=lambda k: k.name
)
def test_no_flag_of_a_type_means_two_things(kind: Any) -> None:
    made = command_for(kind, lambda *_given: 0)

    flags = [flag for one in made.params if isinstance(one, click.Option) for flag in one.opts]
    assert sorted(flags) == sorted(set(flags))
    assert made.params[0].required


def ensure(arguments: list[str], **changes: Any) -> dict[str, Any]:
    """The properties that a command line of notes gives."""
    found: list[dict[str, Any]] = []

    def keep(_type_name: str, properties: dict[str, Any], _shared: dict[str, Any]) -> int:
        found.append(properties)
        return 0

    command_for(note_type(Board(), **changes), keep).main(arguments, standalone_mode=False)
    return found[0]


@pytest.mark.parametrize(
    ("arguments", "properties"),
    [
        pytest.param(["a"], {"name": "a"}, id="nothing else"),
        pytest.param(["a", "absent"], {"name": "a", "ensure": "absent"}, id="ensure"),
        pytest.param(["a", "--text", "x", "--bold"], {"name": "a", "text": "x", "bold": True}, id="simple"),
        pytest.param(["a", "--sizes", "1", "--sizes", "2"], {"name": "a", "sizes": [1, 2]}, id="numbers"),
        pytest.param(
            ["a", "--words", "de=ja", "--words", "en=yes"],
            {"name": "a", "words": {"de": "ja", "en": "yes"}},
            id="map",
        ),
        pytest.param(["a", "--subscribe", "file#/x"], {"name": "a", "subscribe": ["file#/x"]}, id="list"),
        pytest.param(
            ["a", "--alias", "b", "--require", "note#c", "--provider", "board", "--if", "true"],
            {
                "name": "a",
                "alias": "b",
                "require": ["note#c"],
                "provider": "board",
                "control": {"if": "true"},
            },
            id="common",
        ),
        pytest.param(
            ["a", "--check", "true", "--check-tries", "2"],
            {"name": "a", "health_checks": [{"command": "true", "tries": 2, "try_sleep": "1s"}]},
            id="check",
        ),
    ],
)
def test_flags_are_made_from_a_types_properties(arguments: list[str], properties: dict[str, Any]) -> None:
    assert ensure(arguments) == properties


def test_a_type_customizes_its_flags() -> None:
    line = CommandLine(
        arguments=("name",),
        flags=(
            Flag(field="text", names=("--say", "-s"), default="hello"),
            Flag(names=("--shout",), kind="switch"),
        ),
        hidden=frozenset({"pin"}),
        gather=lambda given: {key: value for key, value in given.items() if key != "shout"} | {"bold": True},
    )

    assert ensure(["a", "--shout"], command=line) == {"name": "a", "text": "hello", "bold": True}
    with pytest.raises(click.UsageError, match="No such option"):
        ensure(["a", "--pin", "1"], command=line)


@pytest.mark.parametrize(
    ("properties", "found"),
    [
        pytest.param({"name": "a", "x": 1}, {"name": "a", "x": 1}, id="mapping"),
        pytest.param([{"a": {"x": 1}}], {"name": "a", "x": 1}, id="named"),
        pytest.param([{"a": None}], {"name": "a"}, id="nothing but a name"),
        pytest.param(
            [{"defaults": {"x": 1, "y": 1}}, {"a": {"x": 2}}], {"name": "a", "x": 2, "y": 1}, id="defaults"
        ),
    ],
)
def test_a_request_holds_a_resource_in_either_form(properties: Any, found: dict[str, Any]) -> None:
    data = json.dumps(REQUEST | {"properties": properties}).encode()

    assert ensure_api.read_request(data) == ("exec", found)


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        pytest.param([], "must be a mapping", id="list"),
        pytest.param(REQUEST | {"propertys": {}}, "did you mean `properties`", id="key"),
        pytest.param(REQUEST | {"protocol": "x"}, "invalid protocol", id="protocol"),
        pytest.param(REQUEST | {"type": ""}, "has no `type`", id="type"),
        pytest.param(REQUEST | {"properties": {}}, "has no properties", id="properties"),
        pytest.param(
            REQUEST | {"properties": [{"a": {}}, {"b": {}}]}, "must contain exactly one resource", id="two"
        ),
        pytest.param(REQUEST | {"properties": ["a"]}, "must contain exactly one resource", id="no mapping"),
        pytest.param(
            REQUEST | {"properties": [{"a": ["b"]}]}, "`a` must be a mapping of properties", id="list of one"
        ),
        pytest.param(
            REQUEST | {"properties": [{"defaults": 1}, {"a": {}}]},
            "`defaults` must be a mapping",
            id="defaults",
        ),
    ],
)
def test_an_invalid_request_is_refused(request_: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        ensure_api.read_request(json.dumps(request_).encode())


def test_a_request_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(DocumentError, match="request:1"):
        ensure_api.read_request(b"{")


def test_events_are_written_as_lines_for_their_owner(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = manifest(tmp_path, {"exec": [{"true": {}}]})

    assert main.run(["apply", path, "--events", "events"]) == 0

    events = lines_of((tmp_path / "events").read_text())
    assert [event["protocol"].rsplit("v1.")[-1] for event in events] == [
        "session.start",
        "transaction.event",
        "session.summary",
    ]
    assert stat.S_IMODE((tmp_path / "events").stat().st_mode) == 0o600
    assert "exec#true changed" in capsys.readouterr().out


def test_events_and_records_mask_variables_and_secrets_in_content(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = {"command": "/bin/echo done", "environment": ["APP=canary-1", "LANG=C"]}
    content = "user=me\npassword={{ lookup('data.db_password') }}\n"
    file = {"ensure": "present", "owner": "*", "group": "*", "mode": "0600", "content": content}
    path = manifest(tmp_path, {"exec": [{"greet": command}]}, {"file": [{str(tmp_path / "made"): file}]})
    (tmp_path / "data.json").write_text('{"data": {"db_password": "canary-2"}}')
    asked = ["apply", path, "--data", str(tmp_path / "data.json")]

    assert main.run([*asked, "--events", "events"]) == 0
    capsys.readouterr()
    assert main.run([*asked, "--json"]) == 0

    written = [event["properties"] for event in lines_of((tmp_path / "events").read_text())[1:3]]
    shown = [line["event"]["properties"] for line in lines_of(capsys.readouterr().out)[:2]]
    assert written == shown
    assert written[0]["environment"] == ["APP=***", "LANG=C"]
    assert written[1]["content"] == "user=me\npassword=***\n"
    assert (tmp_path / "made").read_text() == "user=me\npassword=canary-2\n"


def test_a_file_of_events_from_before_becomes_its_owners_alone(tmp_path: Path) -> None:
    path = manifest(tmp_path, {"exec": [{"true": {}}]})
    (tmp_path / "events").write_text("old")
    (tmp_path / "events").chmod(0o644)

    assert main.run(["apply", path, "--events", "events"]) == 0

    assert stat.S_IMODE((tmp_path / "events").stat().st_mode) == 0o600


def test_events_on_standard_output_push_the_log_aside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = manifest(tmp_path, {"exec": [{"false": {}}]})

    assert main.run(["apply", path, "--events", "-"]) == 2

    printed = capsys.readouterr()
    assert lines_of(printed.out)[1]["failed"]
    assert "exec#false failed" in printed.err
    assert "Manifest Run Summary" not in printed.err


FAILED_LINES = """\
exec#false failed: exit code 1 is not a success code: expected 0
exec#true not applied: requires exec#false
"""


@pytest.mark.parametrize(
    ("words", "tail", "has_table"),
    [
        pytest.param([], FAILED_LINES, False, id="what failed"),
        pytest.param(["--report"], "", True, id="the table that was requested"),
        pytest.param(["--no-report"], "", False, id="nothing"),
    ],
)
def test_failed_apply_in_a_pipe_ends_with_what_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], tail: str, has_table: bool
) -> None:
    path = manifest(tmp_path, {"exec": [{"false": {}}, {"true": {"require": ["exec#false"]}}]})

    assert main.run(["apply", path, *words]) == 2

    printed = capsys.readouterr().out
    assert (tail in printed, "Manifest Run Summary" in printed) == (True, has_table)
    if tail:
        last = printed.rpartition(tail)[2]
        assert last.startswith(f"{path}: 2 resources: 1 skipped, 1 failed, 1 with unmet requirements in ")
    else:
        assert "exec#false failed: " not in printed


def test_successful_apply_in_a_pipe_ends_with_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["apply", manifest(tmp_path, {"exec": [{"true": {}}]})]) == 0

    assert "Manifest Run Summary" in capsys.readouterr().out


WRONG = """\
ccm:
  resources:
    - exec:
        - 'true': {creats: x}
        - 'false': {timeout: [1]}
        - 'date': {cwd: "{{ 1 + }}"}
"""


def test_all_errors_of_a_manifest_are_shown_with_their_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.yaml").write_text(WRONG)

    assert main.run(["lint", "m.yaml"]) == 1
    found = capsys.readouterr().out.rstrip("\n").splitlines()
    assert main.run(["apply", "m.yaml"]) == 1
    printed = capsys.readouterr()

    assert (printed.out, found[-1]) == ("", "3 errors")
    assert printed.err.splitlines() == ["ccm: m.yaml: 3 errors; nothing was changed", *found[:-1]]


def test_run_that_breaks_off_shows_the_line_where_it_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.yaml").write_text(
        "ccm:\n  resources:\n    - exec:\n        - 'true': {cwd: '{{ Facts.nope.x() }}'}\n"
    )

    assert main.run(["apply", "m.yaml"]) == 1

    [first, second, excerpt, mark] = capsys.readouterr().err.splitlines()
    assert first == "ccm: m.yaml: 1 error; the run stopped there"
    assert second.startswith("m.yaml:4:")
    assert (excerpt, "^" in mark) == ("  4 |         - 'true': {cwd: '{{ Facts.nope.x() }}'}", True)


def test_all_errors_of_the_configuration_are_shown_with_their_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "keys.yaml").write_text("intervall: 5m\nnats:\n  ulr: x\n  cred: y\n")
    (tmp_path / "values.yaml").write_text("interval: 1s\nstate_dir: var\n")

    codes = [main.run(["agent", "--config", name, "--check-config"]) for name in ("keys.yaml", "values.yaml")]

    assert codes == [1, 1]
    assert capsys.readouterr().err == (
        "ccm: keys.yaml: 3 errors\n"
        "keys.yaml:1:1: error: unknown key `intervall`, did you mean `interval`? [input.document]\n"
        "  1 | intervall: …\n"
        "    | ^^^^^^^^^\n"
        "keys.yaml:3:3: error: unknown key `ulr`, did you mean `url`? [input.document]\n"
        "  3 |   ulr: …\n"
        "    |   ^^^\n"
        "keys.yaml:4:3: error: unknown key `cred`, did you mean `creds`? [input.document]\n"
        "  4 |   cred: …\n"
        "    |   ^^^^\n"
        "ccm: values.yaml: 2 errors\n"
        "values.yaml:1:1: error: `interval` is 1s, but must be at least 30s [input.document]\n"
        "  1 | interval: 1s\n"
        "    | ^^^^^^^^\n"
        "values.yaml:2:1: error: `state_dir` is `var`, but must be an absolute path [input.document]\n"
        "  2 | state_dir: var\n"
        "    | ^^^^^^^^^\n"
    )


@pytest.mark.parametrize(
    ("arguments", "status", "kinds"),
    [
        pytest.param(["apply", "manifest.yaml"], 2, ["event", "event", "end"], id="manifest"),
        pytest.param(["apply", "none.yaml"], 1, ["error"], id="no manifest"),
        pytest.param(["ensure", "exec", "true"], 0, ["event", "end"], id="resource"),
        pytest.param(["ensure", "exec"], 1, ["error"], id="usage"),
    ],
)
def test_records_are_the_only_output_and_fit_their_schema(
    arguments: list[str], status: int, kinds: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest(tmp_path, {"exec": [{"true": {}}, {"false": {}}]})

    assert main.run([*arguments, "--json"]) == status

    out = capsys.readouterr().out
    assert [one["record"] for one in lines_of(out)] == kinds
    last = [msgspec.json.decode(line, type=HOST_RECORDS) for line in out.splitlines()][-1]
    assert not isinstance(last, HostEndLine) or last.exit == status


@pytest.mark.parametrize("other", [["--render"], ["--events", "-"]], ids=["render", "events"])
def test_two_outputs_do_not_share_standard_output(
    other: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = manifest(tmp_path, {"exec": [{"true": {}}]})

    assert main.run(["apply", path, "--json", *other]) == 1

    assert "both write to standard output" in capsys.readouterr().err


def test_nothing_is_changed_after_an_error_in_the_manifest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = manifest(tmp_path, {"exec": [{"touch it": {}}]}, {"exec": [{"true": {"creats": "x"}}]})

    assert main.run(["apply", path]) == 1

    assert not (tmp_path / "it").exists()
    assert "`creats`" in capsys.readouterr().err


def test_a_session_speaks_for_all_its_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = str(tmp_path / "store")

    assert main.run(["session", "new", "--directory", store]) == 0
    assert capsys.readouterr().out == f"export CCM_SESSION_STORE={store}\n"
    given = ["ensure", "--session", store, "exec"]
    statuses = [
        main.run([*given, "true"]),
        main.run([*given, "false"]),
        main.run([*given, "echo", "--require", "exec#true"]),
        main.run(["session", "report", "--session", store]),
    ]

    assert statuses == [0, 2, 2, 2]


@pytest.mark.parametrize(("temporary", "stays"), [("top", False), ("elsewhere", True), ("top/store", True)])
def test_only_temporary_stores_are_removed(
    temporary: str, stays: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "top/store"
    assert main.run(["session", "new", "--directory", str(store)]) == 0
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / temporary))

    assert main.run(["session", "report", "--session", str(store), "--remove"]) == 0

    assert store.exists() is stays


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        pytest.param(["1 + 2"], "3\n", id="value"),
        pytest.param(["'1'", "--json"], '"1"\n', id="json"),
        pytest.param(
            ["x {{ Facts.colour }}", "--template", "--fact", "colour=red"], "x red\n", id="template"
        ),
    ],
)
def test_eval_prints_the_value_of_an_expression(
    arguments: list[str], printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["eval", *arguments]) == 0

    assert capsys.readouterr().out == printed


def helped(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main.run([*words, "--help"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_every_verb_shows_examples_or_verbs_that_do(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = {"dev": ["dev", "new-type"], "registration": ["registration", "create"]}.get(verb, verb.split())

    assert f"ccm {verb}" in helped(capsys, *words).partition("Examples:\n")[2]


@pytest.mark.parametrize(
    "words", ["ensure", "ensure api", "session", "hiera", "registration", "dev", "agent"]
)
def test_no_sentence_of_a_list_of_verbs_is_cut_off(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "..." not in helped(capsys, *words.split()).partition("Commands:\n")[2]


@pytest.mark.parametrize(
    ("type_name", "values"),
    [
        pytest.param("file", "[ENSURE] `present` (a regular file), `absent` or `directory`.", id="file"),
        pytest.param("package", "[ENSURE] `present`, `absent`, `latest`, or a version.", id="package"),
        pytest.param("service", "[ENSURE] `running` (default) or `stopped`.", id="service"),
    ],
)
def test_the_help_of_a_type_groups_its_options_and_lists_the_values_of_ensure(
    type_name: str, values: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = helped(capsys, "ensure", type_name)

    titles = [line for line in shown.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert [title for title in titles if title != f"Properties of a {type_name}:"] == [
        "Arguments:",
        "Properties of every resource:",
        "Options:",
        "Examples:",
    ]
    assert values in " ".join(shown.split())


@pytest.mark.parametrize("option", ["--data", "-d", "--hiera", "--hiera-data"])
def test_hiera_data_has_one_name_and_its_former_names_still_work(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.yaml").write_text("ccm: {resources: []}\ndata: {a: 1}\n")

    code = main.run(["apply", str(tmp_path / "m.yaml"), option, str(tmp_path / "missing.yaml")])

    assert code == 1
    assert f"{tmp_path}/missing.yaml" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["apply"], ["ensure"]])
def test_help_shows_only_the_current_name_of_hiera_data(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    main.run([*command, "--help"])

    shown = capsys.readouterr().out
    assert "-d, --data URL" in shown
    assert "--hiera" not in shown


@pytest.mark.parametrize("name", ["sub/../motd", "./motd", "{}/sub/../motd"])
def test_the_status_of_a_file_is_that_of_its_cleaned_path(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "motd").write_text("hello")
    monkeypatch.chdir(tmp_path)

    code = main.run(["status", "file", name.format(tmp_path), "--json"])

    found = checked("ccm_status_file", capsys.readouterr().out)
    assert (code, found["name"], found["size"]) == (0, str(tmp_path / "motd"), 5)


def test_status_of_a_type_that_needs_more_than_a_name_is_a_record(
    capsys: pytest.CaptureFixture[str],
) -> None:
    why = (
        "the status of `exec` resources is not supported: "
        "whether a command would run depends on its guards, which only a manifest contains"
    )

    code = main.run(["status", "exec", "x", "--json"])
    record = checked("ccm_record", capsys.readouterr().out)
    text_code = main.run(["status", "exec", "x"])

    assert (code, record) == (0, {"record": "error", "code": ManifestError.code, "message": why})
    assert (text_code, capsys.readouterr().out) == (0, f"{why}\n")


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_scripts_have_the_options_of_the_reference(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["completion", shell]) == 0
    wanted = capsys.readouterr().out

    assert main.run([f"--completion-script-{shell}"]) == 0

    assert wanted
    assert capsys.readouterr().out == wanted


def test_long_help_has_the_help_of_each_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--help-long"]) == 0

    printed = capsys.readouterr().out
    for command in (*VERBS, "ensure api pipe", "hiera parse", "registration query"):
        assert re.search(rf"^Usage: ccm {command}\b", printed, re.MULTILINE | re.IGNORECASE), command


@pytest.mark.parametrize(
    ("options", "is_yaml"), [(["--yaml"], True), (["--no-yaml"], False), (["--yaml", "--no-yaml"], False)]
)
def test_last_option_decides_about_yaml(options: list[str], is_yaml: bool) -> None:
    pipe = ensure_api.pipe

    context = pipe.make_context("pipe", list(options))

    assert context.params["as_yaml"] is is_yaml
