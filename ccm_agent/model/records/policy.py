"""
Types of the node's policy: the requester, and the policy document that an administrator writes.

`Principal` is the only link between verifying an identity and deciding about it. The code that verifies a
signature creates a principal. The policy does not use any other information about a request's author.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

LOCAL_NAME = "local"
"""In `signers`, this name means the manifests of the agent's own configuration, never an operator."""

MAINTENANCE_ACTIONS = ("disable", "enable", "converge")
"""Actions that start or prevent convergence with the node's assignments."""

RUN_ACTIONS = (
    "apply",
    "plan",
    "check",
    "ensure",
    "exec",
    "import",
    "stop",
    "assignment",
    "schedule",
    *MAINTENANCE_ACTIONS,
)
"""The actions that `all` means in a rule."""

CHANGING_ACTIONS = ("apply", "ensure", "exec")
"""Actions of requests that may change the node."""

LOOK_ACTIONS = ("ping", "facts", "status")
"""Actions that are allowed unless a rule lists them."""

REGISTRATION_TYPE = "registration"
"""In `types`, this name means publishing the entries of `register_when_stable`."""

COMMAND_TYPE = "exec"
"""In `types`, this name means every command, including those of health checks and `post`."""

UNSIGNED_TYPE = "unsigned"
"""
In `types`, this name means software that is accepted without a signature, such as a repository with `trusted:
true`.
"""

OUTPUT = "output"
DIFF = "diff"
"""The data that a policy can withhold from the events of a run."""

Withheld = Literal["output", "diff"]

Action = Literal[
    "apply",
    "plan",
    "check",
    "ensure",
    "exec",
    "import",
    "stop",
    "assignment",
    "schedule",
    "disable",
    "enable",
    "converge",
    "ping",
    "facts",
    "status",
    "all",
]


class Principal(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    The author of a request.

    Attributes:
        name: The signer's name; for an unverified request, the claimed name.
        key: The signer's public key; "" if nothing is verified.
        roles: Names from the signers list.
        is_verified: Whether a signature proves name, key and roles.
        is_plan_only: Whether the signers list allows this signer only to plan here, not to apply.
        is_local: Whether the request comes from the agent's own configuration.
        is_from_broker: Whether the configuration refers to a manifest that is stored on the broker.
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
        """Return the name for messages, marked if it is unverified."""
        if self.is_local:
            return "the node's own configuration"
        if self.is_verified:
            return self.name or "a signer without a name"
        return f"{self.name or 'a requester without a name'} (unverified)"


LOCAL = Principal(name=LOCAL_NAME, is_local=True)
"""The principal for manifests of the agent's configuration that are files or are fetched from a web server."""

LOCAL_FROM_BROKER = Principal(name=LOCAL_NAME, is_local=True, is_from_broker=True)
"""The principal for manifests of the agent's configuration that are stored in an object store of the broker."""


class Limits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The paths, packages and other objects that resources may change. A missing list has no effect."""

    types: Annotated[
        list[str],
        Meta(
            description="Resource types. `exec` means every command of a manifest, including those of health checks and `post`. "
            "`registration` means `register_when_stable`, `unsigned` means repositories with `trusted: true`."
        ),
    ] = []
    paths: Annotated[
        list[str],
        Meta(
            description="Paths that `file`, `edit`, `config`, `archive` and `scaffold` manage: absolute, with `*`, `?` and `[…]` "
            "within a name and `**` for any number of directories. They are compared with the real path, with symlinks of its "
            "directory resolved."
        ),
    ] = []
    sources: Annotated[
        list[str],
        Meta(
            description="Files and URLs from which content is read, outside the manifest's own directory: paths as in "
            "`paths`, or `https://host/**`."
        ),
    ] = []
    packages: Annotated[list[str], Meta(description="Names of packages, with `*`, `?` and `[…]`.")] = []
    services: Annotated[
        list[str], Meta(description="Names of services, with `*`, `?` and `[…]`, without `.service`.")
    ] = []


class PolicyRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """
    One rule. The first rule with matching signers, roles, actions and hours decides; later rules are not
    read.
    """

    name: Annotated[str, Meta(description="Unique name of the rule, shown in refusals.", min_length=1)]
    signers: Annotated[
        list[str],
        Meta(
            description="Names of verified signers, with `*`; `local` means the manifests of the agent's configuration. "
            "Without `signers` and `roles` the rule matches every sender on the bus, verified or not."
        ),
    ] = []
    roles: Annotated[
        list[str],
        Meta(description="Roles of verified signers, with `*`; one matching signer or role is enough."),
    ] = []
    allow: Annotated[
        list[Action],
        Meta(description="Actions that the rule allows; `all` means every action that runs something."),
    ] = []
    deny: Annotated[list[Action], Meta(description="Actions that the rule refuses.")] = []
    hours: Annotated[
        str | list[str],
        Meta(
            description="When the rule matches, such as `Mon-Fri 08:00-18:00`, or a list of these. Default: always."
        ),
    ] = ""
    max_mode: Annotated[
        Literal["apply", "plan"],
        Meta(description="`plan`: no changes. Plans and checks run no commands of the manifest."),
    ] = "apply"
    only: Annotated[
        Limits | None, Meta(description="Objects that resources may use; everything else is refused.")
    ] = None
    forbid: Annotated[Limits | None, Meta(description="Objects that resources may not use.")] = None
    withhold: Annotated[
        list[Withheld],
        Meta(
            description="Data that events withhold from the requester: `output` of commands, `diff` of resources."
        ),
    ] = []


class PolicyDocument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """
    The node's policy: the actions that the agent performs, and for which operators. It applies to
    everything that arrives over the bus.
    """

    default: Annotated[
        Literal["allow", "deny"], Meta(description="The decision for a request without a matching rule.")
    ]
    time_zone: Annotated[str, Meta(description="Time zone of all `hours`, such as `Europe/Berlin`.")] = "UTC"
    max_mode: Annotated[
        Literal["apply", "plan"], Meta(description="Same as in a rule, but for every sender on the bus.")
    ] = "apply"
    forbid: Annotated[
        Limits | None,
        Meta(description="Objects that no request over the bus may use, regardless of rules."),
    ] = None
    withhold: Annotated[
        list[Withheld],
        Meta(description="Same as in a rule, but for everything that leaves the node over the bus."),
    ] = []
    rules: Annotated[
        list[PolicyRule], Meta(description="Evaluated from top to bottom; the first match decides.")
    ] = []
