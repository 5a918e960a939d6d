"""
What a resource type is, and what it may rely on: the page to read before writing one.

A type is a folder beside this file with one public name, `TYPE`, a `ResourceType`. One shared flow (`converge.py`) drives all of
them, for one resource after the other:

    look      found = await provider.status(wanted)                 looks, and changes nothing
    decide    decision = TYPE.decide(wanted, found, situation)      pure: no await, no I/O, no clock
    act       await step.action(provider)  for each step            or, under noop, print `step.noop` instead
    verify    look again, decide again: any step left is a failure  (unless the type says why it cannot be verified)

*wanted* are the resource's properties (a Struct that extends `CommonProperties`), *found* is what a provider saw (a Struct that
extends `CommonState`). A provider has `status` and verbs, and nothing else: it takes no decision, knows no noop, writes no event.

Whatever fails raises an error of `model/errors.py`; the flow makes a failed outcome of it. Of several providers that can work on
a host the one with the **lowest rank** wins; this is the only place that says so.

Types and providers of others are found through the entry-point groups `ccm.types` (an entry is a `ResourceType`) and
`ccm.providers` (an entry named `<type>.<provider>` is a `ProviderSpec`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from msgspec import Struct

from ccm_agent.model.resource import CommonProperties, CommonState

if TYPE_CHECKING:
    from ccm_agent.model.errors import CcmError
    from ccm_agent.model.ports import Clock, Files, Runner
    from ccm_agent.templates.env import Environment

P = TypeVar("P", bound=CommonProperties)
S = TypeVar("S", bound=CommonState)
S_co = TypeVar("S_co", bound=CommonState, covariant=True)
P_contra = TypeVar("P_contra", bound=CommonProperties, contravariant=True)

TYPES_GROUP = "ccm.types"
PROVIDERS_GROUP = "ccm.providers"


class DecisionContext(Struct, frozen=True, kw_only=True):
    """
    What `decide` must know besides wanted and found.

    Attributes:
        noop: Nothing will be changed: the steps' noop texts are printed instead.
        triggered_by: The subscribed resource (`type#name`) that changed before; "" when none did.
        verifying: The steps have run and this is the second look: say what is left to do, but not what is done each time
            anyway (such as asking for the latest version).
        is_restricted: It is a plan that runs no command of the manifest: what the look could not run is unknown.
    """

    noop: bool = False
    triggered_by: str = ""
    verifying: bool = False
    is_restricted: bool = False


class Step(Struct, frozen=True, kw_only=True):
    """
    One change.

    Attributes:
        noop: What is said instead under noop, such as "Would have created the file". Of several steps the texts are joined
            by the type's `noop_joint`.
        action: Makes the change, by verbs of the provider it is given. What it returns is None, or the state that it left
            when that cannot be looked at afterwards (the exit code of a command); then nobody looks again.
    """

    noop: str
    action: Callable[[Any], Awaitable[CommonState | None]]


class Decision(Struct, frozen=True, kw_only=True):
    """
    What `decide` says.

    Attributes:
        steps: What must be done, in order; none when the host is as wanted.
        error: It cannot be done at all, and nothing is tried: a directory stands where a file is wanted.
        reason: What differs, for the error when it still does after the steps: "mode mismatch: found 0600, wanted 0644".
        refreshed: The steps run because of a subscription.
        stable: Whether the state is to report `stable`; None: it is when there are no steps.
        unknown: Under `is_restricted`: what was not run and would decide; then nothing else of the decision counts.
    """

    steps: tuple[Step, ...] = ()
    error: CcmError | None = None
    reason: str = ""
    refreshed: bool = False
    stable: bool | None = None
    unknown: str = ""

    @property
    def is_stable(self) -> bool:
        """What the state reports as `stable`."""
        return not self.steps if self.stable is None else self.stable


class Provider(Protocol[P_contra, S_co]):
    """
    What every provider offers; its verbs are its type's own business and stand in the type's `provider.py`.

    A provider that can answer for many resources at once MAY have, besides,

        async def look_ahead(self, wanted: Sequence[P]) -> Sequence[S | None]

    which gives what `status` would give for each, in order; None where it cannot tell yet. It MUST NOT raise for one resource:
    None makes the flow ask `status`, which says what is wrong. What it said holds until something on the host was changed.
    """

    async def status(self, wanted: P_contra) -> S_co:
        """
        What is there now.

        MUST NOT change anything, and MUST look anew each time.

        Raises:
            HostError: It could not be looked at; the resource fails.
        """
        ...


class Child(Struct, frozen=True, kw_only=True):
    """
    A manifest to be applied within this run (`ResourceContext.apply_child`).

    Attributes:
        path: The manifest's file, relative to the directory of the manifest that asks for it, or absolute.
        noop, health_check_only: Stronger modes for the child; what the run has already cannot be taken away.
        allow_apply: Whether the child may hold children of its own.
        data: What the child sees as data over its own; None: the data of the manifest that asks for it.
        resource: The resource that asks, `apply#name`, for the events of the child.
    """

    path: str
    noop: bool = False
    health_check_only: bool = False
    allow_apply: bool = True
    data: Mapping[str, Any] | None = None
    resource: str = ""


class ChildOutcome(Struct, frozen=True, kw_only=True):
    """
    What became of a child manifest's resources.

    Attributes:
        resources: How many it holds.
        changed, failed: How many of those changed (under noop: would have), and failed or had unmet requirements.
        noop: It ran without changing anything.
    """

    resources: int = 0
    changed: int = 0
    failed: int = 0
    noop: bool = False


class ResourceContext(Protocol):
    """
    What a provider may use of the world, for one manifest in one run. A factory takes what it needs out of it.

    Attributes:
        runner, files, clock: Ports, the only ways to the host.
        directory: Absolute directory of the manifest; relative sources are looked up there.
        shown_directory: The same as whoever named the manifest wrote it, for what is shown; "" for the working directory.
        facts, data, environ: As expressions see them; `facts` are gathered when first asked for.
        may_run_commands: Whether the node's policy lets commands of the manifest run. Where it does not, the runner of a type
            with `commands` refuses to start anything.
    """

    @property
    def runner(self) -> Runner: ...
    @property
    def files(self) -> Files: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def directory(self) -> str: ...
    @property
    def shown_directory(self) -> str: ...
    @property
    def facts(self) -> Mapping[str, Any]: ...
    @property
    def data(self) -> Mapping[str, Any]: ...
    @property
    def environ(self) -> Mapping[str, str]: ...
    @property
    def may_run_commands(self) -> bool: ...

    def port(self, name: str) -> Any:
        """A port that not every type needs, by name: "download", "locks". KeyError when this program has none."""
        ...

    def environment(self, data: Mapping[str, Any] | None = None) -> Environment:
        """
        What whole-file templates see: facts, environment variables, functions, and data.

        Args:
            data: In the place of the manifest's own; None leaves that.
        """
        ...

    def say(self, message: str, **fields: object) -> None:
        """A line for people about the resource in hand: the output of a command that was asked to be shown."""
        ...

    async def apply_child(self, child: Child) -> ChildOutcome:
        """
        Apply another manifest as part of this run, its events in the same session.

        Raises:
            InputError: The manifest cannot be read, is not right or goes too deep; nothing of it was applied.
        """
        ...


class Probe(Protocol):
    """What a provider may ask of the host to say whether it can work there. Answers are kept for the run."""

    def has_program(self, name: str) -> bool:
        """Whether an executable of this name is in our PATH or in one of the system's directories."""
        ...

    def exists(self, path: str) -> bool:
        """Whether something stands at an absolute path."""
        ...


