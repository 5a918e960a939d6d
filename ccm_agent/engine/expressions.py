"""What the engine asks of the expression language, and which texts must not be evaluated on the event loop."""

from __future__ import annotations

import re
from typing import Any, Protocol

_READS = re.compile(r"\b(?:readFile|file|template|jet|registrations|kvGet)\s*\(")


class Expressions(Protocol):
    """Expressions about one manifest's facts, data and environment."""

    def text(self, template: str) -> str:
        """A text with its expressions rendered."""
        ...

    def typed(self, template: str) -> Any:
        """The same; a text that is one expression keeps the type of its value."""
        ...

    def holds(self, expression: str) -> bool:
        """A plain expression that must be boolean; nothing is false."""
        ...

    def jet_file(self, name: str) -> str:
        """A Jet template of the manifest's directory, rendered; TemplateError when it cannot be read or fails."""
        ...


def has_markers(text: str) -> bool:
    """Whether a text may hold an expression."""
    return "{{" in text or "${" in text


def reads_host(text: str) -> bool:
    """Whether rendering it may read files or ask the broker, so that it belongs into a thread."""
    return _READS.search(text) is not None


def holds_markers(value: Any) -> bool:
    """The same of any value, in the depth of lists and mappings."""
    if isinstance(value, str):
        return has_markers(value)
    if isinstance(value, dict):
        return any(holds_markers(one) for one in value.values())
    if isinstance(value, list):
        return any(holds_markers(one) for one in value)
    return False


def render(value: Any, expressions: Expressions) -> Any:
    """
    A property with its expressions rendered.

    Text stays text; within mappings a text that is one expression takes the type of its value, as the reference has it.
    """
    if isinstance(value, str):
        return expressions.text(value) if has_markers(value) else value
    if isinstance(value, list):
        return [render(one, expressions) for one in value]
    if isinstance(value, dict):
        return {key: _render_typed(one, expressions) for key, one in value.items()}
    return value


def render_keys(value: Any, expressions: Expressions) -> Any:
    """A mapping whose keys are templates too."""
    rendered = render(value, expressions)
    if not isinstance(rendered, dict):
        return rendered
    return {expressions.text(key) if has_markers(key) else key: one for key, one in rendered.items()}


def _render_typed(value: Any, expressions: Expressions) -> Any:
    if isinstance(value, str):
        return expressions.typed(value) if has_markers(value) else value
    if isinstance(value, list):
        return [_render_typed(one, expressions) for one in value]
    if isinstance(value, dict):
        return {key: _render_typed(one, expressions) for key, one in value.items()}
    return value
