"""Texts of plugins: Go templates with Sprig, and App Builder's functions."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ccm_agent.model.errors import ExpressionError, TemplateError, UsageError
from ccm_agent.templates.engines import engine

READ_LIMIT_BYTES = 16 << 20


class PluginRenderer:
    """
    Renders the texts of one call of a command.

    They are rendered in this process. The author of a plugin decides which programs it runs, so its templates need no sandbox.

    Args:
        arguments: The values of arguments, by name.
        flags: The values of flags, by name.
        environ: The variables for `env`.
        folder: The folder of the plugin file.
        helper: Returns the path of the file with shell functions.
    """

    def __init__(
        self,
        arguments: Mapping[str, Any],
        flags: Mapping[str, Any],
        *,
        environ: Mapping[str, str],
        folder: str,
        helper: Callable[[], str],
    ) -> None:
        self.values = {
            "Arguments": dict(arguments),
            "Flags": dict(flags),
            "Config": {},
            "Secrets": None,
            "Input": None,
        }
        self._environ = environ
        self._functions: dict[str, Callable[..., Any]] = {
            "AppDir": lambda: folder,
            "BashHelperPath": helper,
            "TaskDir": lambda: folder,
            "UserWorkingDir": lambda: str(Path.cwd()),
            "default": _default,
            "escape": _escape,
            "read_file": _read_file,
            "require": _require,
        }

    def render(self, text: str, name: str) -> str:
        """
        Render a text.

        Args:
            text: The template.
            name: A name for errors.

        Raises:
            TemplateError: The template does not parse or fails.
        """
        if "{{" not in text:
            return text
        return engine("go").render(
            text,
            {"environ": self._environ},
            name=name,
            context=dict(self.values),
            functions=self._functions,
        )


def is_valid(value: str, expression: str) -> bool:
    """
    Whether a value satisfies the `validate` expression of an argument or flag.

    Raises:
        UsageError: The expression cannot be evaluated.
    """
    from ccm_agent.hiera.rules import holds
    from ccm_agent.templates.allowance import Allowance

    try:
        return holds(expression, value, Allowance())
    except ExpressionError as err:
        raise UsageError(f"the validation `{expression}` cannot be evaluated: {err}") from err


def _default(value: Any, otherwise: Any) -> Any:
    return value if isinstance(value, str) and value else otherwise


def _escape(value: Any) -> str:
    if not isinstance(value, str):
        raise TemplateError("escape needs text")
    return shlex.quote(value)


def _require(value: Any, reason: Any) -> Any:
    if value is None or value == "":
        raise TemplateError(str(reason) or "value required")
    return value


def _read_file(path: Any) -> str:
    try:
        with Path(str(path)).open("rb") as file:
            data = file.read(READ_LIMIT_BYTES + 1)
    except OSError as err:
        raise TemplateError(f"read_file: {path}: {err.strerror}") from err
    if len(data) > READ_LIMIT_BYTES:
        raise TemplateError(f"read_file: {path}: it is larger than {READ_LIMIT_BYTES >> 20} MiB")
    return data.decode(errors="surrogateescape")
