"""`ccmctl join` and `ccmctl node accept`: reply to nodes that request to join."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

import click

from ccm_agent.bus.signatures.join import fingerprint
from ccm_agent.clikit.durations import Duration
from ccm_agent.clikit.table import Column
from ccm_agent.clikit.text import clock, one_line
from ccm_agent.model.errors import BusDeniedError, InputError, UsageError
from ccm_agent.model.exits import Exit
from ccm_agent.model.records.join import JoinState
from ccm_ctl.app import Application, Broker
from ccm_ctl.commands.command_tree import group, verb
from ccm_ctl.commands.keys.credentials import publish_signers
from ccm_ctl.commands.keys.keys_folder import keys_in, keys_option
from ccm_ctl.fleet.keys.brief_nodes import BriefNodeWatch
from ccm_ctl.fleet.keys.join_keys import JoinKeys
from ccm_ctl.fleet.keys.join_outcomes import JoinOutcome, away_outcome
from ccm_ctl.fleet.keys.join_records import JoinedNode, JoinRecords
from ccm_ctl.fleet.keys.join_service import JoinService, serve_joins
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.render.record_types.access import JoinLine
from ccm_ctl.render.record_types.administration import MadeLine

SHORTEST_S = 60
LONGEST_S = 400 * 86_400
NAME_LIMIT = 100
"""The maximum number of characters of an untrusted name that are shown."""


@group("join", no_args_is_help=True, examples=["ccmctl join list", "ccmctl join serve"])
def join(application: Application) -> None:
    """Answer nodes that join the fleet with a token, renew their credentials or leave."""


@verb(
    "serve",
    examples=["ccmctl join serve", "ccmctl --creds join.creds join serve --keys /etc/choria/ccm/join"],
    options=[
        click.Option(
            ["--valid-for", "valid"],
            type=Duration(),
            default="90d",
            show_default=True,
            help="How long credentials of nodes are valid. Agents renew them at two thirds of this time.",
        ),
        keys_option(),
    ],
)
def _serve(application: Application, valid: int, keys: str) -> Exit:
    """
    Answer nodes until interrupted. Requires credentials with `--join`, and with `--facts` for tokens with a role.

    The folder with the keys must contain certifier.seed, certifier.json, node_signer.seed and nats-security.conf. Several
    services may run at the same time.
    """
    if not SHORTEST_S <= valid <= LONGEST_S:
        raise UsageError("--valid-for: use a duration from 1m to 400d")
    folder = keys_in(application, keys)
    application.goes_on_for_ever = True

    async def work(broker: Broker) -> Exit:
        fleet, audit = broker.fleet, broker.audit
        if fleet.trust is None or broker.connection is None:
            raise InputError(
                "these credentials contain no root key; use credentials of `ccmctl operator add NAME --join`"
            )
        joining = JoinKeys(folder)
        await asyncio.to_thread(joining.prepare)
        issuer = await asyncio.to_thread(joining.issuer, fleet.trust.root)

        def report(outcome: JoinOutcome) -> None:
            if audit is not None:
                audit.take(outcome.as_action())
            _show(application, outcome)

        watch = BriefNodeWatch(fleet, lambda node: report(away_outcome(node)))
        service = JoinService(fleet, issuer, report, joining.added, valid_s=valid)
        try:
            await serve_joins(
                broker.connection,
                service,
                lambda: application.terminal.note("waiting for nodes that join"),
                watch.run,
            )
        except BusDeniedError as err:
            raise BusDeniedError(
                f"{fleet.operator} may not answer nodes that join; use credentials of "
                "`ccmctl operator add NAME --join --facts`"
            ) from err
        return Exit.OK

    return application.run_on_broker(work)


def _show(application: Application, outcome: JoinOutcome) -> None:
    terminal = application.terminal
    done = "renewed" if outcome.is_renewal and outcome.state is JoinState.JOINED else str(outcome.state)
    node = outcome.node if len(outcome.node) <= NAME_LIMIT else f"{outcome.node[:NAME_LIMIT]}…"
    terminal.record(
        JoinLine,
        node=node,
        state=done,
        key=outcome.key or None,
        token=outcome.token or None,
        code=outcome.code or None,
        message=outcome.message or None,
        repeated=outcome.repeated or None,
    )
    told = one_line(f"{node or '(unnamed)'}: {done}")
    if outcome.state is JoinState.WAITING:
        told += f"; to accept it, run `ccmctl node accept {node} {fingerprint(outcome.key)}`"
    elif outcome.message:
        told += f": {one_line(outcome.message)}"
    terminal.show(f"{told}\n")
    terminal.flush()


@verb("list", examples=["ccmctl join list", "ccmctl join list --json"], options=[])
def _list(application: Application) -> Exit:
    """List the nodes that wait until an operator accepts them."""

    async def work(fleet: Fleet) -> Exit:
        _show_waiting(application, await JoinRecords(fleet).waiting())
        return Exit.OK

    return application.run(work)


@verb(
    "accept",
    examples=["ccmctl node accept web1 3f2a-91c0-5d77-08be-4c1d-e2f9-7a65-b310"],
    options=[
        click.Argument(["name"], metavar="NODE"),
        click.Argument(["mark"], metavar="FINGERPRINT"),
    ],
)
def accept_node(application: Application, name: str, mark: str) -> Exit:
    """
    Accept a node that joins with a token made with `--approve`. `ccm join` shows the fingerprint on the node.

    `ccmctl join list` lists the nodes that wait. Compare the fingerprint with the one on the node.
    """

    async def work(fleet: Fleet) -> Exit:
        stored = JoinRecords(fleet)
        await stored.accept(_chosen(await stored.waiting(), name, mark))
        application.terminal.record(MadeLine, name=name, kind="node", action="accepted")
        application.terminal.show(f"{name}: accepted\n")
        return Exit.OK

    return application.run(work)


def _chosen(waiting: Sequence[JoinedNode], name: str, mark: str) -> JoinedNode:
    for node in waiting:
        if (node.name, fingerprint(node.key)) == (name, mark.strip().lower()):
            return node
    raise UsageError(f"{name}: no node with this name and fingerprint waits; see `ccmctl join list`")


def _show_waiting(application: Application, waiting: Sequence[JoinedNode]) -> None:
    for node in waiting:
        application.terminal.record(JoinLine, node=node.name, state="waiting", key=node.key, token=node.token)
    rows = [
        [node.name, fingerprint(node.key), clock(datetime.fromtimestamp(node.time, UTC)), node.token]
        for node in waiting
    ]
    columns = [Column("NODE"), Column("FINGERPRINT"), Column("SINCE"), Column("TOKEN")]
    application.terminal.table(columns, rows, "no node waits\n")


@verb("reset", examples=["ccmctl join reset"], options=[keys_option()])
def _reset(application: Application, keys: str) -> Exit:
    """
    Replace the key of the join service, for example because it was stolen.

    Signatures of nodes that have joined are not accepted until these nodes join again. Requires root.seed. Copy certifier.seed
    and certifier.json to the join service afterwards.
    """
    folder = keys_in(application, keys)
    old = JoinKeys(folder).reset()
    application.terminal.record(MadeLine, name="certifier", kind="keys", action="revoked", details=[old])
    application.terminal.show(f"{old}: revoked; nodes that joined must join again\n")
    publish_signers(application, folder)
    return Exit.OK


for _command in (_list, _serve, _reset):
    join.add_command(_command)
