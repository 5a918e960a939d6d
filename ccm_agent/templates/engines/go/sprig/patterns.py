"""
Sprig's functions on patterns, which are RE2's.

Source: masterminds.github.io/sprig, "String Functions"; the documentation of Go's package regexp.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ccm_agent.model.errors import TemplateError
from ccm_agent.templates.engines.bounds import OUTPUT_MAX
from ccm_agent.templates.engines.gotypes import TypedList, strings
from ccm_agent.templates.regex import compile_pattern
from ccm_agent.templates.regex_parser import PatternError
from ccm_agent.templates.regex_search import Searcher, SearchError, Span, compile_searcher

_META = re.compile(r"[\\.+*?()|\[\]{}^$]")
_REFERENCE = re.compile(r"\$(?:(\$)|\{(\w+)\}|(\w+))")


def _searcher(pattern: str) -> Searcher:
    try:
        return compile_searcher(pattern)
    except PatternError as err:
        raise TemplateError(f"the pattern is malformed: {err}") from None


def _bounded(search: Callable[[], Any]) -> Any:
    try:
        return search()
    except SearchError as err:
        raise TemplateError(str(err)) from None


def _regex_match(pattern: str, text: str) -> bool:
    """Whether the pattern matches anywhere; a malformed one does not."""
    try:
        return _must_regex_match(pattern, text)
    except TemplateError:
        return False


def _must_regex_match(pattern: str, text: str) -> bool:
    try:
        return compile_pattern(pattern).matches(text)
    except PatternError as err:
        raise TemplateError(f"the pattern is malformed: {err}") from None


def _regex_find(pattern: str, text: str) -> str:
    searcher = _searcher(pattern)
    span = _bounded(lambda: searcher.find(text))
    return "" if span is None else text[span[0] : span[1]]


def _regex_find_all(pattern: str, text: str, count: int) -> TypedList:
    searcher = _searcher(pattern)
    found = _bounded(lambda: [text[span[0] : span[1]] for span in searcher.find_all(text, count)])
    return TypedList(found, "string", is_nil=not found)


def _regex_replace_all(pattern: str, text: str, replacement: str) -> str:
    """Every match replaced; `${1}`, `$1` and `${name}` stand for groups, `$$` for a dollar sign."""
    searcher = _searcher(pattern)

    def expanded(span: Span) -> str:
        return _REFERENCE.sub(lambda reference: _referred(reference, span, text, searcher), replacement)

    return str(_bounded(lambda: searcher.replace(text, expanded, OUTPUT_MAX)))


def _referred(reference: re.Match[str], span: Span, text: str, searcher: Searcher) -> str:
    if reference[1]:
        return "$"
    name = reference[2] or reference[3]
    if name.isascii() and name.isdigit():
        group = int(name) if len(name) < 8 else -1
    else:
        group = searcher.names.get(name, -1)
    if not 0 <= group < len(span) // 2 or span[2 * group] < 0:
        return ""
    return text[span[2 * group] : span[2 * group + 1]]


def _regex_replace_all_literal(pattern: str, text: str, replacement: str) -> str:
    searcher = _searcher(pattern)
    return str(_bounded(lambda: searcher.replace(text, lambda _span: replacement, OUTPUT_MAX)))


def _regex_split(pattern: str, text: str, count: int) -> TypedList:
    searcher = _searcher(pattern)
    if count == 0:
        return TypedList((), "string", is_nil=True)
    return strings(_bounded(lambda: searcher.split(text, count)))


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
