"""
Records the changes of one run for an undo, and selects the resources that an undo leaves unchanged.

An undo is a run of resources with their earlier states. A resource is changed only if its state is still the state that the
undone run left. This is checked again just before the change.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from ccm_agent.engine.request import ApplyOptions
from ccm_agent.engine.secrets import Secrets
from ccm_agent.manifest.build import ResourceBuilder
from ccm_agent.manifest.expressions import Expressions
from ccm_agent.model.errors import CcmError, TimeLimitError
from ccm_agent.model.ids import short_id
from ccm_agent.model.ports import ContentRef, FileInfo, Files
from ccm_agent.model.records.undo import (
    PART_TYPES,
    SPECIAL_BITS,
    EarlierFile,
    EarlierState,
    Identity,
    UndoEntry,
    UndoLog,
    UndoRecord,
)
from ccm_agent.model.resource import ABSENT
from ccm_agent.model.secret import Masker
from ccm_agent.resources.catalog import Catalog
from ccm_agent.resources.contract import Decision, ResolvedResource

DIRECTORY = "directory"
"""The value of `ensure` for a directory."""

LOOK_LIMIT_S = 30.0
"""The time limit for reading a state after a resource exceeded its own time limit, because its tool may hang again."""


Change = Callable[[], Awaitable[Any]]

AroundChange = Callable[[ResolvedResource, Any, Any, Decision, Change], Change]
"""Wraps a change. The arguments are the resource, its provider, the current state, the decision and the change."""


class RunUndo:
    """
    Records the changes of one run for an undo; see `resources.run_context.ResourceUndo`.

    Args:
        files: The files of the host.
        options: The options of the run.
        masker: Contains the secrets of the run.
        secrets: The secrets of the run, including the values that were sealed.
    """

    def __init__(
        self, files: Files, options: ApplyOptions, masker: Masker, secrets: Secrets | None = None
    ) -> None:
        is_changing = not options.noop and not options.health_check_only
        self._log: UndoLog | None = options.undo_log if is_changing and options.run else None
        self.around: AroundChange | None = None
        """Records the resources that the run creates. None if they are not recorded."""
        self._is_plan = options.noop
        self._files = files
        self._masker = masker
        self._secrets = secrets
        self._run = options.run
        self._undone = ""
        self._entries: dict[tuple[str, str], UndoEntry] = {}
        self._runs: Mapping[tuple[str, str], str] = {}

    def begin(self, record: UndoRecord) -> None:
        """Start the undo of another run."""
        self._undone = record.run
        self._entries = {(one.type, one.name): one for one in record.entries}
        self._runs = dict.fromkeys(self._entries, record.run)

    def begin_prune(
        self,
        entries: Mapping[tuple[str, str], UndoEntry],
        runs: Mapping[tuple[str, str], str],
        *,
        is_plan: bool,
    ) -> None:
        """Start the removal of the resources that earlier runs created. The keys are types and names."""
        self.around = None
        self._entries, self._runs, self._is_plan = dict(entries), runs, is_plan

    def why_not(self, declared: ResolvedResource) -> str:
        """Return the reason why a change cannot be undone. "" if it can be undone, or if this run is not an undo."""
        entry = self._entry(declared)
        return entry.why_not if entry is not None else ""

    def hides(self, declared: ResolvedResource) -> bool:
        """Whether diffs must hide the lines of a resource, because the lines were private or contain unknown secrets."""
        entry = self._entry(declared)
        return entry is not None and entry.is_secret

    async def why_left(self, declared: ResolvedResource, provider: Any) -> str:
        """See `ResourceUndo`."""
        entry, kind = self._entry(declared), declared.kind
        if entry is None or kind.undo is None:
            return ""
        location = {name: getattr(declared.wanted, name) for name in kind.undo.located_by}
        bare = kind.properties(name=declared.wanted.name, ensure=kind.default_ensure, **location)
        now, left = kind.undo.identify(await provider.status(bare)), entry.left or {}
        run = short_id(self._runs.get((kind.name, declared.wanted.name), ""))
        run = f"the run {run}" if run else "an earlier run"
        differing = [name for name in sorted(now.keys() | left.keys()) if now.get(name) != left.get(name)]
        if unknown := [name for name in now if now[name] is None or left.get(name, "") is None]:
            return f"not compared with the result of {run}: its {unknown[0]} is too large or cannot be read"
        if differing:
            return f"changed since {run}: its {', '.join(differing)}"
        if await self._is_in_use(entry, declared.wanted.name):
            return f"changed since {run}: this directory contains other files"
        return ""

    async def record(
        self,
        declared: ResolvedResource,
        provider: Any,
        found: Any,
        decision: Decision,
        change: Callable[[], Awaitable[Any]],
    ) -> Any:
        """See `ResourceUndo`."""
        if self.around is not None:
            change = self.around(declared, provider, found, decision, change)
        if self._log is None or declared.kind.contains_manifest:
            return await change()
        entries = []
        async for earlier in self._earlier(self._log, declared, provider, found, decision):
            entries.append(await self._entry_of(self._log, declared, earlier))
            # write the record immediately, because contents without a record are removed to make room for the next content
            await self._log.before(self._run, entries[-1])
        seen = await identify_parts(self._files, declared, entries, digest=False)
        try:
            state = await change()
        except CcmError as err:
            state = await look_after(err, declared, provider)
            await self._left(self._log, declared, entries, seen, found, state)
            raise
        await self._left(self._log, declared, entries, seen, found, state)
        return state

    async def close(self) -> None:
        """Finish the record at the end of the run."""
        if self._log is not None:
            await self._log.close(self._run)

    # ---- internal ----

    async def _is_in_use(self, entry: UndoEntry, path: str) -> bool:
        """
        Whether a directory that the run created contains other files. In a plan, the files that the undo would remove still
        exist.
        """
        is_new = (entry.left or {}).get("ensure") == DIRECTORY and entry.properties.get("ensure") == ABSENT
        if not is_new or self._is_plan:
            return False
        return not (await self._files.inspect([path], digest=False, follow=False))[0].is_empty

    def _entry(self, declared: ResolvedResource) -> UndoEntry | None:
        return self._entries.get((declared.kind.name, declared.wanted.name)) if self._entries else None

    async def _earlier(
        self, kept: UndoLog, declared: ResolvedResource, provider: Any, found: Any, decision: Decision
    ) -> AsyncIterator[EarlierState]:
        """Yield the state of a resource that is about to be changed, or of each of its parts."""
        rules, name = declared.kind.undo, declared.wanted.name
        if rules is None:
            yield EarlierState(why_not=f"changes of the type `{declared.kind.name}` are not recorded")
        elif self._masker.name(name) != name:
            yield EarlierState(why_not="its name contains a secret")
        elif self._is_sealed(declared):
            # the content to keep probably contains an earlier value of the secret
            yield EarlierState(why_not="it contains a secret, which is not kept")
        else:
            try:
                if rules.parts is None:
                    yield await rules.earlier(declared.wanted, found, decision, _Keeper(self, kept))
                    return
                async for part in rules.parts(declared.wanted, provider, _Keeper(self, kept)):
                    yield part
            except CcmError as err:
                yield EarlierState(why_not=f"its earlier state could not be kept: {err}")

    async def _entry_of(self, kept: UndoLog, declared: ResolvedResource, earlier: EarlierState) -> UndoEntry:
        type_name, name = earlier.type or declared.kind.name, earlier.name or declared.wanted.name
        shown = self._masker.name(name)
        if shown != name and not earlier.why_not:
            earlier = EarlierState(why_not="its path contains a secret")
        return UndoEntry(
            type=type_name,
            name=shown,
            properties=earlier.properties,
            content=earlier.content,
            size_bytes=earlier.size_bytes,
            why_not=self._masker.text(earlier.why_not),
            is_secret=await self._has_secrets(kept, declared, earlier),
        )

    async def _left(
        self,
        kept: UndoLog,
        declared: ResolvedResource,
        entries: Sequence[UndoEntry],
        seen: Sequence[Identity | None],
        found: Any,
        state: Any,
    ) -> None:
        """Record the state after a change. Without a state, the result is unknown."""
        rules = declared.kind.undo
        if rules is not None and rules.parts is not None:
            now = await identify_parts(self._files, declared, entries, digest=True)
            for entry, before, after in zip(entries, seen, now, strict=True):
                entry.left = after
                has_changed = before is None or after is None or _differs(before, after, entry.content)
                await kept.after(self._run, entry, has_changed=has_changed)
            return
        (entry,) = entries
        has_changed = True
        if rules is not None:
            if state is None:
                return
            entry.left = rules.identify(state)
            has_changed = entry.left != rules.identify(found)
        elif state is not None and declared.kind.has_changed is not None:
            has_changed = declared.kind.has_changed(found, state)
        await kept.after(self._run, entry, has_changed=has_changed)

    def _is_sealed(self, declared: ResolvedResource) -> bool:
        """Whether a resource contains a value that must not be stored on this disk a second time."""
        return declared.wanted.sensitive or (self._secrets is not None and self._secrets.are_in(declared))

    async def _has_secrets(self, kept: UndoLog, declared: ResolvedResource, earlier: EarlierState) -> bool:
        """Whether contents before or after the change are private, or contain secrets that are known only in this run."""
        if self.hides(declared):
            return True  # the secrets are also unknown in a later undo of this undo
        from ccm_agent.resources.changes import private_paths

        path = earlier.path or earlier.name or declared.wanted.name
        if earlier.content and (await private_paths(self._files, [path]))[path]:
            return True  # the run may make the file readable for everyone
        if self._masker.is_idle:
            return False
        values = msgspec.to_builtins(declared.wanted)
        if getattr(declared.wanted, "source", "") or self._masker.value(values) != values:
            return True
        if not earlier.content:
            return False
        content = await self._files.read(f"{kept.folder}/{earlier.content}", kept.file_limit_bytes)
        text = content.decode(errors="replace")
        return await asyncio.to_thread(self._masker.text, text) != text

    async def keep_file(self, kept: UndoLog, path: str, *, with_content: bool) -> EarlierFile:
        """Keep a file's attributes, and its content if requested; see `KeepFile`."""
        limits = {path: [kept.file_limit_bytes]} if with_content else False
        look = (await self._files.inspect([path], digest=limits, follow=False))[0]
        earlier = EarlierFile(
            is_directory=look.kind == "directory",
            owner=look.owner,
            group=look.group,
            mode=f"{look.mode & 0o777:04o}",
        )
        why_not = _why_not(look)
        if not why_not and with_content and not earlier.is_directory:
            why_not = await self._keep_content(kept, look)
            earlier = msgspec.structs.replace(earlier, sha256=look.sha256, size_bytes=look.size_bytes)
        return EarlierFile(why_not=why_not) if why_not else earlier

    async def _keep_content(self, kept: UndoLog, look: FileInfo) -> str:
        """Copy a file. Return the reason if that is not possible, otherwise ""."""
        if not look.sha256:
            return f"its content is not kept: {look.undigested or look.error}"
        copy = f"{kept.folder}/{look.sha256}"
        if (await self._files.inspect([copy]))[0].sha256 == look.sha256:
            return ""
        if why_not := await kept.make_room(self._run, look.size_bytes, undone=self._undone):
            return f"its content is not kept: {why_not}"
        try:
            await self._files.write(copy, ContentRef(look.path), mode=0o600)
            is_same = (await self._files.inspect([copy]))[0].sha256 == look.sha256
            if not is_same:
                # owner and mode belong to the file that was read, and would be applied to different content
                await self._files.remove(copy)
        except CcmError as err:
            return f"its content could not be kept: {err}"
        return "" if is_same else "its content is not kept: it changed while it was copied"


