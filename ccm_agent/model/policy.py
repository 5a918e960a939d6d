"""
Words of the node's policy: who asks, and the policy document as an administrator writes it.

`Principal` is the one seam between the proof of an identity and the decision about it: whoever verifies a signature makes a
principal, and the policy judges nothing else of a request's author.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

LOCAL_NAME = "local"
"""In `signers`: the manifests of the agent's own configuration. An operator of that name is not meant by it."""

RUN_ACTIONS = ("apply", "plan", "check", "ensure", "stop", "assignment", "schedule")
"""What `all` means in a rule."""

LOOK_ACTIONS = ("ping", "facts", "status")
"""Allowed unless a rule names them."""

REGISTRATION_TYPE = "registration"
"""In `types`: to publish the entries of `register_when_stable`."""

COMMAND_TYPE = "exec"
"""In `types`: commands of any kind, so health checks and `post` commands too."""

Action = Literal[
    "apply", "plan", "check", "ensure", "stop", "assignment", "schedule", "ping", "facts", "status", "all"
]


class Principal(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    Who asks.

    Attributes:
        name: The signer's name; of an unverified request the text that it says of itself.
        key: The signer's public key; "" when nothing is verified.
        roles: Names from the signers list.
        is_verified: A signature proves name, key and roles.
        is_plan_only: The signers list lets this signer plan here, and not apply.
        is_local: The agent's own configuration asks.
        is_from_broker: The configuration asks for a manifest that lies on the broker.
    """

    name: str = ""
    key: str = ""
    roles: tuple[str, ...] = ()
    is_verified: bool = False
    is_plan_only: bool = False
    is_local: bool = False
    is_from_broker: bool = False

    @property
    def title(self) -> str:
        """For people: the name, with a remark when nothing proves it."""
        if self.is_local:
            return "the node's own configuration"
        if self.is_verified:
            return self.name or "a signer without a name"
        return f"{self.name or 'a requester without a name'} (unverified)"


LOCAL = Principal(name=LOCAL_NAME, is_local=True)
"""Manifests of the agent's configuration that are files or come from a web server."""

LOCAL_FROM_BROKER = Principal(name=LOCAL_NAME, is_local=True, is_from_broker=True)
"""Manifests of the agent's configuration that lie in an object store of the broker."""


class Limits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What resources may touch. A list that is not written says nothing."""

    types: Annotated[
        list[str],
        Meta(
            description="Resource types. `exec` stands for every command that a manifest brings: health checks and `post` "
            "commands too. `registration` stands for `register_when_stable`."
        ),
    ] = []
    paths: Annotated[
        list[str],
        Meta(
            description="Paths that `file`, `archive` and `scaffold` manage: absolute, with `*`, `?` and `[…]` within a name and "
            "`**` for any number of directories. They are compared with the real path, symlinks of its directory resolved."
        ),
    ] = []
    sources: Annotated[
        list[str],
        Meta(
            description="Files and URLs that content is read from, besides the manifest's own directory: paths as in `paths`, or "
            "`https://host/**`."
        ),
    ] = []
    packages: Annotated[list[str], Meta(description="Names of packages, with `*`, `?` and `[…]`.")] = []
    services: Annotated[
        list[str], Meta(description="Names of services, with `*`, `?` and `[…]`, without `.service`.")
    ] = []


class PolicyRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One rule. The first rule whose signers, roles, actions and hours match decides; no other is read."""

    name: Annotated[str, Meta(description="What refusals call the rule; unique.", min_length=1)]
    signers: Annotated[
        list[str],
        Meta(
            description="Names of verified signers, with `*`; `local` stands for the manifests of the agent's configuration. "
            "Without `signers` and `roles` the rule is for everyone who asks over the bus, verified or not."
        ),
    ] = []
    roles: Annotated[
        list[str],
        Meta(description="Roles of verified signers, with `*`; one of signers and roles is enough."),
    ] = []
    allow: Annotated[
        list[Action],
        Meta(description="Actions that the rule allows; `all` is every action that runs something."),
    ] = []
    deny: Annotated[list[Action], Meta(description="Actions that the rule refuses.")] = []
    hours: Annotated[
        str | list[str],
        Meta(
            description="When the rule matches, such as `Mon-Fri 08:00-18:00`; several in a list. Always unless given."
        ),
    ] = ""
    max_mode: Annotated[
        Literal["apply", "plan"],
        Meta(
            description="`plan`: nothing may be changed. Plans and checks run no program that the manifest brings."
        ),
    ] = "apply"
    only: Annotated[
        Limits | None, Meta(description="What resources may touch; what is not listed is refused.")
    ] = None
    forbid: Annotated[Limits | None, Meta(description="What resources may not touch.")] = None


class PolicyDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The node's policy: what the agent does for whom. It binds everything that comes over the bus."""

    default: Annotated[
        Literal["allow", "deny"], Meta(description="What happens to a request that no rule matches.")
    ]
    time_zone: Annotated[str, Meta(description="Time zone of all `hours`, such as `Europe/Berlin`.")] = "UTC"
    max_mode: Annotated[
        Literal["apply", "plan"], Meta(description="As in a rule, for everyone who asks over the bus.")
    ] = "apply"
    forbid: Annotated[
        Limits | None,
        Meta(description="What no request over the bus may touch, whatever a rule allows."),
    ] = None
    rules: Annotated[list[PolicyRule], Meta(description="Read from the top; the first match decides.")] = []
