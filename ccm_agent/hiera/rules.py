"""
Rules of a document for its own data, written as comments: `# @require` and `# @validate EXPRESSION`.

They apply to the final data, after the hierarchy, other documents and the caller's own values were merged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ccm_agent.model import codec
from ccm_agent.model.data import DataRule
from ccm_agent.model.errors import DataError, ExpressionError, Place
from ccm_agent.model.suggestions import did_you_mean
from ccm_agent.templates.allowance import Allowance

_ANNOTATION = re.compile(r"#[ \t]*@")
_MISSING = object()


def read_rules(
    text: str, source: str = "", data_key: str = "data"
) -> tuple[tuple[DataRule, ...], tuple[str, ...]]:
    """
    Return the rules in a document's comments, and warnings about comments that look like rules but are not.

    JSON has no comments. Comments outside `data_key` are ignored.
    """
    if not _ANNOTATION.search(text) or codec.is_json(text):
        return (), ()
    rules: dict[tuple[str, ...], DataRule] = {}
    warnings: list[str] = []
    for comment in codec.key_comments(text, source):
        if len(comment.path) < 2 or comment.path[0] != data_key or not comment.text.startswith("@"):
            continue
        path = comment.path[1:]
        rule = rules.get(path) or DataRule(path=path, source=source, line=comment.line)
        if comment.text in ("@require", "@required"):
            rules[path] = DataRule(
                path=path, required=True, expression=rule.expression, source=source, line=rule.line
            )
        elif comment.text.startswith("@validate ") and (expression := comment.text[10:].strip()):
            rules[path] = DataRule(
                path=path, required=rule.required, expression=expression, source=source, line=rule.line
            )
        else:
            warnings.append(f"{Place(source, comment.line)}: {_advice(comment.text)}")
    return tuple(rules.values()), tuple(warnings)


def check(data: Mapping[str, Any], rules: Sequence[DataRule]) -> None:
    """
    Check that the data satisfies every rule.

    The error never contains values, because they may be secret.

    Raises:
        DataError: Rules are violated; the error lists them, one per line.
    """
    allowance = Allowance()
    broken = [(rule, sentence) for rule in rules for sentence in _broken(data, rule, allowance)]
    if len(broken) == 1:
        rule, sentence = broken[0]
        raise DataError(sentence, place=Place(rule.source, rule.line))
    if broken:
        lines = "".join(f"\n  {Place(rule.source, rule.line)}: {sentence}" for rule, sentence in broken)
        raise DataError(f"the data violates {len(broken)} of its rules:{lines}")


def _broken(data: Mapping[str, Any], rule: DataRule, allowance: Allowance) -> list[str]:
    name = codec.path_text(rule.path).removeprefix("$").removeprefix(".")
    value = _find(data, rule.path)
    sentences = []
    if rule.required and value in (_MISSING, None, ""):
        sentences.append(f"the key `{name}` is required but has no value: set it in `data` or an override")
    if not rule.expression or value is _MISSING or value is None or isinstance(value, (Mapping, list)):
        return sentences
    try:
        if not holds(rule.expression, value, allowance):
            sentences.append(f"the value of `{name}` does not satisfy `{rule.expression}`")
    except ExpressionError as err:
        sentences.append(f"the rule `{rule.expression}` of `{name}` cannot be checked: {err}")
    return sentences


def _find(data: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        if not isinstance(data, Mapping) or part not in data:
            return _MISSING
        data = data[part]
    return data


def holds(expression: str, value: object, allowance: Allowance) -> bool:
    """Whether an expression is true for a value. It can use only the value, as text, and the validator functions."""
    from ccm_agent.hiera.validators import validator_functions
    from ccm_agent.templates.expr.program import ExpressionNames, compile_expression
    from ccm_agent.templates.goprint import go_print

    functions = validator_functions()
    names = ExpressionNames({"value": "text", "Value": "text"}, frozenset(functions))
    text = value if isinstance(value, str) else go_print(value)
    program = compile_expression(expression, names, is_condition=True, allowance=allowance)
    return bool(program.run({"value": text, "Value": text}, functions, allowance))


def _advice(text: str) -> str:
    word = text.split("(")[0].split()[0]
    if word in ("@require", "@required"):
        return f"`{text}` is not an annotation; write `@require` alone on its line"
    if word == "@validate":
        return f"`{text}` is not an annotation; write `@validate`, a space and an expression"
    return f"unknown annotation `{word}`{did_you_mean(word, ['@require', '@validate'])}"
