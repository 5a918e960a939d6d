"""Print values like Go's `%v`."""

from __future__ import annotations

from typing import Any

from ccm_agent.model.errors import TemplateError
from ccm_agent.model.gathered import GatheredList, GatheredRecord
from ccm_agent.templates.gojson import JSONError, write
from ccm_agent.templates.values import GoValue, format_float, type_name

NIL_TEXT = "<nil>"

# limit of the characters of a printed value: a small YAML document with aliases can print almost endlessly
PRINT_LIMIT = 4 * 1024 * 1024


def go_print(value: Any, limit: int = PRINT_LIMIT) -> str:
    """
    Print a value like Go's `%v` and `fmt.Sprint`: `[1 a]`, `map[a:1 b:2]`, `<nil>`, `1e+06`.

    Args:
        value: The value. Text is returned unchanged.
        limit: The maximum number of characters.

    Raises:
        TemplateError: The text would be longer than the limit, or the value is nested too deeply.
    """
    if isinstance(value, str):
        return value
    out: list[str] = []
    try:
        _print_into(value, out, [limit])
    except RecursionError:
        raise TemplateError("value cannot be printed: it is nested too deeply") from None
    return "".join(out)


def _print_into(value: Any, out: list[str], room: list[int]) -> None:
    if not isinstance(value, (list, tuple, dict)):
        text = print_scalar(value)
    elif isinstance(value, (GatheredRecord, GatheredList)):
        text = _gathered_text(value, room[0])
        value = None
    else:
        text = "map[" if isinstance(value, dict) else "["
    room[0] -= len(text) + 2
    if room[0] < 0:
        raise TemplateError("value cannot be printed: its text is too long")
    out.append(text)
    if isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            if index:
                out.append(" ")
            _print_into(item, out, room)
        out.append("]")
    elif isinstance(value, dict):
        for index, key in enumerate(sorted_keys(value)):
            if index:
                out.append(" ")
            _print_into(key, out, room)
            out.append(":")
            _print_into(value[key], out, room)
        out.append("]")


def _gathered_text(value: GatheredRecord | GatheredList, limit: int) -> str:
    """Print a gathered structure as its JSON."""
    try:
        return write(value, limit=max(limit, 0))
    except JSONError as err:
        raise TemplateError(f"value cannot be printed: {err}") from None


def print_scalar(value: object) -> str:
    """Print any value except lists and maps like `%v`."""
    if isinstance(value, str):
        return value
    if value is None:
        return NIL_TEXT
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return format_float(value)
    if isinstance(value, bytes):
        return "[" + " ".join(map(str, value)) + "]"
    if isinstance(value, GoValue):
        return value.go_text()
    return str(value)


_KEY_ORDER = {"nil": 0, "string": 1, "int": 2, "float64": 3, "bool": 4}


def sorted_keys(mapping: dict[Any, Any]) -> list[Any]:
    """
    Return the keys in the order in which Go prints and ranges over a map: text by bytes, numbers by value.
    """
    try:
        return sorted(mapping)
    except TypeError:  # keys of several types are sorted by type first
        return sorted(mapping, key=_key_rank)


def _key_rank(key: object) -> tuple[int, Any]:
    rank = _KEY_ORDER.get(type_name(key), 5)
    return rank, key if rank == 2 else print_scalar(key)
