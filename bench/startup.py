"""Start-up time: how long a user waits before anything happens."""

from __future__ import annotations

import getpass
import grp
import os
import sys
import tempfile
from pathlib import Path

from bench.measure import BIN, ROUNDS, Line, ratio, seconds, side_by_side


def measure() -> list[Line]:
    """Measure `--version` of both programs, and `ccm apply` of one unchanged file."""
    python = sys.executable
    bare, ccm, ccmctl = side_by_side(
        ROUNDS,
        lambda: seconds([python, "-c", "pass"]),
        lambda: seconds([str(BIN / "ccm"), "--version"]),
        lambda: seconds([str(BIN / "ccmctl"), "--version"]),
    )
    with tempfile.TemporaryDirectory() as folder:
        target, manifest = Path(folder, "motd"), Path(folder, "m.yaml")
        group = grp.getgrgid(os.getgid()).gr_name
        manifest.write_text(
            "ccm:\n  resources:\n    - file:\n"
            f"        - {target}: {{ensure: present, content: hello, owner: {getpass.getuser()}, group: {group}, "
            'mode: "0644"}\n'
        )
        seconds([str(BIN / "ccm"), "apply", str(manifest)])
        imports, apply = side_by_side(
            ROUNDS,
            lambda: seconds([python, "-c", "import asyncio, msgspec, yaml"]),
            lambda: seconds([str(BIN / "ccm"), "apply", str(manifest)]),
        )
    return [
        ratio("ccm --version", ccm, bare, 3, "python -c pass"),
        ratio("ccmctl --version", ccmctl, bare, 3, "python -c pass"),
        ratio("ccm apply of one file that is right", apply, imports, 1.4, "importing asyncio, msgspec, yaml"),
    ]
