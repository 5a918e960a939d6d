"""
Replace the expressions in strings, and in lists and maps of strings, with their values.

A string that is a single expression keeps the type of its value if any type is allowed. If only text is
allowed, the value is printed as in Go. Results of scanning and compiling are cached by the string, so a
manifest with a thousand similar resources is compiled once.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ccm_agent.model.errors import CcmError, ExpressionError, TemplateError
from ccm_agent.templates.allowance import LONG_TEXT, size_of
from ccm_agent.templates.goprint import PRINT_LIMIT, go_print
from ccm_agent.templates.scan import GO_SPACE, find_spans
from ccm_agent.templates.text_cache import TextCache

if TYPE_CHECKING:
    from ccm_agent.templates.expr.program import ExpressionNames
    from ccm_agent.templates.lookup import ExpressionScope


# The two most common forms of expressions are evaluated here, without loading the expression language.
# Special cases fall back to the language, so semantics and errors are the same.
_FACT_PATH = re.compile(r"(Facts|Data)((?:\.[A-Za-z_][A-Za-z0-9_]*)+)\Z")
_LOOKUP = re.compile(
    r"""lookup\(\ *(?:"([A-Za-z0-9_.-]+)"|'([A-Za-z0-9_.-]+)')\ *
        (?:,\ *(?:([0-9]{1,15})|"([^"\\\n\r]*)"|'([^'\\\n\r]*)'|(true|false))\ *)?\)\Z""",
    re.VERBOSE,
)
_MISSING = object()

VALUE_LIMIT = 500_000  # maximum number of values inside one rendered value
CACHED_LENGTH = 4096  # in characters; a longer string is likely the content of a file that occurs once
CACHE_LENGTH = 1024 * 1024  # limit of the characters of all cached strings


class _Expression(NamedTuple):
    """An expression in a string, with its fast evaluation if it has one."""

    text: str
    path: tuple[str, ...]
    lookup: tuple[str, Any] | None


class _Parts(NamedTuple):
    """
    A string split into text and expressions; `only` is set if it consists of one expression and white
    space.
    """

    parts: tuple[str | _Expression, ...]
    only: _Expression | None


def _parts(text: str) -> _Parts | None:
    """Return the parts of a string, or None if it contains no expression."""
    if "{{" not in text and "${" not in text:
        return None
    kept = _kept.get(text)
    if kept is not None:
        return kept[0]
    parts = _take_apart(text)
    if len(text) <= CACHED_LENGTH:
        _kept.put(text, (parts,), len(text))
    return parts


_kept: TextCache[str, tuple[_Parts | None]] = TextCache(CACHE_LENGTH)


def _take_apart(text: str) -> _Parts | None:
    spans = find_spans(text)
    if not spans:
        return None
    parts: list[str | _Expression] = []
    at = 0
    for span in spans:
        if span.start > at:
            parts.append(text[at : span.start])
        parts.append(_expression(span.expression))
        at = span.end
    if at < len(text):
        parts.append(text[at:])
    first = spans[0]
    is_only = len(spans) == 1 and not (text[: first.start] + text[first.end :]).strip(GO_SPACE)
    return _Parts(tuple(parts), _expression(first.expression) if is_only else None)


def _expression(text: str) -> _Expression:
    path = _FACT_PATH.match(text)
    if path is not None:
        return _Expression(text, (path.group(1), *path.group(2)[1:].split(".")), None)
    lookup = _LOOKUP.match(text)
    if lookup is None:
        return _Expression(text, (), None)
    double, single, number, double_text, single_text, boolean = lookup.groups()
    default: Any = None
    if number is not None:
        default = int(number)
    elif boolean is not None:
        default = boolean == "true"
    elif double_text is not None or single_text is not None:
        default = double_text if double_text is not None else single_text
    return _Expression(text, (), (double or single, default))


def _value(expression: _Expression, env: ExpressionScope) -> Any:
    if expression.path:
        found = _plain_path(expression.path, env)
        if found is not _MISSING:
            return found
    elif expression.lookup is not None:
        try:
            return env.lookup(*expression.lookup)
        except CcmError:
            pass  # the full evaluation reports the place
    return evaluate(expression.text, env)


def _plain_path(path: tuple[str, ...], env: ExpressionScope) -> Any:
    value: Any = env.variables
    for key in path:
        if not isinstance(value, dict) or key not in value:
            return _MISSING
        value = value[key]
    return value


