"""
Permissions on the broker, as data: the account and the subjects of a node and of an operator.

A broker checks only the subject that a user publishes on or subscribes to. It does not check the reply subject or the content of
a body. For this reason, subjects contain scope and sender, `bus.access.accounts` separates replies from stored data, and agents
check the rest (`bus.requests`, `bus.events`, `bus.signatures.signing`). tests/nats/test_permissions.py tests every line on a
real server.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ccm_agent.bus.access.accounts import API, DIRECT, Account
from ccm_agent.bus.access.audit import AUDIT_STREAMS, operator_subject
from ccm_agent.bus.events import EVENTS_STREAM
from ccm_agent.bus.layout import (
    ASSIGNMENTS,
    DATA,
    FACTS,
    JOINS,
    MANIFESTS,
    NODE_DATA,
    NODES,
    REGISTRATION,
    RUNS,
    SLOTS,
    TRUST,
)
from ccm_agent.bus.requests import SCHEDULES_STREAM
from ccm_agent.bus.signatures.sealing import SEALING_KEY, SECRETS
from ccm_agent.bus.signatures.trust import EVERYWHERE
from ccm_agent.bus.subjects import (
    DISCONNECTED,
    INBOX,
    NOTIFICATION_PREFIX,
    REGISTRATION_PREFIX,
    REQUEST_PREFIX,
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
from ccm_agent.model.outcome import TRANSACTION_EVENT
from ccm_agent.model.records.join import JOIN_RENEWAL, JOIN_REQUEST
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
    RESOURCE_IMPORT,
    RUN_STOP,
)

_ROLLOUT_KEYS = (f"{ROLLOUTS}.*", f"{STARTS}.*.starts", f"{SERVERS}.*")
"""The keys that drivers and servers of rollouts write."""


class Permissions(Struct, frozen=True, kw_only=True):
    """
    The permissions of a user of the broker; everything else is denied.

    Attributes:
        account: The user's account.
        publish: The subjects on which the user may publish.
        subscribe: The subjects to which the user may subscribe.
        tags: For a node: the tags that its credentials contain if the servers store the permissions (`node_template`).
        answers: Whether it may also answer each message that it receives, once.
    """

    account: Account
    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    tags: tuple[str, ...] = ()
    answers: bool = False

    def as_configuration(self) -> str:
        """Return the value of `permissions` for a nats-server configuration."""
        publish, subscribe = (
            ", ".join(f'"{subject}"' for subject in subjects) for subjects in (self.publish, self.subscribe)
        )
        answers = ", allow_responses: true" if self.answers else ""
        return f"{{ publish: [{publish}], subscribe: [{subscribe}]{answers} }}"


class Role(Struct, frozen=True, kw_only=True):
    """
    The permissions of an operator, in the terms of the command line. Every operator may read facts, status and events.

    Attributes:
        plan: Scopes, or EVERYWHERE, in which the operator may plan, check and import. Nodes that require signatures do not run
            commands of such a manifest. Other nodes run its guards and checks as root, because they cannot identify the operator.
        apply: Scopes, or EVERYWHERE, in which the operator may also change nodes, by request or by assignment, and stop runs.
        exec: Scopes, or EVERYWHERE, in which the operator may run single commands, and stop runs.
        maintain: Scopes, or EVERYWHERE, in which the operator may disable and enable nodes, and make them converge now.
        data: Whether the operator may write Hiera documents.
        facts: Whether the operator may assign facts, and thereby move nodes into any role.
        schedules: Whether the operator may create schedules, and so apply anywhere: the broker does not compare a schedule's
            target with its subject.
        join: Whether the operator may create join tokens, answer nodes that join, renew their credentials or leave, and remove
            their stored entries.
        admin: Whether the operator may create streams, remove nodes, register and remove services, and purge.
    """

    plan: tuple[str, ...] = ()
    apply: tuple[str, ...] = ()
    exec: tuple[str, ...] = ()
    maintain: tuple[str, ...] = ()
    data: bool = False
    facts: bool = False
    schedules: bool = False
    join: bool = False
    admin: bool = False


NODE_KINDS = ("node", "facts", "presence")
"""The kinds of keys that a node writes about itself in CCM_NODES."""

TOKEN_TAG, ADDRESS_TAG, READS_TAG = "token", "address", "reads"
"""Tags of a node's credentials: its name as one token, its addresses, and the stream of registrations if the node may read it."""


