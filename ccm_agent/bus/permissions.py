"""
Who may do what on the broker, as data: the lists of a node and of an operator.

A broker checks the subject that somebody publishes on or subscribes to, and nothing else: not where an answer is sent, not what a
body says. So each list is made for a project in which subjects carry scope and sender, and what they cannot bound the agents
check themselves (`bus.requests`, `bus.events`). Every line is tried on a real server in tests/nats/test_permissions.py.

Consumers appear once: who may read what other nodes wrote does it by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from ccm_agent.bus.events import EVENTS_STREAM
from ccm_agent.bus.layout import ASSIGNMENTS, DATA, FACTS, MANIFESTS, NODES, REGISTRATION, RUNS
from ccm_agent.bus.requests import SCHEDULES_STREAM
from ccm_agent.bus.subjects import (
    DUE_PREFIX,
    POKE_PREFIX,
    REGISTRATION_PREFIX,
    SCHEDULE_PREFIX,
    check_node,
    check_scope,
    inbox_prefix,
    key_subject,
    poke_subject,
    request_pattern,
    subject_matches,
)
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

EVERYWHERE = ">"
"""In the place of a scope: every scope."""

_DIRECT = "$JS.API.DIRECT.GET"


class Permissions(Struct, frozen=True, kw_only=True):
    """
    What a user of the broker may do; everything else is denied.

    Attributes:
        publish: Subjects it may publish on.
        subscribe: Subjects it may subscribe to.
    """

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
        plan: Scopes, or EVERYWHERE: where manifests may be planned and checked. Nothing is managed then, but guards, checks and
            templates of a manifest that the operator brings run as root: it is a matter of trust as much as `apply` is.
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

    It reads no events, no `CCM_NODES` and no registrations: what nodes write could otherwise be sent elsewhere, as the answer
    to a question. Fact scopes are allowed by wildcard, for facts change; a node may thus overhear requests to other roles.

    Args:
        node: Its identity.
        addresses: Where its services may say that they are; without any it registers none.
        reads_registrations: It may read what other nodes registered, for a load balancer: by a consumer, whose messages keep
            their subject wherever they are sent (ADR 60).
    """
    check_node(node)
    run_protocols = (TRANSACTION_EVENT, SESSION_START, SESSION_SUMMARY, SESSION_PROGRESS, SESSION_ANSWER)
    publish = (
        *(f"{protocol}.*.{node}" for protocol in run_protocols),
        f"{PROTOCOL}.agent.*.{node}",
        *(key_subject(NODES, f"{kind}.{node}") for kind in ("node", "facts", "presence")),
        *(f"{REGISTRATION_PREFIX}.*.*.*.{address.replace('.', '_')}.*" for address in addresses),
        f"{_DIRECT}.KV_{FACTS}.{key_subject(FACTS, node)}",
        # The wildcards of assignments and the pages of a bundle are asked for in the body, where a broker sees nothing.
        f"{_DIRECT}.KV_{ASSIGNMENTS}",
        f"{_DIRECT}.KV_{DATA}.>",
        # As it was at a revision: the past, too, is asked for in the body.
        f"{_DIRECT}.KV_{DATA}",
        f"{_DIRECT}.OBJ_{MANIFESTS}",
        f"{_DIRECT}.OBJ_{MANIFESTS}.>",
        f"{_DIRECT}.{SCHEDULES_STREAM}.{DUE_PREFIX}.>",
        *(_reads_registrations() if reads_registrations else ()),
    )
    subscribe = (
        request_pattern("all"),
        request_pattern(f"node.{node}"),
        f"{PROTOCOL}.*.*.request.fact.*.*",
        poke_subject(FACTS, node),
        poke_subject(DATA, ">"),
        poke_subject(ASSIGNMENTS, ">"),
        poke_subject(MANIFESTS, ">"),
        f"{inbox_prefix(node)}.>",
    )
    return Permissions(publish=publish, subscribe=subscribe)


def _reads_registrations() -> tuple[str, ...]:
    return (
        f"$JS.API.CONSUMER.CREATE.{REGISTRATION}.*.{REGISTRATION_PREFIX}.>",
        f"$JS.API.CONSUMER.MSG.NEXT.{REGISTRATION}.*",
    )


def operator_permissions(name: str, role: Role) -> Permissions:
    """
    What an operator may do: hear everything, and send and write what the role allows.

    An operator may read everything by direct get, and so have stored words sent elsewhere; that agents and readers refuse
    copies is what stops it.
    """
    publish = [
        *_requests((EVERYWHERE,), (NODE_PING, NODE_FACTS, NODE_STATUS)),
        *_requests((*role.plan, *role.apply), (MANIFEST_PLAN, MANIFEST_CHECK)),
        *_requests(role.apply, (MANIFEST_APPLY, RESOURCE_ENSURE, RUN_STOP)),
        key_subject(RUNS, ">"),
        *(key_subject(ASSIGNMENTS, _all_of(scope)) for scope in role.apply),
        "$JS.API.INFO",
        "$JS.API.STREAM.INFO.*",
        "$JS.API.STREAM.NAMES",
        "$JS.API.STREAM.LIST",
        f"{_DIRECT}.>",
    ]
    if role.plan or role.apply or role.schedules:
        publish += [f"$O.{MANIFESTS}.>", f"$JS.API.STREAM.PURGE.OBJ_{MANIFESTS}"]
    if role.data:
        publish.append(key_subject(DATA, ">"))
    if role.facts:
        publish.append(key_subject(FACTS, ">"))
    if role.schedules:
        publish += [f"{SCHEDULE_PREFIX}.>", f"$JS.API.STREAM.PURGE.{SCHEDULES_STREAM}"]
    if role.admin:
        publish += [
            key_subject(NODES, ">"),
            f"{REGISTRATION_PREFIX}.>",
            f"$JS.API.STREAM.PURGE.{REGISTRATION}",
        ]
        publish += [f"$JS.API.STREAM.{verb}.*" for verb in ("CREATE", "UPDATE")]
        publish += [f"$JS.API.STREAM.PURGE.{name}" for name in (EVENTS_STREAM, f"KV_{RUNS}", f"KV_{NODES}")]
    subscribe = (
        f"{PROTOCOL}.*.*.*.>",
        f"{PROTOCOL}.agent.*.>",
        f"{POKE_PREFIX}.>",
        f"{inbox_prefix(name)}.>",
    )
    return Permissions(publish=tuple(dict.fromkeys(publish)), subscribe=subscribe)


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