class Reach(Struct, frozen=True, kw_only=True):
    """
    What a resource touches on the host, for the node's policy to judge.

    Attributes:
        paths: Absolute paths that it manages.
        trees: Absolute paths of directories that it manages with all that is in them.
        reads: Files and URLs that it takes content from; a relative path begins in the manifest's directory.
        reads_trees: Likewise directories.
        packages, services: Names of those that it manages.
    """

    paths: tuple[str, ...] = ()
    trees: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    reads_trees: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    services: tuple[str, ...] = ()


def _always(facts: Mapping[str, Any], probe: Probe) -> bool:
    return True


class ProviderSpec(Struct, frozen=True, kw_only=True):
    """
    One way to manage a type.

    Attributes:
        name: What manifests and events call it: the tool's name.
        make: Builds the provider; imports its module then and not before.
        rank: Of the providers that can work here the one with the lowest rank is taken.
        is_usable: Whether it can work on this host. Asked once for each run, in a thread: it may not take long.
        fits: Whether it is meant for a host with these facts: of several usable ones such a one comes first. None: for any.
        takes: Whether it can manage a resource with these properties; None: any.
    """

    name: str
    make: Callable[[ResourceContext], Any]
    rank: int = 50
    is_usable: Callable[[Mapping[str, Any], Probe], bool] = _always
    fits: Callable[[Mapping[str, Any]], bool] | None = None
    takes: Callable[[Any], bool] | None = None


