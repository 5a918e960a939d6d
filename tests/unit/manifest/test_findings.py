"""How a finding is shown: the sentence, the line and the mark below the word."""

from __future__ import annotations

import pytest

from ccm_agent.manifest.findings import Finding, format_finding
from ccm_agent.model.errors import Place


def shown(line: str, column: int, before: int = 0) -> str:
    """What stands below the sentence."""
    text = "\n" * before + line + "\n"
    finding = Finding(
        level="error", rule="form", message="wrong", place=Place("m.yaml", before + 1, column, "$.a")
    )
    first, _, rest = format_finding(finding, text).partition("\n")
    assert first == f"m.yaml:{before + 1}{f':{column}' if column else ''}: error: wrong [form]"
    return rest


@pytest.mark.parametrize(
    ("line", "column", "expected"),
    [
        pytest.param("a: {b: c}", 5, "  1 | a: {b: c}\n    |     ^", id="one character"),
        pytest.param("  contents: x", 3, "  1 |   contents: x\n    |   ^^^^^^^^", id="the word"),
        pytest.param("  # note", 0, "  1 |   # note\n    |   ^", id="no column"),
        pytest.param("a: b", 9, "  1 | a: b\n    |     ^", id="behind the line"),
        pytest.param("\ta\x1b[31mred", 2, "  1 |  a [31mred\n    |  ^^", id="no control characters"),
        pytest.param("日本: x", 5, "  1 | 日本: x\n    |       ^", id="wide characters"),
    ],
)
def test_the_line_is_shown_with_a_mark(line: str, column: int, expected: str) -> None:
    assert shown(line, column) == expected


def test_a_long_line_is_cut_around_the_place() -> None:
    line = f"{'a' * 100}: {'b' * 100}"

    excerpt, mark = shown(line, 103, before=11).split("\n")

    assert excerpt == f"  12 | {line[62:134]}"
    assert mark == f"     | {' ' * 40}{'^' * 32}"


@pytest.mark.parametrize(
    ("line", "column", "expected"),
    [
        pytest.param("password: hunter2", 1, "  1 | password: ***\n    | ^^^^^^^^", id="a key that says so"),
        pytest.param(
            "- x: {api_key: 'a, b', c: d}",
            24,
            "  1 | - x: {api_key: ***\n    | ^",
            id="the mark stands before",
        ),
        pytest.param(
            "url: https://u:p@x/y", 1, "  1 | url: https://***@x/y\n    | ^^^", id="the password of a URL"
        ),
        pytest.param(
            "environment: [DB_PASS=x]",
            15,
            "  1 | environment: [DB_PASS=***\n    |               ^^^^^^^^^^^",
            id="a variable",
        ),
    ],
)
def test_secrets_of_a_line_are_masked(line: str, column: int, expected: str) -> None:
    assert shown(line, column) == expected


def test_a_finding_without_a_line_has_no_excerpt() -> None:
    finding = Finding(level="warning", rule="form", message="wrong", place=Place(path="$.a"))

    assert format_finding(finding, "a: 1\n") == "$.a: warning: wrong [form]"
