"""
Made-up calls and what Go answers to them.

A file of `data/` holds calls of one kind that were put together at random, with what Go 1.26's encoding, fmt and regexp and
version 3.5 of Masterminds' semver, and Sprig 3.3 gave for them: `{"input", "value"}`, or `{"input", "error": true}`.
"""

import json
from pathlib import Path

import pytest

from ccm_agent.model.errors import TemplateError
from ccm_agent.templates.engines.go import GoTemplate

DATA = Path(__file__).parent / "data"


def answer(text: str) -> str | None:
    """What a template prints; None when it fails."""
    try:
        return GoTemplate().render(text, {}, name="input")
    except TemplateError:
        return None


@pytest.mark.parametrize("path", sorted(DATA.glob("*.jsonl")), ids=lambda path: path.stem)
def test_calls_answer_as_gos_do(path: Path) -> None:
    cases = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]

    got = {case["input"]: answer(case["input"]) for case in cases}

    assert got == {case["input"]: case.get("value") for case in cases}
