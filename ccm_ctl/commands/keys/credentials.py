"""Keys and credentials: `init --security`, `node add|revoke`, `operator add|revoke`. They need the keys, but not the broker."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Coroutine, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import click
import msgspec

from ccm_agent.bus.access.accounts import Account
from ccm_agent.bus.access.credentials import Credentials, is_name
from ccm_agent.bus.access.permissions import Role, node_permissions
from ccm_agent.bus.signatures.trust import EVERYWHERE
from ccm_agent.bus.subjects import fact_scope, node_scope
from ccm_agent.clikit.durations import Duration
from ccm_agent.clikit.text import plural
from ccm_agent.model.errors import BusUnavailableError, CcmError, InputError, UsageError
from ccm_agent.model.exits import Exit
from ccm_ctl.app import Application, Broker, logins
from ccm_ctl.commands.command_tree import verb
from ccm_ctl.commands.keys.keys_folder import keys_in, keys_option
from ccm_ctl.commands.keys.signers import publish_list
from ccm_ctl.fleet.data.documents import numbers_for
from ccm_ctl.fleet.keys.join_records import JoinRecords
from ccm_ctl.fleet.keys.keys import Keys
from ccm_ctl.fleet.whole_file import create_file
from ccm_ctl.render.record_types.administration import MadeLine

PUSH_S = 10.0
"""The maximum wait for servers to apply accounts, in seconds. In a cluster, the wait ends after a second without a reply."""

BROKER_S = 3.0
"""The maximum wait for the broker while credentials are issued, in seconds. The broker is optional."""

ALL, FORMER_ALL = "all", "everybody"
"""The scope for all nodes, and its name in earlier versions."""


_EXPIRES = click.Option(
    ["--expires"], type=Duration(), help="How long the credentials are valid, such as 90d. [no limit]"
)


def prepare_security(application: Application, folder: str) -> bool:
    """
    Create the keys of a fleet if there are none. Return whether they already existed, so that the broker can be used.

    If they existed and no credentials are given, the first operator's credentials are used.
    """
    keys = keys_in(application, folder)
    name = first_operator(application)
    creds = keys.folder / f"{name}.creds"
    if keys.exist():
        settings = application.settings()
        has_some = settings.creds or settings.nkey or settings.user or settings.token
        if not has_some and creds.exists():
            application.reach = msgspec.structs.replace(application.reach, creds=str(creds))
        if keys.has_one_account:
            application.terminal.note(
                f"{keys.folder}: all users share one account, so a node can reach every stream; "
                "run `ccmctl init --security --migrate`"
            )
        else:
            _refresh(application, keys)
        return True
    keys.make()
    keys.make_root()
    first_credentials(keys, name)
    _tell_next(application, keys, creds)
    return False


def _refresh(application: Application, keys: Keys) -> None:
    """Update the servers' configuration file to this version, and print how to deploy it."""
    name = keys.configuration
    try:
        if keys.refresh():
            application.terminal.note(
                f"{name} was updated, because this version changes accounts or permissions of nodes. "
                "Copy it to each server, then run\n"
                "    nats-server --signal reload"
            )
    except CcmError as err:
        application.terminal.note(
            f"{name} is of an earlier version and cannot be updated here ({err}); run this again with the folder of all seeds"
        )


def first_credentials(keys: Keys, name: str) -> Path:
    """Create credentials with all permissions for an operator in the folder, and return the file."""
    role = Role(
        apply=(EVERYWHERE,),
        exec=(EVERYWHERE,),
        maintain=(EVERYWHERE,),
        data=True,
        facts=True,
        schedules=True,
        admin=True,
    )
    made = keys.add_operator(name, role)
    creds = keys.folder / f"{name}.creds"
    try:
        create_file(creds, made.text.reveal().encode())
    except OSError as err:
        raise InputError(f"{creds}: cannot be written: {err.strerror}") from err
    return creds


def _tell_next(application: Application, keys: Keys, creds: Path) -> None:
    terminal = application.terminal
    terminal.record(MadeLine, name=str(keys.folder), kind="keys", action="created")
    terminal.show(
        f"Keys created in {keys.folder}. Their holder controls the fleet, so keep them safe.\n\n"
        f"1. Copy {keys.configuration} next to the configuration of each server, and add to that\n"
        f"       include {keys.configuration.name}\n"
        "   It is not secret. Restart the servers.\n"
        "2. Create the streams and buckets:\n"
        f"       export CCM_CREDS={creds}\n"
        "       ccmctl init --security\n"
        "3. Issue credentials to each node, and name them in its configuration as nats.creds:\n"
        "       ccmctl node add web1 > web1.creds\n"
    )


