"""
The static type of a value before an expression runs: the subset of Go's types that expressions use.

Facts and Data are maps of values of any type, so most of their values are `ANY`. An operator on `ANY` returns
`UNKNOWN`. Both are accepted everywhere until the expression runs.
"""

from __future__ import annotations

from collections.abc import Callable


class StaticType:
    """
    A static type.

    Attributes:
        kind: Its kind in Go's reflect; "invalid" for UNKNOWN and NIL.
        type: Go's name of the type; "" for UNKNOWN. Two StaticTypes are the same type if the names are equal.
        element: The type of the elements of a list or map.
        key: The type of the keys of a map.
    """

    __slots__ = ("element", "function", "key", "kind", "type")

    def __init__(
        self,
        kind: str,
        go_type: str,
        *,
        element: StaticType | None = None,
        key: StaticType | None = None,
        function: FunctionType | None = None,
    ) -> None:
        self.kind = kind
        self.type = go_type
        self.element = element
        self.key = key
        self.function = function

    def __str__(self) -> str:
        return _WORDS.get(self.type, self.type) or "unknown"

    @property
    def is_unknown(self) -> bool:
        return self.kind == "interface" or (self.kind == "invalid" and not self.type)

    @property
    def is_nil(self) -> bool:
        return self.type == "nil"

    @property
    def is_integer(self) -> bool:
        return self.type in _INTEGERS

    @property
    def is_number(self) -> bool:
        return self.type == "float64" or self.type in _INTEGERS

    @property
    def is_list(self) -> bool:
        return self.kind == "slice"

    def assignable_to(self, other: StaticType) -> bool:
        """Whether a value of this type can be assigned to the other type, by Go's rules for these types."""
        if self.is_nil:
            return other.kind in ("ptr", "interface", "func", "map", "slice")
        if self.kind == "invalid" or other.kind == "invalid":
            return False
        return other.kind == "interface" or (self.kind == other.kind and self.type == other.type)

    def comparable_to(self, other: StaticType) -> bool:
        """Whether `==` can compare the two types."""
        return (
            self.is_unknown
            or other.is_unknown
            or self.is_nil
            or other.is_nil
            or (self.is_number and other.is_number)
            or (self.is_list and other.is_list)
            or self.assignable_to(other)
        )


class FunctionType:
    """
    The type of a function.

    Attributes:
        name: The function's name.
        overloads: Parameter lists, tried in order; a call must match one of them.
        returns: The result type of each overload.
        validate: A function that replaces the overloads. It takes the types of the arguments and returns the
            type of the result or raises.
        is_variadic: Whether the last parameter of each overload may be repeated.
    """

    __slots__ = ("is_variadic", "name", "overloads", "returns", "validate")

    def __init__(
        self,
        name: str,
        overloads: tuple[tuple[StaticType, ...], ...] = (),
        returns: StaticType | None = None,
        *,
        validate: Callable[[str, list[StaticType]], StaticType] | None = None,
        is_variadic: bool = False,
    ) -> None:
        self.name = name
        self.overloads = overloads
        self.returns = returns if returns is not None else ANY
        self.validate = validate
        self.is_variadic = is_variadic


_INTEGERS = ("int", "int64", "uint8")
_WORDS = {
    "interface {}": "anything",
    "int": "an integer",
    "int64": "an integer",
    "uint8": "a byte",
    "float64": "a float",
    "string": "text",
    "bool": "a boolean",
    "nil": "nil",
    "[]interface {}": "a list",
    "[]string": "a list of text",
    "[]uint8": "bytes",
    "map[string]interface {}": "a map",
    "map[string]string": "a map of text",
    "map[interface {}]interface {}": "a map",
    "map[interface {}][]interface {}": "a map of lists",
    "time.Time": "a time",
    "time.Duration": "a duration",
    "time.Month": "a month",
    "time.Weekday": "a weekday",
    "*time.Location": "a time zone",
}

