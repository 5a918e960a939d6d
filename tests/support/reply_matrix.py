"""
What each kind of user may ask the broker, every subject that the answer could be sent to, and where it may arrive.

One table, and what can be derived is: questions from the permissions, targets from the streams, from what crosses between
accounts and from what users subscribe to. STORED names a subject of each stream by hand, so that a new stream without a row
fails.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from msgspec import Struct

from ccm_agent.bus.access.accounts import API, DIRECT, STREAMS, Account, grants
from ccm_agent.bus.access.audit import AUDIT_NODES_STREAM, AUDIT_STREAM, operator_subject
from ccm_agent.bus.access.permissions import Permissions, Role, node_permissions, operator_permissions
from ccm_agent.bus.layout import LayoutOptions, plan
from ccm_agent.bus.subjects import (
    DISCONNECTED,
    DUE_PREFIX,
    NOTIFICATION_PREFIX,
    REGISTRATION_PREFIX,
    SCHEDULE_PREFIX,
    subject_matches,
)
from ccm_agent.model.ids import new_id
from ccm_agent.model.wire import PROTOCOL, SESSION_ANSWER, SESSION_PROGRESS
from tests.support.header_blocks import MALFORMED
from tests.support.raw_client import RawMessage

RUN = new_id()
EVERYTHING = Role(plan=(">",), apply=(">",), data=True, facts=True, schedules=True)
ATTACKERS = {
    "evil": node_permissions("evil", ["10.0.0.66"], reads_registrations=True),
    "looker": operator_permissions("looker", Role()),
    "mallory": operator_permissions("mallory", EVERYTHING),
}
"""A node, an operator who may only look, and one who may do everything that needs no `--admin`."""

VICTIMS = {
    "web1": node_permissions("web1", ["10.0.0.1"], reads_registrations=True),
    "ann": operator_permissions("ann", EVERYTHING),
    "serves": operator_permissions("serves", Role(join=True, facts=True)),
    "admin": operator_permissions(
        "admin", Role(apply=(">",), data=True, facts=True, schedules=True, admin=True)
    ),
}
AUDITOR = Permissions(account=Account.AUDIT, publish=(f"{API}.>",), subscribe=("_INBOX_auditor.>",))
"""Looks into the audit streams; no fleet has such a user."""

USERS = ATTACKERS | VICTIMS | {"auditor": AUDITOR}

STORED = {
    "KV_CCM_NODES": ("$KV.CCM_NODES.node.web1", "$KV.CCM_NODES.facts.web1", "$KV.CCM_NODES.presence.web1"),
    "KV_CCM_FACTS": ("$KV.CCM_FACTS.web1",),
    "KV_CCM_DATA": ("$KV.CCM_DATA.common",),
    "KV_CCM_NODE_DATA": ("$KV.CCM_NODE_DATA.web1.node=2Fweb1.0",),
    "KV_CCM_ASSIGNMENTS": ("$KV.CCM_ASSIGNMENTS.all.app",),
    "KV_CCM_RUNS": (f"$KV.CCM_RUNS.ann.{RUN}",),
    "KV_CCM_SECRETS": ("$KV.CCM_SECRETS.wrap.web1.db", "$KV.CCM_SECRETS.value.db.1"),
    "KV_CCM_SLOTS": ("$KV.CCM_SLOTS.pg.web1",),
    "KV_CCM_TRUST": ("$KV.CCM_TRUST.signers",),
    "KV_CCM_JOINS": ("$KV.CCM_JOINS.node.web1",),
    "OBJ_CCM_MANIFESTS": ("$O.CCM_MANIFESTS.M.c2l0ZQ==", "$O.CCM_MANIFESTS.C.abc"),
    "CCM_EVENTS": (
        f"{PROTOCOL}.session.start.{RUN}.web1",
        f"{PROTOCOL}.session.summary.{RUN}.web1",
        f"{PROTOCOL}.transaction.event.{RUN}.web1",
        f"{PROTOCOL}.agent.startup.web1",
    ),
    "REGISTRATION": (f"{REGISTRATION_PREFIX}.prod.http.web.10_0_0_1.abc",),
    "CCM_SCHEDULES": (
        f"{SCHEDULE_PREFIX}.manifest.apply.request.all.nightly",
        f"{DUE_PREFIX}.manifest.apply.request.all",
    ),
}
"""Subjects of each stream that are not the attackers', and that hold a message before they begin."""

