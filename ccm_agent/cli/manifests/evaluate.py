"""`ccm eval`: evaluate an expression in the same way as manifests, conditions and selectors."""

from __future__ import annotations

import os
import sys

import click

from ccm_agent.app import App, json_text
from ccm_agent.cli import inputs, options
from ccm_agent.clikit.commands import examples
from ccm_agent.clikit.options import Options, takes


class EvaluateOptions(Options, frozen=True, kw_only=True):
    """The options of `ccm evaluate`."""

    expression: str
    fact: tuple[str, ...]
    facts: str | None
    data: str | None
    as_json: bool
    template: bool
    read_env: bool | None
    nats_context: str


@click.command(
    "eval",
    cls=options.CcmCommand,
    epilog=examples(
        "ccm eval 'Facts.host.info.platform'", "ccm eval 'lookup(\"port\", 80) + 1' --data hiera.yaml --json"
    ),
)
@click.argument("expression", metavar="EXPRESSION")
@click.option(
    "--fact", multiple=True, metavar="K=V", help="Set a fact, overriding this host's. May be repeated."
)
@click.option("--facts", metavar="FILE", help="File of facts that override this host's.")
@click.option("--data", metavar="FILE", help="Hiera document that provides the expression's data.")
@click.option("--json", "as_json", is_flag=True, help="Print the value as JSON, which shows its type.")
@click.option(
    "--template",
    is_flag=True,
    help="Treat EXPRESSION as a template with embedded expressions, like a property.",
)
@options.env_flag
@options.context_flag
@takes(EvaluateOptions)
def command(given: EvaluateOptions) -> None:
    """
    Evaluate EXPRESSION with this host's facts, and print the result as in a template.

    Errors include the position in the expression.
    """
    import asyncio

    sys.stdout.write(asyncio.run(_evaluate(given)) + "\n")


async def _evaluate(given: EvaluateOptions) -> str:
    app = App(os.environ, context=given.nats_context)
    try:
        facts = app.facts(inputs.more_facts(given.fact, given.facts))
        data = await app.resolve_hiera(given.data, facts, {}) if given.data else {}
        environ = inputs.environment(given.read_env)
        value, text = await app.evaluate(given.expression, facts, data, environ, is_template=given.template)
        return json_text(value) if given.as_json else text
    finally:
        await app.close()
