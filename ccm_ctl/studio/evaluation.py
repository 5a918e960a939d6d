"""
Preview a manifest on one node: evaluate its expressions with the node's facts and data, and render its files.

See `template_environment.py` for the data that expressions and templates can access.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from ccm_agent.hiera.resolve import resolve_values
from ccm_agent.manifest.expressions import holds_templates
from ccm_agent.model import codec, merge
from ccm_agent.model.errors import CcmError
from ccm_agent.model.formats.json_text import encode_message, json_safe
from ccm_agent.model.ports import RenderWorker
from ccm_agent.templates.resolve import evaluate_condition, render_value
from ccm_ctl.studio.previews import PreviewedFile, preview_files
from ccm_ctl.studio.template_environment import TemplateEnvironment
from ccm_ctl.studio.template_files import TemplateFiles

RENDERED = 300
"""The maximum number of displayed texts of one manifest."""
TEXT_CHARACTERS = 8000
"""The maximum number of displayed characters of one value."""
CONDITIONS = ("if", "unless")


class RenderedValue(Struct, frozen=True, kw_only=True):
    """A text of the manifest with its expressions evaluated: its path, and the result or an error."""

    path: list[str | int] = []
    value: str = ""
    error: str = ""


class Evaluation(Struct, frozen=True, kw_only=True):
    """
    A manifest evaluated for a node.

    Attributes:
        result: The value of the requested expression. None: no expression was requested.
        rendered: The texts with expressions, in order.
        left_out: The number of further texts with expressions.
        files: The files that the node would have, in order.
        files_left_out: The number of further files.
        error: The reason why the data or the manifest cannot be read. In this case, nothing is rendered.
    """

    result: RenderedValue | None = None
    rendered: list[RenderedValue] = []
    left_out: int = 0
    files: list[PreviewedFile] = []
    files_left_out: int = 0
    error: str = ""


def evaluate(
    facts: Mapping[str, Any],
    text: str,
    expression: str,
    *,
    data: Mapping[str, Any] | None = None,
    files: TemplateFiles | None = None,
    worker: RenderWorker | None = None,
) -> Evaluation:
    """
    Evaluate an expression, and all expressions and templates of a manifest. Blocking.

    Args:
        facts: The node's facts.
        text: The manifest. "": no manifest.
        expression: The expression, with or without `{{ }}`. "": no expression.
        data: The data of documents, which override the manifest's data. Secrets in them must already be masked. Results are not
            masked afterwards, because the masking would reveal whether a guess is correct.
        files: The files next to the manifest. None: there are none.
        worker: Renders templates. None: templates are not rendered.
    """
    try:
        root = codec.decode_document(text, "manifest") if text.strip() else {}
        if not isinstance(root, dict):
            return Evaluation(error="the manifest must be a mapping")
        has_data = any(key in root for key in ("data", "hierarchy", "overrides"))
        own = resolve_values(root, facts, "manifest").data if has_data else {}
    except CcmError as err:
        return Evaluation(error=err.message)
    beside = files or TemplateFiles()
    environment = TemplateEnvironment(facts, merge.deep(own, data or {}), beside, worker)
    values = _Values(environment)
    found = [
        (path, one)
        for path, one in _texts(root.get("ccm"), ["ccm"])
        if holds_templates(one) or _is_condition(path)
    ]
    result = values.expression(expression) if expression.strip() else None
    previewed, files_left_out = preview_files(root, environment, beside)
    shown = {(*one.path, "content") for one in previewed if one.origin == "content"}
    others = [(path, one) for path, one in found if tuple(path) not in shown]
    return Evaluation(
        result=result,
        rendered=[values.text(path, one) for path, one in others[:RENDERED]],
        left_out=max(0, len(others) - RENDERED),
        files=previewed,
        files_left_out=files_left_out,
    )


class _Values:
    """Evaluates expressions, with one limit for all of them together."""

    def __init__(self, environment: TemplateEnvironment) -> None:
        self._environment = environment

    def expression(self, text: str) -> RenderedValue:
        """Return the value of an expression, as JSON."""
        is_text = "{{" in text or "${" in text
        return self._try(
            [], lambda: _json(render_value(text if is_text else f"{{{{ {text} }}}}", self._environment))
        )

    def text(self, path: list[str | int], text: str) -> RenderedValue:
        """Return a text of the manifest in the form that the node gets."""
        if _is_condition(path):
            return self._try(path, lambda: _json(evaluate_condition(text, self._environment)))

        def shown() -> str:
            value = render_value(text, self._environment)
            return value if isinstance(value, str) else _json(value)

        return self._try(path, shown)

    def _try(self, path: list[str | int], make: Any) -> RenderedValue:
        try:
            value = json_safe(make())
        except CcmError as err:
            return RenderedValue(path=path, error=json_safe(str(err)[:TEXT_CHARACTERS]))
        is_cut = len(value) > TEXT_CHARACTERS
        return RenderedValue(path=path, value=f"{value[:TEXT_CHARACTERS]} …" if is_cut else value)


def _is_condition(path: list[str | int]) -> bool:
    return len(path) > 2 and path[-2] == "control" and path[-1] in CONDITIONS


def _texts(value: object, path: list[str | int]) -> Iterator[tuple[list[str | int], str]]:
    """Yield each text within a value with its path, including keys."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            name = str(key)
            if "{{" in name or "${" in name:
                yield [*path, name], name
            yield from _texts(one, [*path, name])
    elif isinstance(value, list):
        for place, one in enumerate(value):
            yield from _texts(one, [*path, place])


def _json(value: object) -> str:
    try:
        return encode_message(value).decode(errors="replace")
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return str(value)
