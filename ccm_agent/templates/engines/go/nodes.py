"""The syntax tree of a Go template."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ccm_agent.templates.engines.nodes import Marker, Text


@dataclass(frozen=True, slots=True)
class Dot:
    """The context, `.`."""


@dataclass(frozen=True, slots=True)
class Nil:
    """The constant `nil`, allowed only as an argument."""


@dataclass(frozen=True, slots=True)
class Number:
    """
    A number literal; its type depends on the parameter to which it is passed.

    Attributes:
        text: As written.
        value: The value if no type is required: an int for whole numbers and characters, otherwise a float or a complex.
        integer: The value as an integer if it is whole, also for 2.0.
        decimal: The value as a float; None for a complex number.
    """

    text: str
    value: Any
    integer: int | None
    decimal: float | None


@dataclass(frozen=True, slots=True)
class Bool:
    value: bool


@dataclass(frozen=True, slots=True)
class String:
    value: str


@dataclass(frozen=True, slots=True)
class Field:
    """Fields of the context: `.a.b`."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable with optional fields: `$`, `$x` or `$x.a.b`."""

    name: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Identifier:
    """The name of a function."""

    name: str


@dataclass(frozen=True, slots=True)
class Chain:
    """Fields of a value: `(pipeline).a.b` or `function.a`."""

    base: Argument
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """
    `$x := command | command`; in parentheses it can be an argument.

    Attributes:
        variables: The variables that it declares or assigns: none, one, or two in a `range`.
        assigns: Whether it assigns existing variables (`=`).
        commands: The commands; each consists of an operand and its arguments.
    """

    variables: tuple[str, ...]
    assigns: bool
    commands: tuple[tuple[Argument, ...], ...]


Argument = Dot | Nil | Number | Bool | String | Field | Variable | Identifier | Chain | Pipeline


@dataclass(frozen=True, slots=True)
class Action:
    line: int
    pipeline: Pipeline


@dataclass(frozen=True, slots=True)
class Branch:
    """A pipeline, the body for a non-empty value, and the body for an empty value."""

    line: int
    pipeline: Pipeline
    body: Body
    otherwise: Body


class If(Branch):
    """`if pipeline`"""

    __slots__ = ()


class With(Branch):
    """`with pipeline`"""

    __slots__ = ()


class Range(Branch):
    """`range pipeline`"""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Include:
    """`template "name" pipeline`"""

    line: int
    name: str
    pipeline: Pipeline | None


@dataclass(frozen=True, slots=True)
class Break:
    line: int


@dataclass(frozen=True, slots=True)
class Continue:
    line: int


Statement = Text | Action | If | With | Range | Include | Break | Continue | Marker
Body = tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed template, and all templates that it defines (including itself) by name."""

    name: str
    bodies: dict[str, Body] = field(default_factory=dict)
