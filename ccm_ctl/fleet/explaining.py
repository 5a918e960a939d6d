"""Which layer of which document gives a node a value: the node's facts and the documents, fetched and put together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ccm_agent.model.errors import InputError, NotFoundError
from ccm_ctl.fleet.discovery import read_facts, read_inventory
from ccm_ctl.fleet.documents import Documents

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ccm_agent.hiera.explain import Explained, Source
    from ccm_ctl.fleet.ports import Fleet

BUCKET = "CCM_DATA"
PREFIX = f"kv://{BUCKET}/"


async def explain_value(fleet: Fleet, key: str, node: str, sources: Sequence[Source]) -> Explained:
    """
    Where the value of a key on a node comes from, with the facts that the node told last.

    Raises:
        NoTargetError: There is no such node.
        CcmError: A document cannot be resolved with the node's facts.
    """
    from ccm_agent.hiera.explain import explain

    inventory = await read_inventory(fleet)
    found = inventory.need(node)
    await read_facts(fleet, inventory, [node])
    return await asyncio.to_thread(explain, key, sources, found.facts)


async def read_stored(fleet: Fleet, url: str) -> Source:
    """
    A document of CCM_DATA as it is now.

    Raises:
        InputError: The URL is none of this bucket.
        NotFoundError: There is no such document.
    """
    from ccm_agent.hiera.explain import Source

    if not url.startswith(PREFIX) or url == PREFIX:
        raise InputError(f"{url}: cannot be read from here; write {PREFIX}KEY, or a file")
    document = await Documents(fleet, fleet.data, BUCKET).read(url.removeprefix(PREFIX))
    if not isinstance(document.body, str):
        raise NotFoundError(f"{url}: there is no such document; `ccmctl data ls` shows which there are")
    return Source(name=url, text=document.body, revision=document.revision)
