"""Compiled expressions. They can run any number of times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ccm_agent.model.errors import ExpressionLimitError
from ccm_agent.templates.allowance import Allowance
from ccm_agent.templates.expr.check import check
from ccm_agent.templates.expr.evaluate import Compiler
from ccm_agent.templates.expr.evaluation_errors import EvaluationError, EvaluationLimitError, located
from ccm_agent.templates.expr.frame import Frame
from ccm_agent.templates.expr.functions import FUNCTIONS
from ccm_agent.templates.expr.operators import describe
from ccm_agent.templates.expr.parser import parse
from ccm_agent.templates.expr.static_types import ANY, INT, MAP, STRING, STRING_MAP, StaticType
from ccm_agent.templates.text_cache import TextCache

CACHED_LENGTH = 4096  # longer expressions are not cached
CACHE_LENGTH = (
    256 * 1024
)  # limit of the characters of all cached expressions; a compiled expression takes a hundred bytes per character
COMPILE_STEPS = 4  # charged for each character

_BUILTINS = frozenset(FUNCTIONS)
_NATURES: dict[str, StaticType] = {
    "any": ANY,
    "integer": INT,
    "map": MAP,
    "text": STRING,
    "text map": STRING_MAP,
}


class ExpressionNames:
    """
    The names that an expression may use.

    Attributes:
        variables: The type of each variable: "any", "integer", "map" (text keys, values of any type), "text" or "text map".
        functions: The functions; their arguments and results may be of any type.
        members: The keys of variables that are maps with known keys; any other key is an error.
    """

    __slots__ = ("_hash", "functions", "members", "variables")

    def __init__(
        self,
        variables: Mapping[str, str],
        functions: frozenset[str] = frozenset(),
        members: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        self.variables = tuple(sorted(variables.items()))
        self.functions = functions
        self.members = tuple(sorted((members or {}).items()))
        self._hash = hash((self.variables, functions, self.members))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ExpressionNames)
            and self.variables == other.variables
            and self.functions == other.functions
            and self.members == other.members
        )

    def __hash__(self) -> int:
        return self._hash


class Program:
    """
    A compiled expression; `compile_expression` creates it.

    Attributes:
        text: The expression.
    """

    __slots__ = ("_is_condition", "_run", "_slots", "text")

    def __init__(self, text: str, run: Callable[[Frame], Any], slots: int, is_condition: bool) -> None:
        self.text = text
        self._run = run
        self._slots = slots
        self._is_condition = is_condition

    def run(
        self,
        variables: Mapping[str, Any],
        functions: Mapping[str, Callable[..., Any]],
        allowance: Allowance | None = None,
    ) -> Any:
        """
        Return the value of the expression.

        Args:
            variables: A value for each variable in the names.
            functions: A function for each function name. The place of the call is added to a CcmError that it raises.
            allowance: The limits shared with other evaluations; None for separate limits.

        Raises:
            ExpressionError: The expression fails on these values.
            ExpressionLimitError: The expression exceeds the limits of steps, time or memory.
        """
        frame = Frame(variables, functions, self._slots, allowance or Allowance())
        try:
            value = self._run(frame)
            if self._is_condition:
                return _as_condition(value)
            return value
        except EvaluationError as fault:
            raise located(self.text, fault) from fault.__cause__
        except ExpressionLimitError as err:
            raise located(self.text, EvaluationLimitError(err.message)) from None
        except RecursionError:
            raise located(self.text, EvaluationError("the values are nested too deeply")) from None
        finally:
            frame.settle()


def _as_condition(value: Any) -> bool:
    """Return the result of a condition; nil is false."""
    if value is None:
        return False
    if value is True or value is False:
        return bool(value)

    raise EvaluationError(f"a condition must return a boolean, not {describe(value)}")


_kept: TextCache[tuple[str, ExpressionNames, bool], Program] = TextCache(CACHE_LENGTH)


def compile_expression(
    text: str, names: ExpressionNames, *, is_condition: bool = False, allowance: Allowance | None = None
) -> Program:
    """
    Compile an expression, or return it from the cache.

    Args:
        text: The expression.
        names: The names that it may use.
        is_condition: Whether it must return a boolean; nil is treated as false.
        allowance: The limits to which compiling is charged.

    Raises:
        ExpressionError: The expression does not parse or its types do not match.
        ExpressionLimitError: The allowance is used up.
    """
    key = text, names, is_condition
    kept = _kept.get(key)
    if kept is not None:
        return kept
    if allowance is not None:
        allowance.spend(COMPILE_STEPS * len(text))
    program = _compile(text, names, is_condition)
    if len(text) <= CACHED_LENGTH:
        _kept.put(key, program, len(text))
    return program


def _compile(text: str, names: ExpressionNames, is_condition: bool) -> Program:
    try:
        tree = parse(text, _BUILTINS)
        variables = {name: _NATURES[kind] for name, kind in names.variables}
        nature = check(tree, variables, names.functions, dict(names.members))
        if is_condition and nature.kind != "bool" and not nature.is_unknown:
            raise EvaluationError(f"a condition must return a boolean, not {nature}", 0)
        compiler = Compiler()
        run = compiler.compile(tree)
    except EvaluationError as fault:
        raise located(text, fault) from None
    except RecursionError:
        raise located(text, EvaluationError("the expression is nested too deeply", 0)) from None
    return Program(text, run, compiler.slots, is_condition)
