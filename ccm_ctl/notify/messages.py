"""The text of a notification: a plain sentence, or the output of the rule's template."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ccm_agent.model.errors import UsageError
from ccm_agent.model.ids import short_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ccm_ctl.notify.happenings import Happening

NAMED = 10
"""The maximum number of nodes or runs in the default sentence."""

MESSAGE_LIMIT = 4000
"""The maximum length of a message. Chat services refuse longer ones."""


def format_message(template: str, happenings: Sequence[Happening]) -> str:
    """
    Return the message about happenings.

    Args:
        template: A Jinja template; "" for the default sentence. Its variables are `happenings` (a list), `count`, and the fields
            of the first happening.
        happenings: At least one happening.

    Raises:
        UsageError: The template cannot be parsed, or fails with these values.
    """
    text = _render(template, happenings) if template else default_message(happenings)
    return text if len(text) <= MESSAGE_LIMIT else f"{text[: MESSAGE_LIMIT - 1]}…"


def default_message(happenings: Sequence[Happening]) -> str:
    """Return one line for each kind of happening."""
    lines = []
    for kind in dict.fromkeys(one.kind for one in happenings):
        lines += _lines(kind, [one for one in happenings if one.kind == kind])
    return "\n".join(lines)


def _lines(kind: str, found: Sequence[Happening]) -> list[str]:
    if kind == "run":
        return _limited(
            [f"run {short_id(one.run['id'])} ({_title(one)}) ended: {one.reason}" for one in found]
        )
    if kind == "rollout":
        return _limited([_paused(one) for one in found])
    if len(found) == 1:
        one = found[0]
        sentence = {
            "node": f"{one.node}: {one.manifest or 'a session'} failed: {one.reason}",
            "drift": f"{one.node}: drift was corrected: {one.reason}",
            "stale": f"{one.node} does not match {one.assignment}: {one.reason}",
        }
        return [sentence.get(kind, one.reason)]
    names = list(dict.fromkeys(one.node for one in found))
    what = {"node": "failed on", "drift": "drift was corrected on", "stale": "assignments do not match on"}
    return [f"{what.get(kind, kind)} {len(names)} node{'s' if len(names) != 1 else ''}: {list_names(names)}"]


def _paused(one: Happening) -> str:
    """Describe a paused rollout, the reason for the pause, and the commands that continue it."""
    run = one.run["id"]
    nodes = "1 node" if one.run["nodes"] == 1 else f"{one.run['nodes']} nodes"
    what = f" ({_title(one)} on {one.run['targets']}, {nodes})" if one.run.get("name") else ""
    return (
        f"rollout {short_id(run)}{what} is paused: {one.reason}\n"
        f"  continue:  ccmctl run resume {short_id(run)}\n  abort:     ccmctl run abort {short_id(run)}"
    )


def list_names(names: Sequence[str]) -> str:
    """Join names, and count those above the limit: `web1, web2 and 5 more`."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _title(one: Happening) -> str:
    run = one.run
    words = f"{run.get('action', '')} {run.get('name', '')} by {run.get('operator', '')}".strip()
    return f"{words}: {run['message']}" if run.get("message") else words


def _limited(lines: list[str]) -> list[str]:
    return lines if len(lines) <= NAMED else [*lines[:NAMED], f"and {len(lines) - NAMED} more"]


def _render(template: str, happenings: Sequence[Happening]) -> str:
    from jinja2 import StrictUndefined, TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    values: list[dict[str, Any]] = [one.variables() for one in happenings]
    environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined)
    try:
        text = environment.from_string(template).render(happenings=values, count=len(values), **values[0])
    except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as err:
        raise UsageError(f"message template: {err}") from err
    if not text.strip():
        raise UsageError("message template: the result is empty")
    return text
