"""`ccmctl import`: write a site with the existing resources of nodes."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import Struct

from ccm_agent.clikit.options import Options, takes
from ccm_agent.clikit.site_writer import SiteWriter
from ccm_agent.clikit.table import Column
from ccm_agent.clikit.terminal import Terminal
from ccm_agent.clikit.text import fold_names, plural
from ccm_agent.manifest.findings import ERROR
from ccm_agent.model.errors import InputError, UsageError
from ccm_agent.model.exits import Exit
from ccm_agent.model.records.host_import import (
    IMPORT_TYPES,
    SITE_ORDER,
    WORDS_LIMIT,
    FoundResource,
    LeftOutResource,
    in_site_order,
    why_not_imported,
)
from ccm_agent.model.suggestions import did_you_mean
from ccm_agent.model.wire import MANIFEST_PLAN, ManifestRequest, NodeState
from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import verb
from ccm_ctl.commands.runs.import_files import save_site
from ccm_ctl.commands.runs.manifest_check import read_checked
from ccm_ctl.commands.runs.targets import TargetOptions, target_options
from ccm_ctl.fleet.imports.accepted import accept_resources, shown
from ccm_ctl.fleet.imports.answers import ImportAnswer, ImportAnswers, ask_resources
from ccm_ctl.fleet.imports.contents import check_size, fetch_contents, narrow, why_incomplete
from ccm_ctl.fleet.imports.factoring import factor
from ccm_ctl.fleet.imports.site_layers import SiteLayer, lay_out, read_layer_facts
from ccm_ctl.fleet.nodes.discovery import resolve
from ccm_ctl.fleet.nodes.inventory import read_verified_facts
from ccm_ctl.fleet.nodes.nodes import Inventory, TargetSet
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.runs.history import History
from ccm_ctl.fleet.runs.run_request import prepare_own
from ccm_ctl.render.record_types.nodes import ImportLine

SHOWN = 20
"""The maximum number of lines about omitted resources, and about planned changes."""

REASON_LIMIT = 300


class ImportOptions(Options, frozen=True, kw_only=True):
    """The options of `ccmctl import`."""

    nodes: TargetOptions
    types: tuple[str, ...]
    out: str


class _Imported(Struct, kw_only=True):
    """The results from the nodes: their resources, the omitted resources, and the nodes that returned none, with the reasons."""

    hosts: dict[str, list[FoundResource]] = {}
    left_out: dict[str, list[LeftOutResource]] = {}
    failed: dict[str, ImportAnswer] = {}


def _check_types(_ctx: click.Context, _param: click.Parameter, value: str) -> tuple[str, ...]:
    """Check the types before connecting to the broker. UsageError for an unknown type."""
    wanted = [word.strip() for word in value.split(",")]
    for word in wanted:
        if reason := why_not_imported(word):
            kind = word.partition(":")[0]
            hint = did_you_mean(kind, SITE_ORDER) if kind not in SITE_ORDER else ""
            raise UsageError(f"--types {word}: {'not a type to import' + hint if hint else reason}")
    if len(wanted) > WORDS_LIMIT:
        raise UsageError(f"--types: name at most {WORDS_LIMIT} types")
    return tuple(in_site_order(wanted))


@verb(
    "import",
    examples=[
        "ccmctl import -t role=web --out site",
        "ccmctl import -t role=web --types file:/etc/nginx,systemd_unit --out site",
    ],
    options=[
        *target_options(),
        click.Option(
            ["--types"],
            default=",".join(IMPORT_TYPES),
            metavar="TYPES",
            callback=_check_types,
            show_default=True,
            help="Types. Also: repository, systemd_unit, container, file:PATH, directory:PATH, config:PATH.",
        ),
        click.Option(
            ["--out", "-o"],
            required=True,
            metavar="DIR",
            help="New or empty folder.",
        ),
    ],
)
@takes(ImportOptions)
def import_(application: Application, given: ImportOptions) -> Exit:
    """
    Write a site with the resources of nodes.

    Resources of all nodes are written to the layer common, those explained by a fact to layers such as role=web, and the
    others to layers of nodes. A plan then shows what the site would change on these nodes. Review the site before an apply,
    because its content comes from the nodes.

    Secrets, template syntax and resources that a node's policy forbids are omitted and listed. Importing files requires the
    right to apply.

    Exit codes: 0 the site changes nothing; 1 it could not run; 2 it changes a node, or a node refused; 3 a node did not answer.
    """
    writer = SiteWriter(given.out)

    async def work(fleet: Fleet) -> Exit:
        inventory, resolved = await resolve(fleet, given.nodes.spec())
        answers = await _ask(application.terminal, fleet, given, resolved)
        imported = await asyncio.to_thread(_accept, answers, given.types)
        contents = await _fetch(fleet, given.types, resolved, imported)
        if not any(imported.hosts.values()):
            application.terminal.note(
                "\n".join(["nothing to import, so nothing was written", *_trouble(imported, resolved)])
            )
            return Exit.COULD_NOT_RUN if imported.hosts else _exit(imported, resolved)
        layers = await _write(fleet, inventory, imported, contents, writer, given)
        application.terminal.show(_layer_report(given.out, layers, imported))
        changes = await _plan(application, fleet, writer.path, narrow(resolved, list(imported.hosts)))
        _report(application.terminal, given.out, layers, imported, changes, resolved)
        is_clean = not (changes.nodes or changes.unknown)
        return _exit(imported, resolved) if is_clean else Exit.FAILED

    return application.run(work)


async def _ask(
    terminal: Terminal, fleet: Fleet, given: ImportOptions, resolved: TargetSet
) -> dict[str, ImportAnswer]:
    def on_turn(answers: ImportAnswers) -> None:
        if terminal.is_live:
            terminal.live(f"import: {len(answers.ended)} of {plural(len(resolved.present), 'node')} answered")

    answers = await ask_resources(fleet, given.types, resolved, on_turn)
    terminal.live("")
    return answers


def _accept(answers: Mapping[str, ImportAnswer], types: Sequence[str]) -> _Imported:
    """Check the answers of nodes. Blocking, because each resource is checked like a resource of a manifest."""
    imported = _Imported()
    check = PropertyCheck()
    for node, answer in sorted(answers.items()):
        if answer.found is None:
            imported.failed[node] = answer
            continue
        try:
            resources, left_out = accept_resources(answer.found, types, check)
        except InputError as err:
            imported.failed[node] = ImportAnswer(state="refused", reason=err.message)
            continue
        imported.hosts[node] = resources
        if left_out:
            imported.left_out[node] = left_out
    return imported


class PropertyCheck:
    """Checks properties as `ccm lint` does. It caches the results, because nodes have many resources in common."""

    def __init__(self) -> None:
        self._known: dict[bytes, str] = {}

    def __call__(self, type_name: str, properties: Mapping[str, Any]) -> None:
        from ccm_agent.manifest.lint import lint_request

        key = msgspec.json.encode([type_name, properties], order="sorted")
        if key not in self._known:
            errors = [one.message for one in lint_request(type_name, properties) if one.level == ERROR]
            self._known[key] = errors[0].removeprefix(f"{type_name}#{properties['name']}: ") if errors else ""
        if reason := self._known[key]:
            raise InputError(reason)


async def _fetch(
    fleet: Fleet, types: Sequence[str], resolved: TargetSet, imported: _Imported
) -> Mapping[str, bytes]:
    """Fetch the contents of files. Resources are omitted if no node sends their contents."""
    fetched = await fetch_contents(fleet, types, resolved, imported.hosts)
    for node, resources in imported.hosts.items():
        reasons = [(one, why_incomplete(one, fetched)) for one in resources]
        missing = [LeftOutResource(type=one.type, name=one.name, reason=why) for one, why in reasons if why]
        if missing:
            imported.hosts[node] = [one for one, why in reasons if not why]
            imported.left_out[node] = imported.left_out.get(node, []) + missing
    return fetched.found


async def _write(
    fleet: Fleet,
    inventory: Inventory,
    imported: _Imported,
    contents: Mapping[str, bytes],
    writer: SiteWriter,
    given: ImportOptions,
) -> list[SiteLayer]:
    hosts = [node async for node in read_verified_facts(fleet, inventory, imported.hosts)]
    facts = read_layer_facts(hosts, inventory.nodes)
    site = factor(imported.hosts, facts.texts, facts.order, facts.claimed)
    layers, manifest = lay_out(site, facts)
    check_size(
        [
            each.size_bytes
            for layer in layers
            for one in layer.resources
            for each in one.contents
            if each.sha256
        ]
    )
    comment = f"Written by `ccmctl import --types {','.join(given.types)}` from {plural(len(imported.hosts), 'node')}."
    await asyncio.to_thread(save_site, writer, layers, contents, manifest, comment)
    return layers


class _Changes(Struct, kw_only=True):
    """The result of a plan of the site: its run, the changes by node, and the nodes without a valid plan, with the reasons."""

    run: str
    nodes: dict[str, dict[str, str]] = {}
    unknown: dict[str, str] = {}


async def _plan(application: Application, fleet: Fleet, out: Path, resolved: TargetSet) -> _Changes:
    from ccm_ctl.fleet.runs.background_runs import EndsWriter
    from ccm_ctl.fleet.runs.proof import read_proof
    from ccm_ctl.fleet.runs.run_session import follow_run, new_run

    content = await asyncio.to_thread(read_checked, application, str(out))
    assert content.bundle is not None
    await fleet.manifests.put(content.digest, content.packed)
    request = ManifestRequest(
        protocol=MANIFEST_PLAN, name=content.name, digest=content.digest, bundle=content.bundle
    )
    launch = prepare_own(fleet, request, resolved, "plan", content.name)
    run, proof = new_run(fleet, launch), await read_proof(fleet)
    writer = EndsWriter(fleet, run)
    await follow_run(fleet, launch, run, proof, on_begin=lambda: None, on_turn=writer.on_turn)
    if run.is_ended:
        await History(fleet).finish(run)
    changes = _Changes(run=run.run)
    for name in resolved.nodes:
        node = run.nodes[name]
        found = {
            f"{event.type}#{event.name}": event.noop_message or "; ".join(event.error) or "is skipped"
            for _, event in sorted(node.events.items())
            if event.type != "apply" and (event.changed or event.failed or event.skipped)
        }
        if found:
            changes.nodes[name] = found
        elif node.state is not NodeState.STABLE:
            changes.unknown[name] = (
                node.reason or (node.summary.reason if node.summary else "") or str(node.state)
            )
    return changes


def _exit(imported: _Imported, resolved: TargetSet) -> Exit:
    if any(one.state in ("refused", "forged") for one in imported.failed.values()):
        return Exit.FAILED
    return Exit.MISSING if imported.failed or resolved.offline else Exit.OK


def _layer_report(out: str, layers: Sequence[SiteLayer], imported: _Imported) -> str:
    resources = plural(sum(len(layer.resources) for layer in layers), "resource")
    nodes = plural(len(imported.hosts), "node")
    return f"{out}/manifest.yaml: {resources} of {nodes} in {plural(len(layers), 'layer')}\n"


def _report(
    terminal: Terminal,
    out: str,
    layers: Sequence[SiteLayer],
    imported: _Imported,
    changes: _Changes,
    resolved: TargetSet,
) -> None:
    failed = {name: one.state for name, one in imported.failed.items()}
    reasons = {name: one.reason for name, one in imported.failed.items()}
    terminal.record(
        ImportLine,
        out=out,
        layers={one.title: len(one.resources) for one in layers},
        nodes=dict.fromkeys(imported.hosts, "imported")
        | failed
        | dict.fromkeys(resolved.offline, "offline")
        | dict.fromkeys(changes.unknown, "unplanned"),
        reasons=reasons | changes.unknown,
        left_out=imported.left_out,
        plan=changes.run,
        changes=changes.nodes,
    )
    rows = [[layer.title, str(len(layer.resources)), layer.path] for layer in layers]
    terminal.table([Column("LAYER", fold=True), Column("RESOURCES", right=True), Column("FOLDER")], rows)
    lines = _trouble(imported, resolved)
    lines += [
        f"{name}: the site could not be planned: {shown(reason, REASON_LIMIT)}"
        for name, reason in changes.unknown.items()
    ]
    if changes.nodes:
        lines.append("an apply would change:")
        lines += _first(
            f"  {name}: {shown(resource, REASON_LIMIT)}: {shown(message, REASON_LIMIT)}"
            for name, found in changes.nodes.items()
            for resource, message in found.items()
        )
    lines.append(
        f"plan: {len(changes.nodes)} of {plural(len(imported.hosts) - len(changes.unknown), 'node')} would change"
    )
    terminal.show("\n".join(lines) + "\n")


def _trouble(imported: _Imported, resolved: TargetSet) -> list[str]:
    """Describe the nodes and resources that are not in the site, with the reasons."""
    lines = [
        f"{name}: {one.state}: {shown(one.reason, REASON_LIMIT)}" for name, one in imported.failed.items()
    ]
    if resolved.offline:
        lines.append(f"offline: {fold_names(resolved.offline)}")
    if empty := [name for name, resources in imported.hosts.items() if not resources]:
        # with such a node, no resource is common to all nodes
        lines.append(f"no resources: {fold_names(empty)}")
    if imported.left_out:
        having: dict[LeftOutResource, list[str]] = defaultdict(list)
        for node, left_out in imported.left_out.items():
            for one in left_out:
                having[one].append(node)
        lines.append("left out:")
        lines += _first(
            f"  {fold_names(nodes)}: {one.type} {one.name}: {one.reason}" for one, nodes in having.items()
        )
    return lines


def _first(all_lines: Iterable[str]) -> list[str]:
    lines = list(all_lines)
    more = [f"  and {len(lines) - SHOWN} more; --json lists all"] if len(lines) > SHOWN else []
    return [*lines[:SHOWN], *more]
