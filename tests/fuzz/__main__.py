"""`make fuzz`: feed all readers until stopped, or for SECONDS; what is found ends it, with the input."""

from __future__ import annotations

import math
import os
import sys
import time

from tests.fuzz.fuzzing import run_for
from tests.fuzz.targets import TARGETS


def main() -> int:
    """The exit status: 1 when something was found."""
    seed = int(os.environ.get("SEED") or time.time())
    sys.stdout.write(f"fuzzing {len(TARGETS)} readers with SEED={seed}\n")
    try:
        count, found = run_for(TARGETS, float(os.environ.get("SECONDS") or math.inf), seed)
    except KeyboardInterrupt:
        return 0
    sys.stdout.write(f"{count} inputs\n{found}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
