"""
The node's policy within one run: what a resource, a template, a health check or a child manifest may touch.

A `Grant` judges names and paths; here stands what of a resource those are, and where its paths lead. Paths are resolved when the
resource's turn has come and not before: an earlier resource may have made a symlink.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ccm_agent.model.errors import PolicyError
from ccm_agent.model.ports import Command, Completed
from ccm_agent.model.secret import mask_url

if TYPE_CHECKING:
    from ccm_agent.model.health import HealthCheck
    from ccm_agent.policy.grant import Grant
    from ccm_agent.resources.contract import AnyType, Reach, ResourceContext
    from ccm_agent.resources.converge import ResolvedResource
    from ccm_agent.templates.env import Environment

_WEB = ("http://", "https://")

PATH_MAX = 4096
"""Bytes of a path that the kernel takes. A path of megabytes would take minutes to resolve, and nothing can be opened at it."""

Resolve = Callable[[str], str]
"""A path with its symlinks resolved; blocking."""


class Permission:
    """
    What one run may do.

    Attributes:
        root: The directory of the outermost manifest, whose files may be read; "" when it came without any.
    """

    def __init__(self, grant: Grant, resolve: Resolve) -> None:
        """Bind a run by what the policy allows."""
        self.root = ""
        self._grant = grant
        self._resolve_link = resolve

    @property
    def is_restricted(self) -> bool:
        """It is a plan or check whose author may not apply."""
        return self._grant.is_restricted

    def unknown(self, why: str) -> PolicyError:
        """What a restricted run leaves open."""
        return self._grant.unknown(why)

    def _resolve(self, path: str) -> str:
        try:
            return self._resolve_link(path)
        except (OSError, ValueError):
            return path  # nothing can be opened at such a path

    # ---- resources ----

    async def refusal(self, declared: ResolvedResource, directory: str) -> PolicyError | None:
        """
        Why a resource may not be managed; None when it may, as far as its properties are known by now.

        Args:
            declared: The resource.
            directory: Where its relative paths begin.
        """
        early = self._refuse_kind(declared) or self._refuse_names(declared)
        if early is not None or not self._grant.judges_places:
            return early
        return await asyncio.to_thread(self._refuse_places, declared, directory, self._resolve)

    def may_look_ahead(self, declared: ResolvedResource, directory: str) -> bool:
        """Whether a resource may be looked at together with others; its paths are resolved when its turn has come."""
        if self._refuse_kind(declared) or self._refuse_names(declared):
            return False
        return self._refuse_places(declared, directory, _as_written) is None

    def may_run_commands(self, kind: AnyType) -> bool:
        """Whether commands that stand in a resource of a type may be run, be it only to look."""
        return not self.is_restricted and self._grant.refuse_command(kind.name) is None

    def refuse_command(self, what: str) -> PolicyError:
        """Why a command is not run, where `may_run_commands` says that none is."""
        return self._grant.refuse_command(what) or self.unknown(f"{what} is not run")

    def _refuse_kind(self, declared: ResolvedResource) -> PolicyError | None:
        """By type, commands and health checks."""
        kind, wanted = declared.kind, declared.wanted
        if refused := self._grant.refuse_type(kind.name):
            return refused
        if kind.reach is None and self.is_restricted:
            return self.unknown(f"it is not known what a look at the type {kind.name} takes, so none is made")
        if wanted.register_when_stable and (refused := self._grant.refuse_registration()):
            return refused
        for field in sorted(kind.rules.commands):
            if getattr(wanted, field) and (refused := self._grant.refuse_command(f"`{field}`")):
                return refused
        for check in wanted.health_checks:
            if refused := self._refuse_check_command(check):
                return refused
        return None

    def _refuse_names(self, declared: ResolvedResource) -> PolicyError | None:
        reach = _reach_of(declared)
        for package in reach.packages:
            if refused := self._grant.refuse_package(package):
                return refused
        for service in reach.services:
            if refused := self._grant.refuse_service(service):
                return refused
        return None

    def _refuse_places(
        self, declared: ResolvedResource, directory: str, resolve: Resolve
    ) -> PolicyError | None:
        """By paths and URLs. Blocking, unless `resolve` is `_as_written`."""
        reach = _reach_of(declared)
        for path in (*reach.paths, *reach.trees):
            if len(path) > PATH_MAX:
                return _too_long(path)
        for path in map(_normal, reach.paths):
            if refused := self._grant.refuse_path(path, _real_entry(path, resolve)):
                return refused
        for path in map(_normal, reach.trees):
            # the directory itself may be a symlink, which is followed to what is in it
            for real in (_real_entry(path, resolve), resolve(path)):
                if refused := self._grant.refuse_tree(path, real):
                    return refused
        if declared.pending:
            return None  # what is read may still be a template: it is judged once it is not
        for source in (*reach.reads, *reach.reads_trees):
            is_tree = source in reach.reads_trees
            if refused := self._refuse_source(source, directory, resolve, is_tree=is_tree):
                return refused
        return None

    def _refuse_source(
        self, source: str, directory: str, resolve: Resolve, *, is_tree: bool = False
    ) -> PolicyError | None:
        if source.lower().startswith(_WEB):
            return self._grant.refuse_url(source, mask_url(source))
        return self._refuse_reading(posixpath.join(directory, source), resolve, is_tree=is_tree)

    def _refuse_reading(self, path: str, resolve: Resolve, *, is_tree: bool = False) -> PolicyError | None:
        if len(path) > PATH_MAX:
            return _too_long(path)
        literal = _normal(path)
        real = resolve(literal)
        root = resolve(self.root) if self.root else ""
        is_own = bool(root) and (real == root or real.startswith(f"{root.rstrip('/')}/"))
        return self._grant.refuse_reading(literal, real, is_own=is_own, is_tree=is_tree)

    # ---- templates, data, children ----

    def confine(self, environment: Environment) -> None:
        """Judge what templates read from here on."""
        environment.confine(self.check_read, self._refuse_broker if self.is_restricted else None)

    def check_read(self, path: str) -> None:
        """
        See that a manifest may read a file. Blocking.

        Raises:
            PolicyError: It may not.
        """
        if refused := self._refuse_reading(path, self._resolve):
            raise refused

    async def check_source(self, source: str, directory: str) -> None:
        """
        See that content may be taken from a path or URL.

        Raises:
            PolicyError: It may not; of a URL in a restricted run: it is not known what it holds.
        """
        refused = await asyncio.to_thread(self._refuse_source, source, directory, self._resolve)
        if refused is None and self.is_restricted and source.lower().startswith(_WEB):
            refused = self.unknown(f"{mask_url(source)} is not fetched")
        if refused is not None:
            raise refused

    async def check_document(self, url: str, directory: str) -> None:
        """
        See that a hiera document may be read that a request names; what a bucket holds is the broker's to allow.

        Raises:
            PolicyError: It may not.
        """
        if not url.lower().startswith("kv://"):
            await self.check_source(_without_scheme(url), directory)

    def _refuse_broker(self) -> None:
        raise self.unknown("the broker is not asked")

    # ---- health checks ----

    async def check_health(self, check: HealthCheck) -> None:
        """
        See that a health check may run, its templates rendered.

        Raises:
            PolicyError: It may not, or a restricted run does not run it.
        """
        refused = self._refuse_check_command(check)
        if refused is None and check.command and self.is_restricted:
            refused = self.unknown(f"the health check `{check.name}` is not run")
        if refused is None and check.goss_rules:
            refused = await asyncio.to_thread(self._refuse_rules, check)
        if refused is not None:
            raise refused

    def _refuse_check_command(self, check: HealthCheck) -> PolicyError | None:
        what = f"the health check `{check.name}`"
        if check.command or any(rule.kind.reach == "command" for rule in _rules_of(check)):
            return self._grant.refuse_command(what)
        return None

    def _refuse_rules(self, check: HealthCheck) -> PolicyError | None:
        """Of goss rules what reads files, asks the network or runs commands. Blocking."""
        for rule in _rules_of(check):
            if rule.kind.reach and self.is_restricted:
                return self.unknown(f"the health check `{check.name}` is not run, for it is not only a look")
            if rule.kind.name == "http" and (
                refused := self._grant.refuse_url(rule.subject, mask_url(rule.subject))
            ):
                return refused
            if not rule.kind.reads.isdisjoint(rule.wanted) and (
                refused := self._refuse_reading(rule.subject, self._resolve)
            ):
                return refused
        return None


class ConfinedContext:
    """
    The context of a provider whose type may not run the manifest's commands, or may not fetch anything.

    A second lock: the flow has refused such a resource before, or its provider knows not to run anything.

    Args:
        context: The context itself.
        permission: Makes the refusals.
        commands: Commands may be run.
    """

    def __init__(self, context: ResourceContext, permission: Permission, *, commands: bool) -> None:
        self._context = context
        self._permission = permission
        self.may_run_commands = commands

    @property
    def runner(self) -> Any:
        """Programs, or a refusal of each."""
        return self._context.runner if self.may_run_commands else _NoPrograms(self._permission)

    def port(self, name: str) -> Any:
        """A further port; a restricted run downloads nothing."""
        if name == "download" and self._permission.is_restricted:
            return _NoDownloads(self._permission)
        return self._context.port(name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


class _NoPrograms:
    def __init__(self, permission: Permission) -> None:
        self._permission = permission

    async def run(self, command: Command, on_line: Callable[[str], None] | None = None) -> Completed:
        raise self._permission.refuse_command(f"`{command.argv[0]}`")


class _NoDownloads:
    def __init__(self, permission: Permission) -> None:
        self._permission = permission

    async def fetch(self, transfer: Any) -> Any:
        raise self._permission.unknown(f"{mask_url(transfer.url)} is not fetched")

    async def save(self, transfer: Any, path: str, on_progress: Any = None) -> Any:
        raise self._permission.unknown(f"{mask_url(transfer.url)} is not fetched")


def _reach_of(declared: ResolvedResource) -> Reach:
    from ccm_agent.resources.contract import Reach

    return declared.kind.reach(declared.wanted) if declared.kind.reach is not None else Reach()


def _rules_of(check: HealthCheck) -> Iterator[Any]:
    """The rules of a goss check; none while they hold templates, or are invalid, which the check itself reports."""
    from ccm_agent.health.goss.rules import holds_templates, parse_rules
    from ccm_agent.model.errors import PropertyError

    if not check.goss_rules or holds_templates(check.goss_rules):
        return
    try:
        yield from (rule for rule in parse_rules(check.goss_rules) if not rule.is_skipped)
    except PropertyError:
        return


def _too_long(path: str) -> PolicyError:
    return PolicyError(
        f"a path of {len(path)} characters is longer than any that can be opened: {path[:80]}…",
        code="policy.path",
    )


def _as_written(path: str) -> str:
    return path


def _real_entry(path: str, resolve: Resolve) -> str:
    """A path with the symlinks of its directory resolved: what is managed is the entry itself."""
    parent, name = posixpath.split(path)
    return posixpath.join(resolve(parent), name)


def _normal(path: str) -> str:
    return posixpath.normpath("/" + path.lstrip("/"))


def _without_scheme(url: str) -> str:
    """The path of a `file://` URL, as hiera reads it; anything else as it is."""
    if not url.startswith("file://"):
        return url
    return unquote("/" + url.removeprefix("file://").partition("/")[2])
