"""Renders scaffolds as in Choria CCM, with one additional template engine."""

from __future__ import annotations

import asyncio
import errno
import posixpath
from hashlib import sha256
from typing import TYPE_CHECKING

from ccm_agent.model.errors import CommandError, FileError
from ccm_agent.model.ports import Digest, Tree, TreeEntry, Trees
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.scaffold.model import ScaffoldMetadata, ScaffoldProperties, ScaffoldState
from ccm_agent.resources.scaffold.providers import record as memory
from ccm_agent.resources.scaffold.providers.plan import ScaffoldPlan
from ccm_agent.resources.scaffold.providers.post import PostCommandDir
from ccm_agent.resources.scaffold.providers.record import FileResult, ScaffoldRecord
from ccm_agent.templates.rendering import DirectoryOptions, RenderedDirectory
from ccm_agent.templates.tree import render_apart
from ccm_agent.templates.values import clean_text

if TYPE_CHECKING:
    from ccm_agent.resources.changes import FileChange
    from ccm_agent.resources.contract import ResourceContext

PROVIDER = "choria"
PROTOCOL = "io.choria.ccm.v1.resource.scaffold.state"
SOURCE_BYTES = 64 << 20


class Choria:
    """Renders directories of templates. If one template fails, no file is changed."""

    def __init__(self, context: ResourceContext) -> None:
        self._context = context
        self._trees: Trees = context.port("trees")
        self._records = context.port("records")
        self._plan: ScaffoldPlan | None = None
        self._sources: dict[int, str] = {}

    async def status(self, wanted: ScaffoldProperties) -> ScaffoldState:
        """Render the templates and compare the directory with the result. `post` commands are not run."""
        plan = await self._make_plan(wanted)
        state = _state(plan)
        # keep the rendered files only if they will be written
        self._plan = plan if state.metadata.changed or state.metadata.purged else None
        return state

    async def compare(self, wanted: ScaffoldProperties) -> list[FileChange]:
        """Return the contents, before and after, of the files that would be written or removed, for a diff."""
        from ccm_agent.resources.scaffold.providers.compare import compare_scaffold

        plan = self._plan
        if plan is None or plan.wanted is not wanted:
            self._plan = plan = await self._make_plan(wanted)
        return await compare_scaffold(self._context.files, plan)

    async def render(self, wanted: ScaffoldProperties) -> None:
        """
        Run the matching `post` commands for each file that differs, and write the result. With `purge`, remove other files.

        If nothing is rendered, the directory is still created, and nothing is purged.
        """
        plan = await self._planned(wanted)
        rendered = plan.rendered
        if not rendered.files:
            await self._trees.write(wanted.name, rendered.directories, [])
            return
        record = ScaffoldRecord(name=wanted.name, made=_unchanged(plan))
        files = await self._finished(plan, record)
        keep = plan.expected.keys() - {path for one in plan.pending for path in plan.made[one]}
        await self._trees.write(wanted.name, rendered.directories, files, keep=keep if wanted.purge else None)
        await memory.keep(self._records, record)

    async def remove(self, wanted: ScaffoldProperties) -> None:
        """Remove the scaffold's files and the directories that become empty, including the scaffold's own directory."""
        plan = await self._planned(wanted)
        await self._trees.remove(
            wanted.name, [path for path, state in plan.look.files.items() if state != "absent"]
        )
        if (await self._trees.compare(wanted.name, {})).exists:
            await memory.keep(self._records, ScaffoldRecord(name=wanted.name))
        else:
            await memory.forget(self._records, wanted.name)

    async def _planned(self, wanted: ScaffoldProperties) -> ScaffoldPlan:
        plan, self._plan = self._plan, None
        return plan if plan is not None and plan.wanted is wanted else await self._make_plan(wanted)

    async def _make_plan(self, wanted: ScaffoldProperties) -> ScaffoldPlan:
        source = await self._read(wanted)
        record = await memory.recall(self._records, wanted.name)
        rendered = RenderedDirectory()
        reason = ""
        if source is not None and source.kind == "directory":
            rendered = await asyncio.to_thread(
                render_apart,
                source,
                DirectoryOptions(
                    source=wanted.source,
                    engine=wanted.engine,
                    left_delimiter=wanted.left_delimiter,
                    right_delimiter=wanted.right_delimiter,
                    skip_empty=wanted.skip_empty,
                ),
                self._context.environment(wanted.data or None),
            )
        if not rendered.files:
            reason = _why_nothing(wanted, source)
        plan = ScaffoldPlan(wanted, rendered, record, reason)
        if wanted.ensure == ABSENT:
            await self._look_for_removal(plan, source)
        else:
            plan.look = await self._trees.compare(wanted.name, plan.expected, is_whole=wanted.purge)
        return plan

    async def _read(self, wanted: ScaffoldProperties) -> Tree | None:
        path = self._source_of(wanted)
        try:
            return await self._trees.read(path, SOURCE_BYTES)
        except FileError as err:
            if wanted.ensure == ABSENT and err.errno == errno.ENOENT:
                return None
            raise

    def _source_of(self, wanted: ScaffoldProperties) -> str:
        """Return the source's absolute path. Set the property to the path relative to the working directory, for events."""
        # id() is a safe key, because the properties exist as long as this object
        if id(wanted) not in self._sources:
            written = wanted.source
            # as in Choria CCM, a slash at the end of an absolute path refers to the target directory of a symlink
            end = "/" if written.startswith("/") and written.endswith("/") else ""
            self._sources[id(wanted)] = self._below(self._context.directory, written) + end
            wanted.source = self._below(self._context.shown_directory, written) + end
        return self._sources[id(wanted)]

    @staticmethod
    def _below(directory: str, path: str) -> str:
        return posixpath.normpath(posixpath.join(directory, path))

    async def _look_for_removal(self, plan: ScaffoldPlan, source: Tree | None) -> None:
        """
        Determine the files to remove: the rendered files and all results of their commands, or the recorded files if there is no
        source.
        """
        wanted = plan.wanted
        before = plan.record.made if plan.record is not None else {}
        if plan.rendered.files:
            files: dict[str, bytes | Digest] = dict(plan.rendered.files)
            files.update(
                (path, Digest()) for one in plan.rendered.files if one in before for path in before[one].files
            )
            files.update(plan.expected)
        else:
            files = dict.fromkeys(plan.record.files if plan.record is not None else [], Digest())
        plan.look = await self._trees.compare(wanted.name, files)
        if source is None and plan.record is None and plan.look.exists:
            raise FileError(
                f"{wanted.name}: the source {wanted.source} no longer exists, and there is no record of its rendered files: "
                "restore the source, or remove the directory with a `file` resource",
                errno=errno.ENOENT,
            )

    async def _finished(self, plan: ScaffoldPlan, record: ScaffoldRecord) -> list[TreeEntry]:
        """Run the commands for the files to write, record the resulting files, and return them."""
        finished: dict[str, TreeEntry] = {}
        pending = plan.pending
        worked = [path for path in pending if path in plan.commands]
        made = await self._worked(plan, worked) if worked else {}
        for path in pending:
            plain = [TreeEntry(path=path, content=plan.rendered.files[path])]
            entries = made.get(path, plain)
            finished.update((entry.path, entry) for entry in entries)
            record.made[path] = _made(plan, path, entries)
        return list(finished.values())

    async def _worked(self, plan: ScaffoldPlan, paths: list[str]) -> dict[str, list[TreeEntry]]:
        context = self._context
        data = plan.wanted.data or context.data
        made = {}
        limit_s = plan.wanted.post_limit_s
        async with PostCommandDir(
            self._trees, context.files, context.runner, context.environ, data, limit_s
        ) as workshop:
            for path in paths:
                try:
                    made[path] = await workshop.work(path, plan.rendered.files[path], plan.commands[path])
                except CommandError:
                    await self._note_failure(plan, path)
                    raise
        return made

    async def _note_failure(self, plan: ScaffoldPlan, path: str) -> None:
        """Record that a command failed on the content of this file. The known results of other files are kept."""
        record = plan.record or ScaffoldRecord(name=plan.wanted.name)
        files = record.made[path].files if path in record.made else {}
        record.made[path] = FileResult(key=plan.keys[path], files=files, failed=True)
        await memory.keep(self._records, record)


