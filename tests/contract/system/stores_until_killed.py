"""
Store a file again and again, each time in a child that kills itself one step later than the one before.

A step is a call into C (open, write, fsync, rename …), before and after. Prints one JSON line for each child: the step, whether
it was killed, and what stands there then.

    python stores_until_killed.py DIRECTORY
"""

from __future__ import annotations

import json
import os
import signal
import sys
from types import FrameType
from typing import Any

from ccm_agent.system.atomic_write import write_atomically
from ccm_agent.system.threads import CancelFlag

OLD, NEW = b"old" * 1000, b"new" * 700_000
STEPS = 2000


def kill_at(step: int) -> None:
    """Kill this process at its so-many-th step from now on."""
    seen = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal seen
        if event in ("c_call", "c_return", "c_exception"):
            seen += 1
            if seen == step:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(count)


def describe(path: str) -> dict[str, Any]:
    """What a reader would find."""
    with open(path, "rb") as file:
        content = file.read()
    return {
        "content": {OLD: "old", NEW: "new"}.get(content, f"torn: {len(content)} bytes"),
        "mode": oct(os.stat(path).st_mode & 0o7777),
        "others": sorted(set(os.listdir(os.path.dirname(path))) - {"target"}),
    }


def main(directory: str) -> None:
    """Until a child lives to the end."""
    path = f"{directory}/target"
    for step in range(1, STEPS):
        write_atomically(path, OLD, "", "", 0o600, CancelFlag())
        child = os.fork()
        if child == 0:
            kill_at(step)
            write_atomically(path, NEW, "", "", 0o644, CancelFlag())
            sys.setprofile(None)
            os._exit(0)
        killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
        print(json.dumps({"step": step, "killed": killed, **describe(path)}))
        for name in set(os.listdir(directory)) - {"target"}:
            os.unlink(f"{directory}/{name}")
        if not killed:
            return


if __name__ == "__main__":
    main(sys.argv[1])
