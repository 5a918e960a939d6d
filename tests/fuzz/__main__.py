"""
`make fuzz`: feed all readers until stopped, or for SECONDS; what is found ends it, with the input.

ONLY=cron chooses targets with this in their name. ENGINE=atheris lets the lines that an input reaches guide the next ones.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import time

from tests.fuzz.fuzzing import run_for
from tests.fuzz.guided import run_guided
from tests.fuzz.targets import TARGETS


def main() -> int:
    """The exit status: 1 when something was found."""
    seed = int(os.environ.get("SEED") or time.time())
    seconds = float(os.environ.get("SECONDS") or math.inf)
    targets = [target for target in TARGETS if os.environ.get("ONLY", "") in target.name]
    if not targets:
        sys.stderr.write(f"no target has {os.environ['ONLY']!r} in its name\n")
        return 1
    # readers say in the log what they leave out, once for each input
    logging.disable(logging.CRITICAL)
    try:
        if os.environ.get("ENGINE") == "atheris":
            return run_guided([target.name for target in targets], seconds)
        sys.stdout.write(f"fuzzing {len(targets)} readers with SEED={seed}\n")
        count, found = run_for(targets, seconds, seed)
    except KeyboardInterrupt:
        return 0
    sys.stdout.write(f"{count} inputs\n{found}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