AUDITED = {
    AUDIT_STREAM: (operator_subject("ann"),),
    AUDIT_NODES_STREAM: (f"{PROTOCOL}.agent.decision.web1", f"{PROTOCOL}.agent.startup.web1"),
}
"""The same of the audit streams, which are in an account of their own."""

ARRIVES = {
    (Account.NODES, "request"): {Account.NODES},
    (Account.NODES, "poke"): {Account.NODES},
    (Account.NODES, "inbox"): {Account.NODES},
    (Account.OPS, "request"): {Account.OPS},
    (Account.OPS, "poke"): {Account.OPS},
    (Account.OPS, "inbox"): {Account.OPS},
    (Account.OPS, "event"): {Account.OPS},
    (Account.OPS, "spoken"): {Account.OPS},
    (Account.OPS, "join"): {Account.OPS},
    (Account.OPS, "notice"): {Account.OPS},
}
"""
Whom an answer reaches that a user of an account has sent to a subject of a kind: delivered, and to be refused by who gets it.

A request, an event or a request to join counts by its signature, a poke makes its receiver read what is stored, a notice makes it
query a node, and the name of an inbox is secret. Other answers are not delivered, and no answer is stored.
"""

ARRIVES_IN_CLUSTER = ARRIVES | {
    (Account.NODES, "event"): {Account.OPS},
    (Account.NODES, "spoken"): {Account.OPS, Account.CTL},
}
"""What nodes say goes to operators as a stream, which an answer takes too on its way to another server."""


ARRIVES_WITH_CREDENTIALS = ARRIVES | {(Account.NODES, "notice"): {Account.OPS, Account.CTL}}
"""The server itself, not an answer, tells operators that the connection of the attacker has ended."""


class Question(Struct, frozen=True):
    """
    Something that a user may publish, and that the broker answers.

    Attributes:
        line: The permission.
        subject, body: The message.
        is_write: It is to be stored, on that subject and nowhere else.
    """

    line: str
    subject: str
    body: bytes = b""
    is_write: bool = False


class Target(Struct, frozen=True, order=True):
    """A subject that an answer is sent to, and what it would count as there."""

    kind: str
    subject: str


def kind_of(subject: str) -> str:
    """What a message on a subject counts as."""
    prefixes = {
        f"{API}.": "api",
        "$KV.": "key",
        "$O.": "object",
        f"{SCHEDULE_PREFIX}.": "schedule",
        f"{DUE_PREFIX}.": "due",
        f"{NOTIFICATION_PREFIX}.": "poke",
        f"{REGISTRATION_PREFIX}.": "registration",
        f"{SESSION_ANSWER}.": "spoken",
        f"{SESSION_PROGRESS}.": "spoken",
        "_INBOX_": "inbox",
        f"{PROTOCOL}.join.": "join",
        DISCONNECTED: "notice",
    }
    for prefix, kind in prefixes.items():
        if subject.startswith(prefix):
            return kind
    if subject.startswith(f"{PROTOCOL}."):
        return "request" if subject.split(".")[6:7] == ["request"] else "event"
    return "server"


def targets() -> list[Target]:
    """Every subject that an answer could be sent to and mean something."""
    subjects = [one for name in layout_streams() for one in STORED[name]]
    subjects += [one for each in AUDITED.values() for one in each]
    subjects += [f"{API}.{verb}.{name}" for verb in _STREAM_VERBS for name in AUDITED]
    subjects += [_concrete(grant.subject) for grant in grants()]
    subjects += [_concrete(line) for allowed in VICTIMS.values() for line in allowed.subscribe]
    subjects += [
        f"{PROTOCOL}.manifest.apply.request.{scope}" for scope in ("all", "node.web1", "fact.role.web")
    ]
    for name in layout_streams():
        subjects += [f"{API}.{verb}.{name}" for verb in _STREAM_VERBS]
        subjects += [f"{API}.CONSUMER.CREATE.{name}.x.{STORED[name][0]}", f"{API}.CONSUMER.DELETE.{name}.x"]
        subjects.append(f"$JS.ACK.{name}.x.1.1.1.1.0")
    subjects += _OTHERS
    return sorted({Target(kind_of(subject), subject) for subject in subjects})


