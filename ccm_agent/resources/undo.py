"""How the changes of a resource type are undone: what a type says about it, and what the flow asks of the run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from ccm_agent.model.undo import Identity

if TYPE_CHECKING:
    from ccm_agent.resources.contract import Decision
    from ccm_agent.resources.converge import ResolvedResource


class EarlierState(Struct, frozen=True, kw_only=True):
    """
    The state of a resource before a change.

    Attributes:
        properties: What brings the resource back to it, without its name.
        content: SHA-256 (hex) of the kept content that they refer to; "" if there is none.
        size_bytes: Size of that content.
        why_not: Why nothing brings it back; "" if the properties do.
    """

    properties: dict[str, Any] = {}
    content: str = ""
    size_bytes: int = 0
    why_not: str = ""


class EarlierFile(Struct, frozen=True, kw_only=True):
    """
    A file or directory before a change.

    Attributes:
        is_directory: It is a directory.
        owner, group: Names, or numbers as text.
        mode: Four octal digits.
        sha256, size_bytes: Of the content that was kept; "" and 0 if none was asked for.
        why_not: Why it is not kept; "" if it is.
    """

    is_directory: bool = False
    owner: str = ""
    group: str = ""
    mode: str = ""
    sha256: str = ""
    size_bytes: int = 0
    why_not: str = ""


class KeepFile(Protocol):
    """Keeps a file of this host for an undo. Never raises."""

    async def __call__(self, path: str, *, with_content: bool) -> EarlierFile: ...


class UndoRules(Struct, frozen=True, kw_only=True):
    """
    How changes of a type are undone.

    Attributes:
        earlier: Returns the state before a change. It gets the resource, the state that was read, the decision, and what keeps
            files. A relative path in the properties names a kept content by its digest.
        identify: Returns what a state is recognized by. Only if the current state has the same identity as the one that a run
            left, the change is undone.
    """

    earlier: Callable[[Any, Any, Decision, KeepFile], Awaitable[EarlierState]]
    identify: Callable[[Any], Identity]


class ResourceUndo(Protocol):
    """What the flow asks of the run: it records changes, so that they can be undone, and an undo leaves some resources alone."""

    async def why_left(self, declared: ResolvedResource, provider: Any) -> str:
        """Why an undo leaves a resource as it is, which it would change; "" if it does not, and in other runs."""
        ...

    async def record(
        self,
        declared: ResolvedResource,
        provider: Any,
        found: Any,
        decision: Decision,
        change: Callable[[], Awaitable[Any]],
    ) -> Any:
        """
        Change a resource, and record the states before and after; returns the state after.

        A state that cannot be kept is recorded as such, and the change is made.
        """
        ...
