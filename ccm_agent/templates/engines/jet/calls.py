"""Convert the arguments of a Jet call to the parameter types of typed functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ccm_agent.model.errors import TemplateError
from ccm_agent.templates.engines.gotypes import MISSING
from ccm_agent.templates.engines.jet.values import Boxed, Function, to_int, type_of, unboxed
from ccm_agent.templates.values import from_bytes, is_number


def check_parameters(function: Function, count: int) -> None:
    """Refuse a call with too few or too many arguments."""
    if count != len(function.parameters):
        raise TemplateError(f"{function.name!r} takes {len(function.parameters)} arguments, not {count}")


def converted(function: Function, values: Sequence[Any]) -> list[Any]:
    """Convert the arguments of a call to the function's parameter types. Their count was already checked."""
    return [
        _convert(function.name, wanted, value)
        for wanted, value in zip(function.parameters, values, strict=True)
    ]


def _convert(name: str, wanted: str, value: Any) -> Any:
    if value is MISSING:
        raise TemplateError(f"{name!r} is given a missing value")
    if wanted == "any":
        return unboxed(value)
    if wanted == "int" and is_number(value):
        return to_int(value)
    if wanted == "string":
        if isinstance(value, str):
            return value
        if isinstance(value, bytes):
            return from_bytes(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return _rune(value)
    hint = "; name it with 'range i, v := …'" if isinstance(value, Boxed) else ""
    raise TemplateError(f"{name!r} needs a {wanted}, not a {type_of(value)}{hint}")


def _rune(number: int) -> str:
    """Return the character with this number: Go's conversion of an integer to text."""
    return chr(number) if 0 <= number < 0x110000 and not 0xD800 <= number < 0xE000 else "\ufffd"
