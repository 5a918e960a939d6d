"""Directories of this host, through the port of directory trees."""

from __future__ import annotations

import posixpath
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TYPE_CHECKING

from ccm_agent.model.ports import TreeChange, TreeDifference, TreeEditor, TreeSpec
from ccm_agent.model.records.undo import EarlierState, KeepFile
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.model.resource_diff import FILES_LISTED, PropertyChange
from ccm_agent.resources.directory.model import (
    NO_ENTRIES,
    DirectoryMetadata,
    DirectoryProperties,
    DirectoryState,
    EntryList,
)
from ccm_agent.resources.directory.resource import refused_directories
from ccm_agent.resources.directory.undo import keep_changes, too_many, why_lost
from ccm_agent.resources.globs import compile_glob
from ccm_agent.templates.values import clean_text

if TYPE_CHECKING:
    from ccm_agent.resources.changes import FileChange
    from ccm_agent.resources.contract import ResourceContext

PROTOCOL = "io.choria.ccm.v1.resource.directory.state"
DETAILS_LISTED = 50
"""The maximum number of changes of owners, modes, directories and symlinks that a diff lists."""


class PosixDirectory:
    """
    The provider for Unix-like systems.

    Args:
        context: The context of the manifest.
    """

    def __init__(self, context: ResourceContext) -> None:
        self._context = context
        self._trees: TreeEditor = context.port("tree_editor")
        self._pending: dict[str, tuple[TreeSpec, TreeDifference]] = {}
        # use one time for the whole run, so that no file exceeds its age limit between the change and the verification
        self._now_s = context.clock.now().timestamp()

    async def status(self, wanted: DirectoryProperties) -> DirectoryState:
        """See `DirectoryProvider`."""
        return (await self.look_ahead([wanted]))[0]

    async def look_ahead(self, wanted: Sequence[DirectoryProperties]) -> list[DirectoryState]:
        """See `DirectoryProvider`."""
        specs = [self._spec(one) for one in wanted]
        looks = await self._trees.look(specs)
        for spec, look in zip(specs, looks, strict=True):
            self._pending.pop(spec.path, None)
            if look.changes:  # only the differences are kept in memory, until the changes are made
                self._pending[spec.path] = spec, look
        return [_state(one, look) for one, look in zip(wanted, looks, strict=True)]

    async def compare(self, wanted: DirectoryProperties) -> list[FileChange]:
        """See `DirectoryProvider`."""
        from ccm_agent.resources.tree_changes import ChangedFile, compare_files

        spec, look = await self._looked(wanted)
        changed = []
        for one in look.changes:
            if one.action == "set" or one.kind not in ("file", "symlink") or _is_bare_symlink(one):
                continue
            stays = one.action != "remove"
            changed.append(
                ChangedFile(
                    path=_full(spec.path, one.path),
                    was_there=one.action != "create",
                    stays=stays,
                    source=_full(spec.source, one.path) if stays else "",
                    why="it was a symlink; its target is not shown" if one.link else "",
                )
            )
        changed.sort(key=lambda one: one.path)
        mode = spec.file_mode if spec.file_mode >= 0 else None
        return await compare_files(self._context.files, changed, mode)

    async def keep(self, wanted: DirectoryProperties, keep: KeepFile) -> AsyncIterator[EarlierState]:
        """See `DirectoryProvider`."""
        spec, look = await self._looked(wanted)
        lost: list[EarlierState] = []
        async for state in keep_changes(spec.path, look.changes, keep):
            if state.why_not:
                lost.append(state)
            yield state
        if lost:
            self._context.say(
                "an undo will not restore all of this directory",
                entries=len(lost),
                first=clean_text(lost[0].name),
                reason=lost[0].why_not,
            )

    async def sync(self, wanted: DirectoryProperties) -> None:
        """See `DirectoryProvider`."""
        spec, look = await self._looked(wanted)
        await self._trees.sync(spec, look)

    async def _looked(self, wanted: DirectoryProperties) -> tuple[TreeSpec, TreeDifference]:
        """Return the last comparison, whose changes have not been made yet."""
        if wanted.name not in self._pending:
            await self.look_ahead([wanted])
        return self._pending.get(wanted.name) or (self._spec(wanted), TreeDifference())

    def _spec(self, wanted: DirectoryProperties) -> TreeSpec:
        source = wanted.source
        return TreeSpec(
            path=wanted.name,
            is_absent=wanted.ensure == ABSENT,
            source=posixpath.normpath(posixpath.join(self._context.directory, source)) if source else "",
            purge=wanted.purge,
            recurse=wanted.recurse,
            owner=wanted.owner,
            group=wanted.group,
            file_mode=int(wanted.file_mode, 8) if wanted.file_mode else -1,
            directory_mode=int(wanted.directory_mode, 8) if wanted.directory_mode else -1,
            max_age_s=wanted.max_age_s,
            max_size_bytes=wanted.max_size_bytes,
            matches=tuple((compile_glob(glob, "matches"), "/" in glob) for glob in wanted.matches),
            now_s=self._now_s,
            refused=refused_directories(wanted),
        )


