"""
Engines for whole-file templates, behind one Protocol.

| engine | delimiters | what it is |
|---|---|---|
| `jet` | `[[ ]]` | CloudyKit's Jet, of our own: docs/reference/jet.md |
| `go` | `{{ }}` | Go's text/template with Sprig, of our own: docs/reference/go-templates.md |
| `jinja` | `{{ }}` | Jinja2 in its sandbox; undefined names are errors |

Whatever the engine, a template sees mappings, lists, scalars and the functions that are given to it, and nothing of Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ccm_agent.model.errors import TemplateError

NAMES = ("jet", "go", "jinja")


class TemplateEngine(Protocol):
    """
    What renders the text of a whole file.

    Attributes:
        left: What opens an action unless something else is asked for.
        right: What closes one.
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

        It runs to its end in the calling thread; what it may do is bounded (see `bounds.py`). Mappings that it is given may be
        changed by the template where its language can do that (`[[ data.a = 1 ]]`, `{{ set .data "a" 1 }}`).

        Args:
            text: The template.
            variables: What it may name at its top: `facts`, `data`, `environ`.
            name: What it is called in errors: a file name.
            left: What opens an action; "" for the engine's own.
            right: What closes one; "" for the engine's own.
            context: What `.` is; None for what the engine makes of the variables.
            functions: Functions beside those of the engine, which they replace. They take and give plain values (see
                `templates/values.py`) and raise errors of `model/errors.py`.
            load: Gives the text of another template by its absolute path, None where there is none; without it there is
                no other template.

        Raises:
            TemplateError: The template does not parse or fails, with `name` and the line.
        """
        ...


def engine(name: str) -> TemplateEngine:
    """
    The engine of this name.

    Raises:
        TemplateError: There is none.
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
