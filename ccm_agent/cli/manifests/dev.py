"""`ccm dev`: commands for authors of extensions."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ccm_agent.cli import options
from ccm_agent.cli.manifests.new_type import OWN_PACKAGE, render_files
from ccm_agent.clikit.commands import examples
from ccm_agent.model.errors import UsageError
from ccm_agent.resources.catalog import Catalog


@click.group("dev", cls=options.CcmGroup, epilog=examples("ccm dev new-type sysctl --provider procfs"))
def command() -> None:
    """Develop extensions."""


@command.command("new-type", epilog=examples("ccm dev new-type sysctl --provider procfs"))
@click.argument("name")
@click.argument("directory", default=".", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--package",
    metavar="PACKAGE",
    default=OWN_PACKAGE,
    show_default=True,
    help="Python package that will contain the type.",
)
@click.option(
    "--provider",
    metavar="NAME",
    default="posix",
    show_default=True,
    help="Name of the first provider.",
)
def new_type(name: str, directory: Path, package: str, provider: str) -> None:
    """
    Write the source files, the test and the documentation page of a new resource type.

    DIRECTORY is the source tree that contains PACKAGE. The new type works immediately. Existing files are not changed.
    """
    files = render_files(name, package, provider)
    if name in Catalog().names():
        raise UsageError(f"resource type `{name}` already exists; choose another name")
    written = {
        directory / path: text
        for path, text in files.items()
        if path.name != "__init__.py"
        or path.parent.name in (name, "providers")
        or not (directory / path).exists()
    }
    for path in written:
        if path.exists() or path.is_symlink():
            raise UsageError(f"{path} already exists; nothing was written")
    for path, text in written.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{path}\n")
    if package != OWN_PACKAGE:
        sys.stdout.write(
            "\nTo register the type, add this to pyproject.toml:\n\n"
            f'[project.entry-points."ccm.types"]\n{name} = "{package}.{name}:TYPE"\n'
        )
