"""
The content of a stored bundle that is known without a node: its files, and the resources that its manifest declares.

If a name contains a template, only the node can render it. If a template generates the list of resources, none of them are known.
Nothing is unpacked to disk. An unreadable bundle is treated as empty, because agents refuse it with a reason.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import io
import re
import tarfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from ccm_agent.model.bundle import Bundle
from ccm_agent.model.codec import decode_document
from ccm_agent.model.errors import BusError, InputError
from ccm_agent.model.secret import MASK, looks_secret, mask_urls
from ccm_ctl.fleet.assignments.assignments import Assignments, Standing, read_assignments
from ccm_ctl.fleet.content import FILES_LIMIT, SIZE_LIMIT_BYTES
from ccm_ctl.fleet.nodes.nodes import Inventory
from ccm_ctl.fleet.ports import Fleet

_UNPACKED_LIMIT_BYTES = SIZE_LIMIT_BYTES + FILES_LIMIT * 2048
"""The maximum unpacked size: the files, with a header and padding for each."""

TEXT_LIMIT = 256 * 1024
"""The maximum size, in bytes, of a file whose text is compared. A larger file is compared by its digest only."""

_ASSIGNED = re.compile(r"^(\s*(?:- )?[\"']?([\w.-]{1,100})[\"']?\s*[:=]\s*)\S.*")
"""A line that sets a key to a value, as in YAML, INI and shell files."""

_INLINE = re.compile(
    r"""\b([\w.-]{1,100})(["']?\s{0,8}[:=]\s{0,8})("[^"]{0,4096}"|'[^']{0,4096}'|[^\s,{}\[\]]{1,4096})"""
)
"""A key and its value within a line, as in flow-style YAML and JSON."""

_BLOCK = re.compile(r"^(\s*(?:- )?)[\"']?([\w.-]{1,100})[\"']?\s*:\s+[|>][-+\d]{0,2}\s*(?:#.*)?$")
"""A key whose value consists of the more deeply indented lines below it, as in YAML."""

_DEFAULTS = "defaults"
_MARKERS = ("{{", "${")


class Inside(Struct, frozen=True, kw_only=True):
    """
    The content of a bundle.

    Attributes:
        files: SHA-256 (hex) of each file, by path.
        texts: The content of each text file by path, without secrets. Files above TEXT_LIMIT are not included.
        resources: `type#name` of each resource. Names with templates are unchanged.
    """

    files: dict[str, str] = {}
    texts: dict[str, str] = {}
    resources: tuple[str, ...] = ()

    @property
    def certain(self) -> frozenset[str]:
        """The resources whose names are the same on every node."""
        return frozenset(one for one in self.resources if not is_templated(one))


class Overlap(Struct, frozen=True, kw_only=True):
    """A resource that another assignment also manages, and the affected nodes."""

    resource: str
    name: str
    nodes: list[str]


def is_templated(resource: str) -> bool:
    """Whether the name contains a template, which only a node can render."""
    return any(marker in resource for marker in _MARKERS)


def look_into(packed: bytes, manifest: str) -> Inside:
    """Read the content of packed bytes. Blocking: call it in a thread."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as stream:
            raw = stream.read(_UNPACKED_LIMIT_BYTES + 1)
        if len(raw) > _UNPACKED_LIMIT_BYTES:
            return Inside()
        contents = _contents(raw)
    except (OSError, EOFError, zlib.error, tarfile.TarError):
        return Inside()
    return Inside(
        files={path: hashlib.sha256(content).hexdigest() for path, content in contents.items()},
        texts={path: text for path, content in contents.items() if (text := _read_text(content)) is not None},
        resources=resources_in(contents.get(manifest, b"")),
    )


async def read_inside(fleet: Fleet, bundle: Bundle) -> Inside:
    """Read the content of a stored bundle. Empty if it is missing or damaged."""
    try:
        packed = await fleet.manifests.get(bundle.digest, SIZE_LIMIT_BYTES)
    except BusError:
        return Inside()
    return await asyncio.to_thread(look_into, packed, bundle.manifest)


def resources_in(manifest: bytes | str) -> tuple[str, ...]:
    """Return `type#name` of the resources that a manifest declares, in order. Empty if it does not parse."""
    try:
        document = decode_document(manifest)
    except InputError:
        return ()
    section = document.get("ccm") if isinstance(document, dict) else None
    listed = section.get("resources") if isinstance(section, dict) else None
    return tuple(_named(listed)) if isinstance(listed, list) else ()


async def overlaps(
    fleet: Fleet, counting: Mapping[str, Iterable[Standing]], resources: Collection[str]
) -> list[Overlap]:
    """
    Find resources that assignments also manage.

    Args:
        fleet: The bus.
        counting: The assignments that apply to each node, by node.
        resources: `type#name` of each resource.
    """
    nodes: dict[str, list[str]] = {}
    standing: dict[str, Standing] = {}
    for node, all_of_it in counting.items():
        for one in all_of_it:
            standing[one.key] = one
            nodes.setdefault(one.key, []).append(node)
    found = []
    for key, one in standing.items():
        inside = await read_inside(fleet, one.assignment.bundle)
        found += [
            Overlap(resource=resource, name=one.name, nodes=nodes[key])
            for resource in dict.fromkeys(inside.resources)
            if resource in resources
        ]
    return found


def managing(known: Assignments, inventory: Inventory, node: str) -> list[Standing]:
    """Return the assignments that change a node. Assignments that only plan are left out."""
    return [one for one in known.of_node(inventory.nodes[node]).values() if one.assignment.mode != "plan"]


async def find_assigned(
    fleet: Fleet, inventory: Inventory, nodes: Sequence[str], resources: Collection[str]
) -> dict[str, list[tuple[str, list[str]]]]:
    """
    Find assignments that will apply the same resources again. Returns each of these resources with its nodes, by the assignment's
    name.

    Assignments that cannot be read are skipped, because a missing warning must not fail a run.
    """
    try:
        known = await read_assignments(fleet)
        if not known.standing:
            return {}
        await known.fill_in(fleet, inventory)
        found = await overlaps(fleet, {node: managing(known, inventory, node) for node in nodes}, resources)
    except BusError:
        return {}
    by_name: dict[str, list[tuple[str, list[str]]]] = {}
    for overlap in found:
        by_name.setdefault(overlap.name, []).append((overlap.resource, overlap.nodes))
    return by_name


def _contents(raw: bytes) -> dict[str, bytes]:
    """Return the files by path. For a symlink, the content is its target."""
    found: dict[str, bytes] = {}
    left = _UNPACKED_LIMIT_BYTES
    with tarfile.open(fileobj=io.BytesIO(raw), mode="r:") as tar:
        for entry in tar:
            left -= entry.size  # for a sparse file, this is more than its stored bytes
            if len(found) >= FILES_LIMIT or left < 0:
                break
            if entry.issym():
                found[entry.name] = entry.linkname.encode("utf-8", "surrogateescape")
            elif entry.isreg() and (file := tar.extractfile(entry)) is not None:
                found[entry.name] = file.read()
    return found


def _read_text(content: bytes) -> str | None:
    """Return a file as text with the values of keys such as `password` masked, or None if it is not text."""
    if len(content) > TEXT_LIMIT or b"\0" in content:
        return None
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError:
        return None
    return "\n".join(_mask_lines(lines))


def _mask_lines(lines: list[str]) -> Iterator[str]:
    block = -1  # the indentation of the secret block's key, or -1
    for line in lines:
        depth = len(line) - len(line.lstrip())
        if 0 <= block < depth and line.strip():
            yield f"{line[:depth]}{MASK}"
            continue
        if line.strip():
            found = _BLOCK.match(line)
            block = len(found[1]) if found and looks_secret(found[2]) else -1
        yield _mask_line(line)


def _mask_line(line: str) -> str:
    found = _ASSIGNED.match(line)
    if found and looks_secret(found[2]):
        return f"{found[1]}{MASK}"
    return mask_urls(_INLINE.sub(_mask_value, line))


def _mask_value(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2]}{MASK}" if looks_secret(found[1]) else found[0]


def _named(listed: list[Any]) -> Iterator[str]:
    for entry in listed:
        if not isinstance(entry, dict):
            continue
        for kind, body in entry.items():
            if isinstance(body, dict) and isinstance(body.get("name"), str):
                yield f"{kind}#{body['name']}"
            elif isinstance(body, list):
                items = (item for item in body if isinstance(item, dict))
                yield from (f"{kind}#{name}" for item in items for name in item if name != _DEFAULTS)
