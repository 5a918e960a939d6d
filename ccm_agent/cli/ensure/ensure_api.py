"""`ccm ensure api pipe`: read a resource from standard input and write its outcome. The schemas are in schemas/v1."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import click
import msgspec

from ccm_agent.app import App
from ccm_agent.cli import options, output
from ccm_agent.cli.ensure import ensure_shared
from ccm_agent.cli.ensure.ensure_shared import EnsureSharedOptions
from ccm_agent.cli.terminal import HostTerminal
from ccm_agent.clikit.commands import examples
from ccm_agent.clikit.options import Options, takes
from ccm_agent.model import codec
from ccm_agent.model.errors import CcmError, InputError, UsageError
from ccm_agent.model.exits import Exit
from ccm_agent.model.outcome import TransactionEvent
from ccm_agent.model.resource import CommonState
from ccm_agent.model.suggestions import did_you_mean

REQUEST = "io.choria.ccm.v1.resource.ensure.request"
RESPONSE = "io.choria.ccm.v1.resource.ensure.response"
INPUT_LIMIT_BYTES = 64 << 20
FIELDS = ("protocol", "type", "properties")


class Piped(options.CcmGroup):
    """A group in which `piped` is an alias of `pipe`."""

    aliases = {"piped": "pipe"}


class PipeOptions(Options, frozen=True, kw_only=True):
    """The options of `pipe`."""

    as_yaml: bool
    shared: EnsureSharedOptions


@click.group("api", cls=Piped, epilog=examples("ccm ensure api pipe < request.json"))
@ensure_shared.shared_flags
@click.pass_context
@takes(EnsureSharedOptions)
def api(context: click.Context, given: EnsureSharedOptions) -> None:
    """Manage resources from other programs."""
    context.obj = given.over(context.parent.obj if context.parent else None)


@api.command(
    "pipe", epilog=examples("ccm ensure api pipe < request.json", "ccm ensure api pipe --yaml < request.yaml")
)
@click.option("--yaml", "as_yaml", is_flag=True, help="Write the response as YAML instead of JSON.")
@click.option("--no-yaml", "as_yaml", flag_value=False, type=bool, hidden=True)
@ensure_shared.shared_flags
@click.pass_context
@takes(PipeOptions)
def pipe(context: click.Context, given: PipeOptions) -> int:
    """Read a request from standard input, manage its resource, and write only the response to standard output."""
    terminal = HostTerminal(data_on_stdout=True)
    event, error, code = None, "", int(Exit.COULD_NOT_RUN)
    try:
        shared = given.shared.over(context.obj)
        request = sys.stdin.buffer.read(INPUT_LIMIT_BYTES + 1)
        event, code = asyncio.run(_apply(request, shared, terminal))
    except CcmError as err:
        error = str(err)
    terminal.data(_response(event, error, given.as_yaml))
    return code


async def _apply(
    data: bytes, shared: EnsureSharedOptions, terminal: HostTerminal
) -> tuple[TransactionEvent, int]:
    type_name, properties = read_request(data)
    if shared.session and not os.path.lexists(shared.session):  # noqa: ASYNC240 - before anything runs
        # programs without session support inherit the variable, so Choria CCM also accepts a missing store
        terminal.report(
            "warning",
            "The session store does not exist, so nothing is recorded",
            {"store": shared.session},
        )
        shared = msgspec.structs.replace(shared, session=None)
    asked = ensure_shared.apply_options(
        shared,
        on_note=lambda level, message, fields: terminal.report(level, message, dict(fields)),
        on_event=lambda event: terminal.event(event) if event.parent else None,
    )
    app = App(
        os.environ,
        context=shared.nats_context or "",
        stream=shared.registration or "",
        settle_s=options.settle_s(shared.registration_settle),
    )
    try:
        event = await app.engine().ensure(type_name, properties, asked)
        return event, await ensure_shared.exit_of(event, shared.session)
    finally:
        await app.close()


def read_request(data: bytes) -> tuple[str, dict[str, Any]]:
    """
    Return the type and properties of a request, which contains one resource in either form of a manifest.

    Raises:
        InputError: The request is not valid.
    """
    if len(data) > INPUT_LIMIT_BYTES:
        raise UsageError(f"the request is larger than {INPUT_LIMIT_BYTES >> 20} MiB")
    value = codec.decode_document(data, "request")
    if not isinstance(value, dict):
        raise InputError("the request must be a mapping with `protocol`, `type` and `properties`")
    found = {}
    for key, one in value.items():
        if key.lower() not in FIELDS:
            raise InputError(f"the request has an unknown key `{key}`{did_you_mean(key, FIELDS)}")
        found[key.lower()] = one
    if found.get("protocol") != REQUEST:
        raise InputError(f"invalid protocol {found.get('protocol')!r}: it must be {REQUEST}")
    if not isinstance(found.get("type"), str) or not found["type"]:
        raise InputError("the request has no `type`; add it, such as `type: file`")
    return found["type"], _one_resource(found.get("properties"))


def _one_resource(properties: Any) -> dict[str, Any]:
    if isinstance(properties, list):
        named = [item for item in properties if not (isinstance(item, dict) and list(item) == ["defaults"])]
        if len(named) != 1 or not isinstance(named[0], dict) or len(named[0]) != 1:
            raise InputError("the request must contain exactly one resource")
        name, own = next(iter(named[0].items()))
        defaults = next((item["defaults"] for item in properties if "defaults" in item), None)
        for what, value in ((name, own), ("defaults", defaults)):
            if not isinstance(value, dict | None):
                raise InputError(
                    f"in the request, `{what}` must be a mapping of properties, such as `{what}: {{ensure: present}}`"
                )
        properties = {**(defaults or {}), **(own or {}), "name": name}
    if not isinstance(properties, dict) or not properties:
        raise InputError("the request has no properties: add `properties` with at least a `name`")
    return properties


def _response(event: TransactionEvent | None, error: str, as_yaml: bool) -> str:
    response: dict[str, Any] = {"protocol": RESPONSE}
    if event is None:
        response["error"] = error
    else:
        response["state"] = _as_yaml(event) if as_yaml else event
    if as_yaml:
        return codec.encode_yaml(response)
    return codec.encode_json(response, indent=2).decode()


def _as_yaml(event: TransactionEvent) -> dict[str, Any]:
    """Return the event in Choria CCM's YAML form. Durations are text, and fields common to all states are a nested mapping."""
    values: dict[str, Any] = msgspec.to_builtins(event)
    values["duration"] = output.duration_text(event.duration)
    if isinstance(status := values.get("status"), dict):
        common = {key: status.pop(key) for key in CommonState.__struct_fields__ if key in status}
        values["status"] = {"commonresourcestate": common, **status}
    return values
