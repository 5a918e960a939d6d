"""Files that SOPS encrypted: the call of the program, with a small one in its place, and the real one where it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pyrage
import pytest

from ccm_ctl.secret_sources import sops_file
from tests.support.secret_sources import VALUE, failure_of, read_value


def stand_in(folder: Path, script: str) -> dict[str, str]:
    """Variables with which `sops` is a script."""
    program = folder / "bin" / "sops"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    (folder / "secrets.yaml").write_text("db: ENC[]\n")
    return {"PATH": f"{program.parent}:{os.environ['PATH']}", "OTHER": "kept"}


def is_running(pid: str) -> bool:
    return Path("/proc", pid).exists()


def encrypt(path: Path, recipient: str) -> None:
    command = ["sops", "--encrypt", "--in-place", "--age", recipient, str(path)]
    subprocess.run(command, check=True, capture_output=True)


async def test_program_is_called_with_the_file_and_the_key(tmp_path: Path) -> None:
    environ = stand_in(
        tmp_path,
        f'printf "%s\\n" "$@" "$SOPS_AGE_KEY_FILE" "$OTHER" > {tmp_path}/asked\n'
        f'readlink /proc/self/fd/0 >> {tmp_path}/asked\necho \'{{"db": {{"password": "{VALUE}"}}}}\'',
    )
    path = tmp_path / "secrets.yaml"

    value = await read_value(f"sops:{path}#db.password", environ, identity="/keys/key.txt")

    assert value == VALUE
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked == ["--decrypt", "--output-type", "json", str(path), "/keys/key.txt", "kept", "/dev/null"]


async def test_whole_file_is_decrypted_in_its_own_form(tmp_path: Path) -> None:
    environ = stand_in(tmp_path, f'[ "$#" = 2 ] && printf "{VALUE}\\n"')

    assert await read_value(f"sops:{tmp_path / 'secrets.yaml'}", environ) == f"{VALUE}\n"


async def test_file_name_is_never_an_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = stand_in(tmp_path, 'for last; do :; done; printf %s "$last"')
    (tmp_path / "--help").write_text("x")
    monkeypatch.chdir(tmp_path)

    assert await read_value("sops:--help", environ) == str(tmp_path / "--help")


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        pytest.param(
            f"echo {VALUE} >&2; exit 128", "secret.source_denied", "no key that decrypts it", id="no key"
        ),
        pytest.param(f"echo {VALUE} >&2; exit 51", "secret.source_invalid", "changed after", id="changed"),
        pytest.param(f"echo {VALUE}; exit 1", "secret.source_unreachable", "exit code 1", id="failed"),
        pytest.param(f"echo {VALUE}; kill -9 $$", "secret.source_unreachable", "exit code -9", id="killed"),
        pytest.param(f"echo '{{{VALUE}'", "secret.source_invalid", "not JSON", id="not a document"),
        pytest.param("echo '{}'", "secret.source_missing", "no such value", id="no such key"),
        pytest.param("yes", "secret.source_invalid", "larger than 1024 KiB", id="endless output"),
    ],
)
async def test_failure_of_the_program_is_a_code_without_its_output(
    tmp_path: Path, script: str, code: str, said: str
) -> None:
    environ = stand_in(tmp_path, script)

    error = await failure_of(f"sops:{tmp_path / 'secrets.yaml'}#db", environ)

    assert (error.code, said in str(error)) == (code, True), error


async def test_program_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = stand_in(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 600")
    monkeypatch.setattr(sops_file, "SOPS_S", 0.5)

    error = await failure_of(f"sops:{tmp_path / 'secrets.yaml'}#db", environ)

    assert error.code == "secret.source_unreachable"
    assert not is_running((tmp_path / "pid").read_text().strip())


async def test_missing_file_starts_no_program(tmp_path: Path) -> None:
    environ = stand_in(tmp_path, f"touch {tmp_path}/started")

    error = await failure_of(f"sops:{tmp_path / 'none.yaml'}#db", environ)

    assert error.code == "secret.source_missing"
    assert not (tmp_path / "started").exists()


if shutil.which("sops"):  # no distribution has it, and a skipped test counts as failed

    async def test_file_of_the_real_program(tmp_path: Path) -> None:
        key = pyrage.x25519.Identity.generate()
        (tmp_path / "key.txt").write_text(f"{key}\n")
        (tmp_path / "other.txt").write_text(f"{pyrage.x25519.Identity.generate()}\n")
        path = tmp_path / "secrets.yaml"
        path.write_text(f"db:\n  password: {VALUE}\n")
        encrypt(path, str(key.to_public()))
        environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        assert VALUE not in path.read_text()

        value = await read_value(f"sops:{path}#db.password", environ, identity=str(tmp_path / "key.txt"))
        whole = await read_value(f"sops:{path}", environ, identity=str(tmp_path / "key.txt"))
        denied = await failure_of(f"sops:{path}#db.password", environ, identity=str(tmp_path / "other.txt"))
        path.write_text(path.read_text().replace("password", "passwort"))
        changed = await failure_of(f"sops:{path}#db.passwort", environ, identity=str(tmp_path / "key.txt"))

        assert (value, whole.split()) == (VALUE, ["db:", "password:", VALUE])
        assert denied.code == "secret.source_denied"
        assert changed.code in ("secret.source_invalid", "secret.source_unreachable")
