"""What a parsed Jet template is made of. Expressions carry no place of their own; statements know their line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Literal:
    """A text, number or boolean, or `nil`, whose value is MISSING."""

    value: Any


@dataclass(frozen=True, slots=True)
class Name:
    """A variable or function; `.` is the context."""

    name: str


@dataclass(frozen=True, slots=True)
class Underscore:
    """`_`: the place of the piped value in a call, or an ignored value in an assignment."""


@dataclass(frozen=True, slots=True)
class Field:
    """`.a.b`: members of the context."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Chain:
    """`base.a.b`."""

    base: Expression
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Index:
    """`base[index]`."""

    base: Expression
    index: Expression


@dataclass(frozen=True, slots=True)
class Slice:
    """`base[start:end]`."""

    base: Expression
    start: Expression | None
    end: Expression | None


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a call gives: `has_slot` when one of them is `_`, the place of the piped value."""

    expressions: tuple[Expression, ...] = ()
    has_slot: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """`base(arguments)` inside an expression."""

    base: Expression
    arguments: Arguments


@dataclass(frozen=True, slots=True)
class Negative:
    """`-operand` and `+operand`."""

    operator: str
    operand: Expression


@dataclass(frozen=True, slots=True)
class Binary:
    """`left operator right`; the operator is one of `+ - * / % == != < <= > >= && ||`."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Not:
    """`!operand`."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class Ternary:
    """`condition ? left : right`."""

    condition: Expression
    left: Expression
    right: Expression


Expression = (
    Literal | Name | Underscore | Field | Chain | Index | Slice | Call | Negative | Binary | Not | Ternary
)
Target = Name | Underscore | Field | Chain


@dataclass(frozen=True, slots=True)
class Command:
    """One stage of a pipeline: a value, or a function with arguments; None when it has none, not even `()`."""

    base: Expression
    arguments: Arguments | None = None


@dataclass(frozen=True, slots=True)
class Assign:
    """
    `a, b := x, y` (declares) or `a, b = x, y`.

    Attributes:
        targets: What is assigned to.
        values: As many, but for `with_ok` and for `range`, which have one.
        declares: New variables, not existing ones.
        with_ok: `v, ok := m["k"]`: the second is whether there was one.
    """

    targets: tuple[Target, ...]
    values: tuple[Expression, ...]
    declares: bool
    with_ok: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Action:
    """`[[ assign ]]`, `[[ pipeline ]]` or `[[ assign; pipeline ]]`."""

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
    """`range source`, or `range assign`, whose one value is the source."""

    line: int
    assign: Assign | None
    source: Expression
    body: Body
    otherwise: Body


@dataclass(frozen=True, slots=True)
class Catch:
    """The second part of a `try`. Standing elsewhere it does nothing."""

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
    """A block's parameter or what a yield gives for it; `name` is empty for one given by place, which names nothing."""

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
    """Runs the block `name`, or the content that was given to the block we are in when `name` is empty."""

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


@dataclass(frozen=True, slots=True)
class Marker:
    """`end`, `else` or `content`: ends a body. One that ends nothing where it stands does nothing."""

    line: int
    word: str


Statement = Text | Action | If | Range | Try | Catch | Block | Yield | Include | Return | Marker
Body = tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Template:
    """
    A parsed template.

    Attributes:
        name: What it is called in errors and what paths in it are relative to.
        body: What it prints.
        blocks: Its own blocks by name; of two with one name the later.
        extends: The template that is run in its stead, with its blocks.
        imports: Templates whose blocks it uses.
    """

    name: str
    body: Body
    blocks: dict[str, Block] = field(default_factory=dict)
    extends: str = ""
    imports: tuple[str, ...] = ()
