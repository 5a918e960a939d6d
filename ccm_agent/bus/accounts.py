"""
The broker's accounts, and what each of them takes from another: one table.

The broker answers wherever the asker says, so a user who may ask one question can have the answer published on any subject of
its own account. Therefore nothing that is stored or obeyed lives in an account of nodes or operators:

    CTL     JetStream: streams, buckets, schedules, pokes. Its users are operators with `--admin`.
    OPS     all other operators
    NODES   the nodes

OPS and NODES take from CTL, as services, the questions that their users may ask, and nothing else of JetStream's API. Requests
are a service too: OPS hands them to CTL, and CTL, which adds its own and those that are due, hands them to NODES.

What holds (tests/nats/test_reply_matrix.py), and what the table must keep so:

- An answer does not go on into a service whose subject has a wildcard. It does into one without, so what changes something
  has a wildcard.
- An answer goes on into a stream that other servers of a cluster hand to another account. So OPS offers no stream, and what
  operators hear from NODES they check.
- A message that came in as a service call does not go on as a stream where it came in, and does on other servers. So events
  go to OPS straight from NODES, and a second time, as a service call, to CTL, which stores and acknowledges them.
- Who hears a service call sees where its answer goes, and can have something else answered there. So operators hear events as
  a stream: their answer is the acknowledgement that lets a node forget an event.

See docs/concepts/authorization.md and ADR 80.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ccm_agent.bus.events import EVENTS_STREAM
from ccm_agent.bus.layout import (
    ASSIGNMENTS,
    DATA,
    FACTS,
    MANIFESTS,
    NODE_DATA,
    NODES,
    POKED,
    REGISTRATION,
    RUNS,
    TRUST,
)
from ccm_agent.bus.requests import SCHEDULES_STREAM
from ccm_agent.bus.subjects import (
    DUE_PREFIX,
    REGISTRATION_PREFIX,
    SCHEDULE_PREFIX,
    key_subject,
    poke_subject,
    stored_patterns,
)
from ccm_agent.model.wire import PROTOCOL, SESSION_ANSWER, SESSION_PROGRESS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

API = "$JS.API"
DIRECT = f"{API}.DIRECT.GET"

_ANSWER_WITHIN_S = 30
"""How long the broker remembers where the answer to a question goes; a page of a direct get takes a second."""

_NANOSECONDS = 1_000_000_000


class Account(StrEnum):
    """Where a user of the broker lives."""

    CTL = "ctl"
    OPS = "ops"
    NODES = "nodes"


CONNECTIONS = {Account.CTL: 1_000, Account.OPS: 5_000, Account.NODES: 50_000}
"""How many there may be at once. A server takes 65,536 in all, so nodes that take all of theirs keep no operator out."""

USER_LIMITS = {
    Account.CTL: {"subs": 1_000},
    Account.OPS: {"subs": 1_000},
    Account.NODES: {"subs": 2_000, "payload": 1 << 20},
}
"""
What one connection may hold and send. A node with 200 routed facts needs 400 subscriptions, and its largest message is its record
of facts, of 900 KB. NATS knows no limit for the connections of one user.
"""


class Kind(StrEnum):
    """How something crosses from one account to another; the words of NATS."""

    SERVICE = "service"
    STREAM = "stream"


class Grant(Struct, frozen=True, kw_only=True):
    """
    One thing that accounts take from another.

    Attributes:
        owner: The account that has it: it answers the service, or its users publish the stream.
        kind: See Kind.
        subject: Where; the same in both accounts.
        to: The accounts that take it.
        pages: A question has several answers.
    """

    owner: Account
    kind: Kind
    subject: str
    to: tuple[Account, ...]
    pages: bool = False


BUCKETS = (NODES, FACTS, DATA, NODE_DATA, ASSIGNMENTS, RUNS, TRUST)
STREAMS = (
    *(f"KV_{bucket}" for bucket in BUCKETS),
    f"OBJ_{MANIFESTS}",
    EVENTS_STREAM,
    REGISTRATION,
    SCHEDULES_STREAM,
)
"""Everything in which the project stores; a test holds it to `layout.plan`."""

REQUESTS = tuple(f"{PROTOCOL}.{noun}.*.request.>" for noun in ("manifest", "resource", "run", "node"))
"""Every kind of request. One pattern for all would overlap with the subjects of events, which go the other way."""

SPOKEN = (f"{SESSION_ANSWER}.*.>", f"{SESSION_PROGRESS}.*.>")
"""What nodes say about a run that no stream keeps."""


def grants(*, moving: bool = False) -> list[Grant]:
    """
    The table.

    Args:
        moving: Nodes whose credentials are of the time of one account still live in CTL, and operators of OPS hear them. In a
            cluster they then hear some events of other nodes twice.
    """
    heard = (*stored_patterns(), *SPOKEN)
    return [
        *_questions(),
        *_writes(),
        *(_service(each, Account.OPS) for each in REQUESTS),
        *(_service(each, Account.CTL, owner=Account.NODES) for each in REQUESTS),
        *(_stream(Account.NODES, subject, Account.OPS) for subject in stored_patterns()),
        *(_stream(Account.NODES, subject, Account.OPS, Account.CTL) for subject in SPOKEN),
        *(_stream(Account.CTL, subject, Account.OPS) for subject in heard if moving),
        *(_stream(Account.CTL, poke_subject(bucket, ">"), Account.OPS, Account.NODES) for bucket in POKED),
    ]


def _questions() -> list[Grant]:
    """What may be read; the subjects of an account do not overlap."""
    # The server gives the whole API, of an empty account, to an account that takes this question from no other one.
    found = [_service(f"{API}.INFO", Account.OPS, Account.NODES)]
    found += [_service(f"{API}.STREAM.INFO.{name}", Account.OPS) for name in STREAMS]
    for name in STREAMS:
        found += [_pages(f"{DIRECT}.{name}", Account.OPS), _pages(f"{DIRECT}.{name}.>", Account.OPS)]
    for name in (f"KV_{ASSIGNMENTS}", f"KV_{DATA}", f"OBJ_{MANIFESTS}", REGISTRATION):
        found.append(_pages(f"{DIRECT}.{name}", Account.NODES))
    for name, subject in (
        (f"KV_{FACTS}", key_subject(FACTS, ">")),
        (f"KV_{DATA}", key_subject(DATA, ">")),
        # By subject only: a question whose body names the subject could not be allowed for one node's documents.
        (f"KV_{NODE_DATA}", key_subject(NODE_DATA, ">")),
        (f"KV_{TRUST}", key_subject(TRUST, ">")),
        (f"OBJ_{MANIFESTS}", f"$O.{MANIFESTS}.M.*"),
        (SCHEDULES_STREAM, f"{DUE_PREFIX}.>"),
        (SCHEDULES_STREAM, f"{SCHEDULE_PREFIX}.>"),
    ):
        found.append(_pages(f"{DIRECT}.{name}.{subject}", Account.NODES))
    return found


def _writes() -> list[Grant]:
    return [
        *(
            _service(key_subject(bucket, ">"), Account.OPS)
            for bucket in (RUNS, ASSIGNMENTS, DATA, NODE_DATA, FACTS)
        ),
        *(_service(f"$O.{MANIFESTS}.{part}.*", Account.OPS) for part in ("C", "M")),
        _service(f"{SCHEDULE_PREFIX}.>", Account.OPS),
        *(_service(key_subject(NODES, f"{kind}.>"), Account.NODES) for kind in ("node", "facts", "presence")),
        *(_service(subject, Account.NODES) for subject in stored_patterns()),
        _service(f"{REGISTRATION_PREFIX}.*.*.*.*.*", Account.NODES),
    ]


def _service(subject: str, *to: Account, owner: Account = Account.CTL) -> Grant:
    return Grant(owner=owner, kind=Kind.SERVICE, subject=subject, to=to)


def _pages(subject: str, *to: Account) -> Grant:
    return Grant(owner=Account.CTL, kind=Kind.SERVICE, subject=subject, to=to, pages=True)


def _stream(owner: Account, subject: str, *to: Account) -> Grant:
    return Grant(owner=owner, kind=Kind.STREAM, subject=subject, to=to)


def exports(account: Account, table: Sequence[Grant]) -> list[Grant]:
    """What an account offers. The broker takes no two that overlap: of those that do the widest is offered, once."""
    offered: dict[tuple[Kind, str], Grant] = {}
    own = [grant for grant in table if grant.owner == account]
    for grant in own:
        wider = [one for one in own if one.kind == grant.kind and _is_within(grant.subject, one.subject)]
        widest = next(one for one in wider if all(_is_within(each.subject, one.subject) for each in wider))
        key = (widest.kind, widest.subject)
        had = offered.get(key)
        to = (*(had.to if had else ()), *grant.to)
        offered[key] = Grant(
            owner=account,
            kind=widest.kind,
            subject=widest.subject,
            to=tuple(dict.fromkeys(to)),
            pages=widest.pages,
        )
    return list(offered.values())


def _is_within(subject: str, wider: str) -> bool:
    """Every subject that fits the first pattern fits the second."""
    narrow, wide = subject.split("."), wider.split(".")
    for place, token in enumerate(wide):
        if token == ">":
            return len(narrow) > place
        if place >= len(narrow) or narrow[place] == ">" or token not in ("*", narrow[place]):
            return False
    return len(narrow) == len(wide)


def imports(account: Account, table: Sequence[Grant]) -> list[Grant]:
    """What an account takes from others."""
    return [grant for grant in table if account in grant.to]


def claims(account: Account, public_keys: Mapping[Account, str], *, moving: bool = False) -> dict[str, Any]:
    """
    What an account's JWT says about this (NATS JWT version 2).

    Args:
        account: The account.
        public_keys: Of all of them.
        moving: See `grants`.
    """
    table = grants(moving=moving)
    offered = [
        {"name": each.subject, "subject": each.subject, "type": str(each.kind)}
        | ({"response_type": "Stream" if each.pages else "Singleton"} if each.kind == Kind.SERVICE else {})
        | ({"response_threshold": _ANSWER_WITHIN_S * _NANOSECONDS} if each.kind == Kind.SERVICE else {})
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
    return {"exports": offered, "imports": taken}


def as_configuration(users: Mapping[Account, str], *, moving: bool = False) -> str:
    """
    The same as accounts of a nats-server configuration, for a broker that is not run in operator mode.

    Args:
        users: By account the entries of its `users`, as text.
        moving: See `grants`.
    """
    table = grants(moving=moving)
    blocks = []
    for account in Account:
        lines = [f"  {account.name} {{"]
        if account == Account.CTL:
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


def _export(grant: Grant) -> str:
    to = ", ".join(account.name for account in grant.to)
    pages = ', response: stream, threshold: "30s"' if grant.pages else ""
    return f'{{ {grant.kind}: "{grant.subject}", accounts: [{to}]{pages} }}'
