"""The expression language as the engine uses it, and which texts must not be evaluated on the event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ccm_agent.model.errors import BusError, CcmError, PolicyError
from ccm_agent.model.formats.patterns import lazy_pattern

if TYPE_CHECKING:
    from ccm_agent.templates.env import Environment
    from ccm_agent.templates.lookup import SecretSource

_READS = lazy_pattern(r"\b(?:readFile|file|template|jet|registrations|kvGet|secret)\s*\(")


class Expressions(Protocol):
    """Expressions about one manifest's facts, data and environment."""

    secrets: SecretSource | None
    """Opens the secrets of the run; None where there are none."""

    @property
    def environment(self) -> Environment:
        """The variables of the expressions, for whole-file templates."""
        ...

    def text(self, template: str) -> str:
        """A text with its expressions rendered."""
        ...

    def typed(self, template: str) -> Any:
        """The same; a text that is one expression keeps the type of its value."""
        ...

    def holds(self, expression: str) -> bool:
        """Evaluate a plain expression that must be boolean; an empty one is false."""
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


def bus_error_behind(err: BaseException) -> BusError | None:
    """Return the broker's error that made a template fail; None for other reasons."""
    behind: BaseException | None = err
    while behind is not None and not isinstance(behind, BusError):
        behind = behind.__cause__
    return behind


def raise_refusal_behind(err: CcmError) -> None:
    """
    Raise the error if the node's policy caused a template to fail; else do nothing.

    Raises:
        PolicyError: The node's policy does not allow a read of the template; the message is the template's.
    """
    behind: BaseException | None = err
    while behind is not None and not isinstance(behind, PolicyError):
        behind = behind.__cause__
    if behind is not None:
        raise PolicyError(str(err), code=behind.code) from err


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

    Text stays text; within mappings a text that is one expression takes the type of its value, as the reference has it. A key
    whose expression gives None is left out; a null that is written there stays.
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
    """A mapping whose keys are templates too."""
    rendered = render(value, expressions)
    if not isinstance(rendered, dict):
        return rendered
    return {expressions.text(key) if has_markers(key) else key: one for key, one in rendered.items()}


def holds_templates(value: Any) -> bool:
    """Like `holds_markers`, and the keys of mappings count."""
    if isinstance(value, dict):
        return any(holds_templates(key) or holds_templates(one) for key, one in value.items())
    if isinstance(value, list):
        return any(holds_templates(one) for one in value)
    return isinstance(value, str) and has_markers(value)


def render_rules(value: Any, expressions: Expressions) -> Any:
    """Rules of a health check: keys at any depth are templates too, and a value that is one expression keeps its type."""
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
    """Health checks with their templates rendered, but for the rules, which wait until they are checked."""
    if not isinstance(value, list):
        return render(value, expressions)
    return [
        {key: one if key == "goss_rules" else render_typed(one, expressions) for key, one in check.items()}
        if isinstance(check, dict)
        else render(check, expressions)
        for check in value
    ]


def render_retry(value: Any, expressions: Expressions) -> Any:
    """Attempts with their templates rendered, but for `until`: data must not become a part of an expression."""
    if not isinstance(value, dict):
        return render(value, expressions)
    return {key: one if key == "until" else render_typed(one, expressions) for key, one in value.items()}


def render_entries(value: Any, expressions: Expressions) -> Any:
    """Registrations: a port that is one expression keeps its type, all else is text."""
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
    """A value with its expressions rendered, where a text that is one expression takes the type of its value."""
    if isinstance(value, str):
        return expressions.typed(value) if has_markers(value) else value
    if isinstance(value, list):
        return [render_typed(one, expressions) for one in value]
    if isinstance(value, dict):
        return _render_mapping(value, expressions)
    return value
