"""
Sprig's functions on regular expressions, in RE2's syntax.

Source: masterminds.github.io/sprig, "String Functions"; the documentation of Go's package regexp.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice
from typing import Any

from ccm_agent.model.errors import TemplateError
from ccm_agent.templates.engines.bounds import OUTPUT_MAX
from ccm_agent.templates.engines.gotypes import TypedList, strings
from ccm_agent.templates.regex import Pattern, PatternError, Spans, compile_pattern

_META = re.compile(r"[\\.+*?()|\[\]{}^$]")
_REFERENCE = re.compile(r"\$(?:(\$)|\{(\w+)\}|(\w+))")


def _compiled(pattern: str) -> Pattern:
    try:
        return compile_pattern(pattern)
    except PatternError as err:
        raise TemplateError(f"the pattern is malformed: {err}") from None


def _regex_match(pattern: str, text: str) -> bool:
    """Whether the pattern matches anywhere. A malformed pattern does not match."""
    try:
        compiled = compile_pattern(pattern)
    except PatternError:
        return False
    return compiled.matches(text)


def _must_regex_match(pattern: str, text: str) -> bool:
    return _compiled(pattern).matches(text)


def _regex_find(pattern: str, text: str) -> str:
    return next((text[slice(*spans[0])] for spans in _compiled(pattern).find_all(text)), "")


def _regex_find_all(pattern: str, text: str, count: int) -> TypedList:
    matches = islice(_compiled(pattern).find_all(text), count if count >= 0 else None)
    found = [text[slice(*spans[0])] for spans in matches]
    return TypedList(found, "string", is_nil=not found)


def _regex_replace_all(pattern: str, text: str, replacement: str) -> str:
    """Replace every match. `${1}`, `$1` and `${name}` refer to groups, and `$$` is a dollar sign."""
    compiled = _compiled(pattern)

    def expanded(spans: Spans) -> str:
        return _REFERENCE.sub(
            lambda reference: _referred(reference, spans, text, compiled.names), replacement
        )

    return _replaced(compiled, text, expanded)


def _referred(reference: re.Match[str], spans: Spans, text: str, names: dict[str, int]) -> str:
    if reference[1]:
        return "$"
    name = reference[2] or reference[3]
    if name.isascii() and name.isdigit():
        group = int(name) if len(name) < 8 else -1
    else:
        group = names.get(name, -1)
    if not 0 <= group < len(spans) or spans[group][0] < 0:
        return ""
    return text[slice(*spans[group])]


def _regex_replace_all_literal(pattern: str, text: str, replacement: str) -> str:
    return _replaced(_compiled(pattern), text, lambda _spans: replacement)


def _replaced(pattern: Pattern, text: str, replacement: Callable[[Spans], str]) -> str:
    out: list[str] = []
    copied, room = 0, OUTPUT_MAX
    for spans in pattern.find_all(text):
        begin, end = spans[0]
        out += text[copied:begin], replacement(spans)
        room -= len(out[-2]) + len(out[-1])
        if room < 0:
            raise TemplateError("the result would be too long")
        copied = end
    return "".join([*out, text[copied:]])


def _regex_split(pattern: str, text: str, count: int) -> TypedList:
    compiled = _compiled(pattern)
    if count == 0:
        return TypedList((), "string", is_nil=True)
    if pattern and not text:
        return strings([""])
    parts: list[str] = []
    begin = last = 0
    for spans in compiled.find_all(text):
        if len(parts) + 1 == count:
            break
        last, end = spans[0]
        if end != 0:
            parts.append(text[begin:last])
        begin = end
    return strings(parts if last == len(text) else [*parts, text[begin:]])


def _regex_quote_meta(text: str) -> str:
    return _META.sub(r"\\\g<0>", text)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "mustRegexFind": _regex_find,
    "mustRegexFindAll": _regex_find_all,
    "mustRegexMatch": _must_regex_match,
    "mustRegexReplaceAll": _regex_replace_all,
    "mustRegexReplaceAllLiteral": _regex_replace_all_literal,
    "mustRegexSplit": _regex_split,
    "regexFind": _regex_find,
    "regexFindAll": _regex_find_all,
    "regexMatch": _regex_match,
    "regexQuoteMeta": _regex_quote_meta,
    "regexReplaceAll": _regex_replace_all,
    "regexReplaceAllLiteral": _regex_replace_all_literal,
    "regexSplit": _regex_split,
}
