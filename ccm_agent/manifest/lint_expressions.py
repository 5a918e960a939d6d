"""Checks expressions without evaluating them."""

from __future__ import annotations

from typing import Any

from ccm_agent.manifest.document import Path
from ccm_agent.manifest.expressions import has_markers
from ccm_agent.manifest.findings import ERROR, WARNING, Report
from ccm_agent.model.errors import ExpressionError
from ccm_agent.model.gathered import unknown_fields
from ccm_agent.templates.scan import find_spans

_KINDS = {"Facts": "map", "Data": "map", "Environ": "text map", "item": "any", "result": "any"}
PLAIN_NAMES = ("Facts", "Data", "Environ")
ITEM_NAMES = (*PLAIN_NAMES, "item")
"""The variables of expressions in a resource with `for_each`."""


def lint_templates(
    report: Report,
    value: Any,
    path: Path,
    names: tuple[str, ...] = PLAIN_NAMES,
    functions: frozenset[str] | None = None,
) -> None:
    """
    Check that every expression in a value parses, uses only existing names, and has matching types.

    Args:
        report: Receives the findings.
        value: Texts, or lists and mappings of texts.
        path: The path of the value.
        names: The variables that expressions may use.
        functions: The functions that expressions may use; None for the functions of resources.
    """
    if isinstance(value, dict):
        for key, one in value.items():
            lint_templates(report, one, (*path, key), names, functions)
    elif isinstance(value, list):
        for number, one in enumerate(value):
            lint_templates(report, one, (*path, number), names, functions)
    elif isinstance(value, str) and has_markers(value):
        spans = find_spans(value)
        for span in spans:
            _lint(report, span.expression, path, names, functions, is_condition=False)
        _unclosed(report, value, spans[-1].end if spans else 0, path)


def _unclosed(report: Report, text: str, end: int, path: Path) -> None:
    """Warn about an opening delimiter after the last expression."""
    rest = text[end:]
    for opener, closer in (("{{", "}}"), ("${", "}")):
        if opener in rest and closer not in rest[rest.index(opener) :]:
            message = f"`{opener}` has no `{closer}`, so it is text and not an expression: close it"
            report.add(WARNING, "unclosed", message, path)
            return


def lint_condition(report: Report, expression: str, path: Path, names: tuple[str, ...] = PLAIN_NAMES) -> None:
    """Check an expression that must return a boolean."""
    _lint(report, expression, path, names, None, is_condition=True)


def _lint(
    report: Report,
    text: str,
    path: Path,
    names: tuple[str, ...],
    functions: frozenset[str] | None,
    *,
    is_condition: bool,
) -> None:
    from ccm_agent.templates.env import Environment
    from ccm_agent.templates.expr.program import ExpressionNames, compile_expression

    callable_here = frozenset(Environment().functions) if functions is None else functions
    known = ExpressionNames({name: _KINDS[name] for name in names}, callable_here)
    try:
        compile_expression(text, known, is_condition=is_condition)
    except ExpressionError as err:
        report.add(ERROR, "expression", err.message, path)
    for sentence in unknown_fields(text):
        report.add(WARNING, "fact", f"{sentence} (unless a custom fact adds it)", path)