class Flag(Struct, frozen=True, kw_only=True):
    """
    How `ccm ensure TYPE` asks for a property where the plain rule does not do.

    The plain rule: a property `log_output` is the flag `--log-output`, which takes a text, nothing (a boolean), a number, or may
    be repeated (a list; a mapping takes K=V).

    Attributes:
        field: The property it sets; "" for one that only `CommandLine.gather` reads.
        names: The flag's names, such as ("--environment", "-e").
        help: One line; "" takes the property's own description.
        default: What holds when it is not given; None leaves the property unset.
        kind: "text", "switch", "number", "list", "map" or "" for what the property's type says.
        placeholder: What help shows as its value.
    """

    names: tuple[str, ...]
    field: str = ""
    help: str = ""
    default: Any = None
    kind: str = ""
    placeholder: str = ""


class CommandLine(Struct, frozen=True, kw_only=True):
    """
    What `ccm ensure TYPE` looks like.

    Attributes:
        arguments: Properties given by position; the first is required, as is each named in `required`.
        required: Further arguments that must be given.
        flags: Flags that differ from the plain rule, or come on top of it.
        hidden: Properties without a flag.
        alias: A second name for the command, such as `pkg`; "" for none.
        gather: Turns what was given (by flag name without dashes, `-` as `_`) into properties; None takes them as they are. May
            raise UsageError. Values that were not given are absent.
        is_offered: The type has a command at all.
    """

    arguments: tuple[str, ...] = ("name", "ensure")
    required: tuple[str, ...] = ()
    flags: tuple[Flag, ...] = ()
    hidden: frozenset[str] = frozenset()
    alias: str = ""
    gather: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    is_offered: bool = True


