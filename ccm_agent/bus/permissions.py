"""
Who may do what on the broker, as data: the account and the lists of a node and of an operator.

A broker checks the subject that a user publishes on or subscribes to, and nothing else: not where an answer is sent, not what a
body says. So subjects carry scope and sender, `bus.accounts` keeps answers away from what is stored, and the rest is checked by
the agents (`bus.requests`, `bus.events`, `bus.signing`). tests/nats/test_permissions.py tries every line on a real server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from ccm_agent.bus.accounts import API, DIRECT, Account
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
    TRUST,
)
from ccm_agent.bus.requests import SCHEDULES_STREAM
from ccm_agent.bus.subjects import (
    DUE_PREFIX,
    POKE_PREFIX,
    REGISTRATION_PREFIX,
    SCHEDULE_PREFIX,
    check_node,
    check_scope,
    encode_token,
    inbox_prefix,
    key_subject,
    poke_subject,
    request_pattern,
    subject_matches,
)
from ccm_agent.bus.trust import EVERYWHERE
from ccm_agent.model.outcome import SESSION_START, SESSION_SUMMARY, TRANSACTION_EVENT
from ccm_agent.model.wire import (
    MANIFEST_APPLY,
    MANIFEST_CHECK,
    MANIFEST_PLAN,
    NODE_FACTS,
    NODE_PING,
    NODE_STATUS,
    PROTOCOL,
    RESOURCE_ENSURE,
    RUN_STOP,
    SESSION_ANSWER,
    SESSION_PROGRESS,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


class Permissions(Struct, frozen=True, kw_only=True):
    """
    What a user of the broker may do; everything else is denied.

    Attributes:
        account: Where it lives.
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
    What an operator is allowed, in the words of people. Everybody may look at everything: facts, status, events.

    Attributes:
        plan: Scopes, or EVERYWHERE: where manifests may be planned and checked. Nodes that demand signatures run no command of
            such a manifest; others run its guards and checks as root, for they cannot tell who asks.
        apply: Scopes, or EVERYWHERE: where changes may go too, by request or by assignment, and where runs may be stopped.
        data: May write hiera documents.
        facts: May assign facts, and so move nodes into any role.
        schedules: May make schedules, and so apply anywhere: the broker does not compare a schedule's target with its subject.
        admin: May make streams, remove nodes, register and remove services, and purge.
    """

    plan: tuple[str, ...] = ()
    apply: tuple[str, ...] = ()
    data: bool = False
    facts: bool = False
    schedules: bool = False
    admin: bool = False


def node_permissions(
    node: str, addresses: Sequence[str] = (), *, reads_registrations: bool = False
) -> Permissions:
    """
    What a node may do: speak in its own name, hear what is for it, and read what operators wrote.

    It reads no events and no `CCM_NODES`. Fact scopes are allowed by wildcard, for facts change; a node may thus overhear
    requests to other roles.

    Args:
        node: Its identity.
        addresses: Where its services may say that they are; without any it registers none.
        reads_registrations: It may read what other nodes registered, for a load balancer.
    """
    check_node(node)
    run_protocols = (TRANSACTION_EVENT, SESSION_START, SESSION_SUMMARY, SESSION_PROGRESS, SESSION_ANSWER)
    publish = (
        *(f"{protocol}.*.{node}" for protocol in run_protocols),
        f"{PROTOCOL}.agent.*.{node}",
        *(key_subject(NODES, f"{kind}.{node}") for kind in ("node", "facts", "presence")),
        *(f"{REGISTRATION_PREFIX}.*.*.*.{address.replace('.', '_')}.*" for address in addresses),
        f"{DIRECT}.KV_{FACTS}.{key_subject(FACTS, node)}",
        # The wildcards of assignments and the pages of a bundle are asked for in the body, where a broker sees nothing.
        f"{DIRECT}.KV_{ASSIGNMENTS}",
        f"{DIRECT}.KV_{DATA}.>",
        # As it was at a revision: the past, too, is asked for in the body.
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
        poke_subject(FACTS, node),
        poke_subject(DATA, ">"),
        poke_subject(ASSIGNMENTS, ">"),
        poke_subject(MANIFESTS, ">"),
        poke_subject(TRUST, ">"),
        f"{inbox_prefix(node)}.>",
    )
    return Permissions(account=Account.NODES, publish=publish, subscribe=subscribe)


def operator_permissions(name: str, role: Role) -> Permissions:
    """
    What an operator may do: read and hear everything, and send and write what the role allows.

    Who may make and purge streams lives where they are; all others in an account that has none (`bus.accounts`).
    """
    publish = [
        *_requests((EVERYWHERE,), (NODE_PING, NODE_FACTS, NODE_STATUS)),
        *_requests((*role.plan, *role.apply), (MANIFEST_PLAN, MANIFEST_CHECK)),
        *_requests(role.apply, (MANIFEST_APPLY, RESOURCE_ENSURE, RUN_STOP)),
        # Records of runs: below a token of the operator's own, so that a record says who wrote it.
        key_subject(RUNS, f"{encode_token(name)}.>"),
        *(key_subject(ASSIGNMENTS, _all_of(scope)) for scope in role.apply),
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
        f"{POKE_PREFIX}.>",
        f"{inbox_prefix(name)}.>",
    )
    account = Account.CTL if role.admin else Account.OPS
    return Permissions(account=account, publish=tuple(dict.fromkeys(publish)), subscribe=subscribe)


def word_for(subject: str) -> str:
    """
    The first word of `ccmctl operator add` that lets somebody publish on a subject.

    Returns:
        The word, `--data` for one; "" when every operator may, or none.
    """
    if _lets(Role(), subject):
        return ""
    roles = {
        "--plan": Role(plan=(EVERYWHERE,)),
        "--apply": Role(apply=(EVERYWHERE,)),
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
    """The keys of a scope: what follows it is the name, one token."""
    return scope if scope == EVERYWHERE else f"{check_scope(scope)}.*"
