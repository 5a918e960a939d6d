"""Readers of what others wrote: 50,000 inputs that no honest writer wrote, and no crash, hang or growth."""

from __future__ import annotations

import resource
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from tests.fuzz.decoders import EXEMPT, PACKAGES, TOP, decoders, decoders_in
from tests.fuzz.fuzzing import feed, in_time, inputs
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS

INPUTS = 50_000
GROWTH_KIB = 256 << 10


@pytest.fixture(scope="module")
def run() -> set[str]:
    """Every function that a target runs, seen in a process of its own: caches of this one would hide some."""
    command = [sys.executable, "-m", "tests.fuzz.decoders"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=TOP)
    return set(done.stdout.split())


@pytest.mark.timeout(120)
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_nothing_that_is_read_breaks_its_reader(target: Target) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    with in_time():
        for data in islice(inputs(target, 1), INPUTS // len(TARGETS) + 1):
            try:
                feed(target, data)
            except Exception as err:
                raise AssertionError(f"{target.name} reads {data!r}: {type(err).__name__}: {err}") from err

    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < GROWTH_KIB


def test_every_decoder_is_run_by_a_target_or_exempt_with_a_reason(run: set[str]) -> None:
    assert decoders() - run == EXEMPT.keys()


def test_a_target_that_names_a_function_runs_it(run: set[str]) -> None:
    named = {target.name for target in TARGETS if target.name.startswith(PACKAGES)}

    assert named - run == set()


def test_a_function_that_calls_a_decoding_library_is_found(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text(
        "class A:\n"
        "    async def b(self): return [json.loads(x) for x in self]\n"
        "    def c(self): return json.dumps(self)\n"
        "def _parse_d(text):\n"
        "    def e(): return base64.b64decode(text)\n"
    )

    assert decoders_in(source) == {"A.b", "_parse_d", "_parse_d.<locals>.e"}