_STREAM_VERBS = (
    "STREAM.CREATE",
    "STREAM.UPDATE",
    "STREAM.DELETE",
    "STREAM.PURGE",
    "STREAM.INFO",
    "STREAM.MSG.DELETE",
    "STREAM.MSG.GET",
    "STREAM.SNAPSHOT",
    "STREAM.RESTORE",
    "STREAM.PEER.REMOVE",
    "STREAM.LEADER.STEPDOWN",
    "CONSUMER.CREATE",
    "CONSUMER.DURABLE.CREATE",
    "DIRECT.GET",
)
_OTHERS = (
    f"{API}.STREAM.CREATE.LOOT",
    f"{API}.META.LEADER.STEPDOWN",
    f"{API}.SERVER.REMOVE",
    f"{API}.ACCOUNT.PURGE.CTL",
    "$JS.FC.KV_CCM_DATA.x.1",
    "$SYS.REQ.SERVER.PING",
    "$SYS.REQ.ACCOUNT.CTL.CONNZ",
    "$SRV.PING",
    "_R_.x.y",
    "_GR_.x.y",
    "$KV.CCM_DATA.common.$FI",
    "$MQTT.sub.x",
)
"""Subjects that mean something to the server itself; the one with `$FI` ends as those of its batches do."""


def layout_streams() -> list[str]:
    """Every stream, bucket and object store of the project, by the name of its stream."""
    return [str(wanted.config["name"]) for wanted in plan(LayoutOptions(), with_schedules=True)]


def _concrete(pattern: str) -> str:
    """A subject that fits a pattern, of a node or operator who is not an attacker."""
    tokens = pattern.split(".")
    is_event = pattern.startswith(f"{PROTOCOL}.") and "request" not in tokens
    star, rest = (RUN, "web1") if is_event else ("x", "x")
    return ".".join(rest if token == ">" else star if token == "*" else token for token in tokens)


def _own(line: str, name: str) -> str:
    """The same of the attacker's own."""
    if line.startswith(f"{PROTOCOL}.") and ".request." in line:
        return line.replace(">", "fact.own.own")
    return ".".join(
        "own" if token == ">" else (RUN if line.startswith(PROTOCOL) else name) if token == "*" else token
        for token in line.split(".")
    )


def questions(name: str) -> list[Question]:
    """Everything that an attacker may ask."""
    return [question for line in ATTACKERS[name].publish for question in _questions(line, name)]


def _questions(line: str, name: str) -> Iterator[Question]:
    if line.startswith(f"{DIRECT}."):
        stream, _, pattern = line.removeprefix(f"{DIRECT}.").partition(".")
        if stream == ">":
            for audited in AUDITED:
                yield Question(line, f"{DIRECT}.{audited}", b'{"next_by_subj":">","seq":1,"batch":5}')
        for each in STREAMS if stream == ">" else [stream]:
            if not pattern:
                for body in (*_pages(each), *_chosen_ones(each, name)):
                    yield Question(line, f"{DIRECT}.{each}", body)
            if pattern or stream == ">":
                fit = [one for one in STORED[each] if subject_matches(pattern or ">", one)]
                for subject in (*fit, _own(pattern, name) if pattern else "none"):
                    yield Question(line, f"{DIRECT}.{each}.{subject}")
    elif line.startswith(f"{API}."):
        for each in STREAMS:
            subject = line.replace("*", each)
            yield Question(line, subject)
            yield Question(line, subject, b'{"subjects_filter":">"}')
    else:
        yield Question(line, _own(line, name), b'{"protocol":"x"}', is_write=True)


def _pages(stream: str) -> list[bytes]:
    """Bodies of a direct get: of one message, of many, of none, and of nothing that the broker could read."""
    subject = STORED[stream][0]
    bodies: list[dict[str, object]] = [
        {"seq": 1},
        {"last_by_subj": subject},
        {"last_by_subj": "none"},
        {"next_by_subj": ">", "seq": 1, "batch": 5},
        {"multi_last": [">"], "batch": 5},
    ]
    bodies += [body | {"no_hdr": True} for body in bodies]
    return [b"", b"{", *(json.dumps(body).encode() for body in bodies)]


CHOSEN = (
    b"",
    b"{}",
    b'{"name":"LOOT","subjects":["_INBOX_admin.>"],"storage":"memory"}',
    b'{"name":"CCM_EVENTS","subjects":["x"],"storage":"file","max_msgs":1}',
    b'{"seq":1}',
    b'{"protocol":"io.choria.ccm.v1.manifest.apply.request","run":"x"}',
)
"""What an attacker has stored where it may, so that its own words are in the answer: of calls of the API and of requests."""