def node_template() -> Permissions:
    """
    Return the permissions of all nodes with credentials from a scoped signing key, with the server's placeholders.

    `{{name()}}` is replaced by the user's name, and `{{tag(address)}}` by each of its tags that begins with `address:`. The
    servers store these permissions, so they can change without new credentials (ADR 118).
    """
    publish, subscribe = _node_subjects(
        "{{name()}}",
        f"{{{{tag({TOKEN_TAG})}}}}",
        (f"{{{{tag({ADDRESS_TAG})}}}}",),
        f"{{{{tag({READS_TAG})}}}}",
    )
    return Permissions(account=Account.NODES, publish=publish, subscribe=subscribe)


def node_permissions(
    node: str, addresses: Sequence[str] = (), *, reads_registrations: bool = False
) -> Permissions:
    """
    Return the permissions of a node: publish under its own name, receive its requests, and read documents of operators.

    A node may not read events or `CCM_NODES`. Fact scopes are allowed by wildcard, because facts change. A node can therefore
    receive requests to other roles.

    Args:
        node: Its identity.
        addresses: The addresses on which it may register services; if empty, it may not register any.
        reads_registrations: Whether it may read the registrations of other nodes, as a load balancer does.
    """
    publish, subscribe = _node_subjects(
        check_node(node),
        encode_token(node),
        [_address_token(address) for address in addresses],
        REGISTRATION if reads_registrations else "",
    )
    tags = (
        f"{TOKEN_TAG}:{encode_token(node)}",
        *(f"{ADDRESS_TAG}:{_address_token(address)}" for address in addresses),
        *((f"{READS_TAG}:{REGISTRATION}",) if reads_registrations else ()),
    )
    return Permissions(account=Account.NODES, publish=publish, subscribe=subscribe, tags=tags)


