"""Shell completions of values: files, types, facts, states, and names on the broker."""

from __future__ import annotations

import asyncio
import importlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccm_agent.clikit.completion import FILES, MOST, offer, offer_files
from ccm_agent.clikit.help_command import HELP_WORDS, offer_commands
from ccm_agent.clikit.text import short_ids
from ccm_agent.model.errors import CcmError
from ccm_ctl.app import Application

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import click
    from click.shell_completion import CompletionItem

    from ccm_ctl.app import Broker

WITHIN_S = 1.0
"""The maximum wait for the broker after Tab, in seconds. If there is no reply by then, there are no completions."""

FEW_VALUES = 20
"""The maximum number of values of a fact that are offered before its name is typed."""

_ASSIGNED = frozenset({"assign", "unassign", "rollback", "assignment"})
_SCHEDULED = frozenset({"rm", "run", "status"})
_ORDERS = frozenset({"pause", "resume", "promote", "abort"})
_MODULES = {
    "rollouts": "ccm_ctl.fleet.rollout.store",
    "bundles": "ccm_ctl.fleet.assignments.bundle_references",
    "groups": "ccm_ctl.fleet.nodes.groups",
    "runs": "ccm_ctl.fleet.runs.history",
    "resources": "ccm_ctl.fleet.runs.history",
    "assignments": "ccm_ctl.fleet.assignments.assignments",
    "schedules": "ccm_ctl.fleet.schedules.schedules",
}


def complete(ctx: click.Context, metavar: str, incomplete: str) -> list[CompletionItem]:
    """Return completions for the last word of a command line. `metavar` is the word's name in the help."""
    if metavar == HELP_WORDS:
        return offer_commands(ctx, incomplete)
    if metavar.removesuffix("...").strip("[]") in FILES or metavar == "DIR":
        return offer_files(incomplete, "dir" if metavar == "DIR" else "file")
    if metavar == "TYPE":
        from ccm_ctl.commands.runs.properties import type_names

        return offer(type_names(), incomplete)
    if metavar == "TYPES":
        from ccm_agent.model.records.host_import import SITE_ORDER

        before, comma, part = incomplete.rpartition(",")
        found = offer(SITE_ORDER, part)
        for item in found:
            item.value = f"{before}{comma}{item.value}"
        return found
    if metavar.startswith("[ENSURE]"):
        return offer(_complete_properties(str(ctx.params.get("type_name") or ""), incomplete), incomplete)
    if metavar == "NAME" and ctx.command_path.split()[1:2] == ["notify"]:
        return offer(_notification_rules(ctx), incomplete)
    kind = choose_kind(ctx.command_path.split()[1:], metavar)
    if kind == "selector":
        # A selector has parts separated by commas. Only the last part is completed.
        before, comma, part = incomplete.rpartition(",")
        is_group = part.startswith("@")
        words = (
            [f"@{name}" for name in _names(ctx, "groups")]
            if is_group
            else complete_facts(_names(ctx, "facts"), part)
        )
        found = offer(words, part)
        for item in found:
            item.value = f"{before}{comma}{item.value}"
        return found
    names = _names(ctx, kind)
    if kind == "resources":
        prefix = f"{ctx.params.get('type_name')}#"
        names = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
    if metavar == "[NODE... KEY=VALUE...]" and (ctx.params.get("words") or "=" in incomplete):
        names = [*names, *complete_facts(_names(ctx, "facts"), incomplete)]
    return offer(names, incomplete)


def choose_kind(path: list[str], metavar: str) -> str:
    """Return the kind of names that an argument takes; "" if it is not completed."""
    if metavar == "SELECTOR":
        return "selector"
    if metavar in ("NODE", "[NODE]", "[NODE|list]", "NODE...", "[NODE... KEY=VALUE...]"):
        return "nodes"
    if metavar == "RUN":
        return "rollouts" if path[-1] in _ORDERS else "runs"
    if metavar == "DIGEST":
        return "bundles"
    if metavar in ("SCHEDULE", "ASSIGNMENT"):
        return f"{metavar.lower()}s"
    if metavar in ("[PATH]", "KEY...", "[KEY...]") and path[:1] == ["facts"]:
        return "fact names"
    if metavar in ("KEY", "[PREFIX]") and path[:1] == ["data"]:
        return "data"
    if metavar == "NAME" and path[:1] == ["ensure"]:
        return "resources"
    if metavar == "NAME" and path[:1] and path[0] in _ASSIGNED:
        return "assignments"
    if metavar == "NAME" and path[:1] == ["group"]:
        return "groups"
    if metavar == "NAME" and path[:1] == ["schedule"] and path[-1] in _SCHEDULED:
        return "schedules"
    return ""


