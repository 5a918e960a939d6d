"""`ccm schema`: print the JSON Schema of manifests or of one type, for editors and other programs."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ccm_agent.cli import options
from ccm_agent.cli.terminal import PROGRAM
from ccm_agent.clikit.commands import examples
from ccm_agent.clikit.terminal import Terminal
from ccm_agent.model.codec import decode_json, encode_json
from ccm_agent.model.errors import CcmError, UsageError
from ccm_agent.model.exits import Exit
from ccm_agent.resources.catalog import Catalog
from ccm_agent.resources.schema import manifest_schema, type_schema

FOLDER = ".vscode"
SCHEMA = "ccm-manifest.schema.json"
SETTINGS = "settings.json"
FILES = ["manifest.yaml", "*.ccm.yaml"]
"""File names that an editor recognizes as manifests."""


@click.command(
    "schema",
    cls=options.CcmCommand,
    epilog=examples("ccm schema > ccm.json", "ccm schema file", "ccm schema --vscode"),
)
@click.argument("type_name", metavar="[TYPE]", default="")
@click.option(
    "--vscode",
    is_flag=True,
    help=f"Write the schema to {FOLDER} in the working directory, and set up Visual Studio Code to use it for manifests.",
)
def command(type_name: str, vscode: bool) -> Exit:
    """Print the JSON Schema of a manifest, or of a resource of TYPE. Installed extension types are included."""
    catalog = Catalog()
    if type_name and vscode:
        raise UsageError("--vscode writes the schema of manifests; omit TYPE")
    schema = type_schema(catalog.find(type_name)) if type_name else manifest_schema(catalog.all())
    text = encode_json(schema, indent=2).decode() + "\n"
    if vscode:
        _associate(text)
    else:
        sys.stdout.write(text)
    return Exit.OK


def _associate(schema: str) -> None:
    """Write the schema. Also write the editor's settings if there are none; otherwise show the necessary addition."""
    terminal = Terminal(PROGRAM)
    folder, settings = Path(FOLDER), Path(FOLDER, SETTINGS)
    wanted = {f"./{FOLDER}/{SCHEMA}": FILES}
    shown = encode_json({"yaml.schemas": wanted}, indent=2).decode() + "\n"
    try:
        folder.mkdir(exist_ok=True)
        (folder / SCHEMA).write_text(schema, encoding="utf-8")
        terminal.show(f"{folder / SCHEMA}: written\n")
        if not settings.exists():
            settings.write_text(shown, encoding="utf-8")
            terminal.show(f"{settings}: written\n")
        elif not _has(settings, wanted):
            terminal.show(f"{settings}: already exists; add this to it:\n{shown}")
    except OSError as err:
        raise UsageError(f"{err.filename or folder}: cannot be written: {err.strerror}") from err


def _has(settings: Path, wanted: dict[str, list[str]]) -> bool:
    try:
        known = decode_json(settings.read_text(encoding="utf-8"), str(settings))
    except (CcmError, UnicodeDecodeError):
        return False  # settings may contain comments, which JSON does not allow
    schemas = known.get("yaml.schemas") if isinstance(known, dict) else None
    return isinstance(schemas, dict) and wanted.items() <= schemas.items()
