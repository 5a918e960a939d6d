"""`ccm schema`: the JSON Schema of manifests or of one type, for editors and for other programs."""

from __future__ import annotations

import sys

import click

from ccm_agent.cli import options
from ccm_agent.clikit.commands import examples
from ccm_agent.model.codec import encode_json


@click.command("schema", cls=options.CcmCommand, epilog=examples("ccm schema > ccm.json", "ccm schema file"))
@click.argument("type_name", metavar="[TYPE]", default="")
def command(type_name: str) -> None:
    """Print the JSON Schema of a manifest, or of a resource of TYPE. Installed extension types are included."""
    from ccm_agent.resources.catalog import Catalog
    from ccm_agent.resources.schema import manifest_schema, type_schema

    catalog = Catalog()
    schema = type_schema(catalog.find(type_name)) if type_name else manifest_schema(catalog.all())
    sys.stdout.write(encode_json(schema, indent=2).decode() + "\n")
