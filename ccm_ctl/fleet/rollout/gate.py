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
"""Characters of a gate."""

COUNTED = {state: state.value for state in NodeState if state.is_final and state is not NodeState.SKIPPED}
"""The name under which a gate sees how many nodes are in a state. Nothing is skipped before a gate has been evaluated."""

HEALTH = ("ok", "warning", "critical", "unknown")
"""Results of health checks that a gate sees below `health`."""

REGISTRATIONS = "registrations"


def parse_gate(text: str) -> Program:
    """
    Read a gate.

    Raises:
        UsageError: It does not parse, names something that a gate does not have, or is not a condition.
    """
    from ccm_agent.templates.expr.program import ExpressionNames, compile_expression

    if len(text) > LENGTH_LIMIT:
        raise UsageError(f"a gate of {len(text)} characters: the limit is {LENGTH_LIMIT}")
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
    Refuse a gate that cannot gate anything.

    Raises:
        UsageError: As `parse_gate`; or it names no result, so it is always true or never.
    """
    from ccm_agent.templates.expr.program import ExpressionNames, compile_expression

    parse_gate(text)
    try:
        compile_expression(text, ExpressionNames({}, frozenset(), {}), is_condition=True)
    except ExpressionError:
        return
    raise UsageError(
        f"--gate {text}: it names no result, so it is always the same; compare one, such as `failed == 0`"
    )


def evaluate_gate(
    program: Program,
    states: Mapping[NodeState, int],
    health: Mapping[str, int],
    registrations: Callable[..., Any],
) -> tuple[bool, str]:
    """
    The result of a gate, and the values that it saw.

    Args:
        program: From `parse_gate`.
        states: How many nodes are in each state.
        health: How many health checks have each result.
        registrations: The registered services for a cluster, protocol, service and address.
    """
    variables = _variables(states, health)
    try:
        result = _run(program, variables, registrations)
    except ExpressionError as err:
        return False, str(err)
    return result is True, seen(variables, program.text)


def seen(variables: Mapping[str, Any], text: str) -> str:
    """The values of the names in a gate: `failed 2, health.critical 1`."""
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
    """How many health checks have each result, in the summaries of nodes."""
    counts = dict.fromkeys(HEALTH, 0)
    for summary in summaries:
        for name in HEALTH:
            counts[name] += getattr(summary, f"health_check_{name}_count")
    return counts
