"""Completion as shells ask for it: real processes, a real bash, and an operator who does not wait."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent


def environment(folder: Path, **more: str) -> dict[str, str]:
    return {"PATH": f"{BIN}:/usr/bin:/bin", "HOME": str(folder), "XDG_CONFIG_HOME": str(folder), **more}


@pytest.mark.parametrize(
    ("program", "line", "words"),
    [
        ("ccm", "ccm help agent pol", ["policy"]),
        ("ccm", "ccm ensure service x r", ["running"]),
        ("ccmctl", "ccmctl ensure service x enable=", ["false", "true"]),
        ("ccmctl", "ccmctl run sh", ["show"]),
    ],
)
def test_bash_completes_with_the_script_that_the_program_prints(
    program: str, line: str, words: list[str], tmp_path: Path
) -> None:
    script = subprocess.check_output(
        [BIN / program, "completion", "bash"], env=environment(tmp_path), text=True
    )
    press_tab = (
        f"compopt() {{ :; }}; COMP_LINE={line!r}; COMP_POINT={len(line)}; COMPREPLY=()\n"
        f"_{program}_completion {program}; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )

    done = subprocess.run(
        ["bash", "-c", f"{script}\n{press_tab}"],
        env=environment(tmp_path, NATS_URL="nats://127.0.0.1:1"),
        capture_output=True,
        text=True,
        check=True,
    )

    assert (done.stdout.split(), done.stderr) == (words, "")


def test_ctrl_c_while_the_broker_is_asked_prints_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"nats://127.0.0.1:{silent.getsockname()[1]}"
        line = {"COMP_LINE": "ccmctl why ", "COMP_POINT": "11", "_CCMCTL_COMPLETE": "bash_complete"}
        asking = subprocess.Popen(
            [BIN / "ccmctl"],
            env=environment(tmp_path, NATS_URL=url, **line),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        silent.settimeout(30)
        connection, _ = silent.accept()
        os.kill(asking.pid, signal.SIGINT)
        out, err = asking.communicate(timeout=30)
        connection.close()

    assert (asking.returncode, out, err) == (-signal.SIGINT, b"", b"")
