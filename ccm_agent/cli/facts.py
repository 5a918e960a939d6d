"""`ccm facts`: show this host's facts."""

from __future__ import annotations

import os
import sys
from typing import Any

import click
import msgspec

from ccm_agent.app import App, find, json_text, similar_fact
from ccm_agent.cli import options
from ccm_agent.clikit.commands import examples
from ccm_agent.model import codec
from ccm_agent.model.errors import DataError


@click.command(
    "facts",
    cls=options.CcmCommand,
    epilog=examples("ccm facts", "ccm facts host.info.platform", "ccm facts memory --yaml"),
)
@click.argument("query", default="")
@click.option("--yaml", "as_yaml", is_flag=True, help="Print YAML instead of JSON.")
def command(query: str, as_yaml: bool) -> None:
    """Show this host's facts, or the part that a GJSON path selects."""
    facts: Any = App(os.environ).facts()
    text = json_text(dict(facts))
    if query:
        text = find(dict(facts), query).raw
        if not text:
            raise DataError(f"no fact `{query}`{similar_fact(facts, query)}")
        # keep the original text, because a path such as `{a,b,a}` can produce duplicate names
        text = msgspec.json.format(text, indent=2)
    sys.stdout.write((codec.encode_yaml(codec.decode_json(text)) if as_yaml else text) + "\n")