class ResourceType(Struct, Generic[P, S], frozen=True, kw_only=True):
    """
    A type: everything that the rest of the program knows about it.

    Attributes:
        name: Its name in manifests, `[a-z][a-z0-9_]*`; also the folder's.
        summary: One line for help and docs.
        properties, state: The Structs of wanted and found. Descriptions stand in `Meta(description=…)`.
        decide: See the top of this file. Gets properties after all templates, and the state that `status` gave.
        providers: The ways to manage it.
        ensure: Words that `ensure` may be; empty: any text (a version).
        default_ensure: What `ensure` is when it is not given; "" makes it required.
        check: Refuses properties that cannot be right (PropertyError). Called after templates are resolved, while nothing has
            been changed yet; deferred fields may still hold expressions then. May fill in defaults.
        check_in_manifest: What `check` refuses beyond that in a manifest, where a person wrote it; a request may say it. Called
            after `check`.
        settle: Called once nothing of the resource is a template any more: while the manifest is loaded when nothing is
            deferred, else when its turn has come. May normalise; a PropertyError breaks the run off.
        has_changed: Tells from the states before and after whether the resource changed; None: it did when steps ran.
        deferred: Fields whose templates are rendered after the control gate, when the resource's turn has come.
        literal: Fields in which nothing is a template.
        templated_keys: Mapping fields whose keys are templates too.
        look_ahead_needs: Deferred fields that `look_ahead` reads: while one still holds a template the resource is not looked at
            ahead.
        quoted: Text fields that refuse a number: an unquoted `mode: 0644` reads as 420.
        aliases: Other spellings of properties, such as `refresh_only` for `refreshonly`.
        secret: Fields that are masked in everything that leaves the process; of a mapping the values.
        urls: Fields that may hold a URL: user name and password in it are masked.
        digested: Fields of which digest and size alone leave over the bus, such as `content`; of a mapping those of its JSON.
        names_only: Lists of `NAME=value` of which the names alone leave over the bus, such as `environment`.
        ours: Fields that Choria CCM does not know: `ccm lint --strict-ccm` names them. With `name` among them it does not know
            the type.
        our_values: Of fields that it knows, the values that it does not.
        our_forms: What else it does not understand in properties as they are written, where a list of values cannot say it:
            pairs of the field and what Choria CCM lacks, "has no `x` in a `mode`". None: nothing.
        verify: Whether a second look can tell that the steps have worked.
        why_unverified: Why it cannot, when `verify` is False.
        stable_when_changed: The state of a resource that was changed and verified reports `stable`, as CCM's `file` does.
        nests: Its step is a run of its own, so it runs under noop and for health checks too, and takes those modes along.
        noop_joint: What joins the noop texts of several steps; after a comma they go on with a small letter.
        can_status: `ccm status TYPE NAME` makes sense with a name alone; `why_no_status` says why when it does not.
        status_name: Makes the name that `ccm status` was given one that the type takes. None: it is taken as it is.
        reach: What a resource touches, for the node's policy. None: that is not known, so a policy that limits what may be
            touched allows the type only where it names it, and a restricted plan does not look at it.
        commands: Fields that hold commands which the manifest chose.
        command: What `ccm ensure TYPE` looks like.
    """

    name: str
    summary: str
    properties: type[P]
    state: type[S]
    decide: Callable[[P, S, DecisionContext], Decision]
    providers: tuple[ProviderSpec, ...]
    ensure: tuple[str, ...] = ()
    default_ensure: str = ""
    check: Callable[[P], None] | None = None
    check_in_manifest: Callable[[P], None] | None = None
    settle: Callable[[P], None] | None = None
    has_changed: Callable[[S, S], bool] | None = None
    deferred: frozenset[str] = frozenset()
    literal: frozenset[str] = frozenset()
    templated_keys: frozenset[str] = frozenset()
    look_ahead_needs: frozenset[str] = frozenset()
    quoted: frozenset[str] = frozenset()
    aliases: Mapping[str, str] = {}
    secret: frozenset[str] = frozenset()
    urls: frozenset[str] = frozenset()
    digested: frozenset[str] = frozenset()
    names_only: frozenset[str] = frozenset()
    ours: frozenset[str] = frozenset()
    our_values: Mapping[str, frozenset[str]] = {}
    our_forms: Callable[[Mapping[str, Any]], Iterable[tuple[str, str]]] | None = None
    verify: bool = True
    why_unverified: str = ""
    stable_when_changed: bool = False
    nests: bool = False
    noop_joint: str = ", "
    can_status: bool = True
    why_no_status: str = ""
    status_name: Callable[[str], str] | None = None
    reach: Callable[[P], Reach] | None = None
    commands: frozenset[str] = frozenset()
    command: CommandLine = CommandLine()

    @property
    def state_protocol(self) -> str:
        """The protocol id of its states."""
        return f"io.choria.ccm.v1.resource.{self.name}.state"


AnyType = ResourceType[Any, Any]
"""A type whose Structs do not matter to the reader."""

LookAhead = Callable[[Sequence[Any]], Awaitable[Sequence[Any]]]
"""The optional method of a provider; see `Provider`."""
