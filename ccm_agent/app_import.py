"""Find this host's existing resources, for `ccm import` and for the requests of `ccmctl import`."""

from __future__ import annotations

import asyncio
import hashlib
import posixpath
import stat
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from ccm_agent.app import App, ApplyOptions
from ccm_agent.model.errors import CcmError, UsageError
from ccm_agent.model.records.host_import import (
    CONTENT_TYPES,
    FILE_BYTES,
    HOST_BYTES,
    HOST_FILES,
    TEXT_TYPES,
    FoundContent,
    FoundResource,
    HostResources,
    LeftOutResource,
    printable,
)
from ccm_agent.model.resource import PRESENT
from ccm_agent.resources.catalog import Catalog
from ccm_agent.resources.contract import ResolvedResource
from ccm_agent.resources.existing import ExistingResource, ExistingResources

if TYPE_CHECKING:
    from ccm_agent.engine.context import ManifestContext
    from ccm_agent.engine.permission import Permission
    from ccm_agent.model.ports import TreeEntry
    from ccm_agent.resources.contract import ResourceContext

READ_BYTES = 64 << 20
"""The maximum number of bytes of a directory that an agent reads while it searches for files that no package installed."""


async def find_existing(app: App, type_name: str, argument: str) -> ExistingResources:
    """
    Return this host's resources of a type.

    Args:
        app: The adapters of this process.
        type_name: The type.
        argument: Restricts the search, such as to a directory; "" for all resources.

    Raises:
        ManifestError: The type is unknown.
        UsageError: The type cannot be imported, or the argument cannot be used.
        CcmError: No provider works here, or the host cannot be read.
    """
    return await _find(app, await app.engine().context(ApplyOptions(environ={})), type_name, argument)


async def find_host_resources(
    app: App, types: Sequence[str], options: ApplyOptions, contents: Collection[str] = ()
) -> HostResources:
    """
    Return this host's resources of types, without those that the policy forbids to manage.

    `left_out` contains the resources that are forbidden or cannot be read. The name `*` means all resources of a type.

    Args:
        app: The adapters of this process.
        types: The types, all from `SITE_ORDER`. A type may have a path, as in `file:/etc/nginx`.
        options: The options, with the requester's permissions.
        contents: Digests. If any are given, only the resources' contents with these digests are returned.

    Raises:
        UsageError: The resources do not fit into an answer.
    """
    context = await app.engine().context(options)
    kept: dict[tuple[str, str], tuple[str, ExistingResource]] = {}
    left_out: list[LeftOutResource] = []
    for word in types:
        type_name, _, argument = word.partition(":")
        permission = context.state.permission
        refused: CcmError | None = permission.refuse_type(type_name) if permission is not None else None
        if refused is None and type_name == "config":
            # before the file is read, because the names of its keys are in the report
            reason = await _refusal(app, context, type_name, ExistingResource(name=argument, properties={}))
            refused = UsageError(reason) if reason else None
        try:
            found = (
                ExistingResources() if refused else await _find(app, context, type_name, argument, READ_BYTES)
            )
        except CcmError as err:
            refused, found = err, ExistingResources()
        if refused is not None:
            left_out.append(LeftOutResource(type=type_name, name=argument or "*", reason=refused.message))
        left_out += [await _without_forbidden(app, context, one) for one in found.left_out]
        for one in found.resources:
            kind = one.kind or type_name
            one, large = _without_large(kind, one)
            left_out += large
            if reason := await _refusal(app, context, kind, one):
                left_out.append(LeftOutResource(type=kind, name=printable(one.name), reason=reason))
            elif not large or one.has_source:
                kept.setdefault((kind, one.name), (type_name, one))
    _check_size([one for _, one in kept.values()])
    if contents:
        return HostResources(contents=await asyncio.to_thread(_contents, kept.values(), set(contents)))
    resources = await asyncio.to_thread(_described, kept)
    return HostResources(resources=resources, left_out=list(dict.fromkeys(left_out)))


def _entries(one: ExistingResource) -> Iterator[tuple[str, bytes, bool]]:
    """Yield the relative path and the content of each file of a resource, and whether the file is executable."""
    if one.content is not None:
        yield "", one.content, False
    for entry in one.tree:
        if entry.kind == "file":
            yield entry.path, entry.content, bool(entry.mode & stat.S_IXUSR)


def _without_large(kind: str, one: ExistingResource) -> tuple[ExistingResource, list[LeftOutResource]]:
    """Return the resource without files that are too large, and entries for these files."""
    large = {path for path, content, _ in _entries(one) if len(content) > FILE_BYTES}
    if not large:
        return one, []

    def is_small(entry: TreeEntry) -> bool:
        return entry.path not in large

    small = replace(one, content=None, tree=tuple(filter(is_small, one.tree)))
    reason = f"is larger than {FILE_BYTES >> 20} MiB"
    names = [posixpath.join(one.name, path) if path else one.name for path in sorted(large)]
    return small, [LeftOutResource(type=kind, name=printable(name), reason=reason) for name in names]


