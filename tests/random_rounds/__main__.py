"""
Play random rollouts on a real fleet until one goes wrong.

    python -m tests.random_rounds                     # 20 rounds from a new seed
    python -m tests.random_rounds --rounds 300
    python -m tests.random_rounds --seed 4711 --rounds 1    # the round of this seed again

The folder of the fleet, with the logs of its agents and the broker's streams, is kept if a round goes wrong.
"""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.random_rounds.judge import find_violations
from tests.random_rounds.plan import draw_round
from tests.random_rounds.play import RoundError, ground


def main() -> int:
    """Play; the exit code is 1 if any round went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.random_rounds", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    given = parser.parse_args()
    wrong = 0
    directory = Path(tempfile.mkdtemp(prefix="ccm-rounds-"))
    with ground(directory) as one:
        for seed in range(given.seed, given.seed + given.rounds):
            drawn = draw_round(seed)
            began = time.monotonic()
            try:
                played = one.play(drawn)
                problems = find_violations(one, played)
            except (RoundError, AssertionError) as err:
                problems = [str(err)]
            wrong += bool(problems)
            took = time.monotonic() - began
            faults = " ".join(f"{fault.what}:{fault.who}@{fault.after_s}" for fault in drawn.faults)
            print(f"seed {seed}: {drawn.kind} {' '.join(drawn.options)} [{faults}] {took:.1f}s")
            for problem in problems:
                print(f"    WRONG: {problem}")
            sys.stdout.flush()
    if wrong:
        print(f"kept: {directory}")
    else:
        shutil.rmtree(directory)
    print(f"{given.rounds} rounds from seed {given.seed}, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
