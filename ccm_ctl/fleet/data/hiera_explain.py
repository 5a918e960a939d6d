"""Find which layer of which document sets a value on a node. Fetches the node's facts and the documents, and combines them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from ccm_agent.hiera.explain import Candidate as Candidate
from ccm_agent.hiera.explain import Explained as Explained
from ccm_agent.hiera.explain import SourceDocument, explain, merged_data
from ccm_agent.hiera.secret_keys import is_secret_key as is_secret_key
from ccm_agent.model.errors import InputError, NotFoundError
from ccm_agent.model.secret import MASK, Masker, looks_secret, mask_url, secrets_of_url
from ccm_agent.templates.fact_texts import fact_paths
from ccm_ctl.fleet.assignments.assignments import read_assignments
from ccm_ctl.fleet.data.documents import Documents
from ccm_ctl.fleet.nodes.inventory import read_facts, require_nodes
from ccm_ctl.fleet.ports import Fleet

BUCKET = "CCM_DATA"
PREFIX = f"kv://{BUCKET}/"
DEFAULT_DATA = f"{PREFIX}common"
KEYS_LISTED = 1000


async def explain_value(
    fleet: Fleet, key: str, node: str, urls: Sequence[str], texts: Mapping[str, str]
) -> Explained:
    """
    Explain which layer sets the value of a key on a node, using the facts that the node last reported.

    Args:
        fleet: The bus.
        key: Its dotted path.
        node: The node's name.
        urls: The documents. Each is merged over the previous ones.
        texts: The text of each document that is not a key of CCM_DATA.

    Raises:
        NoTargetError: There is no such node.
        CcmError: A document does not exist, or cannot be resolved with the node's facts.
    """
    sources = [
        SourceDocument(name=url, text=texts[url]) if url in texts else await _read_stored(fleet, url)
        for url in urls
    ]
    return await asyncio.to_thread(explain, key, sources, await _read_node_facts(fleet, node))


async def list_keys(fleet: Fleet, node: str, urls: Sequence[str]) -> list[str]:
    """
    Return the dotted paths of a node's data, sorted, at most KEYS_LISTED.

    Raises:
        NoTargetError: There is no such node.
        CcmError: A document does not exist, or cannot be resolved with the node's facts.
    """
    sources = [await _read_stored(fleet, url) for url in urls]
    merged = await asyncio.to_thread(merged_data, sources, await _read_node_facts(fleet, node))
    return sorted(islice(fact_paths(merged.data), KEYS_LISTED))


async def read_masked_data(fleet: Fleet, facts: Mapping[str, Any], urls: Sequence[str]) -> dict[str, Any]:
    """
    Return a node's data from stored documents. Secrets, and all values of a protected document, are replaced by `***`.

    Values that are computed from the result cannot contain secrets or parts of secrets.

    Raises:
        CcmError: A document does not exist, or cannot be resolved with these facts.
    """
    sources = [await _read_stored(fleet, url) for url in urls]
    is_protected = [await fleet.data.is_kept_apart(url.removeprefix(PREFIX)) for url in urls]
    merged = await asyncio.to_thread(merged_data, sources, facts)
    return _blanked(merged.data) if any(is_protected) else mask_data(merged.data, merged.secret)


def mask_data(data: Mapping[str, Any], declared: tuple[str, ...]) -> dict[str, Any]:
    """Return the data with secrets masked as in `masked`, including secrets within another value or a key."""
    found: dict[str, Any] = masker_of([data], declared).value(_masked_layer(data, declared))
    return found


def masker_of(layers: Sequence[Mapping[str, Any]], declared: tuple[str, ...]) -> Masker:
    """Return a masker for the secrets in these data."""
    masker = Masker()
    for layer in layers:
        for secret in _hidden(layer, _masked_layer(layer, declared)):
            masker.learn(secret)
    return masker


def _masked_layer(data: Mapping[str, Any], declared: tuple[str, ...]) -> dict[str, Any]:
    return {name: masked(name, value, declared) for name, value in data.items()}


def _hidden(value: object, shown: object) -> Iterator[str | float]:
    """Yield each masked text and number."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _hidden(inner, shown[name] if isinstance(shown, dict) else MASK)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _hidden(inner, shown[number] if isinstance(shown, list) else MASK)
    elif isinstance(value, str) and value != shown and shown != MASK:
        yield from secrets_of_url(value)
    elif isinstance(value, (str, int, float)) and value != shown:
        yield value


def _blanked(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _blanked(inner) for name, inner in value.items()}
    return [_blanked(inner) for inner in value] if isinstance(value, list) else MASK


async def list_sources(fleet: Fleet, node: str) -> dict[str, list[str]]:
    """
    Return the documents that each assignment of a node reads, by the assignment's name. Assignments without data are left out.
    """
    inventory, assignments = await require_nodes(fleet, [node]), await read_assignments(fleet)
    await assignments.fill_in(fleet, inventory)
    found = assignments.of_node(inventory.need(node))
    return {name: list(one.assignment.data) for name, one in found.items() if one.assignment.data}


async def _read_node_facts(fleet: Fleet, node: str) -> dict[str, Any]:
    inventory = await require_nodes(fleet, [node])
    found = inventory.need(node)
    await read_facts(fleet, inventory, [node])
    return found.facts


async def _read_stored(fleet: Fleet, url: str) -> SourceDocument:
    """Return the current version of a document in CCM_DATA."""
    if not url.startswith(PREFIX) or url == PREFIX:
        raise InputError(f"{url}: cannot be read from here; use {PREFIX}KEY or a file")
    document = await Documents(fleet, fleet.data, BUCKET).read(url.removeprefix(PREFIX))
    if not isinstance(document.body, str):
        raise NotFoundError(f"{url}: there is no such document; see `ccmctl data list`")
    return SourceDocument(name=url, text=document.body, revision=document.revision)


def has_value(one: Candidate) -> bool:
    """Whether the layer has the key."""
    return one.effect in ("wins", "merged", "overridden")


def masked(key: str, value: object, declared: tuple[str, ...] = ()) -> object:
    """
    Mask secrets in a value: values of keys with secret names, and passwords and tokens in URLs.

    Args:
        key: The path to the value.
        value: The value.
        declared: Keys that the documents declare as secret.
    """
    if value is not None and (is_secret_key(key, declared) or any(map(looks_secret, key.split(".")))):
        return MASK
    if isinstance(value, dict):
        return {name: masked(f"{key}.{name}", inner, declared) for name, inner in value.items()}
    if isinstance(value, list):
        return [masked(f"{key}.{number}", inner, declared) for number, inner in enumerate(value)]
    return mask_url(value) if isinstance(value, str) else value


def layer_fields(explained: Explained, shown: Callable[[object], object]) -> list[dict[str, Any]]:
    """Return the layers for JSON output. The value of a layer with the key is formatted by `shown`."""
    found = []
    for one in explained.candidates:
        fields: dict[str, Any] = msgspec.to_builtins(one)
        del fields["value"]
        found.append(fields | ({"value": shown(one.value)} if has_value(one) else {}))
    return found
