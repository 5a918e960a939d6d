"""
The resource types: each folder next to this file that has a `TYPE`, and the types of other packages, found by entry point.

A type is imported when it is looked up by name, so a manifest that contains only files does not import the package type.
Entry points are read only for a name that is not built in.
"""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING

from ccm_agent.model.errors import ManifestError
from ccm_agent.model.suggestions import did_you_mean
from ccm_agent.resources.contract import PROVIDERS_GROUP, TYPES_GROUP, AnyType, ProviderSpec, ResourceType

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_NAME = re.compile(r"[a-z][a-z0-9_]*")


class Catalog:
    """
    The resource types by name. Each is imported at most once.

    Args:
        package: The package whose sub-packages are the types. Tests use their own folder.
    """

    def __init__(self, package: str = "ccm_agent.resources") -> None:
        self._package = package
        self._found: dict[str, AnyType] = {}

    def find(self, name: str) -> AnyType:
        """
        Return the type of this name.

        Raises:
            ManifestError: The type is unknown; the message suggests the nearest name.
        """
        found = self._found.get(name)
        if found is None:
            found = self._own(name) or self._foreign(name)
            if found is None:
                known = self.names()
                hint = did_you_mean(name, known) or f"; known types: {', '.join(known)}"
                raise ManifestError(f"unknown resource type `{name}`{hint}")
            self._found[name] = found
        return found

    def names(self) -> list[str]:
        """Return all names, sorted. Imports nothing."""
        import pkgutil

        paths = importlib.import_module(self._package).__path__
        own = {module.name for module in pkgutil.iter_modules(paths) if module.ispkg}
        return sorted(own | {point.name for point in _entry_points(TYPES_GROUP)})

    def all(self) -> list[AnyType]:
        """Return every type, sorted by name."""
        return [self.find(name) for name in self.names()]

    def foreign_providers(self, type_name: str) -> list[ProviderSpec]:
        """Return a type's providers from other packages: entry points named `<type>.<provider>`."""
        return [
            spec
            for point in _entry_points(PROVIDERS_GROUP)
            if point.name.partition(".")[0] == type_name
            if isinstance(spec := _load(point), ProviderSpec)
        ]

    def _own(self, name: str) -> AnyType | None:
        if not _NAME.fullmatch(name):
            return None
        module_name = f"{self._package}.{name}"
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as err:
            if err.name != module_name:
                raise
            return None
        found = getattr(module, "TYPE", None)
        return found if isinstance(found, ResourceType) else None

    def _foreign(self, name: str) -> AnyType | None:
        for point in _entry_points(TYPES_GROUP):
            if point.name == name:
                found = _load(point)
                if isinstance(found, ResourceType) and found.name == name:
                    return found
                raise ManifestError(
                    f"the entry point `{name}` of {TYPES_GROUP} is not a resource type of that name"
                )
        return None


def _load(point: EntryPoint) -> object:
    try:
        return point.load()
    except (ImportError, AttributeError) as err:
        # the error names the package of the entry point
        distribution = f" of {point.dist.name}" if point.dist else ""
        raise ManifestError(
            f"the entry point `{point.name}`{distribution} ({point.value}) cannot be loaded: {err}"
        ) from err


def _entry_points(group: str) -> tuple[EntryPoint, ...]:
    from importlib.metadata import entry_points

    return tuple(entry_points(group=group))
