"""Check a document's rules for each node before `ccmctl data put|edit|rollback` stores the document."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ccm_agent.clikit.text import fold_names, plural
from ccm_agent.model.codec import decode_document
from ccm_agent.model.errors import BusError, DataError

if TYPE_CHECKING:
    from ccm_ctl.app import Application
    from ccm_ctl.fleet.data.checking import Broken, DataCheck
    from ccm_ctl.fleet.ports import Fleet

SHOWN = 10
"""The maximum number of broken rules that are shown. A larger number usually has one cause."""


def force_option() -> click.Option:
    """Return the option `--force`, which stores a document despite broken rules."""
    return click.Option(
        ["--force"],
        is_flag=True,
        help="Store the document even if it breaks rules on some nodes. Runs on those nodes will fail.",
    )


async def check_before_storing(
    application: Application, fleet: Fleet, key: str, text: str, source: str, *, force: bool
) -> None:
    """
    Check that a document breaks no rules on any node. With `force`, broken rules are only reported.

    Raises:
        DataError: The document breaks rules, and `force` is not set.
    """
    from ccm_ctl.fleet.data.checking import check_data

    _tell_if_useless(application, key, text, source)
    try:
        checked = await check_data(fleet, key, text, source)
    except BusError as err:
        if not force:
            raise
        application.terminal.note(f"{key}: its rules were not checked on the nodes: {err}")
        return
    for name in checked.skipped:
        application.terminal.note(
            f"{key}: its rules were not checked for the assignment {name}, which reads other documents that cannot be read here"
        )
    if not checked.broken:
        return
    sentence = _sentence(key, checked)
    if not force:
        raise DataError(
            f"{sentence}\nnothing is stored; fix the data, or pass --force to store it, although those nodes will fail"
        )
    application.terminal.note(f"{sentence}\nstored anyway because of --force")


def _tell_if_useless(application: Application, key: str, text: str, source: str) -> None:
    """Warn about a document that has neither `data` nor `overrides`, because nodes read only these keys. `{}` is accepted."""
    root = decode_document(text, source)
    if isinstance(root, dict) and root and "data" not in root and "overrides" not in root:
        application.terminal.note(
            f"{key}: has neither `data` nor `overrides`, so no node reads a value from it; "
            f"keys such as `{next(iter(root))}` must be under `data:`"
        )


def _sentence(key: str, checked: DataCheck) -> str:
    lines = [_line(broken) for broken in checked.broken[:SHOWN]]
    if (rest := len(checked.broken) - SHOWN) > 0:
        lines.append(f"and {rest} more")
    nodes = {node for broken in checked.broken for node in broken.nodes}
    head = f"{key}: the data would be refused by {plural(len(nodes), 'node')} of {checked.nodes}"
    if not any(broken.assignment for broken in checked.broken):
        head += " (no assignment reads it, so it was checked alone)"
    return "".join([head, *(f"\n  {line}" for line in lines)])


def _line(broken: Broken) -> str:
    layers = f" ({', '.join(broken.layers)})" if broken.layers else ""
    reader = f", by the assignment {broken.assignment}" if broken.assignment else ""
    return f"{broken.sentence}; on {fold_names(broken.nodes)}{layers}{reader}"