def chosen_subjects(name: str) -> list[str]:
    """Where an attacker stores that."""
    if name == "evil":
        return [f"{REGISTRATION_PREFIX}.a.b.c.10_0_0_66.chosen{number}" for number in range(len(CHOSEN))]
    return [f"$KV.CCM_RUNS.{name}.chosen{number}" for number in range(len(CHOSEN))]


def _chosen_ones(stream: str, name: str) -> Iterator[bytes]:
    if stream == ("REGISTRATION" if name == "evil" else "KV_CCM_RUNS"):
        for subject in chosen_subjects(name):
            yield json.dumps({"last_by_subj": subject}).encode()
            yield json.dumps({"last_by_subj": subject, "no_hdr": True}).encode()


TRACED = f"{API}.STREAM.DELETE.CCM_EVENTS"
"""Where a header asks that a trace of the message be sent."""

WHOLE = (
    b"NATS/1.0\r\nNats-Rollup: all\r\n\r\n",
    b"NATS/1.0\r\nNats-Rollup: sub\r\n\r\n",
    f"NATS/1.0\r\nNats-Trace-Dest: {TRACED}\r\n\r\n".encode(),
    b'NATS/1.0\r\nNats-Request-Info: {"acc":"CTL"}\r\n\r\n',
    b'NATS/1.0\r\nNats-Request-Info: {"acc":"CTL"}',
    b"NATS/1.0\r\nNats-Expected-Stream: KV_CCM_DATA\r\n\r\n",
    b"NATS/1.0\r\nNats-Marker-Reason: Purge\r\n\r\n",
    b"NATS/1.0\r\nKV-Operation: PURGE\r\n\r\n",
    b"NATS/1.0\r\nNats-TTL: 1\r\n\r\n",
    b"NATS/1.0\r\nNats-Batch-Id: x\r\nNats-Batch-Sequence: 1\r\nNats-Batch-Commit: 1\r\n\r\n",
    b"NATS/1.0\r\nNats-Incr: +1\r\n\r\n",
    b"NATS/1.0\r\nCcm-Sent: 1\r\nNats-Msg-Id: x\r\n\r\n",
    b"NATS/1.0\r\nStatus: 404\r\n\r\n",
    b"NATS/1.0 503\r\n\r\n",
)
"""Header blocks that are well formed, and mean something to the server."""

BLOCKS = (*MALFORMED, b"\x00", b"\r\n", b"\n", b"abc", b"\nab", b"x\r\n\r", *WHOLE)


def is_within_power(question: Question, block: bytes) -> bool:
    """
    An operator may do this to the same stream anyway.

    Streams with schedules cannot be without rollup, and who writes schedules can replace each of them.
    """
    return question.line.startswith(SCHEDULE_PREFIX) and b"Rollup" in block


def plain_messages(name: str, *, chosen: Iterable[Target] | None = None) -> list[RawMessage]:
    """Each question with its answer sent to each target."""
    where = list(targets() if chosen is None else chosen)
    return [
        RawMessage(question.subject.encode(), question.body, b"", target.subject.encode())
        for question in questions(name)
        for target in where
    ]


def one_of_each_kind() -> list[Target]:
    """A target of each kind; of the API those that need no more than an empty or a chosen message."""
    first: dict[str, Target] = {}
    for target in targets():
        first.setdefault(target.kind, target)
    worst = [
        f"{API}.STREAM.PURGE.CCM_EVENTS",
        f"{API}.STREAM.DELETE.KV_CCM_RUNS",
        f"{API}.STREAM.CREATE.LOOT",
    ]
    return [*first.values(), *(Target("api", subject) for subject in worst)]


def odd_messages(name: str, blocks: Iterable[bytes] = BLOCKS) -> list[RawMessage]:
    """Each subject that the attacker may publish on with each odd header block, answered to a target of each kind and to none."""
    replies = [b"", *(target.subject.encode() for target in one_of_each_kind())]
    asked = {question.subject: question for question in questions(name)}.values()
    return [
        RawMessage(question.subject.encode(), question.body, block, reply)
        for question in asked
        for block in blocks
        if not is_within_power(question, block)
        for reply in replies
    ]
