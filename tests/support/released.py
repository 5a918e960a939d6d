"""The released form of the programs, for tests of an upgrade."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.fleet import TOP

RELEASED = "9071190f"
"""The commit whose agents and controllers must work beside those of this tree."""


def unpack_released(folder: Path) -> None:
    """
    Unpack the source tree of the released form from the history of this repository.

    tar(1) unpacks it: the `filter` of Python's tarfile is missing before Python 3.11.4.
    """
    command = ["git", "archive", RELEASED, "ccm_agent", "ccm_ctl", "schemas"]
    packed = subprocess.run(command, cwd=TOP, capture_output=True, check=True)
    subprocess.run(["tar", "-x", "-C", folder], input=packed.stdout, check=True)
