"""
Bounds for Jinja, which counts nothing itself.

So that no template can run or grow without end, its loops, its joining of text and everything it prints go through filters of
ours that count (`counting` puts them into the tree), and what could make something huge at once (`"a" * 10**9`, `center`,
`%999999d`) is looked at before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from ccm_agent.model.errors import TemplateError
from ccm_agent.templates.engines.bounds import OUTPUT_MAX, Budget, check_count, check_length
from ccm_agent.templates.values import GoValue

if TYPE_CHECKING:
    from jinja2 import Environment, nodes

_CONSTANT_TEXT_MAX = 256 * 1024 * 1024  # characters of the template's own text that its loops may repeat
_POWER_BITS_MAX = 4_096
CALL_STEPS = 5  # what a call counts as: Jinja's macros take their time
_WIDE_FORMAT = re.compile(r"%[^a-zA-Z%]*?(?:[0-9]{6}|\*)|\{[^{}]*[0-9]{6}|\{[^{}]*\{")

budget: ContextVar[Room | None] = ContextVar("jinja budget", default=None)


class Room(Budget):
    """What is left to one render, and how much of the template's own text its loops may still repeat."""

    __slots__ = ("constant",)

    def __init__(self) -> None:
        super().__init__()
        self.constant = _CONSTANT_TEXT_MAX

    def iterate(self, weight: int) -> None:
        """Count an iteration whose body holds so much text."""
        self.step()
        self.constant -= weight
        if self.constant < 0:
            raise TemplateError("a loop repeats too much text")


# -- counting

COUNT, CONCAT, STEP = "ccm_count", "ccm_concat", "ccm_step"


def counting(tree: nodes.Template) -> nodes.Template:
    """The tree with its loops, joins and beginnings going through filters that count."""
    from jinja2 import nodes

    for loop in list(tree.find_all(nodes.For)):
        weight = sum(len(data.data) for data in loop.find_all(nodes.TemplateData))
        loop.iter = _filter(loop.iter, COUNT, nodes.Const(weight), line=loop.lineno)
    for node in list(tree.find_all(nodes.Node)):
        for field, value in node.iter_fields():
            if isinstance(value, nodes.Concat):
                setattr(node, field, _joining(value))
            elif isinstance(value, list):
                value[:] = [_joining(item) if isinstance(item, nodes.Concat) else item for item in value]
    beginning = nodes.ExprStmt(_filter(nodes.Const(0), STEP, line=1), lineno=1)
    tree.body.insert(_first_statement(tree), beginning)
    if tree.environment is not None:
        tree.set_environment(tree.environment)
    return tree


def _first_statement(tree: nodes.Template) -> int:
    """Where a statement may be put without standing before an `extends`."""
    from jinja2 import nodes

    return next((index + 1 for index, node in enumerate(tree.body) if isinstance(node, nodes.Extends)), 0)


def _joining(concat: nodes.Concat) -> nodes.Filter:
    from jinja2 import nodes

    return _filter(nodes.List(concat.nodes, lineno=concat.lineno), CONCAT, line=concat.lineno)


def _filter(target: nodes.Node, name: str, *arguments: nodes.Expr, line: int) -> nodes.Filter:
    from jinja2 import nodes

    assert isinstance(target, nodes.Expr)
    return nodes.Filter(target, name, list(arguments), [], None, None, lineno=line)


def counted(items: Iterable[Any], weight: int) -> Iterator[Any]:
    for item in items:
        room = budget.get()
        if room is not None:
            room.iterate(weight)
        yield item


def concatenated(parts: list[Any]) -> str:
    texts = list(map(str, parts))
    check_length(sum(map(len, texts)))
    text = "".join(texts)
    count_text(text)
    return text


def stepped(value: Any) -> Any:
    count_step()
    return value


def count_step(steps: int = 1) -> None:
    room = budget.get()
    if room is not None:
        for _ in range(steps):
            room.step()


def count_text(value: Any) -> None:
    room = budget.get()
    if room is not None and isinstance(value, str):
        room.write(len(value))


def finalize(value: Any) -> Any:
    """What is printed for a value; everything printed is counted, in a macro or a block set too."""
    if isinstance(value, (list, tuple, dict)):
        parts: list[str] = []
        _show(value, parts, [OUTPUT_MAX])
        text = "".join(parts)
    else:
        text = value.go_text() if isinstance(value, GoValue) else str(value)
    count_text(text)
    return text


def _show(value: Any, parts: list[str], room: list[int]) -> None:
    """A value as Python shows it, but not without end: lists that hold one another many times print very long."""
    room[0] -= 8
    if isinstance(value, dict):
        separator = "{"
        for key, item in value.items():
            parts += (separator, repr(key), ": ")
            _show(item, parts, room)
            separator = ", "
        parts.append("}" if value else "{}")
    elif isinstance(value, (list, tuple)):
        opening, closing = "[]" if isinstance(value, list) else "()"
        separator = opening
        for item in value:
            parts.append(separator)
            _show(item, parts, room)
            separator = ", "
        parts.append(closing if value else opening + closing)
    else:
        text = value.go_text() if isinstance(value, GoValue) else repr(value)
        room[0] -= len(text)
        parts.append(text)
    if room[0] < 0:
        raise TemplateError(f"value cannot be printed: its text is longer than {OUTPUT_MAX} characters")


