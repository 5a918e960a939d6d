"""`ccm registration`: manage and query service registrations."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from ccm_agent.app import App
from ccm_agent.cli import options
from ccm_agent.cli.inputs import pairs
from ccm_agent.cli.services import registration_output
from ccm_agent.cli.terminal import HostTerminal
from ccm_agent.clikit.commands import examples
from ccm_agent.clikit.options import Options, takes
from ccm_agent.model.errors import DocumentError, UsageError
from ccm_agent.model.formats.durations import parse_duration
from ccm_agent.model.records.registration import RegistrationEntry, check_entry

Result = TypeVar("Result")


class RegistrationGroup(options.CcmGroup):
    """The group of commands. They have the same aliases as in Choria CCM."""

    aliases = {"c": "create", "q": "query", "delete": "rm"}


@click.group(
    "registration",
    cls=RegistrationGroup,
    epilog=examples("ccm registration query production http web", "ccm registration watch production"),
)
@click.option(
    "--context",
    "nats_context",
    metavar="NAME",
    help=options.CONTEXT_HELP,
)
@click.pass_context
def command(context: click.Context, nats_context: str | None) -> None:
    """Manage service registrations."""
    context.obj = nats_context


class RegistryOptions(Options, frozen=True, kw_only=True):
    """The options of `shared`."""

    registration: str
    nats_context: str | None


class RegistryInitOptions(RegistryOptions, frozen=True, kw_only=True):
    """The options of `init`."""

    replicas: int | None
    max_age: str | None


class RegistryEntryOptions(RegistryOptions, frozen=True, kw_only=True):
    """The options of `known_by`, which are also those of `rm`."""

    cluster: str
    service: str
    protocol: str
    address: str
    port: int
    force: bool = False


class RegistryCreateOptions(RegistryEntryOptions, frozen=True, kw_only=True):
    """The options of `create`."""

    priority: int
    ttl: str
    annotation: tuple[str, ...]


class RegistryFilterOptions(RegistryOptions, frozen=True, kw_only=True):
    """The options of `query` and `watch`."""

    cluster: str
    protocol: str
    service: str
    address: str
    as_json: bool
    as_yaml: bool = False


def shared(function: Any) -> Any:
    """Add the options of every command: the stream, and the context, which may also precede the command's name."""
    decorators = (
        options.registration_flag,
        click.option(
            "--context",
            "nats_context",
            metavar="NAME",
            help=options.CONTEXT_HELP,
        ),
        click.pass_obj,
    )
    return options.add_options(function, decorators)


def known_by(function: Any) -> Any:
    """Add the options that identify an entry."""
    decorators = (
        click.option("--cluster", required=True, metavar="NAME", help="Cluster name."),
        click.option("--service", required=True, metavar="NAME", help="Service name."),
        click.option("--protocol", required=True, metavar="NAME", help="Protocol name."),
        click.option("--address", required=True, metavar="IP", help="IP address of the service."),
        click.option("--port", required=True, type=int, metavar="PORT", help="Port number."),
    )
    return options.add_options(function, decorators)


def filtered(function: Any) -> Any:
    """Add the arguments that filter entries."""
    names = ("cluster", "protocol", "service", "address")
    return options.add_options(function, tuple(click.argument(name, default="*") for name in names))


def ask(before: str | None, given: RegistryOptions, question: Callable[[Any], Awaitable[Result]]) -> Result:
    """Connect with the given context, call `question`, and disconnect."""
    context = given.nats_context or before or ""

    async def work() -> Result:
        app = App(os.environ, context=context)
        try:
            return await question(await app.registry(given.registration))
        finally:
            await app.close()

    return asyncio.run(work())


@command.command("init", epilog=examples("ccm registration init --replicas 3 --max-age 5m"))
@click.option("--replicas", type=int, help="Number of stream replicas, 1 to 5; 1 for a new stream.")
@click.option(
    "--max-age", metavar="DURATION", help="Lifetime of entries that have no TTL; 1m for a new stream."
)
@shared
@takes(RegistryInitOptions)
def init(before: str | None, given: RegistryInitOptions) -> None:
    """Create or update the registration stream. Omitted options do not change an existing stream."""
    age_s = _seconds("--max-age", given.max_age) if given.max_age is not None else None
    made = ask(before, given, lambda registry: registry.make(given.replicas, age_s))
    HostTerminal().report(
        "info",
        "Registration stream ready",
        {"stream": made["name"], "subjects": " ".join(made["subjects"]), "replicas": made["num_replicas"]},
    )


