"""
Choria CCM's CLI plugins, which `ccm` does not run: an unknown command that is one gets an error that says so.

A plugin is a definition of App Builder: commands, scripts and templates in a language of its own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

SYSTEM_PLUGINS = "/etc/choria/ccm/plugins"
"""Where Choria CCM looks first."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def find_plugin(name: str, environ: Mapping[str, str] = os.environ, system: str = SYSTEM_PLUGINS) -> str:
    """
    The plugin file of a command; "" if there is none. The file is not read.

    Args:
        name: The command as it was typed.
        environ: For the user's own folder.
        system: The system's folder.
    """
    if not _NAME.fullmatch(name):
        return ""
    config = environ.get("XDG_CONFIG_HOME") or f"{environ.get('HOME', '')}/.config"
    for folder in (system, f"{config}/choria/ccm/plugins"):
        file = Path(folder) / f"{name}-plugin.yaml"
        try:
            if file.is_file():
                return str(file)
        except OSError:
            continue
    return ""


def plugin_error(name: str, path: str) -> str:
    """What to do about a plugin, in one sentence."""
    return (
        f"`{name}` is a Choria CCM CLI plugin ({path}), which this program cannot run; install it for App Builder as "
        f"{name}-app.yaml and run it with `appbuilder`, or write its commands into a script"
    )
