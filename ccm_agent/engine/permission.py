"""
The node's policy within one run: checks what a resource, a template, a health check or a child manifest may access.

A `Grant` decides which names and paths are allowed. This module determines the names and paths of a resource. Paths are
resolved only just before the resource is applied, because an earlier resource may have created a symlink.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ccm_agent.model.errors import PolicyError, PropertyError
from ccm_agent.model.formats.urls import is_web
from ccm_agent.model.ports import Command, Completed
from ccm_agent.model.secret import mask_url

if TYPE_CHECKING:
    from ccm_agent.model.health import HealthCheck
    from ccm_agent.policy.grant import Grant
    from ccm_agent.resources.contract import AnyType, HostAccess, ResolvedResource, ResourceContext
    from ccm_agent.templates.env import Environment


PATH_MAX = 4096
"""
The longest path that the kernel accepts. A path of several megabytes would take minutes to resolve and could not be opened.
"""

Resolve = Callable[[str], str]
"""Resolves the symlinks of a path; blocking."""


class Permission:
    """
    Decides which accesses of one run are allowed.

    Attributes:
        root: The directory of the outermost manifest. Files in it may be read. "" if the manifest has no directory.
    """

    def __init__(self, grant: Grant, resolve: Resolve) -> None:
        self.root = ""
        self._grant = grant
        self._resolve_link = resolve

    @property
    def is_restricted(self) -> bool:
        """Whether the run is a plan or check of an operator who may not apply."""
        return self._grant.is_restricted

    def unknown(self, why: str) -> PolicyError:
        """Return the error for information that a restricted run cannot obtain."""
        return self._grant.unknown(why)

    def _resolve(self, path: str) -> str:
        try:
            return self._resolve_link(path)
        except (OSError, ValueError):
            return path  # such a path cannot be opened

    # ---- resources ----

    async def refusal(self, declared: ResolvedResource, directory: str) -> PolicyError | None:
        """
        Return the reason why a resource may not be managed, based on the properties that are known now. None if it may.

        Args:
            declared: The resource.
            directory: The base of its relative paths.
        """
        early = self._refuse_kind(declared) or self._refuse_names(declared)
        if early is not None or not self._grant.judges_places:
            return early
        return await asyncio.to_thread(self._refuse_places, declared, directory, self._resolve)

    def refuse_type(self, name: str) -> PolicyError | None:
        """Return the reason why resources of a type may not be managed. None if they may."""
        return self._grant.refuse_type(name)

    def may_look_ahead(self, declared: ResolvedResource, directory: str) -> bool:
        """
        Whether the state of a resource may be read together with other states. Its paths are resolved later, before it is
        applied.
        """
        if self._refuse_kind(declared) or self._refuse_names(declared):
            return False
        return self._refuse_places(declared, directory, _as_written) is None

    def may_run_commands(self, kind: AnyType) -> bool:
        """Whether commands in resources of a type may run, including commands that only read state."""
        return not self.is_restricted and self._grant.refuse_command(kind.name) is None

    def refuse_command(self, what: str) -> PolicyError:
        """Return the error for a command that is not run. Call this only if `may_run_commands` is False."""
        return self._grant.refuse_command(what) or self.unknown(f"{what} is not run")

    def _refuse_kind(self, declared: ResolvedResource) -> PolicyError | None:
        """Check the type, its commands and its health checks."""
        kind, wanted = declared.kind, declared.wanted
        if refused := self._grant.refuse_type(kind.name):
            return refused
        if kind.reach is None and self.is_restricted:
            return self.unknown(
                f"the type {kind.name} does not declare what it reads, so its state is not read"
            )
        if wanted.register_when_stable and (refused := self._grant.refuse_registration()):
            return refused
        for field in sorted(kind.rules.commands):
            if getattr(wanted, field) and (refused := self._grant.refuse_command(f"`{field}`")):
                return refused
        for field in sorted(kind.rules.unsigned):
            if getattr(wanted, field) and (refused := self._grant.refuse_unsigned(field)):
                return refused
        for check in wanted.health_checks:
            if not _is_rendered(check):
                continue  # `check_health` checks it after rendering and before it runs
            if refused := self._refuse_check_command(check):
                return refused
        return None

    def _refuse_names(self, declared: ResolvedResource) -> PolicyError | None:
        """Check packages, services, and types that run programs."""
        reach = _reach_of(declared)
        for command in reach.commands:
            if refused := self._grant.refuse_command(command):
                return refused
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
        """Check paths and URLs. Blocking, unless `resolve` is `_as_written`."""
        reach = _reach_of(declared)
        for path in (*reach.paths, *reach.trees):
            if len(path) > PATH_MAX:
                return _too_long(path)
        for path in map(_normal, reach.paths):
            if refused := self._grant.refuse_path(path, _real_entry(path, resolve)):
                return refused
        for path in map(_normal, reach.trees):
            # the directory may be a symlink; then its content is in the symlink's target
            for real in (_real_entry(path, resolve), resolve(path)):
                if refused := self._grant.refuse_tree(path, real):
                    return refused
        if declared.pending:
            return None  # the path may still be a template; it is checked again after rendering
        for source in (*reach.reads, *reach.reads_trees):
            is_tree = source in reach.reads_trees
            if refused := self._refuse_source(source, directory, resolve, is_tree=is_tree):
                return refused
        return None

    def _refuse_source(
        self, source: str, directory: str, resolve: Resolve, *, is_tree: bool = False
    ) -> PolicyError | None:
        if is_web(source):
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
        """Return template functions that check their file accesses."""
        environment.confine(self.check_read, self._refuse_broker if self.is_restricted else None)

    def check_read(self, path: str) -> None:
        """
        Check that a manifest may read a file. Blocking.

        Raises:
            PolicyError: The manifest may not read the file.
        """
        if refused := self._refuse_reading(path, self._resolve):
            raise refused

    async def check_source(self, source: str, directory: str) -> None:
        """
        Check that content may be read from a path or URL.

        Raises:
            PolicyError: The content may not be read. In a restricted run this includes every URL, because its content is
            unknown.
        """
        refused = await asyncio.to_thread(self._refuse_source, source, directory, self._resolve)
        if refused is None and self.is_restricted and is_web(source):
            refused = self.unknown(f"{mask_url(source)} is not fetched")
        if refused is not None:
            raise refused

    async def check_document(self, url: str, directory: str) -> None:
        """
        Check that a hiera document from a request may be read. The broker controls access to buckets.

        Raises:
            PolicyError: The document may not be read.
        """
        if not url.lower().startswith("kv://"):
            await self.check_source(_without_scheme(url), directory)

    def refuse_secret(self) -> PolicyError:
        """Return the error for a secret in a run that may not open secrets."""
        return self.unknown("secrets are not opened for an operator who may only plan")

    def _refuse_broker(self) -> None:
        raise self.unknown("the broker is not queried")

    # ---- health checks ----

    async def check_health(self, check: HealthCheck) -> None:
        """
        Check that a health check with rendered templates may run.

        Raises:
            PolicyError: The check may not run. A restricted run does not run some checks.
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
        """Check goss rules that read files, use the network or run commands. Blocking."""
        for rule in _rules_of(check):
            if rule.kind.reach and self.is_restricted:
                return self.unknown(
                    f"the health check `{check.name}` is not run, because it does more than read state"
                )
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
    The context of a provider whose type may not run the manifest's commands, or may not download.

    This is a second line of defense. The flow has already refused such a resource, or its provider does not run anything.

    Args:
        context: The original context.
        permission: Creates the errors.
        commands: Whether commands may be run.
    """

    def __init__(self, context: ResourceContext, permission: Permission, *, commands: bool) -> None:
        self._context = context
        self._permission = permission
        self.may_run_commands = commands

    @property
    def runner(self) -> Any:
        """Return the runner, or one that refuses every program."""
        return self._context.runner if self.may_run_commands else _NoPrograms(self._permission)

    def port(self, name: str) -> Any:
        """Return a further port. In a restricted run the port refuses downloads."""
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


def _reach_of(declared: ResolvedResource) -> HostAccess:
    from ccm_agent.resources.contract import HostAccess

    return declared.kind.reach(declared.wanted) if declared.kind.reach is not None else HostAccess()


def _is_rendered(check: HealthCheck) -> bool:
    from ccm_agent.health.goss.rules import holds_templates

    return not holds_templates(check.goss_rules)


def _rules_of(check: HealthCheck) -> Iterator[Any]:
    """
    Yield the rules of a goss check. An invalid check has no rules here; the check itself reports the error.

    A rendered rule may look like a template, such as the shell's `${HOME}`. It is still treated as a rule.
    """
    from ccm_agent.health.goss.rules import parse_rules

    if not check.goss_rules:
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
    """
    Return a path with the symlinks of its directory resolved. The last part is not resolved, because the entry itself is
    managed.
    """
    parent, name = posixpath.split(path)
    return posixpath.join(resolve(parent), name)


def _normal(path: str) -> str:
    return posixpath.normpath("/" + path.lstrip("/"))


def _without_scheme(url: str) -> str:
    """Return the path of a `file://` URL, as hiera reads it. Other texts are returned unchanged."""
    if not url.startswith("file://"):
        return url
    return unquote("/" + url.removeprefix("file://").partition("/")[2])
