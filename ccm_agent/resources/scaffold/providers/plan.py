"""Compares the rendered files of a scaffold with the host and with the record of earlier runs."""

from __future__ import annotations

from ccm_agent.model.ports import Digest, TreeComparison
from ccm_agent.resources.scaffold.model import ScaffoldProperties
from ccm_agent.resources.scaffold.providers import record as memory
from ccm_agent.resources.scaffold.providers.post import PostCommands
from ccm_agent.resources.scaffold.providers.record import FileResult, ScaffoldRecord
from ccm_agent.templates.rendering import RenderedDirectory


class ScaffoldPlan:
    """
    The rendered files of a resource, and their differences from the host.

    Attributes:
        wanted: The resource.
        rendered: The files that were rendered from the resource's source.
        record: The record of earlier runs.
        commands: The `post` commands of each rendered file that matches a command.
        made: For each rendered file, its known resulting files: paths with the content or its digest.
        unknown: Rendered files whose result is only known after their commands have run.
        look: The differences between the directory and `made`.
        reason: The reason why nothing is rendered; "" if at least one file is.
    """

    def __init__(
        self,
        wanted: ScaffoldProperties,
        rendered: RenderedDirectory,
        record: ScaffoldRecord | None,
        reason: str,
    ) -> None:
        self.wanted = wanted
        self.rendered = rendered
        self.record = record
        self.reason = reason
        self.commands: dict[str, list[tuple[str, ...]]] = {}
        self.keys: dict[str, str] = {}
        self.made: dict[str, dict[str, bytes | Digest]] = {}
        self.unknown: set[str] = set()
        self.look = TreeComparison(exists=False, files={})
        self._know()

    def _know(self) -> None:
        post = PostCommands(self.wanted.post)
        for path, content in self.rendered.files.items():
            commands = post.commands(path)
            self.made[path] = {path: content}
            if not commands:
                continue
            self.commands[path] = commands
            self.keys[path] = memory.key_of(content, commands)
            before = self._remembered(path)
            if before is not None and before.key == self.keys[path] and not before.failed:
                self.made[path] = {one: before.digest(one) for one in before.files}
            else:
                self.unknown.add(path)

    def _remembered(self, path: str) -> FileResult | None:
        return self.record.made.get(path) if self.record is not None else None

    @property
    def expected(self) -> dict[str, bytes | Digest]:
        """Return all resulting files with their content or its digest. If two have the same path, the later one is used."""
        return {path: content for files in self.made.values() for path, content in files.items()}

    @property
    def pending(self) -> list[str]:
        """Return the rendered files for which something must be written."""
        owners = {path: source for source, files in self.made.items() for path in files}
        differing = {
            owners[path] for path, state in self.look.files.items() if state != "same" and path in owners
        }
        return [path for path in self.rendered.files if path in self.unknown or path in differing]

    @property
    def failing(self) -> list[str]:
        """Return the rendered files whose commands failed earlier on the same content."""
        return [
            path
            for path in self.unknown
            if (before := self._remembered(path)) is not None
            and before.failed
            and before.key == self.keys[path]
        ]
