"""`ccm session`: manage the stores that let several `ccm ensure` commands depend on each other."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from shlex import quote

import click

from ccm_agent.app import new_session, session_summary
from ccm_agent.cli import options, output
from ccm_agent.cli.ensure.ensure_shared import session_exit
from ccm_agent.clikit.commands import examples
from ccm_agent.model.errors import FileError, UsageError
from ccm_agent.model.outcome import SessionSummary


class SessionGroup(options.CcmGroup):
    """The group of commands. `new` has the same aliases as in Choria CCM."""

    aliases = {"start": "new", "create": "new"}


@click.group(
    "session",
    cls=SessionGroup,
    epilog=examples(
        'eval "$(ccm session new)"',
        "ccm ensure file /etc/app.conf --content hello --owner root --group root",
        "ccm ensure service app --subscribe file#/etc/app.conf",
        "ccm session report --remove",
    ),
)
def command() -> None:
    """Let several `ccm ensure` commands depend on each other."""


@command.command("new", epilog=examples('eval "$(ccm session new)"'))
@click.option(
    "--directory",
    default="",
    metavar="DIR",
    help="Directory of the store. [a new temporary directory]",
)
def new(directory: str) -> None:
    """Create a session store and print the shell command that selects it. Use it as `eval "$(ccm session new)"`."""
    sys.stdout.write(f"export CCM_SESSION_STORE={quote(new_session(directory))}\n")


@command.command("report", epilog=examples("ccm session report"))
@click.option(
    "--session",
    envvar="CCM_SESSION_STORE",
    default="",
    metavar="DIR",
    help="Session store. [CCM_SESSION_STORE]",
)
@click.option(
    "--remove", is_flag=True, help="Remove the store afterward if it is in the temporary directory."
)
def report(session: str, remove: bool) -> int:
    """Summarize a session. Exits with 2 if a resource failed."""
    import asyncio

    if not session:
        raise UsageError("no session is selected; use --session DIR or set CCM_SESSION_STORE")
    summary = asyncio.run(_summary(session))
    sys.stdout.write("\n" + output.report_text(summary))
    if remove:
        _remove(session)
    return session_exit(summary)


async def _summary(session: str) -> SessionSummary:
    return await session_summary(session)


def _remove(session: str) -> None:
    """Remove a store. Only directories below the temporary directory are removed."""
    top = os.path.realpath(tempfile.gettempdir())
    path = os.path.realpath(session)
    if os.path.commonpath([top, path]) != top or path == top or not os.path.isdir(path):  # noqa: PTH112
        return
    try:
        shutil.rmtree(path)
    except OSError as err:
        raise FileError(f"the session store {session} cannot be removed: {err.strerror}") from err
