"""
The limits of one run: those of the deciding rule, and those of the whole policy.

Pure functions: the caller resolves symlinks first. Each method returns the error to raise, or None if the operation is allowed.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from msgspec import Struct

from ccm_agent.model.errors import Place, PolicyError
from ccm_agent.model.records.policy import (
    COMMAND_TYPE,
    OUTPUT,
    REGISTRATION_TYPE,
    UNSIGNED_TYPE,
    Limits,
)
from ccm_agent.policy.globs import PathGlob, UrlGlob, matches_name

_PATH_TYPES = ("file", "edit", "config", "archive", "scaffold")
_CONTAINER_TYPE = "apply"
"""
A type that contains other resources. They are checked individually, so a list of types need not contain this
type.
"""


class CompiledLimits(Struct, frozen=True, kw_only=True):
    """
    Limits with compiled globs.

    Attributes:
        paths, sources, packages, services: See `model.records.policy.Limits`.
        types: For `only`, all allowed types, including those that its other lists imply. Empty if every type is
            allowed.
    """

    types: frozenset[str] = frozenset()
    paths: tuple[PathGlob, ...] = ()
    sources: tuple[PathGlob | UrlGlob, ...] = ()
    packages: tuple[str, ...] = ()
    services: tuple[str, ...] = ()

    @property
    def source_paths(self) -> tuple[PathGlob, ...]:
        """Return the sources that are paths."""
        return tuple(one for one in self.sources if isinstance(one, PathGlob))


class LimitLayer(Struct, frozen=True, kw_only=True):
    """
    The limits of one rule, or of the whole policy.

    Attributes:
        rule: The rule's name; "" for the whole policy.
        place: File and line of the rule.
        only: The objects that resources may change; None for no limit.
        forbid: The objects that resources may not change; None for no limit.
    """

    rule: str
    place: Place
    only: CompiledLimits | None = None
    forbid: CompiledLimits | None = None

    @property
    def title(self) -> str:
        """Format for a sentence: the rule `web team` (policy.yaml:12)."""
        where = f"{posixpath.basename(self.place.source)}:{self.place.line}"
        return f"the rule `{self.rule}` ({where})" if self.rule else f"`forbid` ({where})"


def allowed_types(only: Limits) -> frozenset[str]:
    """
    Return the types that an `only` allows: the types in `types`, and the types to which its other lists apply.

    Empty if it limits only sources, in which case every type is allowed.
    """
    types = set(only.types)
    if only.paths:
        types.update(_PATH_TYPES)
    if only.packages:
        types.add("package")
    if only.services:
        types.add("service")
    return frozenset(types)


class Grant(Struct, frozen=True, kw_only=True):
    """
    The permissions of a run.

    Attributes:
        who: The requester, for messages.
        layers: The limits. All of them must allow an operation.
        denial: If set, the reason why nothing is allowed.
        is_restricted: Whether this is a plan or check of a principal that may not apply. No command of the
            manifest is then run, and only the manifest's own files are read.
        withheld: The data that is omitted from the run's events: "output", "diff".
    """

    who: str = ""
    layers: tuple[LimitLayer, ...] = ()
    denial: str = ""
    is_restricted: bool = False
    withheld: frozenset[str] = frozenset()

    @property
    def withholds_output(self) -> bool:
        """Whether the run's events must not include the output of commands."""
        return OUTPUT in self.withheld

    @property
    def judges_places(self) -> bool:
        """Whether a limit concerns paths, files or URLs. If so, the caller must resolve symlinks."""
        limits = [one for layer in self.layers for one in (layer.only, layer.forbid) if one is not None]
        return self.is_restricted or any(one.paths or one.sources for one in limits)

    def refuse_type(self, name: str) -> PolicyError | None:
        """Check whether a resource of a type may be managed."""
        if self.denial:
            return PolicyError(self.denial, code="policy.denied")
        for layer in self.layers:
            only, forbid = layer.only, layer.forbid
            is_listed = only is None or not only.types or name in only.types or name == _CONTAINER_TYPE
            if not is_listed or (forbid is not None and name in forbid.types):
                return _refusal(layer, f"resources of the type {name}", "policy.type")
        return None

    def refuse_command(self, what: str) -> PolicyError | None:
        """Check whether a command of a manifest may be run; `what` is its use: a health check, `post`."""
        return self._refuse_use(COMMAND_TYPE, f"{what} is a command", "policy.command")

    def refuse_registration(self) -> PolicyError | None:
        """Check whether the entries of `register_when_stable` may be published."""
        use = "`register_when_stable` publishes a registration"
        return self._refuse_use(REGISTRATION_TYPE, use, "policy.registration")

    def refuse_unsigned(self, field: str) -> PolicyError | None:
        """Check whether a property may accept software without a signature."""
        use = f"`{field}: true` accepts software without a signature"
        return self._refuse_use(UNSIGNED_TYPE, use, "policy.unsigned")

    def _refuse_use(self, name: str, use: str, code: str) -> PolicyError | None:
        """Check whether a property may use a feature that the policy treats as a separate type."""
        refused = self.refuse_type(name)
        if refused is None or refused.code == "policy.denied":
            return refused
        return PolicyError(f"{use}, and {refused.message}", code=code)

    def refuse_path(self, path: str, real: str) -> PolicyError | None:
        """
        Check whether a path may be managed.

        Args:
            path: The normalized path of the resource.
            real: The same path with the symlinks of its directory resolved.
        """
        for layer in self.layers:
            only, forbid = layer.only, layer.forbid
            if only is not None and only.paths and not _any_matches(only.paths, real):
                return _refusal(layer, f"the path {_shown(path, real)}", "policy.path")
            if forbid is not None and (_any_matches(forbid.paths, path) or _any_matches(forbid.paths, real)):
                return _refusal(layer, f"the path {_shown(path, real)}", "policy.path")
        return None

    def refuse_tree(self, path: str, real: str) -> PolicyError | None:
        """
        Check whether a directory with all its content may be managed; see `refuse_path` for the arguments.
        """
        for layer in self.layers:
            only, forbid = layer.only, layer.forbid
            what = f"the directory {_shown(path, real)} with everything in it"
            if only is not None and only.paths and not any(glob.covers(real) for glob in only.paths):
                return _refusal(layer, what, "policy.path")
            if forbid is not None and any(
                glob.reaches_into(one) for glob in forbid.paths for one in (path, real)
            ):
                return _refusal(layer, what, "policy.path")
        return None

    def refuse_reading(
        self, path: str, real: str, *, is_own: bool, is_tree: bool = False
    ) -> PolicyError | None:
        """
        Check whether a manifest may read a file of this host.

        Args:
            path, real: See `refuse_path`. Here, the last symlink is also resolved.
            is_own: Whether the file is in the manifest's own directory.
            is_tree: Whether it is a directory that is read with all its content.
        """
        if self.denial:
            return PolicyError(self.denial, code="policy.denied")
        for layer in self.layers:
            forbid = layer.forbid
            if forbid is not None and any(
                glob.reaches_into(one)
                for glob in (*forbid.paths, *forbid.source_paths)
                for one in (path, real)
            ):
                return _refusal(layer, f"to read {_shown(path, real)}", "policy.source")
        if is_own:
            return None
        if self.is_restricted:
            return self.unknown(f"{path} is not read, because it is not one of the manifest's own files")
        for layer in self.layers:
            only = layer.only
            if only is None or not (only.paths or only.sources):
                continue
            globs = (*only.paths, *only.source_paths)
            if not any(glob.covers(real) if is_tree else glob.matches(real) for glob in globs):
                return _refusal(layer, f"to read {_shown(path, real)}", "policy.source")
        return None

    def refuse_url(self, url: str, shown: str) -> PolicyError | None:
        """
        Check whether content may be fetched from a URL.

        Args:
            url: The URL.
            shown: The URL without its secrets.
        """
        if self.denial:
            return PolicyError(self.denial, code="policy.denied")
        for layer in self.layers:
            only, forbid = layer.only, layer.forbid
            if only is not None and only.sources and not any(_means(one, url) for one in only.sources):
                return _refusal(layer, f"to fetch {shown}", "policy.source")
            if forbid is not None and any(_means(one, url) for one in forbid.sources):
                return _refusal(layer, f"to fetch {shown}", "policy.source")
        return None

    def refuse_package(self, name: str) -> PolicyError | None:
        """Check whether a package may be managed, ignoring its architecture, as in `name:arch`."""
        return self._refuse_name("package", name.partition(":")[0], "packages")

    def refuse_service(self, name: str) -> PolicyError | None:
        """Check whether a service may be managed."""
        return self._refuse_name("service", name.removesuffix(".service"), "services")

    def unknown(self, why: str) -> PolicyError:
        """Return the error for an operation that a restricted plan cannot determine."""
        return PolicyError(
            f"unknown until applied: {why} in a plan by {self.who}, who may only plan here",
            code=PolicyError.UNKNOWN,
        )

    def _refuse_name(self, what: str, name: str, field: str) -> PolicyError | None:
        for layer in self.layers:
            only, forbid = layer.only, layer.forbid
            wanted = getattr(only, field) if only is not None else ()
            if (wanted and not matches_name(name, wanted)) or (
                forbid is not None and matches_name(name, getattr(forbid, field))
            ):
                return _refusal(layer, f"the {what} {name}", f"policy.{what}")
        return None


def _refusal(layer: LimitLayer, what: str, code: str) -> PolicyError:
    return PolicyError(f"{layer.title} of the node's policy does not allow {what}", code=code)


def _shown(path: str, real: str) -> str:
    return path if path == real else f"{path}, which is {real}"


def _any_matches(globs: Sequence[PathGlob], path: str) -> bool:
    return any(glob.matches(path) for glob in globs)


def _means(source: PathGlob | UrlGlob, url: str) -> bool:
    return isinstance(source, UrlGlob) and source.matches(url)
