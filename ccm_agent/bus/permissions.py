"""
Permissions on the broker, as data: the account and the subjects of a node and of an operator.

A broker checks only the subject that a user publishes on or subscribes to. It does not check where a reply is sent, nor the
content of a body. For this reason, subjects contain scope and sender, `bus.accounts` separates replies from stored data, and
agents check the rest (`bus.requests`, `bus.events`, `bus.signing`). tests/nats/test_permissions.py tests every line on a real
server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from ccm_agent.bus.accounts import API, DIRECT, Account
from ccm_agent.bus.audit import AUDIT_STREAMS, operator_subject
from ccm_agent.bus.events import EVENTS_STREAM
from ccm_agent.bus.layout import (
    ASSIGNMENTS,
    DATA,
    FACTS,
    MANIFESTS,
    NODE_DATA,
    NODES,
    REGISTRATION,
    RUNS,
    SLOTS,
    TRUST,
)
from ccm_agent.bus.requests import SCHEDULES_STREAM
from ccm_agent.bus.subjects import (
    DUE_PREFIX,
    NOTIFICATION_PREFIX,
    REGISTRATION_PREFIX,
    ROLLOUTS,
    SCHEDULE_PREFIX,
    SERVERS,
    STARTS,
    check_node,
    check_scope,
    encode_token,
    inbox_prefix,
    key_subject,
    notification_subject,
    request_pattern,
    subject_matches,
)
from ccm_agent.bus.trust import EVERYWHERE
from ccm_agent.model.outcome import SESSION_START, SESSION_SUMMARY, TRANSACTION_EVENT
from ccm_agent.model.wire import (
    MANIFEST_APPLY,
    MANIFEST_CHECK,
    MANIFEST_PLAN,
    NODE_CONVERGE,
    NODE_DISABLE,
    NODE_ENABLE,
    NODE_FACTS,
    NODE_PING,
    NODE_STATUS,
    PROTOCOL,
    RESOURCE_ENSURE,
    RESOURCE_EXEC,
    RUN_STOP,
    SESSION_ANSWER,
    SESSION_PROGRESS,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


_ROLLOUT_KEYS = (f"{ROLLOUTS}.*", f"{STARTS}.*.starts", f"{SERVERS}.*")
"""What drivers and servers of rollouts write."""


class Permissions(Struct, frozen=True, kw_only=True):
    """
    The permissions of a user of the broker; everything else is denied.

    Attributes:
        account: The user's account.
        publish: Subjects it may publish on.
        subscribe: Subjects it may subscribe to.
    """

    account: Account
    publish: tuple[str, ...]
    subscribe: tuple[str, ...]

    def as_configuration(self) -> str:
        """The value of `permissions` in a nats-server configuration."""
        publish, subscribe = (
            ", ".join(f'"{subject}"' for subject in subjects) for subjects in (self.publish, self.subscribe)
        )
        return f"{{ publish: [{publish}], subscribe: [{subscribe}] }}"


class Role(Struct, frozen=True, kw_only=True):
    """
    The permissions of an operator, in the terms of the command line. Every operator may read facts, status and events.

    Attributes:
        plan: Scopes, or EVERYWHERE, in which the operator may plan and check. Nodes that demand signatures run no commands of
            such a manifest. Other nodes run its guards and checks as root, because they cannot identify the operator.
        apply: Scopes, or EVERYWHERE, in which the operator may also change nodes, by request or by assignment, and stop runs.
        exec: Scopes, or EVERYWHERE, in which the operator may run single commands, and stop runs.
        maintain: Scopes, or EVERYWHERE, in which the operator may disable and enable nodes, and have them converge now.
        data: May write hiera documents.
        facts: May assign facts, and so move nodes into any role.
        schedules: May create schedules, and so apply anywhere: the broker does not compare a schedule's target with its subject.
        admin: May create streams, remove nodes, register and remove services, and purge.
    """

    plan: tuple[str, ...] = ()
    apply: tuple[str, ...] = ()
    exec: tuple[str, ...] = ()
    maintain: tuple[str, ...] = ()
    data: bool = False
    facts: bool = False
    schedules: bool = False
    admin: bool = False


def node_permissions(
    node: str, addresses: Sequence[str] = (), *, reads_registrations: bool = False
) -> Permissions:
    """
    The permissions of a node: publish under its own name, receive its requests, and read what operators wrote.

    It may not read events or `CCM_NODES`. Fact scopes are allowed by wildcard, because facts change; a node can therefore
    receive requests to other roles.

    Args:
        node: Its identity.
        addresses: The addresses on which it may register services; without any, it may register none.
        reads_registrations: It may read the registrations of other nodes, as a load balancer does.
    """
    check_node(node)
    run_protocols = (TRANSACTION_EVENT, SESSION_START, SESSION_SUMMARY, SESSION_PROGRESS, SESSION_ANSWER)
    publish = (
        *(f"{protocol}.*.{node}" for protocol in run_protocols),
        f"{PROTOCOL}.agent.*.{node}",
        *(key_subject(NODES, f"{kind}.{node}") for kind in ("node", "facts", "presence")),
        # Its own entry of each slot, and the entries of all nodes.
        key_subject(SLOTS, f"*.{node}"),
        f"{DIRECT}.KV_{SLOTS}",
        *(f"{REGISTRATION_PREFIX}.*.*.*.{address.replace('.', '_')}.*" for address in addresses),
        f"{DIRECT}.KV_{FACTS}.{key_subject(FACTS, node)}",
        # Wildcards of assignments and pages of a bundle are requested in the body, which a broker does not check.
        f"{DIRECT}.KV_{ASSIGNMENTS}",
        f"{DIRECT}.KV_{DATA}.>",
        # Earlier revisions are requested in the body, too.
        f"{DIRECT}.KV_{DATA}",
        # The texts of its own documents, by subject only: never the bare question, whose body the broker does not check.
        f"{DIRECT}.KV_{NODE_DATA}.{key_subject(NODE_DATA, encode_token(node))}.>",
        f"{DIRECT}.OBJ_{MANIFESTS}",
        f"{DIRECT}.OBJ_{MANIFESTS}.$O.{MANIFESTS}.M.*",
        f"{DIRECT}.{SCHEDULES_STREAM}.{DUE_PREFIX}.>",
        f"{DIRECT}.{SCHEDULES_STREAM}.{SCHEDULE_PREFIX}.>",
        f"{DIRECT}.KV_{TRUST}.{key_subject(TRUST, '>')}",
        *((f"{DIRECT}.{REGISTRATION}",) if reads_registrations else ()),
    )
    subscribe = (
        request_pattern("all"),
        request_pattern(f"node.{node}"),
        f"{PROTOCOL}.*.*.request.fact.*.*",
        notification_subject(FACTS, node),
        notification_subject(DATA, ">"),
        notification_subject(ASSIGNMENTS, ">"),
        notification_subject(MANIFESTS, ">"),
        notification_subject(TRUST, ">"),
        f"{inbox_prefix(node)}.>",
    )
    return Permissions(account=Account.NODES, publish=publish, subscribe=subscribe)


def operator_permissions(name: str, role: Role) -> Permissions:
    """
    The permissions of an operator: read and receive everything, and send and write what the role allows.

    Operators who may create and purge streams are in the account of the streams; all others are in an account without streams
    (`bus.accounts`).
    """
    publish = [
        *_requests((EVERYWHERE,), (NODE_PING, NODE_FACTS, NODE_STATUS)),
        *_requests((*role.plan, *role.apply), (MANIFEST_PLAN, MANIFEST_CHECK)),
        *_requests(role.apply, (MANIFEST_APPLY, RESOURCE_ENSURE, RUN_STOP)),
        *_requests(role.exec, (RESOURCE_EXEC, RUN_STOP)),
        *_requests(role.maintain, (NODE_DISABLE, NODE_ENABLE, NODE_CONVERGE)),
        # Records of runs are below a token of their operator, so that the key proves the author.
        key_subject(RUNS, f"{encode_token(name)}.>"),
        *(key_subject(RUNS, key) for key in _ROLLOUT_KEYS if role.apply),
        *(key_subject(ASSIGNMENTS, _all_of(scope)) for scope in role.apply),
        # Below the same token, for the same reason; the stream is in an account where no operator can purge it.
        operator_subject(name),
        f"{API}.STREAM.INFO.*",
        f"{DIRECT}.>",
    ]
    if role.plan or role.apply or role.schedules:
        publish += [f"$O.{MANIFESTS}.{part}.*" for part in ("C", "M")]
    if role.data:
        publish += [key_subject(DATA, ">"), key_subject(NODE_DATA, ">")]
    if role.facts:
        publish.append(key_subject(FACTS, ">"))
    if role.schedules:
        publish.append(f"{SCHEDULE_PREFIX}.>")
    if EVERYWHERE in role.apply:
        publish.append(key_subject(SLOTS, ">"))
    if role.admin:
        publish += [
            key_subject(NODES, ">"),
            key_subject(TRUST, ">"),
            f"{REGISTRATION_PREFIX}.>",
            f"{API}.INFO",
            f"{API}.STREAM.NAMES",
            f"{API}.STREAM.LIST",
        ]
        publish += [f"{API}.STREAM.{verb}.*" for verb in ("CREATE", "UPDATE")]
        purged = (
            SCHEDULES_STREAM,
            EVENTS_STREAM,
            REGISTRATION,
            f"OBJ_{MANIFESTS}",
            f"KV_{RUNS}",
            f"KV_{NODES}",
            f"KV_{DATA}",
        )
        publish += [f"{API}.STREAM.PURGE.{name}" for name in purged]
    subscribe = (
        f"{PROTOCOL}.*.*.*.>",
        f"{PROTOCOL}.agent.*.>",
        f"{NOTIFICATION_PREFIX}.>",
        f"{inbox_prefix(name)}.>",
    )
    account = Account.CTL if role.admin else Account.OPS
    return Permissions(account=account, publish=tuple(dict.fromkeys(publish)), subscribe=subscribe)


def audit_permissions(name: str) -> Permissions:
    """The permissions of the user that creates the audit streams: nothing but that."""
    api = (f"STREAM.{verb}.{stream}" for verb in ("INFO", "CREATE", "UPDATE") for stream in AUDIT_STREAMS)
    return Permissions(
        account=Account.AUDIT,
        publish=tuple(f"{API}.{each}" for each in api),
        subscribe=(f"{inbox_prefix(name)}.>",),
    )


def operator_flag_for(subject: str) -> str:
    """
    The first option of `ccmctl operator add` that allows publishing on a subject.

    Returns:
        The option, such as `--data`; "" if every operator may, or no operator.
    """
    if _lets(Role(), subject):
        return ""
    roles = {
        "--plan": Role(plan=(EVERYWHERE,)),
        "--apply": Role(apply=(EVERYWHERE,)),
        "--exec": Role(exec=(EVERYWHERE,)),
        "--maintain": Role(maintain=(EVERYWHERE,)),
        "--data": Role(data=True),
        "--facts": Role(facts=True),
        "--schedules": Role(schedules=True),
        "--admin": Role(admin=True),
    }
    return next((word for word, role in roles.items() if _lets(role, subject)), "")


def _lets(role: Role, subject: str) -> bool:
    return any(subject_matches(each, subject) for each in operator_permissions("somebody", role).publish)


def _requests(scopes: Sequence[str], protocols: Sequence[str]) -> list[str]:
    return [f"{protocol}.{_scope(scope)}" for scope in scopes for protocol in protocols]


def _scope(scope: str) -> str:
    return scope if scope == EVERYWHERE else check_scope(scope)


def _all_of(scope: str) -> str:
    """The keys of a scope: the scope, and one token for the name."""
    return scope if scope == EVERYWHERE else f"{check_scope(scope)}.*"
