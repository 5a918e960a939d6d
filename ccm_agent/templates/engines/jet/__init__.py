"""
Jet templates: `[[ data.name ]]`, `[[ range i, v := data.list ]]`, `[[ block b() ]]`.

`lexer.py` splits text into tokens, `parser.py` and `expressions.py` build the tree of `nodes.py`, and `run.py`
runs it. `evaluate.py` evaluates expressions on the values of `values.py`, with the arithmetic of `operators.py`
and the functions of `builtins.py`.

docs/reference/jet.md lists the supported parts of the language.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ccm_agent.model.errors import Place, TemplateError
from ccm_agent.templates.engines.jet.builtins import builtins
from ccm_agent.templates.engines.jet.nodes import Block, Template
from ccm_agent.templates.engines.jet.parser import parse
from ccm_agent.templates.engines.jet.run import JetRuntime
from ccm_agent.templates.engines.jet.values import PlainFunction, RootContext

LEFT, RIGHT = "[[", "]]"

_EXTENSIONS = ("", ".jet", ".html.jet", ".jet.html")
_IMPORTS_MAX = 100

_parse = lru_cache(maxsize=256)(parse)


class Jet:
    """The `jet` engine; see `engines.TemplateEngine`. One instance serves any number of concurrent renders."""

    left, right = LEFT, RIGHT

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
        Render a template; the arguments are those of `TemplateEngine.render`.

        Without a context, `.` is a structure with the members Facts, Data and Environ.
        """
        shelf = _Shelf(left or LEFT, right or RIGHT, load)
        template = shelf.linked(_parse(text, name, shelf.left, shelf.right))
        known = {**builtins(), **{key: PlainFunction(key, call) for key, call in (functions or {}).items()}}
        named = {**variables, **{key.title(): value for key, value in variables.items()}}
        here = (
            RootContext({key: value for key, value in named.items() if key[:1].isupper()})
            if context is None
            else context
        )
        return JetRuntime(template, named, known, here, shelf.find).render(template)


class _Shelf:
    """The templates of one render, with their `extends` and `import` relations."""

    def __init__(self, left: str, right: str, load: Callable[[str], str | None] | None) -> None:
        self.left = left
        self.right = right
        self._load = load
        self._imported = 0

    def find(self, path: str, asking: str) -> Template | None:
        """Return the template at a path relative to the including template; None if there is none."""
        full = posixpath.normpath(posixpath.join("/", posixpath.dirname(asking), path))
        for extension in _EXTENSIONS:
            text = self._load(full + extension) if self._load is not None else None
            if text is not None:
                return self.linked(_parse(text, full + extension, self.left, self.right))
        return None

    def linked(self, template: Template) -> Template:
        """
        Return a template with the blocks of the templates that it extends and imports; its own blocks take
        precedence.
        """
        names = ((template.extends,) if template.extends else ()) + template.imports
        if not names:
            return template
        blocks: dict[str, Block] = {}
        for name in names:
            self._imported += 1
            if self._imported > _IMPORTS_MAX:
                raise TemplateError(
                    "templates import one another in a circle", place=Place(source=template.name)
                )
            found = self.find(name, template.name)
            if found is None:
                raise TemplateError(f"template {name!r} does not exist", place=Place(source=template.name))
            blocks.update(found.blocks)
        return replace(template, blocks={**blocks, **template.blocks})