# -- what would be huge at once


def check_operator(operator: str, left: Any, right: Any) -> None:
    if operator == "*":
        for sequence, times in ((left, right), (right, left)):
            if isinstance(sequence, (str, list, tuple)) and isinstance(times, int):
                check = check_length if isinstance(sequence, str) else check_count
                check(len(sequence) * max(times, 0))
    elif operator == "+" and isinstance(left, (str, list, tuple)) and isinstance(right, (str, list, tuple)):
        (check_length if isinstance(left, str) else check_count)(len(left) + len(right))
    elif operator == "%" and isinstance(left, str):
        _check_layout(left)
    elif operator == "**" and _is_huge_power(left, right):
        raise TemplateError("the result of '**' is too large")


def _is_huge_power(base: Any, exponent: Any) -> bool:
    return (
        isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * exponent > _POWER_BITS_MAX
    )


def _check_layout(layout: str) -> None:
    if _WIDE_FORMAT.search(layout):
        raise TemplateError("a format is not as wide as that, and takes no width from an argument")


def check_call(function: Any, arguments: tuple[Any, ...]) -> None:
    """Look at the methods of text that can make much of little."""
    function = getattr(function, "__wrapped__", function)  # the sandbox puts a function around `format`
    text = getattr(function, "__self__", None)
    if not isinstance(text, str):
        return
    name = getattr(function, "__name__", "")
    if name == "format":
        _check_layout(text)
    elif name == "replace" and len(arguments) > 1:
        _check_replace(text, arguments[0], arguments[1])
    elif name == "join" and arguments:
        _check_join(arguments[0], text)


def _check_join(items: Any, separator: str) -> None:
    if isinstance(items, (list, tuple)):
        check_length(sum(len(item) for item in items if isinstance(item, str)) + len(items) * len(separator))


# The checks of filters have the parameters of the filters, names and all, since templates may use those.


def _check_replace(s: Any, old: Any, new: Any, count: Any = None) -> None:
    check_length(len(str(s)) + str(s).count(str(old)) * len(str(new)))


def _check_center(value: Any, width: Any = 80) -> None:
    if isinstance(width, int):
        check_length(width)


def _check_indent(s: Any, width: Any = 4, first: Any = False, blank: Any = False) -> None:
    size = width if isinstance(width, int) else len(str(width))
    check_length(size * (str(s).count("\n") + 1))


def _check_batch(value: Any, linecount: Any, fill_with: Any = None) -> None:
    if isinstance(linecount, int):
        check_count(linecount)


def _check_slice(value: Any, slices: Any, fill_with: Any = None) -> None:
    if isinstance(slices, int):
        check_count(slices)


def _check_format(value: Any, *args: Any, **kwargs: Any) -> None:
    _check_layout(str(value))


def _check_wordwrap(
    s: Any,
    width: Any = 79,
    break_long_words: Any = True,
    wrapstring: Any = None,
    break_on_hyphens: Any = True,
) -> None:
    check_length(len(str(s)) * (1 + len(str(wrapstring or ""))))


def _check_tojson(value: Any, indent: Any = None) -> None:
    if isinstance(indent, int):
        check_length(indent * 1000)


def _check_sum(iterable: Any, attribute: Any = None, start: Any = 0) -> None:
    if not isinstance(start, (int, float)):
        raise TemplateError("'sum' adds numbers")


FILTER_CHECKS: dict[str, Callable[..., None]] = {
    "batch": _check_batch,
    "center": _check_center,
    "format": _check_format,
    "indent": _check_indent,
    "replace": _check_replace,
    "slice": _check_slice,
    "sum": _check_sum,
    "tojson": _check_tojson,
    "wordwrap": _check_wordwrap,
}


def joiner(environment: Environment) -> Callable[..., str]:
    """Jinja's `join`, which counts what it joins."""
    from jinja2.filters import make_attrgetter

    def join(value: Iterable[Any], d: str = "", attribute: str | int | None = None) -> str:
        items = value if attribute is None else map(make_attrgetter(environment, attribute), value)
        parts: list[str] = []
        length = 0
        for item in items:
            parts.append(str(item))
            length += len(parts[-1]) + len(d)
            check_length(length)
        return d.join(parts)

    return join


def checked(filter_: Callable[..., Any], check: Callable[..., None]) -> Callable[..., Any]:
    """A filter whose arguments are looked at first."""
    from functools import wraps

    passed = (
        0 if getattr(filter_, "jinja_pass_arg", None) is None else 1
    )  # a context that Jinja puts before them

    @wraps(filter_)
    def call(*values: Any, **named: Any) -> Any:
        check(*values[passed:], **named)
        return filter_(*values, **named)

    return call
