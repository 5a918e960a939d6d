"""Which layer of which document gives a node a value: the node's facts and the documents, fetched and put together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ccm_agent.hiera.secret_keys import is_secret_key as is_secret_key
from ccm_agent.model.errors import InputError, NotFoundError
from ccm_ctl.fleet.discovery import read_facts, read_inventory
from ccm_ctl.fleet.documents import Documents

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ccm_agent.hiera.explain import Candidate as Candidate
    from ccm_agent.hiera.explain import Explained as Explained
    from ccm_agent.hiera.explain import SourceDocument
    from ccm_ctl.fleet.ports import Fleet

BUCKET = "CCM_DATA"
PREFIX = f"kv://{BUCKET}/"


async def explain_value(
    fleet: Fleet, key: str, node: str, urls: Sequence[str], texts: Mapping[str, str]
) -> Explained:
    """
    Where the value of a key on a node comes from, with the facts that the node told last.

    Args:
        fleet: The bus.
        key: Its dotted path.
        node: The node's name.
        urls: The documents, each merged over those before it.
        texts: Of those that are no keys of CCM_DATA, what they say.

    Raises:
        NoTargetError: There is no such node.
        CcmError: A document is not there, or cannot be resolved with the node's facts.
    """
    from ccm_agent.hiera.explain import SourceDocument, explain

    sources = [
        SourceDocument(name=url, text=texts[url]) if url in texts else await _read_stored(fleet, url)
        for url in urls
    ]

    inventory = await read_inventory(fleet)
    found = inventory.need(node)
    await read_facts(fleet, inventory, [node])
    return await asyncio.to_thread(explain, key, sources, found.facts)


async def _read_stored(fleet: Fleet, url: str) -> SourceDocument:
    """A document of CCM_DATA as it is now."""
    from ccm_agent.hiera.explain import SourceDocument

    if not url.startswith(PREFIX) or url == PREFIX:
        raise InputError(f"{url}: cannot be read from here; write {PREFIX}KEY, or a file")
    document = await Documents(fleet, fleet.data, BUCKET).read(url.removeprefix(PREFIX))
    if not isinstance(document.body, str):
        raise NotFoundError(f"{url}: there is no such document; `ccmctl data list` shows which there are")
    return SourceDocument(name=url, text=document.body, revision=document.revision)
