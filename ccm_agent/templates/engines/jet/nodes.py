"""The syntax tree of a Jet template. Statements have a line; expressions do not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ccm_agent.templates.engines.nodes import Marker, Text


@dataclass(frozen=True, slots=True)
class Literal:
    """A text, number or boolean, or `nil` with the value MISSING."""

    value: Any


@dataclass(frozen=True, slots=True)
class Name:
    """A variable or function; `.` is the context."""

    name: str


@dataclass(frozen=True, slots=True)
class Underscore:
    """The symbol `_`: the place of the piped value in a call, or an ignored value in an assignment."""


@dataclass(frozen=True, slots=True)
class Field:
    """Members of the context: `.a.b`."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Chain:
    """Members of a value: `base.a.b`."""

    base: Expression
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Index:
    """An element: `base[index]`."""

    base: Expression
    index: Expression


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice: `base[start:end]`."""

    base: Expression
    start: Expression | None
    end: Expression | None


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a call. `has_slot` is set if one of them is `_`, the place of the piped value."""

    expressions: tuple[Expression, ...] = ()
    has_slot: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A call in an expression: `base(arguments)`."""

    base: Expression
    arguments: Arguments


@dataclass(frozen=True, slots=True)
class Negative:
    """A number with a sign: `-operand` or `+operand`."""

    operator: str
    operand: Expression


@dataclass(frozen=True, slots=True)
class Binary:
    """A binary operation: `left operator right`. The operator is one of `+ - * / % == != < <= > >= && ||`."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Not:
    """A negation: `!operand`."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class Ternary:
    """A conditional expression: `condition ? left : right`."""

    condition: Expression
    left: Expression
    right: Expression


Expression = (
    Literal | Name | Underscore | Field | Chain | Index | Slice | Call | Negative | Binary | Not | Ternary
)
Target = Name | Underscore | Field | Chain


@dataclass(frozen=True, slots=True)
class Command:
    """
    One stage of a pipeline: a value, or a function with arguments. `arguments` is None without parentheses.
    """

    base: Expression
    arguments: Arguments | None = None


@dataclass(frozen=True, slots=True)
class Assign:
    """
    An assignment: `a, b := x, y` (a declaration) or `a, b = x, y`.

    Attributes:
        targets: The variables or members that are assigned.
        values: One value for each target; exactly one for `with_ok` and `range`.
        declares: Whether it creates new variables.
        with_ok: Whether it has the form `v, ok := m["k"]`. The second variable is true if the key exists.
    """

    targets: tuple[Target, ...]
    values: tuple[Expression, ...]
    declares: bool
    with_ok: bool = False


@dataclass(frozen=True, slots=True)
class Action:
    """An action: `[[ assign ]]`, `[[ pipeline ]]` or `[[ assign; pipeline ]]`."""

    line: int
    assign: Assign | None
    pipeline: tuple[Command, ...]


@dataclass(frozen=True, slots=True)
class If:
    line: int
    assign: Assign | None
    condition: Expression
    body: Body
    otherwise: Body


@dataclass(frozen=True, slots=True)
class Range:
    """`range source`, or `range assign` with the source as its only value."""

    line: int
    assign: Assign | None
    source: Expression
    body: Body
    otherwise: Body


@dataclass(frozen=True, slots=True)
class Catch:
    """The second part of a `try`. Outside a `try` it has no effect."""

    line: int
    name: str
    body: Body


@dataclass(frozen=True, slots=True)
class Try:
    line: int
    body: Body
    catch: Catch | None


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a block, or an argument for it in a yield. `name` is empty for a positional argument."""

    name: str
    value: Expression | None


@dataclass(frozen=True, slots=True)
class Block:
    line: int
    name: str
    parameters: tuple[Parameter, ...]
    context: Expression | None
    body: Body
    content: Body | None


@dataclass(frozen=True, slots=True)
class Yield:
    """Runs the block `name`, or the content that was passed to the current block if `name` is empty."""

    line: int
    name: str
    parameters: tuple[Parameter, ...] = ()
    context: Expression | None = None
    content: Body | None = None


@dataclass(frozen=True, slots=True)
class Include:
    line: int
    name: Expression
    context: Expression | None


@dataclass(frozen=True, slots=True)
class Return:
    line: int
    value: Expression


# a Marker without a matching body has no effect
Statement = Text | Action | If | Range | Try | Catch | Block | Yield | Include | Return | Marker
Body = tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Template:
    """
    A parsed template.

    Attributes:
        name: The name in errors; paths in the template are relative to this name.
        body: The statements.
        blocks: The template's own blocks by name; of two blocks with the same name, the later one is used.
        extends: The template that runs instead, with the blocks of this one.
        imports: Templates that provide further blocks.
    """

    name: str
    body: Body
    blocks: dict[str, Block] = field(default_factory=dict)
    extends: str = ""
    imports: tuple[str, ...] = ()
