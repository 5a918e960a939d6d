"""A value that a program prints, for `ccmctl secret rotate --with`."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest

from ccm_agent.model.errors import CcmError, InputError, UsageError
from ccm_ctl.commands.keys.secret_values import LIMIT_BYTES, make_value

PYTHON = shlex.quote(sys.executable)


def prints(code: str) -> str:
    return f"{PYTHON} -c {shlex.quote(code)}"


@pytest.mark.parametrize(
    ("code", "value"),
    [
        pytest.param("print('Kf9wQ2vLx7')", "Kf9wQ2vLx7", id="without its last newline"),
        pytest.param("print('a\\n')", "a\n", id="and no other one"),
        pytest.param("import sys; print(repr(sys.stdin.read()))", "''", id="standard input is empty"),
        pytest.param("import sys; print('shown', file=sys.stderr); print('x')", "x", id="errors are dropped"),
    ],
)
async def test_the_value_is_what_the_program_prints(
    code: str, value: str, capfd: pytest.CaptureFixture[str]
) -> None:
    found = await make_value(prints(code))

    assert found.reveal() == value
    assert capfd.readouterr() == ("", "")


async def test_no_shell_expands_its_arguments(tmp_path: Path) -> None:
    found = await make_value(f"echo '$HOME' ; touch {tmp_path}/made > {tmp_path}/made")

    assert found.reveal() == f"$HOME ; touch {tmp_path}/made > {tmp_path}/made"
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("command", "kind", "why"),
    [
        ("echo 'open", UsageError, "No closing quotation"),
        ("  ", UsageError, "no program given"),
        ("/nonexistent/program", InputError, "/nonexistent/program cannot be started: No such file"),
        (prints("print('Kf9wQ2vLx7'); raise SystemExit(3)"), InputError, "failed with exit code 3"),
        (prints(f"print('x' * {LIMIT_BYTES})"), InputError, "more than the limit of a secret"),
        (prints("import sys; sys.stdout.buffer.write(b'\\xff\\xfe')"), CcmError, "the output of"),
        ("yes Kf9wQ2vLx7", InputError, "yes printed more than the limit of a secret"),
    ],
)
async def test_what_gives_no_value_is_an_error_without_it(
    command: str, kind: type[CcmError], why: str
) -> None:
    with pytest.raises(kind, match=why) as caught:
        await make_value(command)

    assert "Kf9wQ2vLx7" not in str(caught.value)
