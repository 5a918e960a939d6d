"""`ccmctl facts`: show the facts of nodes and assign facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from ccm_agent.bus.signatures.verified import Authored, Base
from ccm_agent.bus.subjects import check_node
from ccm_agent.model.codec import decode_document
from ccm_agent.model.errors import DocumentError, InputError, NotFoundError, Place, UsageError
from ccm_agent.model.exits import Exit
from ccm_agent.model.suggestions import did_you_mean
from ccm_agent.templates.fact_texts import fact_at, fact_paths
from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import group, verb
from ccm_ctl.commands.data.documents import show_history
from ccm_ctl.fleet.data.document_history import read_facts_history
from ccm_ctl.fleet.data.documents import Documents
from ccm_ctl.fleet.data.fact_edits import wait_taken, with_facts, without_facts
from ccm_ctl.fleet.nodes.inventory import read_facts, read_nodes, require_nodes
from ccm_ctl.fleet.nodes.nodes import Inventory
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.render.record_types.nodes import FactsLine
from ccm_ctl.render.tree import scalar, tree

BUCKET = "CCM_FACTS"


@group(
    "facts",
    no_args_is_help=True,
    examples=["ccmctl facts set web1 role=web", "ccmctl facts show web1 host.info"],
)
def facts(application: Application) -> None:
    """
    Show the facts of nodes and assign facts to them.

    An assigned fact overrides the fact that the node gathered. Use assigned facts to select nodes: --targets
    role=web.
    """


@verb(
    "show",
    examples=[
        "ccmctl facts show web1",
        "ccmctl facts show web1 host.info.platform",
        "ccmctl facts show web1 --assigned",
    ],
    options=[
        click.Argument(["name"], metavar="NODE"),
        click.Argument(["path"], metavar="[PATH]", default=""),
        click.Option(["--assigned"], is_flag=True, help="Show only assigned facts."),
    ],
)
def _show(application: Application, name: str, path: str, assigned: bool) -> Exit:
    """Show the facts that a node reported last, or one of them."""

    async def work(fleet: Fleet) -> Exit:
        terminal = application.terminal
        inventory = await require_nodes(fleet, [name])
        node = inventory.need(name)
        await read_facts(fleet, inventory, [name])
        known = node.assigned if assigned else node.facts
        found: Any = fact_at(known, path) if path else known
        if found is None:
            hint = did_you_mean(path, fact_paths(known)) or f"; `ccmctl facts show {name}` shows its facts"
            raise NotFoundError(f"{name}: has no fact {path}{hint}")
        stored = await Documents(fleet, fleet.facts, BUCKET).read(name)
        terminal.record(
            FactsLine, node=name, path=path or None, facts=found, unverified=stored.unverified or None
        )
        if stored.unverified:
            terminal.warn(f"{name}: the assigned facts are unverified: {stored.unverified}")
        terminal.show(tree(found, terminal.style) if isinstance(found, dict) else f"{scalar(found)}\n")
        return Exit.OK

    return application.run(work)


@verb(
    "set",
    examples=[
        "ccmctl facts set web1 role=web env=prod",
        "ccmctl facts set web1 web2 site.rack=7 tags:='[\"a\"]'",
        "ccmctl facts set --from facts.yaml     # web1: {role: web}",
    ],
    options=[
        click.Argument(["words"], metavar="[NODE... KEY=VALUE...]", nargs=-1),
        click.Option(
            ["--from", "source"], metavar="FILE", help="YAML or JSON file that maps node names to facts."
        ),
        click.Option(["--new"], is_flag=True, help="Allow nodes that have never connected."),
        click.Option(
            ["--replace"], is_flag=True, help="Replace all assigned facts, including unverified ones."
        ),
    ],
)
def _set(
    application: Application, words: tuple[str, ...], source: str | None, new: bool, replace: bool
) -> Exit:
    """
    Assign facts to nodes. Integers, true and false are stored as such, other values as text. Use KEY:=JSON for any
    other type.

    Waits until all present nodes have received the facts.
    """
    if bool(source) == bool(words):
        raise UsageError("give NODE KEY=VALUE, or --from FILE; `ccmctl facts set --help` shows examples")
    wanted = read_facts_file(Path(source)) if source else _parse_arguments(words)

    def change(name: str) -> Callable[[Any], Any]:
        return lambda old: with_facts({} if replace else old, wanted[name])

    async def work(fleet: Fleet) -> Exit:
        base = [Authored.from_arguments()] if replace else []
        return await _change(application, fleet, list(wanted), change, base=base, new=new)

    return application.run(work)


@verb(
    "unset",
    examples=["ccmctl facts unset web1 role"],
    options=[
        click.Argument(["name"], metavar="NODE"),
        click.Argument(["paths"], metavar="KEY...", nargs=-1, required=True),
    ],
)
def _unset(application: Application, name: str, paths: tuple[str, ...]) -> Exit:
    """Remove assigned facts. The facts that the node gathered apply again."""

    def change(_: str) -> Callable[[Any], Any]:
        return lambda old: without_facts(old, paths)

    async def work(fleet: Fleet) -> Exit:
        return await _change(application, fleet, [name], change, new=False)

    return application.run(work)


@verb("history", examples=["ccmctl facts history web1"], options=[click.Argument(["name"], metavar="NODE")])
def _history(application: Application, name: str) -> Exit:
    """List the facts that were assigned to a node, newest first, with author and time."""
    check_node(name)

    async def work(fleet: Fleet) -> Exit:
        kept = await read_facts_history(fleet, name)
        show_history(application, kept, shown=True)
        return Exit.OK

    return application.run(work)


for _command in (_show, _set, _unset, _history):
    facts.add_command(_command)


async def _change(
    application: Application,
    fleet: Fleet,
    names: Sequence[str],
    change: Callable[[str], Callable[[Any], Any]],
    *,
    base: Sequence[Base] = (),
    new: bool,
) -> Exit:
    """Change the assigned facts of nodes. All nodes are checked before the first write."""
    if new:
        inventory = await read_nodes(fleet, map(check_node, names))
    else:
        inventory = await require_nodes(fleet, names)
    documents = Documents(fleet, fleet.facts, BUCKET)
    written = {}
    for name in names:
        _, document = await documents.change(name, change(name), base=base)
        written[name] = document.body or {}
    present = {
        name: body
        for name, body in written.items()
        if name in inventory.nodes and inventory.nodes[name].is_present
    }
    late = await wait_taken(fleet, present)
    _tell(application, inventory, written, late)
    return Exit.OK


def _tell(
    application: Application,
    inventory: Inventory,
    written: Mapping[str, Mapping[str, Any]],
    late: Sequence[str],
) -> None:
    for name, body in written.items():
        node = inventory.nodes.get(name)
        is_present = node is not None and node.is_present
        state = "late" if name in late else "taken" if is_present else "waits"
        application.terminal.record(FactsLine, node=name, assigned=dict(body), state=state)
        words = ", ".join(
            f"{key}={scalar(value)}" if not isinstance(value, dict | list) else f"{key}={_json(value)}"
            for key, value in sorted(body.items())
        )
        notes = {
            "taken": "",
            "waits": " (offline: applied when it returns)",
            "late": " (not applied yet: its agent is slow to respond)",
        }
        application.terminal.show(f"{name}: {words or 'nothing assigned'}{notes[state]}\n")


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _parse_arguments(words: Sequence[str]) -> dict[str, dict[str, Any]]:
    names = [word for word in words if "=" not in word]
    pairs = [word for word in words if "=" in word]
    if not names or not pairs:
        raise UsageError("name the nodes and the facts to assign, such as `ccmctl facts set web1 role=web`")
    found: dict[str, Any] = {}
    for pair in pairs:
        key, _, value = pair.partition("=")
        try:
            found[key.removesuffix(":")] = (
                msgspec.json.decode(value) if key.endswith(":") else fact_value(value)
            )
        except msgspec.DecodeError as err:
            raise UsageError(f"{pair}: the value after := is not JSON: {err}") from err
    return {name: dict(found) for name in names}


def fact_value(text: str) -> str | int | bool:
    """Parse the value of a fact on a command line. `true`, `false` and integers get their type. All other values are text."""
    if text in ("true", "false"):
        return text == "true"
    digits = text.removeprefix("-")
    # A value with a leading zero, such as an asset number or a phone number, is text.
    is_number = (
        digits.isascii() and digits.isdecimal() and (digits == "0" or digits[0] != "0") and text != "-0"
    )
    return int(text) if is_number and len(digits) < 19 else text


def read_facts_file(path: Path) -> dict[str, dict[str, Any]]:
    """
    Read the facts of nodes from a file.

    Raises:
        InputError: The file cannot be read, or has another format.
    """
    try:
        text = path.read_bytes()
    except OSError as err:
        raise InputError(f"{path}: cannot be read: {err.strerror}") from err
    found = decode_document(text, str(path))
    if (
        not isinstance(found, dict)
        or not found
        or not all(isinstance(one, dict) and one for one in found.values())
    ):
        raise DocumentError(
            "not a mapping of nodes to facts: write a line for each node, such as `web1: {role: web}`",
            place=Place(source=str(path)),
        )
    return found