def _made(plan: ScaffoldPlan, path: str, entries: list[TreeEntry]) -> FileResult:
    if path not in plan.commands:
        return FileResult(files={path: ""})
    files = {entry.path: sha256(entry.content).hexdigest() for entry in entries}
    sizes = {entry.path: len(entry.content) for entry in entries}
    return FileResult(key=plan.keys[path], files=files, sizes=sizes)


def _unchanged(plan: ScaffoldPlan) -> dict[str, FileResult]:
    """Return the results of the files that need no change, for the record."""
    pending = set(plan.pending)
    return {
        path: FileResult(
            key=plan.keys.get(path, ""),
            files={one: c.sha256 if isinstance(c, Digest) else "" for one, c in files.items()},
            sizes={
                one: c.size_bytes for one, c in files.items() if isinstance(c, Digest) and c.size_bytes >= 0
            },
        )
        for path, files in plan.made.items()
        if path not in pending
    }


def _why_nothing(wanted: ScaffoldProperties, source: Tree | None) -> str:
    if source is None:
        return f"the source {wanted.source} does not exist"
    if source.kind == "symlink":
        return f"the source {wanted.source} is a symlink: name the directory itself, or end an absolute path with a slash"
    if source.kind != "directory":
        return f"the source {wanted.source} is not a directory"
    empty = " except ones that render to nothing" if wanted.skip_empty else ""
    return f"the source {wanted.source} has no templates{empty}"


def _state(plan: ScaffoldPlan) -> ScaffoldState:
    wanted, look = plan.wanted, plan.look
    target = wanted.name.rstrip("/")
    changed: set[str] = set()
    stable: set[str] = set()
    for path, state in look.files.items():
        if state == "same":
            stable.add(path)
        elif state == "differs" or wanted.ensure != ABSENT:
            changed.add(path)
    if wanted.ensure != ABSENT:
        changed |= plan.unknown
        stable -= plan.unknown

    def shown(paths: set[str] | tuple[str, ...] | list[str]) -> list[str]:
        return sorted(clean_text(f"{target}/{path}" if path else wanted.name) for path in paths)

    return ScaffoldState(
        protocol=PROTOCOL,
        type="scaffold",
        name=wanted.name,
        ensure=ABSENT if wanted.ensure == ABSENT and not look.exists else PRESENT,
        metadata=ScaffoldMetadata(
            name=wanted.name,
            provider=PROVIDER,
            target_exists=look.exists,
            changed=shown(changed),
            purged=shown(look.extra),
            stable=shown(stable),
            engine=wanted.engine,
            failing=shown(plan.failing),
            reason=plan.reason,
        ),
    )
