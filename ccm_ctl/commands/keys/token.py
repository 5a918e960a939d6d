"""`ccmctl token`: manage the tokens that let nodes join the fleet."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from ccm_agent.bus.signatures.join import TOKEN_ID, JoinToken, new_token_id
from ccm_agent.clikit.durations import Duration
from ccm_agent.clikit.table import Column
from ccm_agent.clikit.text import clock
from ccm_agent.model.errors import InputError, UsageError
from ccm_agent.model.exits import Exit
from ccm_agent.model.formats.durations import format_duration
from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import group, verb
from ccm_ctl.commands.keys.keys_folder import keys_in, keys_option
from ccm_ctl.fleet.keys.join_keys import JoinKeys
from ccm_ctl.fleet.keys.join_records import JoinRecords, KnownToken, TokenRecord
from ccm_ctl.fleet.keys.keys import Keys
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.render.record_types.access import TokenLine
from ccm_ctl.render.record_types.administration import MadeLine

AGENT_UNIT = "ccm-agent"
USES_LIMIT = 5_000
DEFAULT_EXPIRY = "1h"
EPHEMERAL_S = 300, 30 * 86_400
"""The limits of `--ephemeral` in seconds. A shorter time could pass while nodes reconnect to a restarted broker."""

_PATTERN = re.compile(r"[a-z0-9._*?-]{1,100}")
_ROLE = re.compile(r"[^\s\x00-\x1f\x7f]{1,100}")


@group(
    "token",
    no_args_is_help=True,
    examples=[
        "ccmctl token create --role web --expires 1h --uses 20",
        "ccmctl token list",
        "ccmctl token revoke join-abcdefgh23456789",
    ],
)
def token(application: Application) -> None:
    """Create, list and revoke tokens that nodes use to join the fleet."""


@verb(
    "create",
    examples=[
        "ccmctl token create --role web --expires 1h --uses 20",
        "ccmctl token create --name 'db*' --network 10.0.0.0/8 --approve",
    ],
    options=[
        click.Option(["--role"], metavar="ROLE", default="", help="Assign the fact role=ROLE to each node."),
        click.Option(
            ["--expires"],
            type=Duration(),
            default=DEFAULT_EXPIRY,
            show_default=True,
            help="How long nodes can join with it.",
        ),
        click.Option(
            ["--uses"],
            type=click.IntRange(1, USES_LIMIT),
            default=1,
            show_default=True,
            metavar="N",
            help="How many nodes can join with it.",
        ),
        click.Option(
            ["--name", "pattern"],
            metavar="PATTERN",
            default="*",
            help="Only nodes whose names match, such as 'web*'. [all names]",
        ),
        click.Option(
            ["--network"],
            multiple=True,
            metavar="CIDR",
            help="Only nodes that connect from this network; repeatable. [all networks]",
        ),
        click.Option(
            ["--approve"], is_flag=True, help="Each node waits until an operator runs `ccmctl node accept`."
        ),
        click.Option(
            ["--ephemeral"],
            type=Duration(),
            help="Remove nodes that have been away for this long. [never]",
        ),
        keys_option(),
    ],
)
def _create(
    application: Application,
    role: str,
    expires: int,
    uses: int,
    pattern: str,
    network: tuple[str, ...],
    approve: bool,
    ephemeral: int | None,
    keys: str,
) -> Exit:
    """
    Create a join token, and print the command that a node runs. The token is secret until it expires.

    `ccmctl join serve` must run while nodes join.
    """
    if not _PATTERN.fullmatch(pattern):
        raise UsageError(f"{pattern!r}: not a valid pattern of names; use lowercase letters, digits, * and ?")
    if role and not _ROLE.fullmatch(role):
        raise UsageError(f"{role!r}: not a valid role; use one word")
    if ephemeral is not None and not EPHEMERAL_S[0] <= ephemeral <= EPHEMERAL_S[1]:
        raise UsageError("--ephemeral: use a duration from 5m to 30d")
    networks = tuple(_checked_network(one) for one in network)
    folder = keys_in(application, keys)

    async def work(fleet: Fleet) -> Exit:
        name, ends = new_token_id(), int(time.time()) + expires
        made, key = await asyncio.to_thread(_make, application, folder, fleet, name, ends, networks)
        record = TokenRecord(
            key=key,
            expires=ends,
            uses=uses,
            role=role,
            name=pattern,
            networks=networks,
            approve=approve,
            ephemeral_s=ephemeral or 0,
        )
        await JoinRecords(fleet).add_token(name, record)
        _show_created(application, name, made, record.expires)
        return Exit.OK

    return application.run(work)


def _make(
    application: Application,
    folder: Keys,
    fleet: Fleet,
    name: str,
    expires: int,
    networks: tuple[str, ...],
) -> tuple[JoinToken, str]:
    """Create a token, and return it with its public key. Blocking."""
    if fleet.trust is None:
        raise InputError(
            "these credentials contain no root key, so a node could not verify its fleet; use credentials of "
            "`ccmctl operator add`"
        )
    joining = JoinKeys(folder)
    joining.prepare()
    made = joining.token(name, expires, networks)
    settings = application.settings()
    authority = Path(settings.ca) if settings.ca else folder.folder / "ca.pem"
    try:
        ca = authority.read_text(encoding="ascii") if settings.ca or authority.exists() else ""
    except (OSError, UnicodeDecodeError) as err:
        raise InputError(f"{authority}: cannot be read: {err}") from err
    root = fleet.trust.root
    token = JoinToken(servers=settings.servers, ca=ca, root=root, jwt=made.jwt, seed=made.seed)
    return token, made.public_key


def _show_created(application: Application, name: str, made: JoinToken, expires: int) -> None:
    line = f"ccm join {made.as_text()}"
    terminal = application.terminal
    terminal.record(TokenLine, token=name, state="valid", command=line, expires=_time(expires), used=0)
    terminal.show(
        f"# On each node, as root:\n{line}\n\n"
        f"# Or as cloud-init user data:\n#cloud-config\nruncmd:\n  - {line}\n"
        f"  - systemctl enable --now {AGENT_UNIT}\n"
    )
    terminal.note(f"{name}: valid until {clock(_time(expires))}")
    if any(_is_loopback(server) for server in made.servers):
        terminal.note(
            "the token has a broker address that only this host can reach; specify the broker's address with --server"
        )


@verb("list", examples=["ccmctl token list", "ccmctl token list --json"], options=[])
def _list(application: Application) -> Exit:
    """List join tokens with their limits and uses."""

    async def work(fleet: Fleet) -> Exit:
        now, rows = int(fleet.clock.now().timestamp()), list[list[Any]]()
        for one in await JoinRecords(fleet).tokens():
            record, state = one.record, _state(one, now)
            application.terminal.record(
                TokenLine,
                token=one.id,
                state=state,
                used=one.used,
                uses=record.uses,
                role=record.role or None,
                names=record.name,
                networks=list(record.networks) or None,
                approve=record.approve or None,
                ephemeral_s=record.ephemeral_s or None,
                expires=_time(record.expires) if record.expires else None,
                author=one.author,
            )
            ends = clock(_time(record.expires)) if record.expires else ""
            words = ["approve"] if record.approve else []
            if record.ephemeral_s:
                words.append(f"ephemeral {format_duration(record.ephemeral_s)}")
            limits = ", ".join([record.name, *record.networks, *words])
            rows.append([one.id, state, f"{one.used}/{record.uses}", record.role, limits, ends, one.author])
        columns = [
            Column("TOKEN"),
            Column("STATE", fold=True),
            Column("USED", right=True),
            Column("ROLE"),
            Column("NODES", fold=True),
            Column("EXPIRES"),
            Column("BY"),
        ]
        application.terminal.table(columns, rows, "no join tokens\n")
        return Exit.OK

    return application.run(work)


@verb(
    "revoke",
    examples=["ccmctl token revoke join-abcdefgh23456789"],
    options=[click.Argument(["name"], metavar="TOKEN")],
)
def _revoke(application: Application, name: str) -> Exit:
    """Revoke a join token. Nodes that have joined with it remain in the fleet."""

    async def work(fleet: Fleet) -> Exit:
        if not TOKEN_ID.fullmatch(name):
            raise UsageError(f"{name[:40]}: not a token ID; see `ccmctl token list`")
        await JoinRecords(fleet).revoke_token(name)
        application.terminal.record(MadeLine, name=name, kind="token", action="revoked")
        application.terminal.show(f"{name}: revoked\n")
        return Exit.OK

    return application.run(work)


def _state(one: KnownToken, now: int) -> str:
    if one.proof is None:
        return f"void: {one.reason}"
    if one.record.revoked:
        return "revoked"
    if one.record.expires <= now:
        return "expired"
    return "used up" if one.used >= one.record.uses else "valid"


def _time(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _checked_network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError:
        raise UsageError(f"{text}: not a valid network; use CIDR notation such as 10.0.0.0/8") from None


def _is_loopback(server: str) -> bool:
    host = urlsplit(server).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


for _command in (_create, _list, _revoke):
    token.add_command(_command)
