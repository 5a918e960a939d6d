"""The records about operators, join tokens and nodes that join."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from ccm_ctl.render.record_types.line import Count, Flag, Line, Text, Texts, Time


class SignerLine(Line, frozen=True, kw_only=True, tag="signer"):
    """An operator whose signatures nodes accept."""

    name: Annotated[str, Meta(description="Name of the operator.")]
    key: Annotated[str, Meta(description="The public key.")]
    plan: Annotated[Texts, Meta(description="Scopes in which the operator may plan.")] = None
    apply: Annotated[Texts, Meta(description="Scopes in which the operator may apply.")] = None
    exec: Annotated[Texts, Meta(description="Scopes in which the operator may run single commands.")] = None
    maintain: Annotated[
        Texts, Meta(description="Scopes in which the operator may disable, enable and converge nodes.")
    ] = None
    data: Annotated[Flag, Meta(description="May write Hiera data.")] = None
    facts: Annotated[Flag, Meta(description="May assign facts.")] = None
    schedules: Annotated[Flag, Meta(description="May create schedules.")] = None
    join: Annotated[Flag, Meta(description="May create join tokens and answer nodes that join.")] = None
    admin: Annotated[Flag, Meta(description="May administer streams and nodes.")] = None
    timestamp: Annotated[Flag, Meta(description="May confirm that the signers list is the newest.")] = None
    roles: Annotated[Texts, Meta(description="Roles that policies of nodes refer to.")] = None
    expires: Annotated[Time, Meta(description="When the key expires.")] = None


class TokenLine(Line, frozen=True, kw_only=True, tag="token"):
    """A join token."""

    token: Annotated[str, Meta(description="Its id, which is not secret.")]
    state: Annotated[
        str, Meta(description="`valid`, `used up`, `expired`, `revoked`, or `void` with the reason.")
    ]
    used: Annotated[Count, Meta(description="Number of nodes that have used it.")] = None
    uses: Annotated[Count, Meta(description="Number of nodes that can use it.")] = None
    role: Annotated[Text, Meta(description="The fact `role` of nodes that join with it.")] = None
    names: Annotated[Text, Meta(description="The pattern that names of nodes must match.")] = None
    networks: Annotated[Texts, Meta(description="The networks from which it is accepted.")] = None
    approve: Annotated[Flag, Meta(description="An operator must accept each node.")] = None
    ephemeral_s: Annotated[
        Count, Meta(description="Nodes that are away for so many seconds leave the fleet.")
    ] = None
    expires: Annotated[Time, Meta(description="When it expires.")] = None
    author: Annotated[Text, Meta(description="The operator who created it.")] = None
    command: Annotated[
        Text,
        Meta(description="The command for a node, in `token create`. It contains the secret token."),
    ] = None


class JoinLine(Line, frozen=True, kw_only=True, tag="join"):
    """The result of a node's request to join, to renew its credentials or to leave, or a waiting node."""

    node: Annotated[str, Meta(description="The name that the node requested.")]
    state: Annotated[str, Meta(description="`joined`, `renewed`, `waiting`, `refused` or `left`.")]
    key: Annotated[Text, Meta(description="The public key of the node.")] = None
    token: Annotated[Text, Meta(description="The id of the join token.")] = None
    code: Annotated[Text, Meta(description="Code of the reason.")] = None
    message: Annotated[Text, Meta(description="Why the request was refused.")] = None
    repeated: Annotated[
        Count, Meta(description="Number of the sender's other requests that were refused like this.")
    ] = None
