"""Variables and blocks of a Jet template in nested scopes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ccm_agent.templates.engines.jet.nodes import Block


@dataclass(slots=True)
class Scope:
    """Variables, blocks, and the enclosing scope."""

    parent: Scope | None
    blocks: Mapping[str, Block]
    variables: dict[str, Any] = field(default_factory=dict)

    def holder(self, name: str) -> Scope | None:
        """Return the innermost scope with a variable of this name."""
        scope: Scope | None = self
        while scope is not None and name not in scope.variables:
            scope = scope.parent
        return scope

    def block(self, name: str) -> Block | None:
        """Return the block with this name from the innermost scope that contains it."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.blocks:
                return scope.blocks[name]
            scope = scope.parent
        return None
