"""`ccmctl init --security --migrate`: from one account for all to several, without losing a stream or a node on the way."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from ccm_agent.model.errors import InputError, UsageError
from ccm_ctl.commands.credentials import first_credentials, first_operator
from ccm_ctl.commands.keys_folder import keys_in
from ccm_ctl.render import records

if TYPE_CHECKING:
    from pathlib import Path

    from ccm_ctl.app import Application
    from ccm_ctl.fleet.keys import Keys
    from ccm_ctl.fleet.moving import Left

_SHOWN = 20
"""More names than this are counted, not listed."""


def begin_migration(application: Application, folder: str, seconds: int) -> bool:
    """
    Make the accounts that the keys lack, and say what is next; False when they have them already.

    Raises:
        UsageError: There are no keys.
        InputError: They cannot be written.
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
    # Operators and controllers of before cannot sign what nodes with new credentials would demand.
    keys.signers.allow_unsigned(seconds)
    application.terminal.record(records.MADE, name=str(keys.folder), kind="accounts", action="created")
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
    from ccm_agent.model.durations import format_duration

    application.terminal.show(
        f"Accounts for nodes and operators are made, in {keys.folder}, and a root key. Streams stay where they are. Credentials\n"
        f"of before stay good for {format_duration(seconds)} at most, so agents go on.\n\n"
        f"1. Copy {keys.configuration} to each server, over the one that it has, and\n"
        "       nats-server --signal reload\n"
        f"   Your own credentials are new already: {creds}\n"
        "2. Give each operator and each node new credentials, as for a new one, and restart its agent:\n"
        "       ccmctl operator add bob --apply role=web > bob.creds\n"
        "       ccmctl node add web1 > web1.creds\n"
        "3. Ask who is left, as often as you like; when nobody is, this ends it:\n"
        "       ccmctl init --security --migrate\n"
    )


async def go_on_migrating(application: Application, folder: str, *, finish: bool) -> None:
    """Say who has not moved yet; when nobody is left, or `finish` says so, make credentials of before void."""
    from ccm_ctl.fleet.moving import connected_users, who_is_left

    keys = keys_in(application, folder)
    moving = keys.moving
    if moving is None:
        application.terminal.note("all credentials are of several accounts; there is nothing to migrate")
        return
    connected = await connected_users(application.settings(), keys)
    left = who_is_left(keys.of_one_account(), keys.moved(), connected)
    _show_left(application, left)
    if left and not finish and time.time() < moving.until:
        until = time.strftime("%Y-%m-%d %H:%M", time.localtime(moving.until))
        application.terminal.note(
            f"they have until {until}; --finish makes their credentials void before that"
        )
        return
    keys.end_moving()
    keys.signers.allow_unsigned(0)
    application.terminal.record(records.MADE, name=str(keys.folder), kind="accounts", action="migrated")
    application.terminal.show(
        f"Credentials of one account are void as soon as the servers have {keys.configuration};\n"
        "copy it to each and `nats-server --signal reload`\n"
    )


def _show_left(application: Application, left: list[Left]) -> None:
    from ccm_ctl.render.table import Column

    for one in left:
        application.terminal.record(records.LEFT, **msgspec.structs.asdict(one))
    rows = [[one.name, one.kind or "unknown", _state(one)] for one in left[:_SHOWN]]
    if len(left) > _SHOWN:
        rows.append([f"and {len(left) - _SHOWN} more", "", ""])
    columns = [Column("NOT MOVED"), Column("KIND"), Column("STATE", fold=True)]
    application.terminal.table(columns, rows, otherwise="nobody uses credentials of one account any more\n")


def _state(one: Left) -> str:
    if one.has_new:
        return "has new credentials, and is connected with the old ones"
    return "has no new credentials" + (", and is connected" if one.connected else "")
