"""
What a person sees who gets a manifest or a command line wrong, word for word.

Each manifest has a command before the mistake and one after it. What is rendered only when its turn has come (a command, a
file's content) is found wrong only then, so that what stands before it is done. Whatever the mistake, the status is not 0,
the sentence says where, what and what to do, and nothing that comes after the mistake is done.
"""

import json
import subprocess
from pathlib import Path

import pytest

MANIFEST = """\
ccm:
  fail_on_error: true
  resources:
    - exec:
        - touch before: {cwd: @DIR@}
@MISTAKE@
    - exec:
        - touch after: {cwd: @DIR@}
"""
OWNED = "owner: root, group: root, mode: '0644'"


def run(ccm: Path, folder: Path, *words: str, stdin: str = "") -> tuple[int, str, str]:
    """Status, standard output and standard error, with the folder's name taken out."""
    env = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder),
        "XDG_STATE_HOME": str(folder / "state"),
        "TMPDIR": str(folder),
    }
    done = subprocess.run(
        [ccm, *words], cwd=folder, env=env, input=stdin, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout.replace(f"{folder}", "DIR"), done.stderr.replace(f"{folder}", "DIR")


@pytest.mark.parametrize(
    ("mistake", "sentence", "before"),
    [
        pytest.param(
            f"    - file:\n        - /nowhere/x: {{ensure: present, content: a, {OWNED}, contnet: b}}",
            "m.yaml:7:93: error: file#/nowhere/x: unknown key `contnet`, did you mean `content`?",
            False,
            id="a typo in a key",
        ),
        pytest.param(
            "    - file:\n\t- /nowhere/x: {ensure: absent}",
            "m.yaml:7:1: error: a tab cannot be used for indentation: use spaces",
            False,
            id="a tab",
        ),
        pytest.param(
            '    - exec:\n        - run:\n            command: "touch {{ Data.nope + }}"',
            "m.yaml:8:13: error: unexpected end of expression (at character 12 of `Data.nope +`)",
            True,
            id="a template error",
        ),
        pytest.param(
            f"    - file:\n        - /nowhere/x: {{ensure: present, content: '{{{{ lookup(1 +) }}}}', {OWNED}}}",
            "m.yaml:7:41: error: unexpected bracket ')' (at character 11 of `lookup(1 +)`)",
            True,
            id="a template error in what is rendered late",
        ),
        pytest.param(
            "    - fiel:\n        - /nowhere/x: {ensure: absent}",
            "m.yaml:6:7: error: unknown resource type `fiel`, did you mean `file`?",
            False,
            id="an unknown type",
        ),
        pytest.param(
            "    - file:\n        /nowhere/x: {ensure: absent}",
            "m.yaml:7:9: error: names under `file` must be a list: write `- /nowhere/x:`",
            False,
            id="names that are no list",
        ),
        pytest.param(
            "    - exec:\n        - 'true': {require: [file#/nowhere/x]}",
            "m.yaml:7:30: error: exec#true: `file#/nowhere/x` in `require` is not declared",
            True,
            id="a requirement of nothing",
        ),
    ],
)
def test_a_mistake_in_a_manifest_is_reported_with_its_place_and_nothing_after_it_is_done(
    mistake: str, sentence: str, before: bool, ccm: Path, tmp_path: Path
) -> None:
    (tmp_path / "m.yaml").write_text(MANIFEST.replace("@MISTAKE@", mistake).replace("@DIR@", str(tmp_path)))

    code, _, err = run(ccm, tmp_path, "apply", "m.yaml")

    head, found, *excerpt = err.splitlines()
    ending = "the run stopped there" if before else "nothing was changed"
    assert (code, head) == (1, f"ccm: m.yaml: 1 error; {ending}")
    assert (found.startswith(sentence), len(excerpt)) == (True, 2)
    assert ((tmp_path / "before").exists(), (tmp_path / "after").exists()) == (before, False)


def test_a_missing_source_fails_its_file_and_nothing_after_it_is_done(ccm: Path, tmp_path: Path) -> None:
    mistake = f"    - file:\n        - {tmp_path}/x: {{ensure: present, source: gone.conf, {OWNED}}}"
    (tmp_path / "m.yaml").write_text(MANIFEST.replace("@MISTAKE@", mistake).replace("@DIR@", str(tmp_path)))

    code, out, err = run(ccm, tmp_path, "apply", "m.yaml")

    said = (out + err).splitlines()
    assert code == 2
    assert [line.split(" ensure=")[0] for line in said if " ensure=" in line] == [
        "WARN  exec#touch before changed",
        "ERROR file#DIR/x failed",
    ]
    assert 'errors="DIR/gone.conf: cannot be read: No such file or directory"' in out + err
    assert "Terminating manifest execution due to failed resource" in out + err
    assert not (tmp_path / "after").exists()


NO_BROKER = "nats://127.0.0.1:1: cannot connect to the broker: connection refused; check that it is running"
NO_CONTEXT = (
    "nats context nope: DIR/nats/context/nope.json does not exist; `nats context ls` lists the contexts"
)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        pytest.param(
            ["apply", "none.yaml"],
            "DIR/none.yaml: cannot be read: No such file or directory",
            id="no manifest",
        ),
        pytest.param(
            ["apply", "."],
            ".: is a directory; name the manifest in it, such as manifest.yaml",
            id="a directory",
        ),
        pytest.param(
            ["apply", "list.yaml"],
            "list.yaml:2:3: error: cannot read DIR/gone.jet: No such file or directory",
            id="no jet file",
        ),
        pytest.param(["apply", "obj://B/k.tar.gz"], NO_BROKER, id="no broker for a manifest"),
        pytest.param(["apply", "good.yaml", "--hiera", "kv://B/k"], NO_BROKER, id="no broker for data"),
        pytest.param(["apply", "obj://B/k.tar.gz", "--context", "nope"], NO_CONTEXT, id="no context"),
        pytest.param(["hiera", "parse", "kv://B/k"], NO_BROKER, id="no broker for hiera"),
        pytest.param(
            ["apply", "good.yaml", "--facts", "none"],
            "--facts none: No such file or directory",
            id="no facts",
        ),
        pytest.param(["apply", "good.yaml", "--fact", "x"], "--fact x: write NAME=VALUE", id="no value"),
        pytest.param(
            ["lint", "none.yaml"], "MANIFEST none.yaml: No such file or directory", id="nothing to lint"
        ),
        pytest.param(["facts", "a.b"], "no fact `a.b`; see `ccm facts`", id="no fact"),
        pytest.param(
            ["facts", "host.inf"], "no fact `host.inf`, did you mean `host.info`?", id="similar fact"
        ),
        pytest.param(
            ["schema", "fil"],
            "unknown resource type `fil`, did you mean `file`?",
            id="no schema",
        ),
        pytest.param(
            ["agent", "--config", "none"],
            "none: cannot read the agent's configuration: No such file or directory; see `ccm agent --help`",
            id="no configuration",
        ),
        pytest.param(
            ["session", "new", "--directory", "/proc/x"],
            "cannot create the session directory /proc/x: No such file or directory",
            id="no store",
        ),
        pytest.param(
            ["ensure", "scaffold", "/nowhere/x", "gone"], "SOURCE: gone is not a directory", id="no templates"
        ),
    ],
)
def test_the_missing_part_is_named_and_nothing_is_done(
    words: list[str], sentence: str, ccm: Path, tmp_path: Path
) -> None:
    context = tmp_path / "nats/context/CCM.json"
    context.parent.mkdir(parents=True)
    context.write_text(json.dumps({"url": "nats://127.0.0.1:1"}))
    (tmp_path / "good.yaml").write_text(MANIFEST.replace("@MISTAKE@", "").replace("@DIR@", str(tmp_path)))
    (tmp_path / "list.yaml").write_text("ccm:\n  resources_jet_file: gone.jet\n")

    code, out, err = run(ccm, tmp_path, *words)

    excerpt = (
        ["  2 |   resources_jet_file: gone.jet", "    |   ^^^^^^^^^^^^^^^^^^"] if "error:" in sentence else []
    )
    lines = ["ccm: list.yaml: 1 error; nothing was changed", f"{sentence} [input.expression]"]
    assert (code, out) == (1, "")
    assert err.splitlines() == ([*lines, *excerpt] if excerpt else [f"ccm: {sentence}"])
    assert not (tmp_path / "before").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        pytest.param(
            ["apply", "m", "--nop"],
            "unknown option `--nop`, did you mean `--noop`?",
            id="apply",
        ),
        pytest.param(["apply"], "missing argument 'MANIFEST'", id="no manifest"),
        pytest.param(
            ["ensure", "file"],
            "missing argument 'NAME'",
            id="no name",
        ),
        pytest.param(
            ["ensure", "fiel", "x"],
            "unknown resource type `fiel`, did you mean `file`?",
            id="no type",
        ),
        pytest.param(
            ["ensure", "file", "x", "--mod", "1"],
            "unknown option `--mod`, did you mean `--mode`?",
            id="ensure",
        ),
        pytest.param(
            ["ensure", "archive", "x"],
            "missing argument 'URL'",
            id="no url",
        ),
        pytest.param(
            ["facts", "--yml"],
            "unknown option `--yml`, did you mean `--yaml`?",
            id="facts",
        ),
        pytest.param(
            ["hiera", "prse"],
            "unknown command `prse`, did you mean `parse`?",
            id="hiera",
        ),
        pytest.param(
            ["hiera", "parse"],
            "missing argument 'INPUT'",
            id="no input",
        ),
        pytest.param(["status", "file"], "missing argument 'NAME'", id="status"),
        pytest.param(
            ["session", "nwe"],
            "unknown command `nwe`, did you mean `new`?",
            id="session",
        ),
        pytest.param(["eval"], "missing argument 'EXPRESSION'", id="eval"),
        pytest.param(
            ["lint", "--strict", "m"],
            "unknown option `--strict`, did you mean `--strict-ccm`?",
            id="lint",
        ),
        pytest.param(["agent"], "missing option '--config'", id="agent"),
        pytest.param(
            ["aply", "m"],
            "unknown command `aply`, did you mean `apply`?",
            id="verb",
        ),
    ],
)
def test_a_wrong_command_line_is_answered_with_one_sentence(
    words: list[str], sentence: str, ccm: Path, tmp_path: Path
) -> None:
    code, out, err = run(ccm, tmp_path, *words)

    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"ccm: {sentence}")


def test_a_request_that_is_not_valid_is_answered_as_one(ccm: Path, tmp_path: Path) -> None:
    code, out, err = run(ccm, tmp_path, "ensure", "api", "pipe", stdin="{")

    assert (code, err) == (1, "")
    assert json.loads(out) == {
        "protocol": "io.choria.ccm.v1.resource.ensure.response",
        "error": "request:1:2: not JSON: it ends too early: a bracket, brace or quote is not closed",
    }