def _check_size(resources: Sequence[ExistingResource]) -> None:
    sizes = [len(content) for one in resources for _, content, _ in _entries(one)]
    if sum(sizes) > HOST_BYTES or len(sizes) > HOST_FILES:
        raise UsageError(
            f"{len(sizes)} files with {(sum(sizes) >> 20) + 1} MiB are too many for one import; the limit is {HOST_FILES} files "
            f"with {HOST_BYTES >> 20} MiB in total; name smaller directories"
        )


def _contents(kept: Collection[tuple[str, ExistingResource]], wanted: Collection[str]) -> dict[str, bytes]:
    """Return the contents with the wanted digests."""
    found = {
        hashlib.sha256(content).hexdigest(): content for _, one in kept for _, content, _ in _entries(one)
    }
    return {digest: found[digest] for digest in sorted(wanted & found.keys())}


def _described(kept: dict[tuple[str, str], tuple[str, ExistingResource]]) -> list[FoundResource]:
    """Return the resources for an answer, with digests instead of contents."""
    found = []
    for (kind, name), (asked, one) in kept.items():
        contents = [
            FoundContent(
                path=path,
                sha256=hashlib.sha256(content).hexdigest(),
                size_bytes=len(content),
                is_program=is_program,
            )
            for path, content, is_program in _entries(one)
        ]
        contents += [FoundContent(path=entry.path) for entry in one.tree if entry.kind == "directory"]
        found.append(
            FoundResource(
                type=kind,
                name=name,
                properties=one.properties,
                needed_by="" if asked == kind else asked,
                contents=tuple(sorted(contents, key=lambda each: each.path)),
            )
        )
    return found


async def _without_forbidden(app: App, context: ManifestContext, one: LeftOutResource) -> LeftOutResource:
    """Return an entry of the report. If the policy forbids the resource's files, it shows nothing of their content."""
    if one.type not in CONTENT_TYPES:
        return one
    named = ExistingResource(name=one.name, properties={})
    reason = await _refusal(app, context, one.type, named, is_read=True)
    return replace(one, reason=reason) if reason else one


async def _refusal(
    app: App, context: ManifestContext, type_name: str, one: ExistingResource, *, is_read: bool = False
) -> str:
    """
    Return the reason for leaving out a resource; "" if it is not left out.

    Args:
        app, context: The adapters of this process, and the requester's permissions.
        type_name, one: The resource.
        is_read: Whether its files were read, although it has no content.
    """
    texts = f"{one.name}{one.properties}{[entry.path for entry in one.tree]}"
    if not texts.isascii():
        try:
            texts.encode()
        except UnicodeEncodeError:
            return "is not UTF-8 text"
    permission = context.state.permission
    if permission is None:
        return ""
    kind = app.catalog.find(type_name)
    try:
        wanted = kind.properties(name=one.name, **{"ensure": PRESENT, **one.properties})
        refused = await permission.refusal(ResolvedResource(kind=kind, wanted=wanted), "/")
        if refused is None and (one.has_source or is_read or type_name in TEXT_TYPES):
            places = kind.reach(wanted).paths if kind.reach is not None else (one.name,)
            inner = [posixpath.join(one.name, path) for path, _, _ in _entries(one) if path]
            await asyncio.to_thread(_check_reads, permission, [*places, *inner])
    except (CcmError, TypeError) as err:
        return str(err)
    return refused.message if refused is not None else ""


def _check_reads(permission: Permission, paths: Sequence[str]) -> None:
    for path in paths:
        permission.check_read(path)


async def _find(
    app: App, context: ManifestContext, type_name: str, argument: str, limit_bytes: int = 0
) -> ExistingResources:
    """Return this host's resources of a type. With a limit, larger directories are not read."""
    kind = app.catalog.find(type_name)
    spec = await context.state.registry.pick(kind, "", context.facts)
    if spec.find_existing is None:
        raise UsageError(
            f"`{kind.name}` resources cannot be imported with the provider {spec.name}; types that can be imported: "
            f"{', '.join(_importable(app.catalog))}"
        )
    with context.state.secrets.kept_out_of_errors():
        reading = cast("ResourceContext", _LimitedReads(context, limit_bytes)) if limit_bytes else context
        return await spec.find_existing(reading, argument)


def _importable(catalog: Catalog) -> list[str]:
    kinds = map(catalog.find, catalog.names())
    return [kind.name for kind in kinds if any(one.find_existing for one in kind.providers)]


class _LimitedReads:
    """Wraps a context, a port or the host's files, and limits the size of each read."""

    def __init__(self, whole: Any, limit_bytes: int) -> None:
        self._whole = whole
        self._limit_bytes = limit_bytes

    @property
    def files(self) -> Any:
        return _LimitedReads(self._whole.files, self._limit_bytes)

    def port(self, name: str) -> Any:
        port = self._whole.port(name)
        return _LimitedReads(port, self._limit_bytes) if name == "trees" else port

    async def read(self, path: str, limit_bytes: int) -> Any:
        return await self._whole.read(path, min(limit_bytes, self._limit_bytes))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)
