"""`ccm init`: write a first manifest, with comments that explain how to use it."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ccm_agent.cli import options
from ccm_agent.cli.terminal import PROGRAM
from ccm_agent.clikit.commands import examples
from ccm_agent.clikit.terminal import Terminal
from ccm_agent.model.errors import UsageError
from ccm_agent.model.exits import Exit

MANIFEST = """\
# A first manifest. Check it, see what it would change, and apply it:
#
#   ccm lint {name}
#   ccm apply {name} --noop --diff
#   ccm apply {name}
#
# A second apply changes nothing.

# Values that the resources use. `ccm apply --data FILE` overrides them.
data:
  greeting: Hello

ccm:
  resources:
    # A file with this content. "{{{{ ... }}}}" is an expression: `ccm eval 'Facts.host.info.platform'` shows a value.
    - file:
        - {folder}/hello.txt:
            ensure: present
            content: "{{{{ lookup('data.greeting') }}}} from {{{{ Facts.host.info.hostname }}}}\\n"
            owner: "{owner}"
            group: "{group}"
            mode: "0644"

    # A command that runs only when the file changes.
    - exec:
        - announce:
            command: /bin/echo the file has changed
            refreshonly: true
            logoutput: true
            subscribe: [file#{folder}/hello.txt]

    # As root, also packages and services:
    #
    # - package:
    #     - nginx: {{ ensure: present }}
    # - service:
    #     - nginx: {{ ensure: running, enable: true }}
"""


@click.command("init", cls=options.CcmCommand, epilog=examples("ccm init", "ccm init site/manifest.yaml"))
@click.argument("path", metavar="[FILE]", default="site.yaml")
def command(path: str) -> Exit:
    """Write a first manifest with comments to FILE (default: site.yaml). An existing file is not changed."""
    target = Path(path)
    folder = target.absolute().parent
    text = MANIFEST.format(name=path, folder=folder, owner=os.getuid(), group=os.getgid())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as err:
        raise UsageError(f"{path}: already exists; name another file: `ccm init FILE`") from err
    except OSError as err:
        raise UsageError(f"{path}: cannot be written: {err.strerror}") from err
    Terminal(PROGRAM).show(f"{path}: written; preview the changes: ccm apply {path} --noop --diff\n")
    return Exit.OK
