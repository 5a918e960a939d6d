"""The streams of a site, and what the center needs for it: mirrors in the site's account, and sources. See `bus.access.sites`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ccm_agent.bus.access.sites import ASKED, CENTER, MIRRORED, SOURCED, down, up
from ccm_agent.bus.layout import (
    SCHEDULES_VERSION,
    CopyCount,
    LayoutAction,
    LayoutChange,
    LayoutOptions,
    make_one,
    plan,
    stream_config,
)
from ccm_agent.bus.stream_settings import WantedStream
from ccm_agent.bus.streams import call
from ccm_agent.model.errors import BusSetupError

if TYPE_CHECKING:
    from ccm_agent.bus.connection.connection import Connection


def require_domain(connection: Connection, domain: str) -> None:
    """
    Check that the servers have this JetStream domain.

    Raises:
        BusSetupError: They have another one, or none.
    """
    server = connection.server
    has = server.domain if server is not None else ""
    if has != domain:
        found = f"the JetStream domain {has}" if has else "no JetStream domain"
        example = "hub-1.conf" if domain == CENTER else "site.conf"
        raise BusSetupError(
            f"this broker has {found}; `domain: {domain}` is required in `jetstream` of each of its servers: "
            f"see deploy/nats/{example}, restart them, and run this again"
        )


async def make_site(connection: Connection, layout: LayoutOptions, site: str) -> list[LayoutChange]:
    """
    Create or update the streams of a site on its own broker.

    Raises:
        BusSetupError: The servers are not those of this site, or a stream exists and is not a mirror.
        BusDeniedError: The credentials do not allow creating streams.
    """
    require_domain(connection, site)
    return await _make(connection, layout, f"$JS.{CENTER}.API", site, all_streams=True)


async def make_mirrors(connection: Connection, layout: LayoutOptions, site: str) -> list[LayoutChange]:
    """
    Create or update the mirrors of the center's buckets, over a connection in the account of the site at the center.

    Raises:
        BusSetupError, BusDeniedError: See `make_site`.
    """
    require_domain(connection, CENTER)
    return await _make(connection, layout, ASKED, site, all_streams=False)


async def _make(
    connection: Connection, layout: LayoutOptions, api: str, site: str, *, all_streams: bool
) -> list[LayoutChange]:
    assert connection.server is not None
    copies = CopyCount(connection, layout)
    done = []
    for wanted in plan(layout, with_schedules=connection.server.version >= SCHEDULES_VERSION):
        if wanted.config["name"] in MIRRORED:
            mirror = _mirror(wanted, api, site, notifies=all_streams)
            await _require_mirror(connection, mirror)
            done.append(await make_one(connection, copies, mirror))
        elif all_streams:
            done.append(await make_one(connection, copies, wanted))
    return done


def _mirror(wanted: WantedStream, api: str, site: str, *, notifies: bool) -> WantedStream:
    left_out = {"subjects"} if notifies else {"subjects", "republish"}
    config = {name: value for name, value in wanted.config.items() if name not in left_out}
    mirror = {"name": config["name"], "external": {"api": api, "deliver": down(site)}}
    return msgspec.structs.replace(wanted, config={**config, "mirror": mirror})


async def _require_mirror(connection: Connection, wanted: WantedStream) -> None:
    found = await stream_config(connection, wanted.config["name"])
    if found is not None and found.get("mirror") != wanted.config["mirror"]:
        name = wanted.config["name"]
        raise BusSetupError(
            f"{name}: exists, and is not a mirror of the center; remove it with `nats stream rm {name}` "
            "if nothing in it is needed, and run this again"
        )


async def add_sources(connection: Connection, site: str) -> list[LayoutChange]:
    """
    Add the streams of a site to the sources of the center's streams. Sources of other sites are kept.

    Raises:
        BusSetupError: The center's streams do not exist yet.
    """
    require_domain(connection, CENTER)
    return [await _change_sources(connection, name, site, source(name, site)) for name in SOURCED]


def source(name: str, site: str) -> dict[str, Any]:
    """Return the entry for a site in the sources of a stream of the center."""
    return {"name": name, "external": {"api": f"$JS.{site}.API", "deliver": up(site)}}


async def _change_sources(
    connection: Connection, name: str, site: str, added: dict[str, Any]
) -> LayoutChange:
    config = (await call(connection, f"STREAM.INFO.{name}"))["config"]
    has = config.get("sources") or []
    is_new = all((one.get("external") or {}).get("deliver") != up(site) for one in has)
    if is_new:
        await call(connection, f"STREAM.UPDATE.{name}", {**config, "sources": [*has, added]})
    return LayoutChange(
        name=name.removeprefix("KV_"),
        kind="bucket" if name.startswith("KV_") else "stream",
        action=LayoutAction.UPDATED if is_new else LayoutAction.UNCHANGED,
        replicas=config["num_replicas"],
        details=(f"source {site}",),
    )
