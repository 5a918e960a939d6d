"""`ccm fmt`: format manifests."""

from __future__ import annotations

import sys

import click

from ccm_agent.cli import inputs, options
from ccm_agent.cli.terminal import PROGRAM
from ccm_agent.clikit.commands import examples
from ccm_agent.clikit.terminal import Terminal
from ccm_agent.model.codec import as_text, is_json
from ccm_agent.model.errors import CcmError
from ccm_agent.model.exits import Exit
from ccm_agent.model.formats.yaml_format import format_yaml

_STDIN = "-"


@click.command(
    "fmt",
    cls=options.CcmCommand,
    epilog=examples("ccm fmt site/*.yaml", "ccm fmt --check site/", "ccm fmt - < site.yaml"),
)
@click.argument("paths", nargs=-1, required=True, metavar="FILE|DIR...")
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if a file would change.")
@click.option("--diff", "show_diff", is_flag=True, help="Write nothing; show what would change.")
def command(paths: tuple[str, ...], check: bool, show_diff: bool) -> Exit:
    """
    Format manifests and hiera data: indentation, spacing and empty lines. Comments, quotes and values are not changed.

    For DIR, its manifest.yaml is formatted; - formats standard input to standard output. JSON files are not changed.

    Exit codes: 0 success; 1 a file could not be read or formatted or, with --check, a file would change.
    """
    terminal = Terminal(PROGRAM)
    is_well = True
    for path in paths:
        try:
            is_same = _format(terminal, path, write=not (check or show_diff), show_diff=show_diff)
        except CcmError as err:
            terminal.fail(err)
            is_well = False
        else:
            is_well = is_well and (is_same or not check)
    return Exit.OK if is_well else Exit.COULD_NOT_RUN


def _format(terminal: Terminal, path: str, *, write: bool, show_diff: bool) -> bool:
    """Format a file, or show the changes. Return whether the file was already formatted."""
    path = inputs.manifest_path(path)
    old = as_text(sys.stdin.buffer.read() if path == _STDIN else inputs.read_text(path, "FILE"), path)
    new = old if is_json(old) else format_yaml(old, path)
    if show_diff:
        terminal.show("".join(_diff(path, old, new)))
    elif path == _STDIN and write:
        terminal.raw(new)
    elif new != old:
        terminal.show(f"{path}{'' if write else ': would be formatted'}\n")
        if write:
            inputs.rewrite(path, new)
    return new == old


def _diff(path: str, old: str, new: str) -> list[str]:
    import difflib

    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), path, f"{path} (formatted)", lineterm="")
    return [f"{line}\n" for line in lines]
