"""The options that select a part of a manifest, for both programs."""

from __future__ import annotations

from typing import Any

import click

from ccm_agent.clikit.commands import Option
from ccm_agent.clikit.options import Options
from ccm_agent.model.selection import ResourceSelection, make_selection

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
"""The options with their settings."""


def selection_options() -> list[click.Option]:
    """Return the options as click objects."""
    return [Option([name], multiple=True, section="Resources", **more) for name, more in SELECTION.items()]


class SelectionOptions(Options, frozen=True, kw_only=True):
    """The options that select a part of a manifest."""

    only: tuple[str, ...]
    tags: tuple[str, ...]
    skip_tags: tuple[str, ...]

    def selection(self) -> ResourceSelection | None:
        """
        Return the selection that the options specify; None for the whole manifest.

        Raises:
            UsageError: A value is neither a reference nor a tag.
        """
        if not (self.only or self.tags or self.skip_tags):
            return None

        return make_selection(self.only, self.tags, self.skip_tags)