@verb(
    "add",
    examples=[
        "ccmctl node add web1 > web1.creds",
        "ccmctl node add web1 --address 10.0.0.5 --expires 90d",
        "ccmctl node add lb1 --reads-registrations > lb1.creds",
    ],
    options=[
        click.Argument(["name"], metavar="NODE"),
        click.Option(
            ["--address"],
            multiple=True,
            metavar="IP",
            help="Address on which its services may register; repeatable.",
        ),
        click.Option(
            ["--reads-registrations"],
            is_flag=True,
            help="Allow its templates to read the registered services.",
        ),
        _EXPIRES,
        keys_option(),
    ],
)
def add_node(
    application: Application,
    name: str,
    address: tuple[str, ...],
    reads_registrations: bool,
    expires: int | None,
    keys: str,
) -> Exit:
    """Issue credentials for a node, and print them. They are secret, and valid for this node name only."""
    allowed = node_permissions(
        name, [_checked_address(one) for one in address], reads_registrations=reads_registrations
    )
    folder = keys_in(application, keys)
    floors: dict[str, int] = {}

    async def read(broker: Broker) -> None:
        floors.update(await numbers_for(broker.fleet, name))

    _ask_broker(application, folder, read)
    _give(application, folder.add_node(name, allowed, expires=_at(expires), floors=floors))
    return Exit.OK


@verb(
    "revoke",
    examples=["ccmctl node revoke web1"],
    options=[click.Argument(["name"], metavar="NODE"), keys_option()],
)
def revoke_node(application: Application, name: str, keys: str) -> Exit:
    """Revoke all credentials of a node. Running servers apply it immediately."""
    return _revoke(application, "node", name, keys)


@verb(
    "add",
    examples=[
        "ccmctl operator add ann > ann.creds                      # may read everything",
        "ccmctl operator add bob --apply role=web --data > bob.creds",
        "ccmctl operator add sue --exec role=web > sue.creds         # may run single commands",
        "ccmctl operator add sam --maintain all > sam.creds          # may disable nodes, but change nothing",
        "ccmctl operator add eve --apply all --facts --schedules --admin > eve.creds",
    ],
    options=[
        click.Argument(["name"], metavar="NAME"),
        click.Option(
            ["--plan"],
            multiple=True,
            metavar="SCOPE",
            help="Allow plans and checks in this scope; repeatable.",
        ),
        click.Option(
            ["--apply"],
            multiple=True,
            metavar="SCOPE",
            help="Allow changes, plans and checks in this scope; repeatable.",
        ),
        click.Option(
            ["--exec"],
            multiple=True,
            metavar="SCOPE",
            help="Allow `ccmctl exec` in this scope; repeatable. --apply does not include it.",
        ),
        click.Option(
            ["--maintain"],
            multiple=True,
            metavar="SCOPE",
            help="Allow disabling and enabling nodes in this scope, and `run-now`; repeatable.",
        ),
        click.Option(["--data"], is_flag=True, help="Allow writing hiera data."),
        click.Option(
            ["--facts"], is_flag=True, help="Allow assigning facts, which can move nodes into any role."
        ),
        click.Option(
            ["--schedules"], is_flag=True, help="Allow creating schedules, which can apply to any node."
        ),
        click.Option(
            ["--join"],
            is_flag=True,
            help="Allow creating join tokens, and answering nodes that join (`ccmctl join serve`).",
        ),
        click.Option(["--admin"], is_flag=True, help="Allow creating streams and removing nodes."),
        _EXPIRES,
        keys_option(),
    ],
)
def add_operator(
    application: Application,
    name: str,
    plan: tuple[str, ...],
    apply: tuple[str, ...],
    exec: tuple[str, ...],
    maintain: tuple[str, ...],
    data: bool,
    facts: bool,
    schedules: bool,
    join: bool,
    admin: bool,
    expires: int | None,
    keys: str,
) -> Exit:
    """
    Issue credentials for an operator, and print them. They are secret.

    Without options, the operator may only read. A SCOPE is all, node=NAME or a routed fact such as role=web.
    Nodes that accept unsigned requests run the guards and checks of planned manifests as root.
    """
    role = Role(
        plan=_scopes(plan),
        apply=_scopes(apply),
        exec=_scopes(exec),
        maintain=_scopes(maintain),
        data=data,
        facts=facts,
        schedules=schedules,
        join=join,
        admin=admin,
    )
    if join and admin:
        raise UsageError(
            "--join and --admin cannot be combined: nodes that join cannot reach an operator with --admin; "
            "use two operators"
        )
    folder = keys_in(application, keys)
    _give(application, folder.add_operator(name, role, expires=_at(expires)))
    publish_signers(application, folder)
    return Exit.OK


@verb(
    "revoke",
    examples=["ccmctl operator revoke bob"],
    options=[click.Argument(["name"], metavar="NAME"), keys_option()],
)
def revoke_operator(application: Application, name: str, keys: str) -> Exit:
    """Revoke all credentials of an operator, and remove the operator from the signers list."""
    return _revoke(application, "operator", name, keys)


