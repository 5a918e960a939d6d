"""
The expression language as used by the engine. It also detects texts that must not be evaluated on the event
loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ccm_agent.model.errors import BusError, CcmError, PolicyError
from ccm_agent.model.formats.patterns import lazy_pattern

if TYPE_CHECKING:
    from ccm_agent.templates.env import Environment
    from ccm_agent.templates.lookup import SecretSource

_READS = lazy_pattern(r"\b(?:readFile|file|template|jet|registrations|kvGet|secret)\s*\(")


class Expressions(Protocol):
    """Expressions with the facts, data and environment of one manifest."""

    secrets: SecretSource | None
    """Opens the secrets of the run; None if secrets are not available."""

    @property
    def environment(self) -> Environment:
        """Return the variables of the expressions, for whole-file templates."""
        ...

    def text(self, template: str) -> str:
        """Return a text with its expressions rendered."""
        ...

    def typed(self, template: str) -> Any:
        """Render a text. A text that is a single expression keeps the type of its value."""
        ...

    def holds(self, expression: str) -> bool:
        """Evaluate a plain expression that must be boolean; an empty expression is false."""
        ...

    def jet_file(self, name: str) -> str:
        """
        Render a Jet template from the manifest's directory. Raises TemplateError if it cannot be read or
        fails.
        """
        ...


def has_markers(text: str) -> bool:
    """Whether a text may contain an expression."""
    return "{{" in text or "${" in text


def reads_host(text: str) -> bool:
    """
    Whether rendering the text may read files or contact the broker. Such a text must be rendered in a
    thread.
    """
    return _READS.search(text) is not None


def bus_error_behind(err: BaseException) -> BusError | None:
    """Return the broker's error that made a template fail; None for other reasons."""
    behind: BaseException | None = err
    while behind is not None and not isinstance(behind, BusError):
        behind = behind.__cause__
    return behind


def raise_refusal_behind(err: CcmError) -> None:
    """
    Raise the error of the node's policy if it caused a template to fail.

    Raises:
        PolicyError: The node's policy forbids a read in the template; the message is the template's.
    """
    behind: BaseException | None = err
    while behind is not None and not isinstance(behind, PolicyError):
        behind = behind.__cause__
    if behind is not None:
        raise PolicyError(str(err), code=behind.code) from err


def holds_markers(value: Any) -> bool:
    """Whether a value may contain an expression, at any depth of lists and mappings."""
    if isinstance(value, str):
        return has_markers(value)
    if isinstance(value, dict):
        return any(holds_markers(one) for one in value.values())
    if isinstance(value, list):
        return any(holds_markers(one) for one in value)
    return False


def render(value: Any, expressions: Expressions) -> Any:
    """
    Render the expressions in a property.

    Text stays text. In mappings, a text that is a single expression takes the type of its value, as in the
    reference. A key with an expression that returns None is left out, but a literal null is kept.
    """
    if isinstance(value, str):
        return expressions.text(value) if has_markers(value) else value
    if isinstance(value, list):
        return [render(one, expressions) for one in value]
    if isinstance(value, dict):
        return _render_mapping(value, expressions)
    return value


def _render_mapping(value: dict[str, Any], expressions: Expressions) -> dict[str, Any]:
    rendered = {key: render_typed(one, expressions) for key, one in value.items()}
    return {key: one for key, one in rendered.items() if one is not None or value[key] is None}


def render_keys(value: Any, expressions: Expressions) -> Any:
    """Render the keys and values of a mapping."""
    rendered = render(value, expressions)
    if not isinstance(rendered, dict):
        return rendered
    return {expressions.text(key) if has_markers(key) else key: one for key, one in rendered.items()}


def holds_templates(value: Any) -> bool:
    """Whether a value, including the keys of mappings, may contain a template."""
    if isinstance(value, dict):
        return any(holds_templates(key) or holds_templates(one) for key, one in value.items())
    if isinstance(value, list):
        return any(holds_templates(one) for one in value)
    return isinstance(value, str) and has_markers(value)


def render_rules(value: Any, expressions: Expressions) -> Any:
    """
    Render the rules of a health check, including the keys at any depth. A value that is a single expression
    keeps its type.
    """
    if isinstance(value, dict):
        return {
            expressions.text(key) if isinstance(key, str) and has_markers(key) else key: render_rules(
                one, expressions
            )
            for key, one in value.items()
        }
    if isinstance(value, list):
        return [render_rules(one, expressions) for one in value]
    return expressions.typed(value) if isinstance(value, str) and has_markers(value) else value


def render_checks(value: Any, expressions: Expressions) -> Any:
    """Render the templates in health checks, except for rules, which are rendered when they are checked."""
    if not isinstance(value, list):
        return render(value, expressions)
    return [
        {key: one if key == "goss_rules" else render_typed(one, expressions) for key, one in check.items()}
        if isinstance(check, dict)
        else render(check, expressions)
        for check in value
    ]


def render_retry(value: Any, expressions: Expressions) -> Any:
    """
    Render the templates in the retry settings, except `until`: data must not become part of an expression.
    """
    if not isinstance(value, dict):
        return render(value, expressions)
    return {key: one if key == "until" else render_typed(one, expressions) for key, one in value.items()}


def render_entries(value: Any, expressions: Expressions) -> Any:
    """Render registrations. A port that is a single expression keeps its type. All other values are text."""
    if not isinstance(value, list):
        return render(value, expressions)
    return [
        {
            key: render_typed(one, expressions)
            if key == "port"
            else {name: render(word, expressions) for name, word in one.items()}
            if isinstance(one, dict)
            else render(one, expressions)
            for key, one in entry.items()
        }
        if isinstance(entry, dict)
        else render(entry, expressions)
        for entry in value
    ]


def render_typed(value: Any, expressions: Expressions) -> Any:
    """Render the expressions in a value. A text that is a single expression takes the type of its value."""
    if isinstance(value, str):
        return expressions.typed(value) if has_markers(value) else value
    if isinstance(value, list):
        return [render_typed(one, expressions) for one in value]
    if isinstance(value, dict):
        return _render_mapping(value, expressions)
    return value
