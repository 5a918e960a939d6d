"""`ccm hiera`: resolve hierarchical data in the same way as a manifest."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

import click

from ccm_agent.app import App, find, json_text
from ccm_agent.cli import inputs, options
from ccm_agent.clikit.commands import examples
from ccm_agent.clikit.options import Options, takes
from ccm_agent.model import codec, merge
from ccm_agent.model.errors import UsageError


class HieraGroup(options.CcmGroup):
    """`resolve` is an alias of `parse`."""

    aliases = {"resolve": "parse"}


class FactsOptions(Options, frozen=True, kw_only=True):
    """The options that select facts: those of `_fact_flags`, and facts as K=V."""

    fact: tuple[str, ...]
    facts: str | None
    env_facts: bool
    query: str | None


class ParseOptions(FactsOptions, frozen=True, kw_only=True):
    """The options of `ccm hiera parse`."""

    input_url: str
    data: tuple[str, ...]
    data_file: str | None
    nats_context: str
    as_yaml: bool
    as_env: bool
    env_prefix: str


def _fact_flags(function: Any) -> Any:
    decorators = (
        click.option("--facts", metavar="FILE", help="JSON or YAML file of facts that override this host's."),
        click.option(
            "--system-facts",
            "-S",
            is_flag=True,
            expose_value=False,
            help="Include this host's facts. This is the default; the option exists for compatibility.",
        ),
        click.option("--env-facts", "-E", is_flag=True, help="Include the process environment as facts."),
        click.option(
            "--query", default=None, metavar="PATH", help="Print only what this GJSON path selects."
        ),
    )
    return options.add_options(function, decorators)


@click.group("hiera", cls=HieraGroup, epilog=examples("ccm hiera parse hiera.yaml role=web --query port"))
def command() -> None:
    """Resolve hierarchical data."""


@command.command(
    "parse",
    epilog=examples(
        "ccm hiera parse hiera.yaml role=web", "ccm hiera parse hiera.yaml role=web --query port"
    ),
)
@click.argument("input_url", metavar="INPUT", envvar="HIERA_INPUT")
@click.argument("fact", nargs=-1, metavar="[K=V]...")
@click.option(
    "--data",
    "-D",
    multiple=True,
    metavar="K=V",
    help="Override a resolved value with this text. May be repeated.",
)
@click.option(
    "--data-file", metavar="FILE", help="JSON or YAML file of values that override the resolved data."
)
@_fact_flags
@options.context_flag
@click.option("--yaml", "as_yaml", is_flag=True, help="Print YAML instead of JSON.")
@click.option("--env", "as_env", is_flag=True, help="Print environment variables instead of JSON.")
@click.option(
    "--env-prefix", default="HIERA", show_default=True, metavar="PREFIX", help="Prefix of the variable names."
)
@takes(ParseOptions)
def parse(given: ParseOptions) -> None:
    """
    Resolve a document for this host and print the data.

    INPUT is a file, file://, kv://BUCKET/KEY or http(s)://; facts may be given as K=V.
    """
    import asyncio

    data = asyncio.run(_resolve(given))
    if given.query:
        data = find(data, given.query).value()
    if given.as_yaml:
        text = codec.encode_yaml(data)
    elif given.as_env:
        text = env_text(data, given.env_prefix)
    else:
        text = json_text(data)
    sys.stdout.write(text.strip() + "\n")


@command.command("facts", epilog=examples("ccm hiera facts", "ccm hiera facts role=web"))
@click.argument("fact", nargs=-1, metavar="[K=V]...")
@_fact_flags
@takes(FactsOptions)
def facts_command(given: FactsOptions) -> None:
    """Print the facts for resolving a document."""
    facts = dict(_facts(App(os.environ), given))
    if not given.query:
        sys.stdout.write(json_text(facts) + "\n")
        return
    found = find(facts, given.query)
    value = found.value()
    sys.stdout.write(f"{value if isinstance(value, str) else found.raw}\n")


async def _resolve(given: ParseOptions) -> Mapping[str, Any]:
    overrides = inputs.read_mapping(given.data_file, "--data-file") if given.data_file else {}
    overrides = {**overrides, **inputs.pairs(given.data, "--data")}
    app = App(os.environ, context=given.nats_context)
    try:
        return await app.resolve_hiera(given.input_url, _facts(app, given), overrides)
    finally:
        await app.close()


def _facts(app: Any, given: FactsOptions) -> Mapping[str, Any]:
    """Return the merged facts of this host, the environment, a file and the command line. Later ones override earlier ones."""
    from_file = inputs.read_mapping(given.facts, "--facts") if given.facts else {}
    layer = merge.deep(dict(os.environ) if given.env_facts else {}, from_file)
    named = inputs.pairs(given.fact, "a fact")
    facts: Mapping[str, Any] = app.facts({**layer, **named})
    return facts


def env_text(data: object, prefix: str) -> str:
    """Format data as environment variables, one for each top-level key."""
    if not isinstance(data, Mapping):
        return f"{prefix}_VALUE={json_text(data, indent='')}"
    lines = []
    for key, value in sorted(data.items()):
        if "\n" in key or "=" in key:
            raise UsageError(f"the key {key!r} cannot be the name of an environment variable")
        if isinstance(value, float):
            text = f"{value:f}"
        elif isinstance(value, str):
            text = value
        else:
            text = json_text(value, indent="")
        lines.append(f"{prefix}_{_upper(key)}={text}")
    return "\n".join(lines)


def _upper(text: str) -> str:
    """Convert each character to uppercase separately, so that `ß` is unchanged, as in Go."""
    return "".join(char.upper() if len(char.upper()) == 1 else char for char in text)
