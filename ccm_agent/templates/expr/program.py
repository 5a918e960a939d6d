"""Expressions, compiled once and run as often as needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from ccm_agent.templates.expr.check import check
from ccm_agent.templates.expr.evaluate import Compiler
from ccm_agent.templates.expr.faults import Fault, located
from ccm_agent.templates.expr.frame import Frame
from ccm_agent.templates.expr.functions import FUNCTIONS
from ccm_agent.templates.expr.natures import ANY, MAP, STRING, STRING_MAP, Nature
from ccm_agent.templates.expr.optimize import optimize
from ccm_agent.templates.expr.parser import parse

CACHED_LENGTH = 4096  # characters of an expression that is kept when it is compiled

_BUILTINS = frozenset(FUNCTIONS)
_NATURES: dict[str, Nature] = {"any": ANY, "map": MAP, "text": STRING, "text map": STRING_MAP}


class Names:
    """
    What an expression may name.

    Attributes:
        variables: Its variables: "any", "map" (of anything, by text), "text" or "text map" for each.
        functions: Its functions; they take and give anything.
    """

    __slots__ = ("_hash", "functions", "variables")

    def __init__(self, variables: Mapping[str, str], functions: frozenset[str] = frozenset()) -> None:
        self.variables = tuple(sorted(variables.items()))
        self.functions = functions
        self._hash = hash((self.variables, functions))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Names)
            and self.variables == other.variables
            and self.functions == other.functions
        )

    def __hash__(self) -> int:
        return self._hash


class Program:
    """
    A compiled expression; `compile_expression` makes it.

    Attributes:
        text: The expression.
        calls: The functions of the environment that it calls.
    """

    __slots__ = ("_is_condition", "_run", "_slots", "calls", "text")

    def __init__(
        self, text: str, run: Callable[[Frame], Any], slots: int, calls: frozenset[str], is_condition: bool
    ) -> None:
        self.text = text
        self.calls = calls
        self._run = run
        self._slots = slots
        self._is_condition = is_condition

    def run(self, variables: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]]) -> Any:
        """
        The value of the expression.

        Args:
            variables: A value for each variable that the names have.
            functions: Likewise the functions. They may raise errors of ours, which get the place of the call.

        Raises:
            ExpressionError: It fails on these values, or takes more steps or memory than it may.
        """
        try:
            value = self._run(Frame(variables, functions, self._slots))
            if self._is_condition:
                return _as_condition(value)
            return value
        except Fault as fault:
            raise located(self.text, fault) from fault.__cause__
        except RecursionError:
            raise located(self.text, Fault("the values are nested too deeply")) from None


def _as_condition(value: Any) -> bool:
    """A condition's answer: nil is false."""
    if value is None:
        return False
    if value is True or value is False:
        return bool(value)
    from ccm_agent.templates.expr.operators import describe

    raise Fault(f"a condition must give a boolean, and this gave {describe(value)}")


def compile_expression(text: str, names: Names, *, is_condition: bool = False) -> Program:
    """
    Compile an expression; the same one again costs nothing.

    Args:
        text: The expression.
        names: What it may name.
        is_condition: It must give a boolean; nil counts as false.

    Raises:
        ExpressionError: It does not parse or its types do not go together.
    """
    if len(text) > CACHED_LENGTH:
        return _compile(text, names, is_condition)
    return _compile_once(text, names, is_condition)


@lru_cache(maxsize=4096)
def _compile_once(text: str, names: Names, is_condition: bool) -> Program:
    return _compile(text, names, is_condition)


def _compile(text: str, names: Names, is_condition: bool) -> Program:
    try:
        tree = parse(text, _BUILTINS)
        variables = {name: _NATURES[kind] for name, kind in names.variables}
        nature = check(tree, variables, names.functions)
        if is_condition and nature.kind != "bool" and not nature.is_unknown:
            raise Fault(f"a condition must give a boolean, and this gives {nature}", 0)
        compiler = Compiler()
        run = compiler.compile(optimize(tree))
    except Fault as fault:
        raise located(text, fault) from None
    except RecursionError:
        raise located(text, Fault("the expression is nested too deeply", 0)) from None
    return Program(text, run, compiler.slots, frozenset(compiler.calls), is_condition)
