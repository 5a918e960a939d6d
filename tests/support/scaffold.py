"""A host in memory with a scaffold's source on it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from ccm_agent.app_expressions import make_environment
from ccm_agent.model.outcome import TransactionEvent
from ccm_agent.model.ports import Clock
from ccm_agent.resources.contract import ChildManifest, ChildOutcome
from ccm_agent.resources.scaffold import TYPE
from ccm_agent.resources.scaffold.model import ScaffoldProperties
from ccm_agent.resources.scaffold.providers.choria import Choria
from ccm_agent.resources.scaffold.resource import check
from ccm_agent.templates.env import Environment
from ccm_agent.testing.clock import FakeClock
from ccm_agent.testing.files import FakeFiles
from ccm_agent.testing.records import FakeRecords
from ccm_agent.testing.runner import FakeRunner
from ccm_agent.testing.trees import FakeTrees
from tests.support.resources import manage

SOURCE = "/site/src"
TARGET = "/out"


class Host:
    """
    A host, and the context of a provider on it (`ResourceContext`).

    Args:
        sources: Templates by path in the source; one that ends in `/` is a directory.
        data, facts: What templates see.
    """

    def __init__(
        self,
        sources: Mapping[str, str | bytes] | None = None,
        *,
        data: Mapping[str, Any] | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        self.files = FakeFiles()
        self.runner = FakeRunner()
        self.clock: Clock = FakeClock()
        self.directory = "/site"
        self.shown_directory = ""
        self.facts = dict(facts or {})
        self.data = dict(data or {"name": "world"})
        self.environ: dict[str, str] = {"PATH": "/bin", "APP_ENV": "prod"}
        self.ports: dict[str, Any] = {"trees": FakeTrees(self.files), "records": FakeRecords()}
        self.files.put_directory(self.directory)
        for path, text in (sources or {}).items():
            self.source(path, text)

    def port(self, name: str) -> Any:
        return self.ports[name]

    def say(self, message: str, **fields: object) -> None:
        raise AssertionError(f"nothing was to be said: {message}")

    async def apply_child(self, child: ChildManifest) -> ChildOutcome:
        raise AssertionError("no child was expected")

    def environment(self, data: Mapping[str, Any] | None = None) -> Environment:
        return make_environment(self.facts, self.data if data is None else data, self.environ, self.directory)

    def source(self, path: str, text: str | bytes) -> None:
        """Put a template into the source."""
        if path.endswith("/"):
            self.files.put_directory(f"{SOURCE}/{path.rstrip('/')}")
        else:
            self.files.put(f"{SOURCE}/{path}", text)

    def put(self, path: str, text: str | bytes = "", *, mode: int = 0o644) -> None:
        """Put a file into the target."""
        self.files.put(f"{TARGET}/{path}", text, mode=mode)

    def remove_source(self) -> None:
        """Take the whole source away."""
        for path in list(self.files.nodes):
            if path == SOURCE or path.startswith(f"{SOURCE}/"):
                del self.files.nodes[path]

    @property
    def target(self) -> dict[str, str]:
        """Files of the target by path, with their content; a symlink as `-> where`."""
        found = {}
        for path, node in sorted(self.files.nodes.items()):
            if path.startswith(f"{TARGET}/") and node.kind != "directory":
                text = f"-> {node.link}" if node.kind == "symlink" else node.content.decode()
                found[path.removeprefix(f"{TARGET}/")] = text
        return found

    def alters(self, old: str, new: str) -> Callable[[], None]:
        """The effect of a command that replaces a text in the file that is its last argument."""

        def alter() -> None:
            node = self.files.nodes[self.runner.commands[-1].argv[-1]]
            node.content = node.content.replace(old.encode(), new.encode())

        return alter

    async def apply(self, *, noop: bool = False, **properties: Any) -> TransactionEvent:
        """What becomes of the scaffold, through the whole flow, with a provider that has seen nothing before."""
        wanted = wish(**properties)
        return await manage(TYPE, Choria(self), wanted, noop=noop)


def wish(**properties: Any) -> ScaffoldProperties:
    """Checked properties of the scaffold; `present`, with the engine jet, unless said otherwise."""
    given = {"name": TARGET, "ensure": "present", "source": "src", **copy.deepcopy(properties)}
    wanted = ScaffoldProperties(**given)
    check(wanted)
    return wanted
