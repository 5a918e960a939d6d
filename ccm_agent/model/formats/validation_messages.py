"""
Turn msgspec's validation errors into messages and places that a user understands.

Imported only after a validation error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from ccm_agent.model.errors import DocumentError, MisfitError, Place
from ccm_agent.model.suggestions import did_you_mean, either

_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.*?)`(?: - at `(.*)`)?$", re.DOTALL)
_OTHER_MISFIT = re.compile(r"(.*?)(?: - at `(?:key in )?(.*)`)?$", re.DOTALL)
_STEP = re.compile(r"\.[^.\[]+|\[[^\]]*\]")
_LONGEST_MESSAGE = 4000
"""
Only very long keys cause a longer message. The patterns above are not applied to it, because their time is not
linear.
"""
_SHOWN_OF_MESSAGE = 200
_JSON_BYTE = re.compile(r" \(byte (\d+)\)$")


def json_error(text: str, source: str, err: Exception) -> DocumentError:
    message = str(err).removeprefix("JSON is malformed: ")
    place = Place(source)
    if found := _JSON_BYTE.search(message):
        before = text.encode()[: int(found[1])].decode(errors="ignore")
        place = Place(source, before.count("\n") + 1, len(before) - before.rfind("\n"))
        message = message[: found.start()]
    elif "truncated" in message:
        place = Place(source, text.count("\n") + 1, len(text) - text.rfind("\n"))
        message = "it ends too early: a bracket, brace or quote is not closed"
    return DocumentError(f"not JSON: {message}", place=place)


def misfit_error(message: str, value: object, kind: Any) -> MisfitError:
    """Convert msgspec's error about a value to a MisfitError with the path inside the value, but without a place."""
    if len(message) > _LONGEST_MESSAGE:
        return MisfitError(f"{message[:_SHOWN_OF_MESSAGE]}…", path=())
    if found := _UNKNOWN_FIELD.match(message):
        key, written = found[1], found[2] or "$"
        path = _follow(value, _STEP.findall(written), lambda one: isinstance(one, dict) and key in one)
        known = _fields_at(kind, written)
        message = f"unknown key `{key}`{did_you_mean(key, known)}"
        return MisfitError(message, path=(*(path or []), key), unknown_key=key, known=tuple(known))
    found = _OTHER_MISFIT.match(message)
    said, written = (found[1], found[2] or "$") if found else (message, "$")
    fits: Callable[[object], bool] = _anything
    if missing := re.fullmatch(r"Object missing required field `(.*)`", said):
        said = f"`{missing[1]}` is missing"
        fits = lambda one: isinstance(one, dict) and missing[1] not in one  # noqa: E731
    elif wrong := re.fullmatch(r"Expected `(.*)`, got `(.*)`", said):
        said = f"expected {_plain_type(wrong[1])}, got {_plain_type(wrong[2])}"
        fits = lambda one: _TYPE_NAMES.get(type(one)) == wrong[2]  # noqa: E731
    elif bound := re.fullmatch(r"Expected `\w+` (>=|<=) ([\d.]+)", said):
        said = f"must be at {'least' if bound[1] == '>=' else 'most'} {bound[2]}"
    elif other := re.fullmatch(r"Invalid enum value '?(.*?)'?", said, re.DOTALL):
        allowed = _choices_at(kind, written)
        said = f"`{other[1]}` is not allowed here{f': use {either(allowed)}' if allowed else ''}"
        fits = lambda one: other[1] in one if isinstance(one, dict) else str(one) == other[1]  # noqa: E731
    return MisfitError(said, path=tuple(_follow(value, _STEP.findall(written), fits) or []))


def _anything(_value: object) -> bool:
    return True


def _follow(value: object, steps: list[str], fits: Callable[[object], bool]) -> list[str | int] | None:
    """
    Return the path to a value that matches msgspec's path and satisfies `fits`; None if there is none.

    msgspec writes `[...]` for the key of a mapping with arbitrary keys, so every key is tried.
    """
    if not steps:
        return [] if fits(value) else None
    step, rest = steps[0], steps[1:]
    ways: Iterable[tuple[str | int, object]] = ()
    if step == "[...]" and isinstance(value, dict):
        ways = value.items()
    elif (
        step.startswith("[")
        and step[1:-1].isdecimal()
        and isinstance(value, list)
        and int(step[1:-1]) < len(value)
    ):
        ways = [(int(step[1:-1]), value[int(step[1:-1])])]
    elif isinstance(value, dict) and step[1:] in value:
        ways = [(step[1:], value[step[1:]])]
    for part, one in ways:
        if (path := _follow(one, rest, fits)) is not None:
            return [part, *path]
    return None


_TYPE_NAMES = {
    str: "str",
    int: "int",
    float: "float",
    bool: "bool",
    dict: "object",
    list: "array",
    type(None): "null",
}
_TYPE_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "a mapping",
    "array": "a list",
    "null": "nothing",
}


def _plain_type(names: str) -> str:
    return " or ".join(_TYPE_WORDS.get(name.strip(), name.strip()) for name in names.split("|"))


def _fields_at(kind: Any, path: str) -> list[str]:
    """Return the known keys of the Struct at `path`; [] if they cannot be determined."""
    structs = [one for one in _types_at(kind, path) if isinstance(one, msgspec.inspect.StructType)]
    return [field.encode_name for struct in structs for field in struct.fields]


def _choices_at(kind: Any, path: str) -> list[str]:
    """
    Return the allowed values at `path`, or the allowed keys of the mapping there; [] if they cannot be
    determined.
    """
    found: list[str] = []
    here = _types_at(kind, path)
    for one in _alternatives(
        [one.key_type if isinstance(one, msgspec.inspect.DictType) else one for one in here]
    ):
        if isinstance(one, msgspec.inspect.LiteralType):
            found += [str(value) for value in one.values]
        elif isinstance(one, msgspec.inspect.EnumType):
            found += [str(member.value) for member in one.cls]
    return found


def _types_at(kind: Any, path: str) -> list[msgspec.inspect.Type]:
    here = [msgspec.inspect.type_info(kind)]
    for step in _STEP.findall(path):
        inner: list[msgspec.inspect.Type] = []
        for one in _alternatives(here):
            if isinstance(one, msgspec.inspect.StructType):
                inner += [field.type for field in one.fields if field.encode_name == step[1:]]
            elif isinstance(one, msgspec.inspect.DictType):
                inner.append(one.value_type)
            elif isinstance(one, (msgspec.inspect.ListType, msgspec.inspect.VarTupleType)):
                inner.append(one.item_type)
        here = inner
    return _alternatives(here)


def _alternatives(kinds: list[msgspec.inspect.Type]) -> list[msgspec.inspect.Type]:
    flat: list[msgspec.inspect.Type] = []
    for kind in kinds:
        if isinstance(kind, msgspec.inspect.UnionType):
            flat += _alternatives(list(kind.types))
        elif isinstance(kind, msgspec.inspect.Metadata):
            flat += _alternatives([kind.type])
        else:
            flat.append(kind)
    return flat
