#!/usr/bin/env python3
"""
Print the help screens and the common errors of `ccm` and `ccmctl` as one text, for review.

    screens.py    print everything (`make screens` writes it to .cache/screens.txt)
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click

BIN = Path(sys.executable).parent
ERRORS = Path(__file__).with_name("errors.txt")
WIDTH = "100"


def help_screens() -> Iterator[list[str]]:
    """Return the command line of every help screen, parents before children."""
    from ccm_agent.cli.program import program
    from ccm_ctl.__main__ import VERBS
    from ccm_ctl.commands.command_tree import CtlProgram

    yield from _below(program, ["ccm"])
    yield from _below(CtlProgram(VERBS), ["ccmctl"])


def _below(command: click.Command, path: list[str]) -> Iterator[list[str]]:
    yield [*path, "--help"]
    if not isinstance(command, click.Group):
        return
    with click.Context(command, info_name=path[-1]) as context:
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None:
                yield from _below(child, [*path, name])


def failing_commands() -> Iterator[str]:
    """Return command lines that fail, one per line of errors.txt."""
    for line in ERRORS.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            yield line


def shown(command: list[str] | str, folder: Path) -> str:
    """Return the output of a command, after the command line itself."""
    words = command if isinstance(command, list) else ["sh", "-c", command]
    environ = {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "HOME": str(folder),
        "COLUMNS": WIDTH,
        "LC_ALL": "C.UTF-8",
        "CCM_SERVERS": "nats://127.0.0.1:1",
    }
    done = subprocess.run(
        words,
        cwd=folder,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    line = command if isinstance(command, str) else " ".join(command)
    return f"$ {line}\n{done.stdout.rstrip()}\n[exit {done.returncode}]\n"


def main() -> None:
    """Print every screen."""
    with tempfile.TemporaryDirectory() as temporary:
        for command in (*help_screens(), *failing_commands()):
            print(shown(command, Path(temporary)), flush=True)


if __name__ == "__main__":
    main()
