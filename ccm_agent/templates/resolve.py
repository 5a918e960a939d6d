"""
Strings, and whatever holds strings, with their expressions replaced by values.

A string that is one expression keeps the value's type where a value can stand, and is printed as Go prints it where only
text can. Everything here is cached by the string: a manifest of a thousand like resources is scanned and compiled once.
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
    from ccm_agent.templates.env import Environment
    from ccm_agent.templates.expr.program import ExpressionNames

# Functions of the environment that read something of the host or the network.
HOST_FUNCTIONS = frozenset(("readFile", "file", "template", "jet", "registrations", "kvGet"))

# The two shapes that nearly all expressions have are answered without the language, which need not be loaded for them.
# Whatever is not plain about the values goes the long way, so that there is one meaning and one set of errors.
_FACT_PATH = re.compile(r"(Facts|Data)((?:\.[A-Za-z_][A-Za-z0-9_]*)+)\Z")
_LOOKUP = re.compile(
    r"""lookup\(\ *(?:"([A-Za-z0-9_.-]+)"|'([A-Za-z0-9_.-]+)')\ *
        (?:,\ *(?:([0-9]{1,15})|"([^"\\\n\r]*)"|'([^'\\\n\r]*)'|(true|false))\ *)?\)\Z""",
    re.VERBOSE,
)
_MISSING = object()

VALUE_LIMIT = 500_000  # values in one value that is rendered
CACHED_LENGTH = 4096  # characters; a longer string is a file's content, and there is one of it
CACHE_LENGTH = 1024 * 1024  # characters of all strings that are kept


class _Expression(NamedTuple):
    """An expression in a string, with the short way to its value where it has one."""

    text: str
    path: tuple[str, ...]
    lookup: tuple[str, Any] | None


class _Parts(NamedTuple):
    """A string, taken apart: text and expressions in turn; `only` when it is one expression and blanks."""

    parts: tuple[str | _Expression, ...]
    only: _Expression | None


def _parts(text: str) -> _Parts | None:
    """The parts of a string, or None where it holds no expression."""
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


def _value(expression: _Expression, env: Environment) -> Any:
    if expression.path:
        found = _plain_path(expression.path, env)
        if found is not _MISSING:
            return found
    elif expression.lookup is not None:
        try:
            return env.lookup(*expression.lookup)
        except CcmError:
            pass  # the long way tells where it is
    return evaluate(expression.text, env)


def _plain_path(path: tuple[str, ...], env: Environment) -> Any:
    value: Any = env.variables
    for key in path:
        if not isinstance(value, dict) or key not in value:
            return _MISSING
        value = value[key]
    return value


@lru_cache(maxsize=64)
def _names(functions: frozenset[str]) -> ExpressionNames:
    from ccm_agent.templates.expr.program import ExpressionNames

    return ExpressionNames({"Facts": "map", "Data": "map", "Environ": "text map"}, functions)


def evaluate(expression: str, env: Environment) -> Any:
    """
    The value of an expression.

    Raises:
        ExpressionError: It does not parse, its types do not go together, or it fails on these values.
    """
    from ccm_agent.templates.expr.program import compile_expression

    program = compile_expression(expression, _names(env.function_names), allowance=env.allowance)
    return program.run(env.variables, env.functions, env.allowance)


def evaluate_condition(expression: str, env: Environment) -> bool:
    """
    The answer of an expression that must be boolean; nil is false.

    Raises:
        ExpressionError: As `evaluate`, or it gives something else.
    """
    from ccm_agent.templates.expr.program import compile_expression

    names = _names(env.function_names)
    program = compile_expression(expression, names, is_condition=True, allowance=env.allowance)
    return bool(program.run(env.variables, env.functions, env.allowance))


class Evaluated(NamedTuple):
    """
    An expression's value as an operator looks at it.

    Attributes:
        value: The value.
        text: What it prints as in a template.
    """

    value: Any
    text: str


def evaluate_shown(expression: str, env: Environment) -> Evaluated:
    """
    The value of an expression together with its text, for `ccm eval`.

    Raises:
        ExpressionError: As `evaluate`; `expr.faults.point` shows the place.
    """
    value = evaluate(expression, env)
    return Evaluated(value, go_print(value))


def render_text(text: str, env: Environment) -> str:
    """
    A string with its expressions replaced by what they print.

    Raises:
        ExpressionError: An expression is wrong or fails.
    """
    return render_matching(text, env)[0]


def render_matching(text: str, env: Environment) -> tuple[str, bool]:
    """
    A rendered string, and whether any of its expressions gave something.

    Nil and "" are nothing. Text without expressions counts as something unless it is empty.

    Raises:
        ExpressionError: An expression is wrong or fails.
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


def _printed(value: Any, env: Environment) -> str:
    """The text of a value; a long one costs a step for each character."""
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


def render_value(text: str, env: Environment) -> Any:
    """
    A rendered string; the value itself where the string is one expression.

    Raises:
        ExpressionError: An expression is wrong or fails.
    """
    parts = _parts(text)
    if parts is None:
        return text
    return render_text(text, env) if parts.only is None else _value(parts.only, env)


def needs_host(text: str, env: Environment) -> bool:
    """
    Whether rendering the string reads files, buckets or registrations, so that it should not happen on an event loop.

    A string that does not compile needs nothing.
    """
    parts = _parts(text)
    if parts is None:
        return False
    from ccm_agent.templates.expr.program import compile_expression

    names = _names(env.function_names)
    for part in parts.parts:
        if isinstance(part, str) or part.path or part.lookup is not None:
            continue
        try:
            if compile_expression(part.text, names).calls & HOST_FUNCTIONS:
                return True
        except CcmError:
            continue
    return False


def resolve(value: Any, env: Environment) -> Any:
    """
    A value with every string in it rendered, through lists and maps; keys stay as they are.

    Raises:
        ExpressionError: An expression is wrong or fails; the value holds more than VALUE_LIMIT values, since aliases in YAML
            make much of little, or is nested too deeply.
    """
    try:
        return _resolved(value, env, [VALUE_LIMIT])
    except RecursionError:
        raise ExpressionError("the data are nested too deeply to be rendered") from None


def _resolved(value: Any, env: Environment, room: list[int]) -> Any:
    room[0] -= 1
    if room[0] < 0:
        raise ExpressionError(f"the data hold more than {VALUE_LIMIT} values: are there aliases of aliases?")
    if isinstance(value, str):
        return render_value(value, env)
    if isinstance(value, dict):
        return {key: _resolved(item, env, room) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolved(item, env, room) for item in value]
    return value