@lru_cache(maxsize=64)
def _names(functions: frozenset[str], added: tuple[str, ...]) -> ExpressionNames:
    from ccm_agent.templates.expr.program import ExpressionNames

    plain = {"Facts": "map", "Data": "map", "Environ": "text map"}
    return ExpressionNames(plain | dict.fromkeys(added, "any"), functions)


def evaluate(expression: str, env: ExpressionScope) -> Any:
    """
    Return the value of an expression.

    Raises:
        ExpressionError: The expression does not parse, its types do not match, or it fails on these values.
    """
    from ccm_agent.templates.expr.program import compile_expression

    program = compile_expression(expression, _names(env.function_names, env.added), allowance=env.allowance)
    return program.run(env.variables, env.functions, env.allowance)


def evaluate_condition(expression: str, env: ExpressionScope) -> bool:
    """
    Evaluate an expression that must be boolean; nil is false.

    Raises:
        ExpressionError: See `evaluate`, or the result is not a boolean.
    """
    from ccm_agent.templates.expr.program import compile_expression

    names = _names(env.function_names, env.added)
    program = compile_expression(expression, names, is_condition=True, allowance=env.allowance)
    return bool(program.run(env.variables, env.functions, env.allowance))


class Evaluated(NamedTuple):
    """
    An expression's value for display to an operator.

    Attributes:
        value: The value.
        text: Its text in a template.
    """

    value: Any
    text: str


def evaluate_shown(expression: str, env: ExpressionScope) -> Evaluated:
    """
    Return the value of an expression with its text, for `ccm eval`.

    Raises:
        ExpressionError: See `evaluate`; `evaluation_errors.point` shows the place.
    """
    value = evaluate(expression, env)
    return Evaluated(value, go_print(value))


def render_text(text: str, env: ExpressionScope) -> str:
    """
    Replace the expressions in a string with the texts of their values.

    Raises:
        ExpressionError: An expression is invalid or fails.
    """
    return render_matching(text, env)[0]


def render_matching(text: str, env: ExpressionScope) -> tuple[str, bool]:
    """
    Return a rendered string, and whether any of its expressions has a value.

    Nil and "" are not values here. Text without expressions is a value unless it is empty.

    Raises:
        ExpressionError: An expression is invalid or fails.
    """
    parts = _parts(text)
    if parts is None:
        return text, text != ""
    out: list[str] = []
    has_something = False
    for part in parts.parts:
        if isinstance(part, str):
            out.append(part)
            continue
        value = _value(part, env)
        has_something = has_something or (value is not None and value != "")
        out.append(_printed(value, env))
    made = "".join(out)
    if len(made) > LONG_TEXT:
        env.allowance.hold(size_of(made))
    return made, has_something


def _printed(value: Any, env: ExpressionScope) -> str:
    """Return the text of a value. A long text costs a step for each character."""
    if isinstance(value, str):
        return value
    limit = min(PRINT_LIMIT, env.allowance.steps + LONG_TEXT)
    try:
        text = go_print(value, limit)
    except TemplateError:
        if limit < PRINT_LIMIT:
            env.allowance.spend(limit)
        raise
    if len(text) > LONG_TEXT:
        env.allowance.spend(len(text))
    return text


def render_value(text: str, env: ExpressionScope) -> Any:
    """
    Render a string; return the value itself if the string is a single expression.

    Raises:
        ExpressionError: An expression is invalid or fails.
    """
    parts = _parts(text)
    if parts is None:
        return text
    return render_text(text, env) if parts.only is None else _value(parts.only, env)


def resolve(value: Any, env: ExpressionScope) -> Any:
    """
    Render all strings in a value, including lists and maps; keys are not rendered.

    Raises:
        ExpressionError: An expression is invalid or fails, the value is nested too deeply, or it contains more
            than VALUE_LIMIT values. A small YAML document with aliases can exceed that limit.
    """
    try:
        return _resolved(value, env, [VALUE_LIMIT])
    except RecursionError:
        raise ExpressionError("the data are nested too deeply to be rendered") from None


def _resolved(value: Any, env: ExpressionScope, room: list[int]) -> Any:
    room[0] -= 1
    if room[0] < 0:
        raise ExpressionError(
            f"the data contain more than {VALUE_LIMIT} values: are there aliases of aliases?"
        )
    if isinstance(value, str):
        return render_value(value, env)
    if isinstance(value, dict):
        return {key: _resolved(item, env, room) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolved(item, env, room) for item in value]
    return value