class _Keeper:
    """A `KeepFile` for one change."""

    def __init__(self, undo: RunUndo, kept: UndoLog) -> None:
        self._undo = undo
        self._kept = kept

    async def __call__(self, path: str, *, with_content: bool) -> EarlierFile:
        return await self._undo.keep_file(self._kept, path, with_content=with_content)


def _why_not(look: FileInfo) -> str:
    if look.kind not in ("file", "directory"):
        return f"its earlier state is not kept: {look.error or f'it was {look.kind}'}"
    if look.mode & SPECIAL_BITS:
        return f"its mode was {look.mode:04o}, and setuid, setgid and sticky bits are not restored"
    return ""


def _differs(before: Identity, after: Identity, content: str) -> bool:
    """
    Whether a part has changed. The content is missing in `before` if it was kept separately or if the change does not set it.
    """
    if before.get("content", "") is None:
        before = {**before, "content": content or after.get("content")}
    return before != after


async def identify_parts(
    files: Files, declared: ResolvedResource, parts: Sequence[UndoEntry], *, digest: bool
) -> list[Identity | None]:
    """Return the identity of each part of a resource. None for a part that cannot be undone."""
    if declared.kind.undo is None or declared.kind.undo.parts is None:
        return []
    paths = {kind: [one.name for one in parts if one.type == kind and not one.why_not] for kind in PART_TYPES}
    looks = {
        (kind, look.path): look
        for kind in PART_TYPES
        if paths[kind]
        for look in await files.inspect(paths[kind], digest=digest, follow=kind != "symlink")
    }
    return [
        PART_TYPES[one.type](looks[one.type, one.name]) if (one.type, one.name) in looks else None
        for one in parts
    ]


async def look_after(err: CcmError, declared: ResolvedResource, provider: Any) -> Any:
    """Return the state after a failed change. None if it cannot be read within the time limit."""
    try:
        async with asyncio.timeout(LOOK_LIMIT_S if isinstance(err, TimeLimitError) else None):
            return await provider.status(declared.wanted)
    except (CcmError, TimeoutError):
        return None


def undo_resources(record: UndoRecord, catalog: Catalog, expressions: Expressions) -> list[ResolvedResource]:
    """
    Return the resources of an undo. Resources that cannot be undone have only a name, and are skipped.

    Raises:
        InputError: The record contains a type that no longer exists here.
    """
    # Names and paths are used literally. A later run must not evaluate texts that look like templates.
    builder = ResourceBuilder(catalog, expressions, None, "", is_literal=True)
    resources = []
    for index, entry in enumerate(record.entries):
        kind = catalog.find(entry.type)
        if entry.why_not:
            bare = kind.properties(name=entry.name, ensure=kind.default_ensure)
            resources.append(ResolvedResource(kind=kind, wanted=bare, index=index))
        else:
            properties = {**entry.properties, "name": entry.name}
            resources.append(builder.declare(kind, properties, (), index))
    return resources
