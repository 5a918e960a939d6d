"""Signatures of the language's functions, for the static check."""

from __future__ import annotations

from ccm_agent.templates.expr.evaluation_errors import EvaluationError
from ccm_agent.templates.expr.static_types import (
    ANY,
    ANY_MAP,
    ARRAY,
    DURATION,
    FLOAT,
    INT,
    LOCATION,
    STRING,
    STRINGS,
    TIME,
    FunctionType,
    StaticType,
)

_NUMBERS = ("int", "int64", "uint8", "float64")


def _wrong(name: str, got: StaticType) -> EvaluationError:
    return EvaluationError(f"{name}() does not take {got}")


def _counted(name: str, arguments: list[StaticType], least: int, most: int | None = None) -> None:
    most = least if most is None else most
    if not least <= len(arguments) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        plural = "" if wanted == "1" else "s"
        raise EvaluationError(f"{name}() takes {wanted} argument{plural}, not {len(arguments)}")


def _is_numeric(nature: StaticType) -> bool:
    """Whether a type is numeric, including named types such as durations, because Go's kind decides."""
    return nature.kind in _NUMBERS


def _len(name: str, arguments: list[StaticType]) -> StaticType:
    _counted(name, arguments, 1)
    if arguments[0].kind not in ("slice", "map", "string") and not arguments[0].is_unknown:
        raise _wrong(name, arguments[0])
    return INT


def _number(name: str, arguments: list[StaticType]) -> StaticType:
    _counted(name, arguments, 1)
    if not _is_numeric(arguments[0]) and not arguments[0].is_unknown:
        raise _wrong(name, arguments[0])
    return FLOAT if name != "abs" else _bare(arguments[0])


def _conversion(name: str, arguments: list[StaticType]) -> StaticType:
    _counted(name, arguments, 1)
    nature = arguments[0]
    if not _is_numeric(nature) and nature.kind != "string" and not nature.is_unknown:
        raise _wrong(name, nature)
    return INT if name == "int" else FLOAT


def _aggregate(name: str, arguments: list[StaticType]) -> StaticType:
    if not arguments:
        raise EvaluationError(f"{name}() takes at least 1 argument")
    for nature in arguments:
        if nature.is_unknown or nature.is_list:
            return ANY
        if not _is_numeric(nature):
            raise _wrong(name, nature)
    return arguments[0]


def _end(name: str, arguments: list[StaticType]) -> StaticType:
    _counted(name, arguments, 1)
    nature = arguments[0]
    if nature.is_unknown:
        return ANY
    if not nature.is_list:
        raise _wrong(name, nature)
    return _bare(nature).element or ANY


def _take(name: str, arguments: list[StaticType]) -> StaticType:
    _counted(name, arguments, 2)
    if not arguments[0].is_list and not arguments[0].is_unknown:
        raise _wrong(name, arguments[0])
    if arguments[1].kind not in ("int", "int64") and not arguments[1].is_unknown:
        raise EvaluationError(f"{name}() takes an integer as its second argument, not {arguments[1]}")
    return _bare(arguments[0])


def _of_map(name: str, arguments: list[StaticType]) -> StaticType:
    _counted(name, arguments, 1)
    if arguments[0].kind != "map" and not arguments[0].is_unknown:
        raise _wrong(name, arguments[0])
    return ARRAY


def _of_list(name: str, arguments: list[StaticType]) -> StaticType:
    _counted(name, arguments, 1)
    if not arguments[0].is_list and not arguments[0].is_unknown:
        raise _wrong(name, arguments[0])
    return ANY_MAP if name == "fromPairs" else ARRAY


def _concat(name: str, arguments: list[StaticType]) -> StaticType:
    if not arguments:
        raise EvaluationError(f"{name}() takes at least 1 argument")
    for nature in arguments:
        if not nature.is_list and not nature.is_unknown:
            raise _wrong(name, nature)
    return ARRAY


def _now(name: str, arguments: list[StaticType]) -> StaticType:
    if len(arguments) > 1 or (arguments and arguments[0].type != LOCATION.type):
        raise EvaluationError(f"{name}() takes nothing or a time zone")
    return TIME


def _date(name: str, arguments: list[StaticType]) -> StaticType:
    if not arguments:
        raise EvaluationError(f"{name}() takes a text, and may take its layout and time zone")
    _counted(name, arguments[1:] if arguments[0].type == LOCATION.type else arguments, 0, 3)
    return TIME


def _bare(nature: StaticType) -> StaticType:
    """Return the static type without the element types of a list."""
    if nature.is_unknown:
        return ANY
    return ARRAY if nature.type == ARRAY.type else nature


_TEXT = (STRING,)
_TEXTS = (STRING, STRING)
_TEXT_SPLIT = (_TEXTS, (STRING, STRING, INT))
_TRIMMED = (_TEXT, _TEXTS)


def _signatures(*functions: FunctionType) -> dict[str, FunctionType]:
    return {function.name: function for function in functions}


SIGNATURES: dict[str, FunctionType] = _signatures(
    FunctionType("len", validate=_len),
    FunctionType("type", ((ANY,),), STRING),
    *(FunctionType(name, validate=_number) for name in ("abs", "ceil", "floor", "round")),
    *(FunctionType(name, validate=_conversion) for name in ("int", "float")),
    FunctionType("string", ((ANY,),), STRING),
    *(FunctionType(name, _TRIMMED, STRING) for name in ("trim", "trimPrefix", "trimSuffix")),
    *(FunctionType(name, (_TEXT,), STRING) for name in ("upper", "lower", "toBase64", "fromBase64")),
    *(FunctionType(name, _TEXT_SPLIT, STRINGS) for name in ("split", "splitAfter")),
    FunctionType("replace", ((STRING, STRING, STRING, INT), (STRING, STRING, STRING)), STRING),
    FunctionType("repeat", ((STRING, INT),), STRING),
    FunctionType("join", ((STRINGS, STRING), (ARRAY, STRING), (ARRAY,), (STRINGS,)), STRING),
    *(FunctionType(name, (_TEXTS,), INT) for name in ("indexOf", "lastIndexOf")),
    *(FunctionType(name, (_TEXTS,), StaticType("bool", "bool")) for name in ("hasPrefix", "hasSuffix")),
    *(FunctionType(name, validate=_aggregate) for name in ("max", "min", "mean", "median")),
    FunctionType("toJSON", ((ANY,),), STRING),
    FunctionType("fromJSON", (_TEXT,), ANY),
    FunctionType("now", validate=_now),
    FunctionType("duration", (_TEXT,), DURATION),
    FunctionType("date", validate=_date),
    FunctionType("timezone", (_TEXT,), LOCATION),
    *(FunctionType(name, validate=_end) for name in ("first", "last")),
    FunctionType("get"),  # checked with the members
    FunctionType("take", validate=_take),
    *(FunctionType(name, validate=_of_map) for name in ("keys", "values", "toPairs")),
    *(FunctionType(name, validate=_of_list) for name in ("fromPairs", "reverse", "uniq", "flatten")),
    FunctionType("concat", validate=_concat),
    FunctionType("sort", ((ARRAY, STRING), (STRINGS, STRING), (ARRAY,), (STRINGS,)), ARRAY),
    *(
        FunctionType(name, ((INT, INT),), INT)
        for name in ("bitand", "bitor", "bitxor", "bitnand", "bitshl", "bitshr", "bitushr")
    ),
    FunctionType("bitnot", ((INT,),), INT),
)