def _state(wanted: DirectoryProperties, look: TreeDifference) -> DirectoryState:
    changes = look.changes
    why_all = too_many(len(changes))
    lost = [(one, why) for one in changes if (why := why_all or why_lost(one))]
    return DirectoryState(
        protocol=PROTOCOL,
        type="directory",
        name=wanted.name,
        ensure={"directory": PRESENT, "absent": ABSENT}.get(look.kind, "unknown"),
        metadata=DirectoryMetadata(
            name=wanted.name,
            provider="posix",
            owner=look.owner,
            group=look.group,
            mode=f"{look.mode & 0o777:04o}" if look.mode >= 0 else "",
            entries=look.count,
            added=_listed(one.path for one in changes if one.action == "create"),
            changed=_listed(one.path for one in changes if one.action == "write"),
            attributes=_listed(one.path for one in changes if one.action == "set"),
            removed=_listed(one.path for one in changes if one.action == "remove"),
            expired=sum(one.why in ("age", "size") for one in changes),
            kept=_listed(look.kept),
            lost=_listed(one.path for one, _ in lost),
            lost_because=lost[0][1] if lost else "",
            details=_details(wanted, look),
            error=clean_text(look.error),
        ),
    )


def _listed(paths: Iterable[str]) -> EntryList:
    every = list(paths)
    if not every:
        return NO_ENTRIES  # events leave out this object, but not an equal one
    return EntryList(count=len(every), first=[clean_text(path) or "." for path in every[:FILES_LISTED]])


def _details(wanted: DirectoryProperties, look: TreeDifference) -> list[PropertyChange]:
    """Return changes other than file contents."""
    details = [one for one in look.changes if one.action == "set" or one.kind != "file"]
    shown = [_detail(wanted, one) for one in details[:DETAILS_LISTED]]
    if len(details) > DETAILS_LISTED:
        shown.append(PropertyChange(property="further entries", after=str(len(details) - DETAILS_LISTED)))
    return shown


def _detail(wanted: DirectoryProperties, one: TreeChange) -> PropertyChange:
    name = clean_text(one.path) or "."
    if one.action == "set":
        # in a plan, an owner may not exist yet
        owner = str(one.new_uid) if one.new_uid >= 0 else wanted.owner
        group = str(one.new_gid) if one.new_gid >= 0 else wanted.group
        return PropertyChange(
            property=name,
            before=f"{one.uid}:{one.gid} {one.mode:04o}",
            after=f"{owner}:{group} {one.new_mode:04o}",
        )
    there = f"symlink to {clean_text(one.link)}" if one.link else one.kind
    if one.action == "create":
        return PropertyChange(property=name, before=ABSENT, after=one.kind)
    return PropertyChange(property=name, before=there, after=ABSENT if one.action == "remove" else "file")


def _is_bare_symlink(one: TreeChange) -> bool:
    """Whether a removed entry is a symlink. A symlink has no content, and the details already name it."""
    return one.kind == "symlink" and one.action == "remove"


def _full(top: str, path: str) -> str:
    return f"{top.rstrip('/')}/{path}"
