"""`ccmctl data explain`: show the sources of a node's data. `ccmctl hiera explain` is its former name."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from ccm_agent.bus.subjects import check_key
from ccm_agent.clikit.table import Cell, Column, paint
from ccm_agent.clikit.text import one_line
from ccm_agent.model.errors import UsageError
from ccm_agent.model.exits import Exit
from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import group, verb
from ccm_ctl.commands.data.documents import read_source
from ccm_ctl.fleet.data.hiera_explain import (
    DEFAULT_DATA,
    Candidate,
    Explained,
    explain_value,
    has_value,
    layer_fields,
    list_sources,
    masked,
)
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.render.record_types.data import ExplainedLayer, ExplainedLine

MEANINGS = {"wins": "good", "merged": "good", "overridden": "quiet", "removes": "change"}

MERGES = {
    "": "no hierarchy",
    "first": "merge: first; the first existing override is used, and replaces whole keys of the base",
    "deep": "merge: deep; lower layers override those above",
}


@group("hiera", no_args_is_help=True, examples=["ccmctl data explain port --node web1"])
def hiera(application: Application) -> None:
    """Explain where a node's data comes from."""


@verb(
    "explain",
    examples=[
        "ccmctl data explain port --node web1",
        "ccmctl data explain tls.cert --node web1 --data kv://CCM_DATA/common --data kv://CCM_DATA/role/web",
        "ccmctl data explain port --node web1 --data common.yaml   # before it is stored",
    ],
    options=[
        click.Argument(["key"], metavar="KEY"),
        click.Option(["--node", "-n"], metavar="NODE", required=True, help="Node whose facts are used."),
        click.Option(
            ["--data", "-d"],
            multiple=True,
            metavar="URL|FILE",
            help=f"Documents to merge; later ones override earlier ones. [{DEFAULT_DATA}]",
        ),
        click.Option(["--show-secrets"], is_flag=True, help="Show secret values."),
    ],
)
def explain(application: Application, key: str, node: str, data: tuple[str, ...], show_secrets: bool) -> Exit:
    """
    Show which document and layer provide the value of a key for a node, and why other layers do not.

    Layers are listed in merge order. KEY is a dotted path. Values of keys that look secret, or that a document declares
    secret, are masked.
    """
    if not key or not all(key.split(".")):
        raise UsageError(f"{key!r}: not a valid key; use a path such as port or tls.cert")
    urls = data or (DEFAULT_DATA,)
    for url in urls:
        if url.startswith("kv://CCM_DATA/"):
            check_key(url.removeprefix("kv://CCM_DATA/"))

    files = {url: read_source(url) for url in urls if "://" not in url}

    async def work(fleet: Fleet) -> Exit:
        explained = await explain_value(fleet, key, node, urls, files)
        _tell(application, explained, node, show_secrets=show_secrets)
        if not data:
            await _tell_others(application, fleet, node)
        return Exit.OK if explained.is_found else Exit.COULD_NOT_RUN

    return application.run(work)


hiera.add_command(explain)


def _tell(application: Application, explained: Explained, node: str, *, show_secrets: bool) -> None:
    terminal = application.terminal
    name = ".".join(explained.key)

    def shown(value: object) -> Any:
        return value if show_secrets else masked(name, value, explained.secret)

    terminal.record(
        ExplainedLine,
        key=name,
        node=node,
        found=explained.is_found,
        value=shown(explained.value),
        layers=[ExplainedLayer(**each) for each in layer_fields(explained, shown)],
        rules=msgspec.to_builtins(explained.rules) or None,
        broken=list(explained.broken) or None,
    )
    terminal.show(paint(f"{_sentence(explained, node, shown)}\n", "strong", terminal.style))
    for sentence in (*explained.broken, *explained.warnings):
        terminal.show(paint(f"{sentence}\n", "bad", terminal.style))
    for document in dict.fromkeys(one.document for one in explained.candidates):
        layers = [one for one in explained.candidates if one.document == document]
        revision = f" revision {layers[0].revision}" if layers[0].revision else ""
        terminal.show(f"\n{document}{revision} ({MERGES.get(layers[0].merge, layers[0].merge)})\n")
        columns = [
            Column("LAYER", fold=True),
            Column("LINE", right=True),
            Column("RESULT"),
            Column("VALUE", fold=True),
        ]
        terminal.table(columns, [_row(one, shown) for one in layers])


def _row(one: Candidate, shown: Any) -> list[str | Cell]:
    effect = str(one.effect)
    value = _json(shown(one.value)) if has_value(one) else ""
    return [one.layer or one.entry, str(one.line or ""), Cell(effect, MEANINGS.get(effect, "quiet")), value]


def _sentence(explained: Explained, node: str, shown: Any) -> str:
    name = ".".join(explained.key)
    if not explained.is_found:
        return f"{name} is not set for {node}: no matching layer defines it."
    givers = [one for one in explained.candidates if one.effect in ("wins", "merged")]
    places = " and ".join(f"{one.layer} of {one.document}:{one.line}" for one in givers)
    return one_line(f"{name} of {node} is {_json(shown(explained.value))}, from {places}.")


async def _tell_others(application: Application, fleet: Fleet, node: str) -> None:
    """Print the documents that the node's assignments read if they are not only the default document."""
    for name, read in (await list_sources(fleet, node)).items():
        if tuple(read) != (DEFAULT_DATA,):
            words = " ".join(f"--data {url}" for url in read)
            application.terminal.note(f"the assignment {name} reads other documents on this node: {words}")


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
