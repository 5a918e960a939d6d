"""
`make fuzz ENGINE=atheris`: the same targets, guided by the lines that inputs reach.

atheris is not a dependency of the project: it has wheels for some Pythons and processors only. Install it with
`.venv/bin/python -m pip install atheris`. It never returns from a run, so each target has a process of its own for a while. What
reached new lines is kept in .cache/fuzz for the next run.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import subprocess
import sys
import time
from pathlib import Path

CORPUS = Path(__file__).parents[2] / ".cache/fuzz"
TURN_S = 30
LONGEST = 4096


def run_guided(names: list[str], seconds: float) -> int:
    """Let each target run in turn until the time is over or one fails; the exit status."""
    if importlib.util.find_spec("atheris") is None:
        sys.stderr.write("atheris is missing: .venv/bin/python -m pip install atheris\n")
        return 1
    end = time.monotonic() + seconds
    turn_s = max(1, min(TURN_S, int(seconds / len(names)))) if seconds < TURN_S * len(names) else TURN_S
    while time.monotonic() < end:
        for name in names:
            sys.stdout.write(f"{name}: {turn_s} s\n")
            sys.stdout.flush()
            command = [sys.executable, "-m", "tests.fuzz.guided", name, str(turn_s)]
            done = subprocess.run(command, check=False, capture_output=True, text=True, errors="replace")
            if done.returncode:
                sys.stdout.write(done.stdout[-4000:] + done.stderr[-4000:])
                return 1
    return 0


def main(name: str, seconds: str) -> None:
    """Run one target; libFuzzer ends the process."""
    import atheris

    with atheris.instrument_imports(include=["ccm_agent", "ccm_ctl"]):
        from tests.fuzz.targets import TARGETS
    from tests.fuzz.fuzzing import feed, in_time

    logging.disable(logging.CRITICAL)
    target = next(target for target in TARGETS if target.name == name)
    corpus = CORPUS / re.sub(r"\W+", "_", name)
    corpus.mkdir(parents=True, exist_ok=True)
    for number, sample in enumerate(target.samples):
        (corpus / f"sample-{number}").write_bytes(sample)
    options = [
        f"-max_total_time={seconds}",
        f"-max_len={LONGEST}",
        f"-artifact_prefix={CORPUS}/",
        str(corpus),
    ]
    atheris.Setup([sys.argv[0], *options], lambda data: feed(target, data))
    with in_time():
        atheris.Fuzz()


if __name__ == "__main__":
    os.nice(5)
    main(*sys.argv[1:])
