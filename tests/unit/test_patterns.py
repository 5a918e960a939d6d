"""No regular expression of ours takes more than linear time for a text from outside, or the text is bounded."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patterns import SCAN, SEARCH, WHOLE, Use, slow_text

TOP = Path(__file__).resolve().parents[2]

BOUNDED = {
    "ccm_agent.bus.connection.headers:_LINE": "a header block has at most 64 KiB, and _BLOCK has checked its lines",
    "ccm_agent.model.formats.validation_messages:Expected `(.*)`, got `(.*)`": "a message has at most 4,000 characters",
    "ccm_agent.model.formats.validation_messages:_UNKNOWN_FIELD": "a message has at most 4,000 characters",
    "ccm_agent.model.formats.validation_messages:_OTHER_MISFIT": "a message has at most 4,000 characters",
    "ccm_agent.model.formats.validation_messages:_STEP": "a message has at most 4,000 characters",
    "ccm_agent.templates.engines.go.semver:_CONSTRAINT": "a constraint has at most 512 characters",
    "ccm_agent.templates.engines.go.semver:_HYPHEN": "a constraint has at most 512 characters",
    "ccm_agent.templates.gjson_text:_STRUCTURE": "the caller stops at a quote that is not closed",
    "ccm_agent.templates.scan:_INSIDE_DOUBLE": "the caller stops at a quote that is not closed, and has a limit",
    "ccm_agent.templates.scan:_INSIDE_DOLLAR": "the caller stops at a quote that is not closed, and has a limit",
}
"""Patterns that are not linear, and why that does no harm."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("package", ["ccm_agent", "ccm_ctl"])
def test_patterns_take_linear_time(package: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.patterns", package],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=True,
    )

    slow = dict(line.split("\t") for line in done.stdout.splitlines())
    known = {name for name in BOUNDED if name.startswith(f"{package}.")}
    assert {name: text for name, text in slow.items() if name not in known} == {}
    assert known == set(slow)


@pytest.mark.parametrize(
    ("pattern", "way", "is_slow"),
    [
        pytest.param(r"[\w.-]+\s*[:=]", SEARCH, True, id="a search that begins at each character"),
        pytest.param(r"[\w.-]+\s*[:=]", WHOLE, False, id="the same at the text's start only"),
        pytest.param(r"(?<![\w.-])[\w.-]++\s*+[:=]", SEARCH, False, id="a search that begins at each word"),
        pytest.param(r"[0-9]+\.?[0-9]*", WHOLE, True, id="digits that two repetitions share"),
        pytest.param(r"(a+)+b", WHOLE, True, id="nested repetitions"),
        pytest.param(r"a|/\*.*?\*/|[/*]", SCAN, True, id="a scanner that looks for the end of each comment"),
        pytest.param(r"[a-z]+|[0-9]+", SCAN, False, id="a scanner of words"),
    ],
)
def test_the_tool_tells_linear_patterns_from_others(pattern: str, way: str, is_slow: bool) -> None:
    assert bool(slow_text(Use("it", re.compile(pattern), {way}))) is is_slow


@pytest.mark.parametrize("length", [20_000, 1_000_000])
def test_lint_takes_linear_time_for_a_long_line(length: int, tmp_path: Path) -> None:
    (tmp_path / "manifest.yaml").write_text(f"ccm:\n  resources:\n    - file: {'a' * length}\n")

    done = subprocess.run(
        [Path(sys.executable).with_name("ccm"), "lint", "manifest.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (5, 5)),
    )

    assert done.returncode == 1, done.stderr
    assert "manifest.yaml:3" in done.stdout
