"""`ccmctl init --security --migrate`: move from one account to several without losing a stream or a node."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from ccm_agent.clikit.table import Column
from ccm_agent.clikit.text import clock
from ccm_agent.model.errors import InputError, UsageError
from ccm_agent.model.formats.durations import format_duration
from ccm_ctl.commands.keys.credentials import first_credentials, first_operator
from ccm_ctl.commands.keys.keys_folder import keys_in
from ccm_ctl.render.record_types.administration import LeftLine, MadeLine

if TYPE_CHECKING:
    from pathlib import Path

    from ccm_ctl.app import Application
    from ccm_ctl.fleet.keys.keys import Keys
    from ccm_ctl.fleet.keys.moving import Left

_SHOWN = 20
"""The maximum number of names that are listed. The others are only counted."""


def begin_migration(application: Application, folder: str, seconds: int) -> bool:
    """
    Create the missing accounts, and print the next steps. Return False if no account is missing.

    Raises:
        UsageError: There are no keys.
        InputError: The keys cannot be written.
    """
    keys = keys_in(application, folder)
    if not keys.exist():
        raise UsageError(f"{keys.folder}: no keys to migrate; `ccmctl init --security` creates keys")
    if not keys.has_one_account:
        return False
    keys.begin_moving(seconds)
    if not keys.has_root:
        keys.make_root()
    name = first_operator(application)
    creds = keys.folder / f"{name}.creds"
    if creds.exists():
        _put_aside(creds)
    first_credentials(keys, name)
    # Operators with old credentials cannot sign, but nodes with new credentials require signatures.
    keys.signers.allow_unsigned(seconds)
    application.terminal.record(MadeLine, name=str(keys.folder), kind="accounts", action="created")
    _tell_begun(application, keys, creds, seconds)
    return True


def _put_aside(creds: Path) -> None:
    old = creds.with_suffix(".old.creds")
    try:
        old.unlink(missing_ok=True)
        creds.rename(old)
    except OSError as err:
        raise InputError(f"{creds}: cannot be renamed: {err.strerror}") from err


def _tell_begun(application: Application, keys: Keys, creds: Path, seconds: int) -> None:
    application.terminal.show(
        f"Accounts for nodes and operators, and a root key, were created in {keys.folder}. Streams keep their account.\n"
        f"Old credentials stay valid for {format_duration(seconds)} at most, so agents keep working.\n\n"
        f"1. Replace the file on each server with {keys.configuration}, and run\n"
        "       nats-server --signal reload\n"
        f"   Your own new credentials: {creds}\n"
        "2. Issue new credentials to each operator and node, and restart the agent of each node:\n"
        "       ccmctl operator add bob --apply role=web > bob.creds\n"
        "       ccmctl node add web1 > web1.creds\n"
        "3. Repeat this command, which lists the remaining users. When no users remain, it ends the migration:\n"
        "       ccmctl init --security --migrate\n"
    )


async def go_on_migrating(application: Application, folder: str, *, finish: bool) -> None:
    """List the users that have not migrated. If there are none, or with `finish`, revoke the old credentials."""
    from ccm_ctl.fleet.keys.moving import connected_users, who_is_left

    keys = keys_in(application, folder)
    moving = keys.moving
    if moving is None:
        application.terminal.note("all credentials use separate accounts; nothing to migrate")
        return
    connected = await connected_users(application.settings(), keys)
    left = who_is_left(keys.of_one_account(), keys.moved(), connected)
    _show_left(application, left)
    if left and not finish and time.time() < moving.until:
        until = clock(datetime.fromtimestamp(moving.until, UTC))
        application.terminal.note(f"their credentials are valid until {until}; --finish revokes them now")
        return
    keys.end_moving()
    keys.signers.allow_unsigned(0)
    application.terminal.record(MadeLine, name=str(keys.folder), kind="accounts", action="migrated")
    application.terminal.show(
        f"To void the old credentials, copy {keys.configuration} to each server,\n"
        "then run `nats-server --signal reload`\n"
    )


def _show_left(application: Application, left: list[Left]) -> None:
    for one in left:
        application.terminal.record(LeftLine, **msgspec.structs.asdict(one))
    rows = [[one.name, one.kind or "unknown", _state(one)] for one in left[:_SHOWN]]
    if len(left) > _SHOWN:
        rows.append([f"and {len(left) - _SHOWN} more", "", ""])
    columns = [Column("NOT MIGRATED", names=True), Column("KIND"), Column("STATE", fold=True)]
    application.terminal.table(columns, rows, otherwise="no user has old credentials\n")


def _state(one: Left) -> str:
    if one.has_new:
        return "has new credentials, but is connected with old ones"
    return "has no new credentials" + (", and is connected" if one.connected else "")
