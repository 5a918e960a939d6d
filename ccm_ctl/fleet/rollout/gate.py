"""
Gates: conditions on the results of a rollout so far, in the expression language of manifests.

    failed == 0 && health.critical == 0 && len(registrations("prod", "http", "web", "*")) >= 8
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ccm_agent.model.errors import ExpressionError, UsageError
from ccm_agent.model.wire import NodeState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ccm_agent.model.outcome import SessionSummary
    from ccm_agent.templates.expr.program import Program

LENGTH_LIMIT = 4096
"""The maximum length of a gate in characters."""

COUNTED = {state: state.value for state in NodeState if state.is_final and state is not NodeState.SKIPPED}
"""The name that a gate uses for the number of nodes in each state. No node is skipped before a gate is evaluated."""

HEALTH = ("ok", "warning", "critical", "unknown")
"""Results of health checks that a gate can read in `health`."""

REGISTRATIONS = "registrations"


def parse_gate(text: str) -> Program:
    """
    Parse a gate.

    Raises:
        UsageError: It does not parse, uses an unknown name, or is not a condition.
    """
    from ccm_agent.templates.expr.program import ExpressionNames, compile_expression

    if len(text) > LENGTH_LIMIT:
        raise UsageError(f"the gate has {len(text)} characters; at most {LENGTH_LIMIT} are allowed")
    variables = dict.fromkeys((*COUNTED.values(), "total", "ended"), "integer") | {"health": "map"}
    try:
        return compile_expression(
            text,
            ExpressionNames(variables, frozenset({REGISTRATIONS}), {"health": HEALTH}),
            is_condition=True,
        )
    except ExpressionError as err:
        raise UsageError(f"--gate {text}: {err}") from err


def check_gate(text: str) -> None:
    """
    Refuse a gate whose result is constant.

    Raises:
        UsageError: It is not valid (see `parse_gate`), or it does not depend on any result.
    """
    from ccm_agent.templates.expr.program import ExpressionNames, compile_expression

    parse_gate(text)
    try:
        compile_expression(text, ExpressionNames({}, frozenset(), {}), is_condition=True)
    except ExpressionError:
        return
    raise UsageError(
        f"--gate {text}: uses no result, so it is always the same; compare a result, such as `failed == 0`"
    )


def evaluate_gate(
    program: Program,
    states: Mapping[NodeState, int],
    health: Mapping[str, int],
    registrations: Callable[..., Any],
) -> tuple[bool, str]:
    """
    Return the result of a gate, and the values that it used.

    Args:
        program: From `parse_gate`.
        states: The number of nodes in each state.
        health: The number of health checks with each result.
        registrations: Returns the registered services for a cluster, protocol, service and address.
    """
    variables = _variables(states, health)
    try:
        result = _run(program, variables, registrations)
    except ExpressionError as err:
        return False, str(err)
    return result is True, seen(variables, program.text)


def seen(variables: Mapping[str, Any], text: str) -> str:
    """Return the values of the variables in a gate, such as `failed 2, health.critical 1`."""
    parts = [f"{name} {value}" for name, value in variables.items() if name != "health" and name in text]
    parts += [
        f"health.{name} {value}" for name, value in variables["health"].items() if f"health.{name}" in text
    ]
    return ", ".join(parts) or "see the registered services"


def _run(program: Program, variables: Mapping[str, Any], registrations: Callable[..., Any]) -> object:
    return program.run(variables, {REGISTRATIONS: registrations})


def _variables(states: Mapping[NodeState, int], health: Mapping[str, int]) -> dict[str, Any]:
    counts = {name: states.get(state, 0) for state, name in COUNTED.items()}
    ended = sum(count for state, count in states.items() if state.is_final)
    return {
        **counts,
        "total": sum(states.values()),
        "ended": ended,
        "health": {name: health.get(name, 0) for name in HEALTH},
    }


def count_health(summaries: Iterable[SessionSummary]) -> dict[str, int]:
    """Count the results of health checks in the summaries of nodes."""
    counts = dict.fromkeys(HEALTH, 0)
    for summary in summaries:
        for name in HEALTH:
            counts[name] += getattr(summary, f"health_check_{name}_count")
    return counts