UNKNOWN = StaticType("invalid", "")
NIL = StaticType("invalid", "nil")
ANY = StaticType("interface", "interface {}")
BOOL = StaticType("bool", "bool")
INT = StaticType("int", "int")
INT64 = StaticType("int64", "int64")
UINT8 = StaticType("uint8", "uint8")
FLOAT = StaticType("float64", "float64")
STRING = StaticType("string", "string")
BYTES = StaticType("slice", "[]uint8", element=UINT8)
ARRAY = StaticType("slice", "[]interface {}", element=ANY)
STRINGS = StaticType("slice", "[]string", element=STRING)
MAP = StaticType("map", "map[string]interface {}", element=ANY, key=STRING)
STRING_MAP = StaticType("map", "map[string]string", element=STRING, key=STRING)
ANY_MAP = StaticType("map", "map[interface {}]interface {}", element=ANY, key=ANY)
GROUPS = StaticType("map", "map[interface {}][]interface {}", element=ARRAY, key=ANY)
TIME = StaticType("struct", "time.Time")
DURATION = StaticType("int64", "time.Duration")
MONTH = StaticType("int", "time.Month")
WEEKDAY = StaticType("int", "time.Weekday")
LOCATION = StaticType("ptr", "*time.Location")
SERVICES = StaticType("slice", "model.RegistrationEntries", element=ANY)


def array_of(element: StaticType) -> StaticType:
    """Return a list type with a known element type; its Go type is still `[]interface {}`."""
    return StaticType("slice", "[]interface {}", element=element)


def promoted(left: StaticType, right: StaticType) -> StaticType:
    """Return the type of a sum, difference or product of two numbers."""
    return FLOAT if left.type == "float64" or right.type == "float64" else INT


def _methods(receiver: StaticType, **returns: StaticType | tuple[StaticType, ...]) -> dict[str, FunctionType]:
    """Return methods by name, from the result type or (result type, parameter type, …)."""
    out = {}
    for name, spec in returns.items():
        types = spec if isinstance(spec, tuple) else (spec,)
        out[name] = FunctionType(f"{receiver.type}.{name}", (types[1:],), types[0])
    return out


METHODS: dict[str, dict[str, FunctionType]] = {
    "time.Time": _methods(
        TIME,
        Year=INT,
        Month=MONTH,
        Day=INT,
        Hour=INT,
        Minute=INT,
        Second=INT,
        Nanosecond=INT,
        YearDay=INT,
        Weekday=WEEKDAY,
        ISOWeek=INT,
        Zone=STRING,
        Unix=INT64,
        UnixMilli=INT64,
        UnixMicro=INT64,
        UnixNano=INT64,
        Format=(STRING, STRING),
        String=STRING,
        Add=(TIME, DURATION),
        Sub=(DURATION, TIME),
        AddDate=(TIME, INT, INT, INT),
        Before=(BOOL, TIME),
        After=(BOOL, TIME),
        Equal=(BOOL, TIME),
        Compare=(INT, TIME),
        IsZero=BOOL,
        UTC=TIME,
        Local=TIME,
        In=(TIME, LOCATION),
        Location=LOCATION,
        Truncate=(TIME, DURATION),
        Round=(TIME, DURATION),
    ),
    "time.Duration": _methods(
        DURATION,
        Hours=FLOAT,
        Minutes=FLOAT,
        Seconds=FLOAT,
        Milliseconds=INT64,
        Microseconds=INT64,
        Nanoseconds=INT64,
        Round=(DURATION, DURATION),
        Truncate=(DURATION, DURATION),
        Abs=DURATION,
        String=STRING,
    ),
    "time.Month": _methods(MONTH, String=STRING),
    "time.Weekday": _methods(WEEKDAY, String=STRING),
    "*time.Location": _methods(LOCATION, String=STRING),
    "model.RegistrationEntries": _methods(SERVICES, PrometheusFileSD=STRING),
}


def method_of(nature: StaticType, name: str) -> StaticType | None:
    """Return the type of a method, or None if the type has no method with that name."""
    function = METHODS.get(nature.type, {}).get(name)
    return None if function is None else StaticType("func", f"func {function.name}", function=function)
