"""
The existing resources of a type on a host, for `ccm import`. `ProviderSpec.find_existing` returns them.

This function leaves out resources that the distribution installs by itself, and never returns secrets. It raises UsageError for
an invalid argument. The argument is "" for `ccm import TYPE`.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from msgspec import Struct

from ccm_agent.model.errors import InputError, UsageError
from ccm_agent.model.ports import TreeEntry
from ccm_agent.model.records.host_import import LeftOutResource, printable
from ccm_agent.model.resource import PRESENT, CommonProperties

P = TypeVar("P", bound=CommonProperties)


class ExistingResource(Struct, frozen=True, kw_only=True):
    """
    A resource that exists on this host.

    Attributes:
        name: The resource's name.
        properties: The resource's properties as in a manifest, without the name.
        kind: The resource's type; "" for the requested type.
        content: The content of a file. `ccm import` stores it next to the manifest and sets `source`. None if there is none.
        tree: The files and directories of a directory, stored in the same way. A directory precedes its content.
    """

    name: str
    properties: dict[str, Any]
    kind: str = ""
    content: bytes | None = None
    tree: tuple[TreeEntry, ...] = ()

    @property
    def has_source(self) -> bool:
        """Whether there is content to store next to the manifest."""
        return self.content is not None or bool(self.tree)


class ExistingResources(Struct, frozen=True, kw_only=True):
    """
    The resources of a type on this host, without those that the distribution installs by itself.

    Attributes:
        resources: The resources in the order in which a manifest should manage them.
        left_out: Resources that the type cannot describe or that contain a secret.
    """

    resources: tuple[ExistingResource, ...] = ()
    left_out: tuple[LeftOutResource, ...] = ()


class ExistingBuilder(Generic[P]):
    """
    Builds the list of a host's resources of one type.

    Args:
        type_name: The name of the type.
        properties: The Struct of its properties.
        check: Refuses invalid properties with an InputError.
    """

    def __init__(self, type_name: str, properties: type[P], check: Callable[[P], None]) -> None:
        self._type = type_name
        self._properties = properties
        self._check = check
        self._resources: list[ExistingResource] = []
        self._left_out: list[LeftOutResource] = []

    def add(
        self,
        name: str,
        properties: dict[str, Any],
        *,
        content: bytes | None = None,
        tree: tuple[TreeEntry, ...] = (),
    ) -> None:
        """Add a resource, or leave it out if a manifest cannot describe it."""
        resource = ExistingResource(name=name, properties=properties, content=content, tree=tree)
        source = {"source": "source"} if resource.has_source else {}
        try:
            self._check(self._properties(name=name, **{"ensure": PRESENT, **properties, **source}))
        except InputError as err:
            self.leave_out(name, err.message)
        else:
            self._resources.append(resource)

    def add_found(self, found: ExistingResources) -> None:
        """Add the resources of another type that these resources need."""
        self._resources += found.resources
        self._left_out += found.left_out

    def leave_out(self, name: str, reason: str) -> None:
        """Record a resource that the manifest does not manage, and the reason."""
        self._left_out.append(
            LeftOutResource(type=self._type, name=printable(name), reason=printable(reason))
        )

    def result(self) -> ExistingResources:
        """Return the list of resources."""
        return ExistingResources(resources=tuple(self._resources), left_out=tuple(self._left_out))


def refuse_argument(type_name: str, argument: str) -> None:
    """Raise UsageError if an argument was given. Used by types that do not support one."""
    if argument:
        raise UsageError(f"{type_name}:{argument}: `{type_name}` takes no argument; use `{type_name}`")


def refuse_relative(type_name: str, argument: str, example: str) -> None:
    """Raise UsageError unless the argument is a normalized, absolute path below /."""
    is_normal = posixpath.normpath(argument) == argument and argument.startswith("/")
    if not is_normal or argument in ("/", "//") or argument[1] == "/":
        raise UsageError(f"{type_name}:{argument}: name an absolute path, such as {type_name}:{example}")
