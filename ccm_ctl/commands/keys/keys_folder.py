"""The folder with the fleet's keys. Several commands need it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ccm_ctl.app import Application
    from ccm_ctl.fleet.keys.keys import Keys


def keys_option() -> click.Option:
    """Return the option `--keys`: the folder with the fleet's keys."""
    text = "Folder with the fleet's keys. [CCM_KEYS, or ~/.config/ccm/keys]"
    return click.Option(["--keys"], metavar="DIR", default="", help=text)


def keys_in(application: Application, folder: str) -> Keys:
    """Return the fleet's keys in a folder."""
    from ccm_ctl.fleet.keys.keys import Keys, keys_folder

    return Keys(keys_folder(folder, application.environ))
