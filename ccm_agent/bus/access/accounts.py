"""
The table of the broker's accounts and of the imports between them.

A client chooses the subject of the broker's reply. A user with permission for one API call can have the reply published on any
subject of its own account. Therefore stored data and requests to nodes are never in an account of nodes or ordinary operators:

    CTL     JetStream: streams, buckets, schedules, notifications. Its users are operators with `--admin`.
    OPS     all other operators
    NODES   the nodes
    AUDIT   JetStream: the audit streams. Its only user is the one that `ccmctl init` creates for a minute to create the streams,
            so neither an operator with `--admin` nor a node can purge them.
    JOIN    holders of join tokens. They may send one request, to the operators with `--join`, and receive its answer.

OPS and NODES import from CTL, as services, only the JetStream API calls that their users may make. Requests are also a service:
OPS sends them to CTL. CTL adds its own requests and due requests, and sends them to NODES.

The table must follow these rules (tests/nats/test_reply_matrix.py):

- A reply is not forwarded to a service if the service's subject has a wildcard. Otherwise it is forwarded, so services that
  change something have a wildcard.
- A reply is forwarded to a stream that other servers of a cluster export to another account. So OPS exports no stream, and
  operators verify messages from NODES.
- A server does not export a message as a stream if it arrived there as a service call, but other servers do. So events go to
  OPS directly from NODES, and a second time, as a service call, to CTL, which stores and acknowledges them.
- AUDIT receives nodes' decisions through a second service. If it imported a stream instead, it would store replies that a node
  redirects there. Its own stream does not acknowledge decisions, so the node gets only the acknowledgement of CCM_EVENTS.
- A subscriber of a service call sees the subject of its reply, and can publish another reply there. So operators receive events
  as a stream: the reply is the acknowledgement after which a node deletes an event.

The only other export is one subject of the system account (`disconnect_export`). It is not in the table, because it is a stream
that no user can publish on, and its subject contains the key of an account.

See docs/concepts/authorization.md and ADR 80.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from msgspec import Struct

from ccm_agent.bus.access.audit import AUDIT_STREAMS, OPERATORS, audited_patterns
from ccm_agent.bus.events import EVENTS_STREAM
from ccm_agent.bus.layout import (
    ASSIGNMENTS,
    DATA,
    FACTS,
    JOINS,
    MANIFESTS,
    NODE_DATA,
    NODES,
    NOTIFYING,
    REGISTRATION,
    RUNS,
    SECRETS,
    SLOTS,
    TRUST,
)
from ccm_agent.bus.requests import SCHEDULES_STREAM
from ccm_agent.bus.subjects import (
    DISCONNECTED,
    DUE_PREFIX,
    REGISTRATION_PREFIX,
    SCHEDULE_PREFIX,
    key_subject,
    notification_subject,
    stored_patterns,
)
from ccm_agent.model.records.join import JOIN_RENEWAL, JOIN_REQUEST
from ccm_agent.model.wire import PROTOCOL, SESSION_ANSWER, SESSION_PROGRESS

API = "$JS.API"
DIRECT = f"{API}.DIRECT.GET"

_ANSWER_WITHIN_S = 30
"""How long the broker keeps the reply subject of a service call. A page of a direct get takes up to a second."""

_NANOSECONDS = 1_000_000_000


class Account(StrEnum):
    """An account of the broker; each user is in one."""

    CTL = "ctl"
    OPS = "ops"
    NODES = "nodes"
    AUDIT = "audit"
    JOIN = "join"


WITH_STREAMS = (Account.CTL, Account.AUDIT)
"""The accounts with JetStream."""

CONNECTIONS = {
    Account.CTL: 1_000,
    Account.OPS: 5_000,
    Account.NODES: 50_000,
    Account.AUDIT: 10,
    Account.JOIN: 5_000,
}
"""The maximum connections of each account. A server accepts 65,536 in all, so nodes at their limit cannot lock operators out."""

DISCONNECTS_TO = (Account.OPS, Account.CTL)
"""The accounts that receive notices about ended connections of nodes: those of operators (ADR 126)."""

LOGIN_S = 30
"""
Seconds within which a client must log in. The server's default is 2. If a whole fleet reconnects at the same time, the server
would drop waiting clients, and each of them would start again. 30 s is also the limit of an agent's longest attempt.
"""

USER_LIMITS = {
    Account.CTL: {"subs": 1_000},
    Account.OPS: {"subs": 1_000},
    Account.NODES: {"subs": 2_000, "payload": 1 << 20},
    Account.AUDIT: {"subs": 10},
    Account.JOIN: {"subs": 10, "payload": 4 << 10},
}
"""
Limits of one connection. A node with 200 routed facts needs 400 subscriptions, and its largest message is its record
of facts, of 900 KB. NATS has no limit for the connections of one user.
"""


class ExportKind(StrEnum):
    """The kinds of exports from one account to another, in NATS terms."""

    SERVICE = "service"
    STREAM = "stream"


class AccountExport(Struct, frozen=True, kw_only=True):
    """
    One export of an account, and the accounts that import it.

    Attributes:
        owner: The exporting account: it answers the service, or its users publish the stream.
        kind: See `ExportKind`.
        subject: The subject, which is the same in both accounts.
        to: The importing accounts.
        pages: Whether one call has several replies.
    """

    owner: Account
    kind: ExportKind
    subject: str
    to: tuple[Account, ...]
    pages: bool = False


BUCKETS = (NODES, FACTS, DATA, NODE_DATA, ASSIGNMENTS, RUNS, SECRETS, SLOTS, TRUST, JOINS)
STREAMS = (
    *(f"KV_{bucket}" for bucket in BUCKETS),
    f"OBJ_{MANIFESTS}",
    EVENTS_STREAM,
    REGISTRATION,
    SCHEDULES_STREAM,
)
"""All streams of the project; a test compares them with `layout.plan`."""

REQUESTS = tuple(f"{PROTOCOL}.{noun}.*.request.>" for noun in ("manifest", "resource", "run", "node"))
"""Every kind of request. A single pattern would overlap with the subjects of events, which go in the other direction."""

SPOKEN = (f"{SESSION_ANSWER}.*.>", f"{SESSION_PROGRESS}.*.>")
"""Messages from nodes about a run. No stream stores these messages."""


def grants(*, moving: bool = False) -> list[AccountExport]:
    """
    Return the table.

    Args:
        moving: Whether nodes with credentials of the old one-account layout are still in CTL. Operators in OPS then receive
            their events too. In a cluster, they receive some events of other nodes twice.
    """
    heard = (*stored_patterns(), *SPOKEN)
    return [
        *_questions(),
        *_writes(),
        *(_service(each, Account.OPS) for each in REQUESTS),
        *(_service(each, Account.CTL, owner=Account.NODES) for each in REQUESTS),
        *(_stream(Account.NODES, subject, Account.OPS) for subject in stored_patterns()),
        *(_service(subject, Account.NODES, owner=Account.AUDIT) for subject in audited_patterns()),
        _service(OPERATORS, Account.OPS, Account.CTL, owner=Account.AUDIT),
        _service(f"{JOIN_REQUEST}.*", Account.JOIN, owner=Account.OPS),
        _service(f"{JOIN_RENEWAL}.>", Account.NODES, owner=Account.OPS),
        *(
            _pages(f"{DIRECT}.{name}", Account.OPS, Account.CTL, owner=Account.AUDIT)
            for name in AUDIT_STREAMS
        ),
        *(_stream(Account.NODES, subject, Account.OPS, Account.CTL) for subject in SPOKEN),
        *(_stream(Account.CTL, subject, Account.OPS) for subject in heard if moving),
        *(
            _stream(Account.CTL, notification_subject(bucket, ">"), Account.OPS, Account.NODES)
            for bucket in NOTIFYING
        ),
    ]


def _questions() -> list[AccountExport]:
    """Return the permitted reads; the subjects of an account do not overlap."""
    # If an account does not import this call, the server gives it the whole API of an empty account.
    found = [_service(f"{API}.INFO", Account.OPS, Account.NODES, Account.JOIN)]
    found += [_service(f"{API}.STREAM.INFO.{name}", Account.OPS) for name in STREAMS]
    for name in STREAMS:
        found += [_pages(f"{DIRECT}.{name}", Account.OPS), _pages(f"{DIRECT}.{name}.>", Account.OPS)]
    for name in (f"KV_{ASSIGNMENTS}", f"KV_{DATA}", f"KV_{SLOTS}", f"OBJ_{MANIFESTS}", REGISTRATION):
        found.append(_pages(f"{DIRECT}.{name}", Account.NODES))
    for name, subject in (
        (f"KV_{FACTS}", key_subject(FACTS, ">")),
        (f"KV_{DATA}", key_subject(DATA, ">")),
        # Allow reads by subject only. A request with the subject in its body could not be restricted to one node's documents.
        (f"KV_{NODE_DATA}", key_subject(NODE_DATA, ">")),
        (f"KV_{SECRETS}", key_subject(SECRETS, "wrap.>")),
        (f"KV_{SECRETS}", key_subject(SECRETS, "value.>")),
        (f"KV_{TRUST}", key_subject(TRUST, ">")),
        (f"OBJ_{MANIFESTS}", f"$O.{MANIFESTS}.M.*"),
        (SCHEDULES_STREAM, f"{DUE_PREFIX}.>"),
        (SCHEDULES_STREAM, f"{SCHEDULE_PREFIX}.>"),
    ):
        found.append(_pages(f"{DIRECT}.{name}.{subject}", Account.NODES))
    return found


def _writes() -> list[AccountExport]:
    return [
        *(
            _service(key_subject(bucket, ">"), Account.OPS)
            for bucket in (RUNS, ASSIGNMENTS, DATA, NODE_DATA, FACTS, SECRETS, SLOTS, JOINS)
        ),
        *(_service(f"$O.{MANIFESTS}.{part}.*", Account.OPS) for part in ("C", "M")),
        _service(f"{SCHEDULE_PREFIX}.>", Account.OPS),
        _service(key_subject(SLOTS, ">"), Account.NODES),
        *(
            _service(key_subject(NODES, f"{kind}.>"), Account.OPS, Account.NODES)
            for kind in ("node", "facts", "presence")
        ),
        *(_service(subject, Account.NODES) for subject in stored_patterns()),
        _service(f"{REGISTRATION_PREFIX}.*.*.*.*.*", Account.NODES),
    ]


def _service(subject: str, *to: Account, owner: Account = Account.CTL) -> AccountExport:
    return AccountExport(owner=owner, kind=ExportKind.SERVICE, subject=subject, to=to)


def _pages(subject: str, *to: Account, owner: Account = Account.CTL) -> AccountExport:
    return AccountExport(owner=owner, kind=ExportKind.SERVICE, subject=subject, to=to, pages=True)


def _stream(owner: Account, subject: str, *to: Account) -> AccountExport:
    return AccountExport(owner=owner, kind=ExportKind.STREAM, subject=subject, to=to)


def exports(account: Account, table: Sequence[AccountExport]) -> list[AccountExport]:
    """Return the exports of an account. The broker refuses overlapping exports, so only the widest of them is exported."""
    offered: dict[tuple[ExportKind, str], AccountExport] = {}
    own = [grant for grant in table if grant.owner == account]
    for grant in own:
        wider = [one for one in own if one.kind == grant.kind and _is_within(grant.subject, one.subject)]
        widest = next(one for one in wider if all(_is_within(each.subject, one.subject) for each in wider))
        key = (widest.kind, widest.subject)
        had = offered.get(key)
        to = (*(had.to if had else ()), *grant.to)
        offered[key] = AccountExport(
            owner=account,
            kind=widest.kind,
            subject=widest.subject,
            to=tuple(dict.fromkeys(to)),
            pages=widest.pages,
        )
    return list(offered.values())


def _is_within(subject: str, wider: str) -> bool:
    """Whether every subject that matches the first pattern also matches the second."""
    narrow, wide = subject.split("."), wider.split(".")
    for place, token in enumerate(wide):
        if token == ">":
            return len(narrow) > place
        if place >= len(narrow) or narrow[place] == ">" or token not in ("*", narrow[place]):
            return False
    return len(narrow) == len(wide)


def imports(account: Account, table: Sequence[AccountExport]) -> list[AccountExport]:
    """Return the imports of an account."""
    return [grant for grant in table if account in grant.to]


def exports_and_imports(
    account: Account, public_keys: Mapping[Account, str], system: str = "", *, moving: bool = False
) -> dict[str, Any]:
    """
    Return the exports and imports for an account's JWT (NATS JWT version 2).

    Args:
        account: The account.
        public_keys: The public keys of all accounts.
        system: The public key of the system account; "": nothing is imported from it.
        moving: See `grants`.
    """
    table = grants(moving=moving)
    offered = [
        {"name": each.subject, "subject": each.subject, "type": str(each.kind)}
        | (
            {"response_type": "Stream" if each.pages else "Singleton"}
            if each.kind == ExportKind.SERVICE
            else {}
        )
        | ({"response_threshold": _ANSWER_WITHIN_S * _NANOSECONDS} if each.kind == ExportKind.SERVICE else {})
        for each in exports(account, table)
    ]
    taken = [
        {
            "name": each.subject,
            "subject": each.subject,
            "account": public_keys[each.owner],
            "local_subject": each.subject,
            "type": str(each.kind),
        }
        for each in imports(account, table)
    ]
    if system and account in DISCONNECTS_TO:
        notices = disconnect_export(public_keys[Account.NODES])
        taken.append(notices | {"account": system, "local_subject": DISCONNECTED})
    return {"exports": offered, "imports": taken}


def settings_of_accounts(*, moving: bool) -> list[object]:
    """Return all that is the same in the accounts of every fleet. See `grants` for `moving`."""
    return [grants(moving=moving), CONNECTIONS, LOGIN_S, DISCONNECTS_TO]


def disconnect_export(nodes: str) -> dict[str, str]:
    """Return what the system account offers to operators: its notices about ended connections of `nodes`, a public key."""
    subject = f"$SYS.ACCOUNT.{nodes}.DISCONNECT"
    return {"name": DISCONNECTED, "subject": subject, "type": str(ExportKind.STREAM)}


def as_configuration(users: Mapping[Account, str], *, moving: bool = False) -> str:
    """
    Return the table as accounts in a nats-server configuration, for a broker without operator mode.

    Args:
        users: For each account the entries of its `users`, as text.
        moving: See `grants`.
    """
    table = grants(moving=moving)
    blocks = []
    for account in Account:
        lines = [f"  {account.name} {{"]
        if account in WITH_STREAMS:
            lines.append("    jetstream: enabled")
        lines.append(f"    limits: {{ max_connections: {CONNECTIONS[account]} }}")
        lines.append(f"    users: [\n{users.get(account, '')}\n    ]")
        lines.append("    exports: [")
        lines += [f"      {_export(each)}" for each in exports(account, table)]
        lines.append("    ]")
        lines.append("    imports: [")
        lines += [
            f'      {{ {each.kind}: {{ account: {each.owner.name}, subject: "{each.subject}" }} }}'
            for each in imports(account, table)
        ]
        lines += ["    ]", "  }"]
        blocks.append("\n".join(lines))
    return "accounts {\n" + "\n".join(blocks) + "\n}\n"


def _export(grant: AccountExport) -> str:
    to = ", ".join(account.name for account in grant.to)
    pages = ', response: stream, threshold: "30s"' if grant.pages else ""
    return f'{{ {grant.kind}: "{grant.subject}", accounts: [{to}]{pages} }}'
