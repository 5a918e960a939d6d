"""
Go templates: `{{ .data.name }}`, `{{ range $i, $v := .data.list }}`, with Sprig's functions.

`lexer.py` splits text into tokens, `parser.py` builds the tree of `nodes.py`, and `evaluate.py` runs it.
`signature.py` converts values to the functions' parameter types. `builtins.py` contains the functions of the
language, `printf.py` and `formatfloat.py` its printing, `methods.py` the methods of times and versions, and
`sprig/` Sprig's functions.

docs/reference/go-templates.md lists the supported features. docs/adr/0030-go-templates.md explains why this is
our own implementation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from ccm_agent.templates.engines.go.builtins import BUILTINS
from ccm_agent.templates.engines.go.evaluate import GoRuntime
from ccm_agent.templates.engines.go.nodes import Template
from ccm_agent.templates.engines.go.parser import parse
from ccm_agent.templates.engines.go.signature import ExternalFunction
from ccm_agent.templates.engines.go.sprig import functions as sprig_functions

LEFT, RIGHT = "{{", "}}"

_ENVIRONMENT_NAME = re.compile(r"\$(?:\{([^}]{0,255})\}|([A-Za-z_][A-Za-z0-9_]*|[*#$@!?0-9-]))")


@lru_cache(maxsize=256)
def _parse(text: str, name: str, left: str, right: str, extra: frozenset[str]) -> Template:
    return parse(text, name, left, right, {*BUILTINS, *sprig_functions(), "env", "expandenv", *extra})


class GoTemplate:
    """The `go` engine; see `engines.TemplateEngine`. One instance serves any number of concurrent renders."""

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

        Without a context, `.` is a map of the variables. A template can include only templates that it defines
        itself, so `load` is not used.
        """
        given = functions or {}
        template = _parse(text, name, left or LEFT, right or RIGHT, frozenset(given))
        known: dict[str, Callable[..., Any]] = {
            **sprig_functions(),
            **BUILTINS,
            **_environment(variables.get("environ") or {}),
            **{key: ExternalFunction(key, call) for key, call in given.items()},
        }
        return GoRuntime(template, known).render(dict(variables) if context is None else context)


def _environment(environ: Mapping[str, str]) -> dict[str, Callable[..., Any]]:
    """
    Return the functions `env` and `expandenv`.

    They read the environment variables that the template is given, not those of the process, which may
    contain secrets.
    """

    def env(name: str) -> str:
        return environ.get(name, "")

    def expandenv(text: str) -> str:
        return _ENVIRONMENT_NAME.sub(lambda match: environ.get(match[1] or match[2] or "", ""), text)

    return {"env": env, "expandenv": expandenv}