@command.command(
    "create",
    epilog=examples(
        "ccm registration create --cluster production --service web --protocol http \\",
        "    --address 10.0.0.5 --port 8080 --ttl 5m",
    ),
)
@known_by
@click.option(
    "--priority", type=int, default=100, show_default=True, help="Priority from 1 to 255; lower is preferred."
)
@click.option(
    "--ttl", default="30s", show_default=True, metavar="DURATION", help="Lifetime of the entry, or `never`."
)
@click.option("--annotation", "-A", multiple=True, metavar="K=V", help="Annotation. May be repeated.")
@shared
@takes(RegistryCreateOptions)
def create(before: str | None, given: RegistryCreateOptions) -> None:
    """Register a service."""
    annotations = pairs(given.annotation, "--annotation")
    entry = _entry(given, priority=given.priority, ttl=given.ttl or None, annotations=annotations)
    ask(before, given, lambda registry: registry.create(entry))
    HostTerminal().report(
        "info", "Registration entry created", {**_fields(entry), "priority": entry.priority}
    )


@command.command(
    "rm",
    epilog=examples(
        "ccm registration rm --cluster production --service web --protocol http \\",
        "    --address 10.0.0.5 --port 8080",
    ),
)
@known_by
@click.option("--force", "--yes", "-y", is_flag=True, help="Skip the confirmation prompt.")
@shared
@takes(RegistryEntryOptions)
def rm(before: str | None, given: RegistryEntryOptions) -> None:
    """Remove a registration. An agent that manages the service registers it again."""
    entry = _entry(given, priority=1)
    what = f"{entry.cluster}/{entry.service}/{entry.protocol} at {entry.address}:{entry.port}"
    if not given.force and not click.confirm(f"Remove registration entry {what}?", default=False):
        return
    if ask(before, given, lambda registry: registry.remove(entry)):
        HostTerminal().report("info", "Registration entry removed", _fields(entry))
    else:
        HostTerminal().report("warning", "No matching registration entry", _fields(entry))


@command.command(
    "query",
    short_help="Show registered services.",
    epilog=examples("ccm registration query production http web", "ccm registration query '*' http --json"),
)
@filtered
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--yaml", "as_yaml", is_flag=True, help="Print YAML.")
@shared
@takes(RegistryFilterOptions)
def query(before: str | None, given: RegistryFilterOptions) -> None:
    """Show registered services. `*` matches any value of an argument."""
    found = ask(before, given, lambda registry: registry.find(*_filter(given)))
    found.sort(key=lambda entry: (entry.cluster, entry.protocol, entry.service))
    show = (
        registration_output.as_json
        if given.as_json
        else registration_output.as_yaml
        if given.as_yaml
        else registration_output.listing
    )
    HostTerminal().data(show(found).rstrip("\n"))


@command.command(
    "watch",
    short_help="Show registered services and their changes.",
    epilog=examples("ccm registration watch production"),
)
@filtered
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per change.")
@shared
@takes(RegistryFilterOptions)
def watch(before: str | None, given: RegistryFilterOptions) -> None:
    """Show registered services and their changes until interrupted."""
    terminal = HostTerminal(data_on_stdout=given.as_json)

    async def follow(registry: Any) -> None:
        async for change in registry.watch(*_filter(given)):
            if given.as_json:
                terminal.data(registration_output.change_json(change))
            else:
                terminal.report(*registration_output.change_note(change))
            terminal.flush()

    with contextlib.suppress(KeyboardInterrupt):  # interrupting is the normal way to end a watch
        ask(before, given, follow)


def _filter(given: RegistryFilterOptions) -> tuple[str, ...]:
    return given.cluster, given.protocol, given.service, given.address


def _entry(given: RegistryEntryOptions, **more: Any) -> RegistrationEntry:
    entry = RegistrationEntry(
        cluster=given.cluster,
        service=given.service,
        protocol=given.protocol,
        address=given.address,
        port=given.port,
        **more,
    )
    check_entry(entry)
    return entry


def _fields(entry: RegistrationEntry) -> dict[str, object]:
    names = ("cluster", "service", "protocol", "address", "port")
    return {name: getattr(entry, name) for name in names}


def _seconds(flag: str, written: str) -> float:
    try:
        return parse_duration(written)
    except DocumentError as err:
        raise UsageError(f"{flag}: {err.message}") from err