def _node_subjects(
    node: str, token: str, addresses: Sequence[str], registrations: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """
    Return all subjects that a node may publish and subscribe to, for one node or for the template. This is the only such list.
    """
    publish = (
        # Start, summary, progress and answer of a run.
        f"{PROTOCOL}.session.*.*.{node}",
        f"{TRANSACTION_EVENT}.*.{node}",
        f"{PROTOCOL}.agent.*.{node}",
        *(key_subject(NODES, f"{kind}.{node}") for kind in NODE_KINDS),
        f"{JOIN_RENEWAL}.{node}",
        # The node's own entry of each slot, and the entries of all nodes.
        key_subject(SLOTS, f"*.{node}"),
        f"{DIRECT}.KV_{SLOTS}",
        *(f"{REGISTRATION_PREFIX}.*.*.*.{address}.*" for address in addresses),
        f"{DIRECT}.KV_{FACTS}.{key_subject(FACTS, node)}",
        # Wildcards of assignments and pages of a bundle are requested in the body, which a broker does not check.
        f"{DIRECT}.KV_{ASSIGNMENTS}",
        f"{DIRECT}.KV_{DATA}.>",
        # Earlier revisions are also requested in the body.
        f"{DIRECT}.KV_{DATA}",
        # The texts of its own documents. The key must be in the subject of the request, because the broker does not check the
        # body.
        f"{DIRECT}.KV_{NODE_DATA}.{key_subject(NODE_DATA, token)}.>",
        # The same applies to data keys that are sealed to this node, and to encrypted values.
        f"{DIRECT}.KV_{SECRETS}.{key_subject(SECRETS, 'wrap')}.{token}.*",
        f"{DIRECT}.KV_{SECRETS}.{key_subject(SECRETS, 'value')}.>",
        f"{DIRECT}.OBJ_{MANIFESTS}",
        # The account imports these calls for fewer subjects. Each level of a pattern costs the server memory for each connection.
        f"{DIRECT}.OBJ_{MANIFESTS}.>",
        f"{DIRECT}.{SCHEDULES_STREAM}.>",
        f"{DIRECT}.KV_{TRUST}.>",
        *((f"{DIRECT}.{registrations}",) if registrations else ()),
    )
    subscribe = (
        request_pattern("all"),
        f"{REQUEST_PREFIX}.node.{node}",
        f"{REQUEST_PREFIX}.fact.*.*",
        notification_subject(FACTS, node),
        notification_subject(DATA, ">"),
        notification_subject(ASSIGNMENTS, ">"),
        notification_subject(MANIFESTS, ">"),
        notification_subject(TRUST, ">"),
        f"{INBOX}{token}.>",
    )
    return publish, subscribe


def _address_token(address: str) -> str:
    return address.replace(".", "_")


def operator_permissions(name: str, role: Role) -> Permissions:
    """
    Return the permissions of an operator: read and receive everything, and send and write as the role allows.

    Operators who may create and purge streams are in the account of the streams; all others are in an account without streams
    (`bus.access.accounts`).
    """
    publish = [
        *_requests((EVERYWHERE,), (NODE_PING, NODE_FACTS, NODE_STATUS)),
        *_requests((*role.plan, *role.apply), (MANIFEST_PLAN, MANIFEST_CHECK, RESOURCE_IMPORT)),
        *_requests(role.apply, (MANIFEST_APPLY, RESOURCE_ENSURE, RUN_STOP)),
        *_requests(role.exec, (RESOURCE_EXEC, RUN_STOP)),
        *_requests(role.maintain, (NODE_DISABLE, NODE_ENABLE, NODE_CONVERGE)),
        # Records of runs are below a token of their operator, so that the key proves the author.
        key_subject(RUNS, f"{encode_token(name)}.>"),
        *(key_subject(RUNS, key) for key in _ROLLOUT_KEYS if role.apply),
        *(key_subject(ASSIGNMENTS, _all_of(scope)) for scope in role.apply),
        # Audit entries are below the same token, for the same reason. No operator can purge their stream.
        operator_subject(name),
        f"{API}.STREAM.INFO.*",
        f"{DIRECT}.>",
    ]
    if role.plan or role.apply or role.schedules:
        publish += [f"$O.{MANIFESTS}.{part}.*" for part in ("C", "M")]
    if role.data:
        publish += [key_subject(DATA, ">"), key_subject(NODE_DATA, ">")]
        publish += [key_subject(SECRETS, f"{kind}.>") for kind in ("head", "value", "wrap")]
    if role.facts:
        publish.append(key_subject(FACTS, ">"))
    if role.schedules:
        publish.append(f"{SCHEDULE_PREFIX}.>")
    if EVERYWHERE in role.apply:
        publish.append(key_subject(SLOTS, ">"))
    if role.join or role.admin:
        publish.append(key_subject(JOINS, ">"))
    if role.join:
        # Entries that are removed when a node leaves. The service could write all of them, except data keys, with credentials
        # that it issues.
        publish += [key_subject(NODES, f"{kind}.>") for kind in NODE_KINDS]
        publish += [key_subject(SLOTS, ">"), key_subject(SECRETS, "wrap.>")]
    if role.admin:
        publish += [
            key_subject(NODES, ">"),
            key_subject(TRUST, ">"),
            key_subject(SECRETS, SEALING_KEY),
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
        DISCONNECTED,
        f"{inbox_prefix(name)}.>",
        *((f"{JOIN_REQUEST}.*", f"{JOIN_RENEWAL}.>") if role.join else ()),
    )
    account = Account.CTL if role.admin else Account.OPS
    return Permissions(
        account=account,
        publish=tuple(dict.fromkeys(publish)),
        subscribe=subscribe,
        answers=role.join,
    )


def token_permissions(token: str) -> Permissions:
    """Return the permissions of the holder of a join token: one request, and its answer."""
    return Permissions(
        account=Account.JOIN,
        publish=(f"{JOIN_REQUEST}.{token}",),
        subscribe=(f"{inbox_prefix(token)}.>",),
    )


def audit_permissions(name: str) -> Permissions:
    """Return the permissions of the user that creates the audit streams, which may do only that."""
    api = (f"STREAM.{verb}.{stream}" for verb in ("INFO", "CREATE", "UPDATE") for stream in AUDIT_STREAMS)
    return Permissions(
        account=Account.AUDIT,
        publish=tuple(f"{API}.{each}" for each in api),
        subscribe=(f"{inbox_prefix(name)}.>",),
    )


def operator_flag_for(subject: str) -> str:
    """
    Return the first option of `ccmctl operator add` that allows publishing on a subject.

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
        "--join": Role(join=True),
        "--admin": Role(admin=True),
    }
    return next((word for word, role in roles.items() if _lets(role, subject)), "")


def _lets(role: Role, subject: str) -> bool:
    return any(subject_matches(each, subject) for each in operator_permissions("name", role).publish)


def _requests(scopes: Sequence[str], protocols: Sequence[str]) -> list[str]:
    return [f"{protocol}.{_scope(scope)}" for scope in scopes for protocol in protocols]


def _scope(scope: str) -> str:
    return scope if scope == EVERYWHERE else check_scope(scope)


def _all_of(scope: str) -> str:
    """Return the keys of a scope: the scope, and one token for the name."""
    return scope if scope == EVERYWHERE else f"{check_scope(scope)}.*"
