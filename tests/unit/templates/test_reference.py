"""Every example of docs/reference/expressions.md does what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ccm_agent.model.codec import decode_yaml
from ccm_agent.model.errors import ExpressionError
from ccm_agent.templates.env import Environment
from ccm_agent.templates.expr.functions import FUNCTIONS
from ccm_agent.templates.expr.parser import PREDICATES
from ccm_agent.templates.expr.static_types import METHODS
from ccm_agent.templates.resolve import evaluate_shown

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "expressions.md"


def examples() -> list[Any]:
    blocks = re.findall(r"^```expr\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    return [pytest.param(*line.rsplit(" => ", 1), id=line.rsplit(" => ", 1)[0]) for line in lines]


@pytest.fixture(scope="module")
def environment() -> Environment:
    block = re.search(r"^```yaml\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert block is not None
    return Environment(**decode_yaml(block.group(1), "expressions.md"))


@pytest.mark.parametrize(("expression", "printed"), examples())
def test_examples_give_the_documented_results(
    environment: Environment, expression: str, printed: str
) -> None:
    if printed == "error":
        with pytest.raises(ExpressionError):
            evaluate_shown(expression, environment)
    else:
        assert " ".join(evaluate_shown(expression, environment).text.split()) == " ".join(printed.split())


def test_the_page_names_every_function_and_method() -> None:
    page = PAGE.read_text(encoding="utf-8")
    names = {*FUNCTIONS, *PREDICATES, *(method for methods in METHODS.values() for method in methods)}

    assert {name for name in names if not re.search(rf"\b{name}\b", page)} == set()
