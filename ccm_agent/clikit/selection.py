"""The options that select a part of a manifest, alike in both programs."""

from __future__ import annotations

from typing import Any

import click

from ccm_agent.clikit.commands import Option

SELECTION: dict[str, dict[str, Any]] = {
    "--only": {
        "metavar": "TYPE#NAME",
        "help": "Apply only this resource, by name or alias. May be repeated. The others are skipped.",
    },
    "--tags": {
        "metavar": "TAG[,TAG…]",
        "help": "Apply only resources with one of these tags. With --only, resources that match either are applied.",
    },
    "--skip-tags": {
        "metavar": "TAG[,TAG…]",
        "help": "Skip resources with one of these tags.",
    },
}
"""The options, each with its settings. `model.selection.make_selection` reads their values."""


def selection_options() -> list[click.Option]:
    """The options as objects."""
    return [Option([name], multiple=True, section="Resources", **more) for name, more in SELECTION.items()]