def _revoke(application: Application, kind: str, name: str, folder: str) -> Exit:
    keys = keys_in(application, folder)
    if kind == "node":
        _note_joined(application, keys, name)
    revoked = keys.revoke(kind, name)
    servers = apply_accounts(application, keys, {user.account or Account.CTL.value for user in revoked})
    application.terminal.record(MadeLine, name=name, kind=kind, action="revoked", servers=servers)
    effect = format_effect(servers, f"copy {keys.configuration} to each server")
    application.terminal.show(f"{name}: {plural(len(revoked), 'credentials file')} revoked. {effect}\n")
    publish_signers(application, keys)
    return Exit.OK


def format_effect(servers: Sequence[str], copy: str) -> str:
    """Return where a revocation is in effect, and how to apply it elsewhere."""
    if servers:
        return f"In effect on {', '.join(servers)}. To keep it in effect after a restart, {copy}."
    return f"No server was reached. To apply this, {copy}, then run `nats-server --signal reload`."


def _note_joined(application: Application, keys: Keys, name: str) -> None:
    """Record the key of a node that joined with a token, so that it can be revoked, and release the node's name."""

    async def read(broker: Broker) -> None:
        records = JoinRecords(broker.fleet)
        found = await records.find_node(name)
        if found is None:
            return
        if not found.revoked:
            keys.note_joined(name, found.key)
            await records.release(name, found.key)
        elif await records.has_left(found.key):
            # until they expire, the broker would accept a copy of the credentials
            keys.note_joined(name, found.key)

    _ask_broker(application, keys, read)


def apply_accounts(application: Application, keys: Keys, accounts: Collection[str]) -> list[str]:
    """Make running servers apply accounts of the folder. Return the servers that applied them; [] if they cannot be reached."""
    from ccm_ctl.fleet.keys.system_account import push_accounts

    servers: list[str] = []

    async def push() -> Exit:
        async with asyncio.timeout(PUSH_S):
            servers.extend(await push_accounts(application.settings(), keys, accounts))
        return Exit.OK

    with contextlib.suppress(CcmError, TimeoutError):
        application.run_alone(push)
    return servers


def publish_signers(application: Application, keys: Keys) -> None:
    """Publish the signers list if the broker can be reached. Otherwise print the command that publishes it."""
    if not keys.has_root or not keys.signers.exist():
        application.terminal.note(
            f"{keys.folder}: no root key, so nodes cannot verify signatures; "
            "`ccmctl init --security --migrate` creates one"
        )
        return

    async def publish(broker: Broker) -> None:
        await publish_list(broker, keys.signers)

    if not _ask_broker(application, keys, publish):
        application.terminal.note(
            "the signers list has changed; run `ccmctl signers publish` to publish it to the nodes"
        )


def _ask_broker(
    application: Application, keys: Keys, work: Callable[[Broker], Coroutine[Any, Any, None]]
) -> bool:
    """
    Run some work on the broker if the broker is reachable and permits it. Return whether it was done.

    Keys can also be created without a broker. If there are no other credentials, the first operator's credentials are used.
    """

    async def ask() -> Exit:
        async with asyncio.timeout(BROKER_S), application.broker() as broker:
            if broker.connection is None:
                raise BusUnavailableError("no connection")
            await work(broker)
        return Exit.OK

    before = application.reach
    settings = application.settings()
    creds = keys.folder / f"{first_operator(application)}.creds"
    if not (settings.creds or settings.nkey or settings.user or settings.token) and creds.exists():
        application.reach = msgspec.structs.replace(before, creds=str(creds))
    try:
        return application.run_alone(ask) == Exit.OK
    except (CcmError, TimeoutError):
        return False
    finally:
        application.reach = before


def _give(application: Application, made: Credentials) -> None:
    application.terminal.secret(made.text.reveal())


def still_certified(application: Application, folder: str, names: Sequence[str]) -> list[str]:
    """Return those nodes that have valid credentials according to the folder with the keys."""
    certified = keys_in(application, folder).certified("node")
    return [name for name in names if name in certified]


def first_operator(application: Application) -> str:
    """Return the current user's name, which is the name of the first operator."""
    reach, environ = application.reach, application.environ
    named = (reach.operator, environ.get("CCM_OPERATOR", ""), *logins(environ))
    return next(filter(is_name, named))


def _scopes(words: Sequence[str]) -> tuple[str, ...]:
    return tuple(_scope(word) for word in words)


def _scope(word: str) -> str:
    if word in (ALL, FORMER_ALL):
        return EVERYWHERE
    key, equal, value = word.partition("=")
    if not key or not equal:
        raise UsageError(f"{word}: not a valid scope; use {ALL}, node=NAME or a fact such as role=web")
    return node_scope(value) if key == "node" else fact_scope(key, value)


def _checked_address(text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError:
        raise UsageError(
            f"{text}: not a valid address; services register with an IP address such as 10.0.0.5"
        ) from None


def _at(expires: int | None) -> int | None:
    return None if expires is None else int(time.time()) + expires