def complete_facts(facts: Iterable[str], typed: str) -> list[str]:
    """
    Return completions for one part of a selector.

    Args:
        facts: Texts of the form `name=value`.
        typed: The text so far. `!=` is completed like `=`.

    Returns:
        `name=value` for each match. For a fact with many values whose name is not complete yet, only `name=`.
    """
    values: dict[str, set[str]] = {}
    for fact in facts:
        name, _, value = fact.partition("=")
        values.setdefault(name, set()).add(value)
    words = []
    for name, known in values.items():
        mark = "!=" if typed.startswith(f"{name}!") else "="
        is_named = typed.startswith((f"{name}=", f"{name}!="))
        words += (
            [f"{name}{mark}{value}" for value in known]
            if is_named or len(known) <= FEW_VALUES
            else [f"{name}="]
        )
    return words


def _complete_properties(type_name: str, incomplete: str) -> Iterator[str]:
    """Yield states, and properties in the form KEY=VALUE."""
    from ccm_agent.clikit.properties import SWITCH
    from ccm_ctl.commands.runs.properties import find_properties, type_names

    if type_name not in type_names():
        return
    for name, what in find_properties(type_name).items():
        if name == "ensure":
            yield from what.states
        elif what.kind == SWITCH and incomplete.startswith(f"{name}="):
            yield from (f"{name}=true", f"{name}=false")
        elif what.kind:
            yield f"{name}="


def _notification_rules(ctx: click.Context) -> list[str]:
    """Return the names of rules in the local file; [] if it cannot be read."""
    from ccm_ctl.notify.rules import default_rules_path, read_rules

    application = ctx.find_object(Application)
    if application is None:
        return []
    named = ctx.params.get("file")
    try:
        return list(read_rules(Path(named) if named else default_rules_path(application.environ)))
    except CcmError:
        return []


def _names(ctx: click.Context, kind: str) -> list[str]:
    """Return names on the broker; [] if the broker is slow or unreachable."""
    application = ctx.find_object(Application)
    if not kind or application is None:
        return []
    if home := _MODULES.get(kind):
        importlib.import_module(home)  # import before the event loop starts, because an import reads files
    logging.disable()
    try:
        return asyncio.run(_ask(application, kind))
    except (CcmError, OSError, TimeoutError):
        return []
    finally:
        logging.disable(logging.NOTSET)


async def _ask(application: Application, kind: str) -> list[str]:
    async with asyncio.timeout(WITHIN_S), application.broker() as broker:
        return await _read(broker, kind)


async def _read(broker: Broker, kind: str) -> list[str]:
    fleet = broker.fleet
    if kind == "nodes":
        return [key.partition(".")[2] for key in await fleet.nodes.keys("node.")]
    if kind == "data":
        return await fleet.data.keys()
    if kind == "groups":
        from ccm_ctl.fleet.nodes.groups import read_groups

        return [one.name for one in await read_groups(fleet)]
    if kind == "bundles":
        from ccm_ctl.fleet.assignments.bundle_references import SHORT_DIGEST, find_bundles

        return [one.name[:SHORT_DIGEST] for one in await find_bundles(fleet)]
    if kind in ("facts", "fact names"):
        from ccm_ctl.fleet.nodes.inventory import read_inventory

        facts = [fact for node in (await read_inventory(fleet)).nodes.values() for fact in _facts(node)]
        return facts if kind == "facts" else [fact.partition("=")[0] for fact in facts]
    if kind in ("runs", "resources"):
        from ccm_ctl.fleet.runs.history import NEWEST, History

        records = [record for record, *_ in (await History(fleet).newest(MOST)).runs]
        if kind == "resources":
            return [record.name for record in records if record.action == "ensure"]
        return [NEWEST, *short_ids(record.run for record in records).values()]
    if kind == "rollouts":
        from ccm_ctl.fleet.rollout.store import RolloutStore

        return list(short_ids(await RolloutStore(fleet).open_runs()).values())
    if kind == "assignments":
        from ccm_ctl.fleet.assignments.assignments import read_assignments

        return [one.name for one in (await read_assignments(fleet)).standing]
    from ccm_ctl.fleet.schedules.schedules import Schedules

    if broker.connection is None:
        return []
    return [one.name for one in await Schedules(broker.connection).all()]


def _facts(node: Any) -> Iterator[str]:
    """Yield the facts of a node that can be used in selectors, as `name=value`."""
    yield f"node={node.name}"
    for path, value in _leaves({**node.routed, **node.assigned}):
        yield f"{path}={value}"


def _leaves(facts: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in facts.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        elif isinstance(value, bool):
            yield f"{prefix}{name}", str(value).lower()
        elif isinstance(value, str | int | float):
            yield f"{prefix}{name}", str(value)
