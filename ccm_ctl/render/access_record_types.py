"""The records about operators, join tokens and nodes that join; see `record_types`."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta

from ccm_ctl.render.run_record_types import Count, Flag, Line, Text, Texts, Time


class SignerLine(Line, frozen=True, kw_only=True, tag="signer", omit_defaults=True):
    """An operator whose signatures nodes obey."""

    name: Annotated[str, Meta(description="Name of the operator.")]
    key: Annotated[str, Meta(description="The public key.")]
    plan: Annotated[Texts, Meta(description="Scopes in which the operator may plan.")] = UNSET
    apply: Annotated[Texts, Meta(description="Scopes in which the operator may apply.")] = UNSET
    exec: Annotated[Texts, Meta(description="Scopes in which the operator may run single commands.")] = UNSET
    maintain: Annotated[
        Texts, Meta(description="Scopes in which the operator may disable, enable and converge nodes.")
    ] = UNSET
    data: Annotated[Flag, Meta(description="May write Hiera data.")] = UNSET
    facts: Annotated[Flag, Meta(description="May assign facts.")] = UNSET
    schedules: Annotated[Flag, Meta(description="May create schedules.")] = UNSET
    join: Annotated[Flag, Meta(description="May create join tokens and answer nodes that join.")] = UNSET
    admin: Annotated[Flag, Meta(description="May administer streams and nodes.")] = UNSET
    timestamp: Annotated[Flag, Meta(description="May confirm that the signers list is the newest.")] = UNSET
    roles: Annotated[Texts, Meta(description="Roles that policies of nodes refer to.")] = UNSET
    expires: Annotated[Time, Meta(description="When the key expires.")] = UNSET


class TokenLine(Line, frozen=True, kw_only=True, tag="token", omit_defaults=True):
    """A join token."""

    token: Annotated[str, Meta(description="Its id, which is not secret.")]
    state: Annotated[
        str, Meta(description="`valid`, `used up`, `expired`, `revoked`, or `void` with the reason.")
    ]
    used: Annotated[Count, Meta(description="How many nodes have used it.")] = UNSET
    uses: Annotated[Count, Meta(description="How many nodes can use it.")] = UNSET
    role: Annotated[Text, Meta(description="The fact `role` of nodes that join with it.")] = UNSET
    names: Annotated[Text, Meta(description="The pattern that names of nodes must match.")] = UNSET
    networks: Annotated[Texts, Meta(description="The networks from which it is accepted.")] = UNSET
    approve: Annotated[Flag, Meta(description="An operator must accept each node.")] = UNSET
    ephemeral_s: Annotated[
        Count, Meta(description="Nodes that are away for so many seconds leave the fleet.")
    ] = UNSET
    expires: Annotated[Time, Meta(description="When it expires.")] = UNSET
    author: Annotated[Text, Meta(description="The operator who created it.")] = UNSET
    command: Annotated[
        Text,
        Meta(
            description="Of `token create`: the command for a node. It contains the token, which is secret."
        ),
    ] = UNSET


class JoinLine(Line, frozen=True, kw_only=True, tag="join", omit_defaults=True):
    """The result of a node's request to join, to renew its credentials or to leave, or a node that waits."""

    node: Annotated[str, Meta(description="The name that the node requested.")]
    state: Annotated[str, Meta(description="`joined`, `renewed`, `waiting`, `refused` or `left`.")]
    key: Annotated[Text, Meta(description="The public key of the node.")] = UNSET
    token: Annotated[Text, Meta(description="The id of the join token.")] = UNSET
    code: Annotated[Text, Meta(description="Code of the reason.")] = UNSET
    message: Annotated[Text, Meta(description="Why the request was refused.")] = UNSET
    repeated: Annotated[
        Count, Meta(description="How many more requests of the sender were refused like this.")
    ] = UNSET
