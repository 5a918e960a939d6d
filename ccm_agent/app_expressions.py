"""
Build the environment of a manifest's expressions and templates. The language is imported on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ccm_agent.manifest.expressions import Expressions
    from ccm_agent.templates.broker_functions import BrokerFunctions
    from ccm_agent.templates.env import Environment
    from ccm_agent.templates.lookup import SecretSource
    from ccm_agent.templates.rendering import Renderer


def make_expressions(
    facts: Mapping[str, Any],
    data: Mapping[str, Any],
    environ: Mapping[str, str],
    directory: str,
    asking: Callable[[], BrokerFunctions | None] = lambda: None,
    renderer: Callable[[], Renderer | None] = lambda: None,
) -> Expressions:
    """Return the expressions of one manifest. The language and the broker functions are imported on first use."""
    return _Expressions(lambda: make_environment(facts, data, environ, directory, asking(), renderer()))


def make_environment(
    facts: Mapping[str, Any],
    data: Mapping[str, Any],
    environ: Mapping[str, str],
    directory: str,
    asking: BrokerFunctions | None = None,
    renderer: Renderer | None = None,
) -> Environment:
    """
    Return the environment of one manifest's expressions and templates.

    Without `asking`, expressions cannot query a broker. Without `renderer`, this process renders templates, without limits.
    """
    from ccm_agent.templates.env import Environment

    return Environment(
        facts=facts if isinstance(facts, dict) else dict(facts),
        data=data if isinstance(data, dict) else dict(data),
        environ=environ,
        working_dir=directory,
        registrations=asking.registrations if asking is not None else None,
        kv_get=asking.kv_get if asking is not None else None,
        renderer=renderer,
    )


class _Expressions:
    def __init__(self, make: Callable[[], Environment]) -> None:
        self._make = make
        self._made: Environment | None = None
        self.secrets: SecretSource | None = None

    @property
    def environment(self) -> Environment:
        if self._made is None:
            self._made = self._make()
            self._made.secrets = self.secrets
        return self._made

    def text(self, template: str) -> str:
        from ccm_agent.templates.resolve import render_text

        text = render_text(template, self.environment)
        self.environment.require_opened(text)
        return text

    def typed(self, template: str) -> Any:
        from ccm_agent.templates.resolve import render_value

        value = render_value(template, self.environment)
        self.environment.require_opened(value)
        return value

    def holds(self, expression: str) -> bool:
        from ccm_agent.templates.resolve import evaluate_condition

        return evaluate_condition(expression, self.environment)

    def jet_file(self, name: str) -> str:
        body = self.environment.read_file(f"./{name}")
        text: str = self.environment.render("jet", body, name=name)
        return text
