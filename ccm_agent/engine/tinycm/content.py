"""
Inserts constants into the content of a TinyCM manifest's files.

In `contents` constants are written with Python's braces, as in `{dns[domain]}`. In fetched files they are written with Jinja.
Of Python's format strings, only names, indexes and formats are supported. `{x.__class__}` must not give access to Python's
objects.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from typing import Any

from ccm_agent.model.errors import TemplateError

LIMIT_CHARACTERS = 64 << 20
_FIELD = re.compile(r"([A-Za-z_][\w-]*)((?:\[[^\[\]]+\])*)")
_INDEX = re.compile(r"\[([^\[\]]+)\]")
_FORMAT = re.compile(r"(?:.?[<>=^])?[-+ ]?#?0?\d{0,3}[,_]?(?:\.\d{1,3})?[a-zA-Z%]?", re.DOTALL)


def interpolate(text: str, constants: Mapping[str, Any]) -> str:
    """
    Replace `{name}`, `{name[0]}` and `{name[key]}` in a text with constants. `{{` produces a brace.

    Raises:
        TemplateError: A brace is not closed, or a constant is unknown.
    """
    made, room = [], LIMIT_CHARACTERS
    try:
        pieces = list(string.Formatter().parse(text))
    except ValueError as err:
        raise TemplateError(
            f"the braces of `contents` are not balanced: {err}; write {{{{ for a brace"
        ) from err
    for literal, field, form, conversion in pieces:
        made.append(literal)
        if field is not None:
            made.append(_value(field, form or "", conversion, constants))
        room -= sum(map(len, made[-2:]))
        if room < 0:
            raise TemplateError(f"`contents` becomes longer than {LIMIT_CHARACTERS} characters")
    return "".join(made)


def _value(field: str, form: str, conversion: str | None, constants: Mapping[str, Any]) -> str:
    found = _FIELD.fullmatch(field)
    if found is None or conversion or not _FORMAT.fullmatch(form):
        whole = field + (f"!{conversion}" if conversion else "") + (f":{form}" if form else "")
        raise TemplateError(
            f"`{{{whole}}}` is not the name of a constant: write {{name}}, {{name[0]}} or {{name[key]}}"
        )
    value: Any = constants
    for key in (found[1], *_INDEX.findall(found[2])):
        value = _inside(value, key.strip("'\""), field)
    try:
        return format(value, form)
    except (ValueError, TypeError) as err:
        raise TemplateError(f"`{{{field}:{form}}}` cannot be written: {err}") from err


def _inside(value: Any, key: str, field: str) -> Any:
    if isinstance(value, Mapping) and key in value:
        return value[key]
    if isinstance(value, list) and key.isdecimal() and int(key) < len(value):
        return value[int(key)]
    raise TemplateError(f"`{{{field}}}`: there is no constant `{key}`")
