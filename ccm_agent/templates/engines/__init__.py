"""
Engines for whole-file templates, behind one Protocol.

| engine | delimiters | description |
|---|---|---|
| `jet` | `[[ ]]` | CloudyKit's Jet, own implementation: docs/reference/jet.md |
| `go` | `{{ }}` | Go's text/template with Sprig, own implementation: docs/reference/go-templates.md |
| `jinja` | `{{ }}` | Jinja2 in its sandbox; undefined names are errors |

With every engine, a template can use mappings, lists, scalars and the given functions, but no other Python objects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ccm_agent.model.errors import TemplateError

NAMES = ("jet", "go", "jinja")


class TemplateEngine(Protocol):
    """
    Renders the text of a whole file.

    Attributes:
        left: The default opening delimiter.
        right: The default closing delimiter.
    """

    left: str
    right: str

    def render(
        self,
        text: str,
        variables: Mapping[str, Any],
        *,
        name: str,
        left: str = "",
        right: str = "",
        context: Any = None,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        load: Callable[[str], str | None] | None = None,
    ) -> str:
        """
        Render a template.

        It runs in the calling thread, within the limits of `bounds.py`. The template may change the given
        mappings if its language supports that (`[[ data.a = 1 ]]`, `{{ set .data "a" 1 }}`).

        Args:
            text: The template.
            variables: The top-level names: `facts`, `data`, `environ`.
            name: The name in errors: a file name.
            left: The opening delimiter; "" for the engine's default.
            right: The closing delimiter; "" for the engine's default.
            context: The value of `.`; None for the engine's default, which is built from the variables.
            functions: Additional functions; they replace an engine's function of the same name. They take and
                return plain values (see `templates/values.py`) and raise errors of `model/errors.py`.
            load: Returns the text of another template by its absolute path, or None if it does not exist;
                without `load` a template cannot include other templates.

        Raises:
            TemplateError: The template does not parse or fails, with `name` and the line.
        """
        ...


def engine(name: str) -> TemplateEngine:
    """
    Return the engine of this name.

    Raises:
        TemplateError: There is no such engine.
    """
    if name == "jet":
        from ccm_agent.templates.engines.jet import Jet

        return Jet()
    if name == "go":
        from ccm_agent.templates.engines.go import GoTemplate

        return GoTemplate()
    if name == "jinja":
        from ccm_agent.templates.engines.jinja import Jinja

        return Jinja()
    raise TemplateError(f"template engine {name!r} is not known: it is one of {', '.join(NAMES)}")
