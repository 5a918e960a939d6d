"""Readers of what others wrote: 50,000 inputs that no honest writer wrote, and no crash, hang or growth."""

from __future__ import annotations

import ast
import resource
from itertools import islice
from pathlib import Path

import pytest

from tests.fuzz.fuzzing import feed, in_time, inputs
from tests.fuzz.targets import EXEMPT, TARGETS, Target

TOP = Path(__file__).parents[2]
INPUTS = 50_000
GROWTH_KIB = 256 << 10


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


def test_every_decoder_has_a_target() -> None:
    found = {
        f"{'.'.join(path.relative_to(TOP).with_suffix('').parts)}:{node.name}"
        for package in ("ccm_agent", "ccm_ctl")
        for path in (TOP / package).rglob("*.py")
        if "testing" not in path.parts
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith(("parse_", "decode_"))
    }

    assert found - {target.name for target in TARGETS} - EXEMPT.keys() == set()
