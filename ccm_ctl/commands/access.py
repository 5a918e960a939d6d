"""Who may connect, and what for: `init --security`, `node add|revoke`, `operator add|revoke`. They need keys, and no broker."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click
import msgspec

from ccm_agent.model.errors import InputError, UsageError
from ccm_agent.model.exits import Exit
from ccm_ctl.app import logins
from ccm_ctl.commands.durations import Duration
from ccm_ctl.commands.tree import verb
from ccm_ctl.render import records

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ccm_agent.bus.credentials import Credentials
    from ccm_ctl.app import Application
    from ccm_ctl.fleet.keys import Keys

EVERYBODY = "everybody"
"""On the command line, in the place of a scope: all of them."""


def keys_option() -> click.Option:
    """The folder with the fleet's keys."""
    text = "The folder with the fleet's keys. [CCM_KEYS, or ~/.config/ccm/keys]"
    return click.Option(["--keys"], metavar="DIR", default="", help=text)


_EXPIRES = click.Option(["--expires"], type=Duration(), help="How long they are good for, such as 90d.")


def prepare_security(application: Application, folder: str) -> bool:
    """
    Keys for a fleet, unless there are some; whether there were, so that the broker can be asked already.

    With keys, and nothing else said, the first operator's credentials are taken.
    """
    keys = _keys(application, folder)
    name = _first_operator(application)
    creds = keys.folder / f"{name}.creds"
    if keys.exist():
        settings = application.settings()
        has_some = settings.creds or settings.nkey or settings.user or settings.token
        if not has_some and creds.exists():
            application.reach = msgspec.structs.replace(application.reach, creds=str(creds))
        return True
    from ccm_agent.bus.permissions import EVERYWHERE, Role, operator_permissions
    from ccm_ctl.fleet.keys import write_private

    keys.make()
    role = Role(apply=(EVERYWHERE,), data=True, facts=True, schedules=True, admin=True)
    made = keys.add("operator", name, operator_permissions(name, role))
    try:
        write_private(creds, made.text.reveal())
    except OSError as err:
        raise InputError(f"{creds}: cannot be written: {err.strerror}") from err
    _tell_next(application, keys, creds)
    return False


def _tell_next(application: Application, keys: Keys, creds: Path) -> None:
    terminal = application.terminal
    terminal.record(records.MADE, name=str(keys.folder), kind="keys", action="created")
    terminal.show(
        f"Keys are made, in {keys.folder}; who has its seeds has the fleet, so keep them safe.\n\n"
        f"1. Copy {keys.configuration} beside the configuration of each server, and add to that\n"
        f"       include {keys.configuration.name}\n"
        "   It is not secret. Restart the servers.\n"
        "2. Make the streams and buckets:\n"
        f"       export CCM_CREDS={creds}\n"
        "       ccmctl init --security\n"
        "3. Give each node its credentials, and name them in its configuration as nats.creds:\n"
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
        click.Option(["--address"], multiple=True, metavar="IP", help="Its services may register there; may be given again."),
        click.Option(["--reads-registrations"], is_flag=True, help="Its templates may ask which services are registered."),
        _EXPIRES,
        keys_option(),
    ],
)  # fmt: skip
def add_node(
    application: Application,
    name: str,
    address: tuple[str, ...],
    reads_registrations: bool,
    expires: int | None,
    keys: str,
) -> Exit:
    """Print credentials with which a node may do its work, in its own name and no other. They are secret."""
    from ccm_agent.bus.permissions import node_permissions

    allowed = node_permissions(
        name, [_checked_address(one) for one in address], reads_registrations=reads_registrations
    )
    _give(application, _keys(application, keys).add("node", name, allowed, expires=_at(expires)))
    return Exit.OK


@verb(
    "revoke",
    examples=["ccmctl node revoke web1"],
    options=[click.Argument(["name"], metavar="NODE"), keys_option()],
)
def revoke_node(application: Application, name: str, keys: str) -> Exit:
    """Make a node's credentials void, for the servers to learn."""
    return _revoke(application, "node", name, keys)


@verb(
    "add",
    examples=[
        "ccmctl operator add ann > ann.creds                      # may look at everything",
        "ccmctl operator add bob --apply role=web --data > bob.creds",
        "ccmctl operator add eve --apply everybody --facts --schedules --admin > eve.creds",
    ],
    options=[
        click.Argument(["name"], metavar="NAME"),
        click.Option(["--plan"], multiple=True, metavar="SCOPE", help="Where plans and checks may go: these run commands, too."),
        click.Option(["--apply"], multiple=True, metavar="SCOPE", help="Where changes may go, and plans. [nowhere]"),
        click.Option(["--data"], is_flag=True, help="May write hiera data."),
        click.Option(["--facts"], is_flag=True, help="May assign facts, and so move nodes into any role."),
        click.Option(["--schedules"], is_flag=True, help="May make schedules, and so apply anywhere."),
        click.Option(["--admin"], is_flag=True, help="May make streams and remove nodes."),
        _EXPIRES,
        keys_option(),
    ],
)  # fmt: skip
def add_operator(
    application: Application,
    name: str,
    plan: tuple[str, ...],
    apply: tuple[str, ...],
    data: bool,
    facts: bool,
    schedules: bool,
    admin: bool,
    expires: int | None,
    keys: str,
) -> Exit:
    """
    Print credentials with which an operator may do what is said here. They are secret.

    A SCOPE is everybody, node=NAME or a routed fact such as role=web.
    """
    from ccm_agent.bus.permissions import Role, operator_permissions

    role = Role(
        plan=_scopes(plan),
        apply=_scopes(apply),
        data=data,
        facts=facts,
        schedules=schedules,
        admin=admin,
    )
    allowed = operator_permissions(name, role)
    _give(application, _keys(application, keys).add("operator", name, allowed, expires=_at(expires)))
    return Exit.OK


@verb(
    "revoke",
    examples=["ccmctl operator revoke bob"],
    options=[click.Argument(["name"], metavar="NAME"), keys_option()],
)
def revoke_operator(application: Application, name: str, keys: str) -> Exit:
    """Make an operator's credentials void, for the servers to learn."""
    return _revoke(application, "operator", name, keys)


def _revoke(application: Application, kind: str, name: str, folder: str) -> Exit:
    keys = _keys(application, folder)
    count = keys.revoke(kind, name)
    application.terminal.record(records.MADE, name=name, kind=kind, action="revoked")
    application.terminal.show(
        f"{name}: {count} of its credentials made void, as soon as the servers have {keys.configuration} anew; "
        "copy it to each and `nats-server --signal reload`\n"
    )
    return Exit.OK


def _give(application: Application, made: Credentials) -> None:
    application.terminal.secret(made.text.reveal())


def still_certified(application: Application, folder: str, names: Sequence[str]) -> list[str]:
    """Those of these nodes whose credentials are good, as far as the folder with the keys knows."""
    certified = _keys(application, folder).certified("node")
    return [name for name in names if name in certified]


def _keys(application: Application, folder: str) -> Keys:
    from ccm_ctl.fleet.keys import Keys, keys_folder

    return Keys(keys_folder(folder, application.environ))


def _first_operator(application: Application) -> str:
    from ccm_agent.bus.credentials import is_name

    reach, environ = application.reach, application.environ
    named = (reach.operator, environ.get("CCM_OPERATOR", ""), *logins(environ))
    return next(filter(is_name, named))


def _scopes(words: Sequence[str]) -> tuple[str, ...]:
    return tuple(_scope(word) for word in words)


def _scope(word: str) -> str:
    from ccm_agent.bus.permissions import EVERYWHERE
    from ccm_agent.bus.subjects import fact_scope, node_scope

    if word == EVERYBODY:
        return EVERYWHERE
    key, equal, value = word.partition("=")
    if not key or not equal:
        raise UsageError(f"{word}: no scope; write {EVERYBODY}, node=NAME or a fact such as role=web")
    return node_scope(value) if key == "node" else fact_scope(key, value)


def _checked_address(text: str) -> str:
    from ipaddress import ip_address

    try:
        return str(ip_address(text))
    except ValueError:
        raise UsageError(
            f"{text}: no address; services are registered with a number such as 10.0.0.5"
        ) from None


def _at(expires: int | None) -> int | None:
    return None if expires is None else int(time.time()) + expires
