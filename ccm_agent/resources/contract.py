"""
The contract of resource types and providers. Read it before you write one.

A type is a folder beside this file with one public name, `TYPE`, a `ResourceType`. One shared flow (`converge.py`) applies every
resource:

    look      found = await provider.status(wanted)             # changes nothing
    decide    decision = TYPE.decide(wanted, found, context)    # pure: no await, I/O or clock
    act       await step.action(provider)                       # for each step; noop prints step.noop
    verify    look and decide again: a step is a failure        # unless verify=False

*wanted* is the desired state: the resource's properties (a Struct that extends `CommonProperties`). *found* is the current state
that a provider read (a Struct that extends `CommonState`). A provider has `status` and verbs, and nothing else: it makes no
decision, does not know noop, and emits no event.

A failure raises an error of `model/errors.py`; the flow turns it into a failed outcome. Of several providers that can work on a
host, the one with the **lowest rank** is used.

Types and providers of other packages are found through the entry-point groups `ccm.types` (an entry is a `ResourceType`) and
`ccm.providers` (an entry named `<type>.<provider>` is a `ProviderSpec`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from msgspec import UNSET, Struct

from ccm_agent.model.formats.field_rules import FieldRules, field_rules
from ccm_agent.model.resource import CommonProperties, CommonState

if TYPE_CHECKING:
    from ccm_agent.model.errors import CcmError, InputError
    from ccm_agent.model.ports import Clock, Files, Runner
    from ccm_agent.model.records.undo import EarlierState, Identity, KeepFile
    from ccm_agent.model.resource_diff import PropertyChange
    from ccm_agent.resources.changes import FileChange
    from ccm_agent.resources.existing import ExistingResources
    from ccm_agent.templates.env import Environment

P = TypeVar("P", bound=CommonProperties)
S = TypeVar("S", bound=CommonState)
S_co = TypeVar("S_co", bound=CommonState, covariant=True)
P_contra = TypeVar("P_contra", bound=CommonProperties, contravariant=True)

TYPES_GROUP = "ccm.types"
PROVIDERS_GROUP = "ccm.providers"


class DecisionContext(Struct, frozen=True, kw_only=True):
    """
    What `decide` needs to know besides the desired and current state.

    Attributes:
        noop: Nothing will be changed; the steps' noop texts are printed instead.
        triggered_by: The subscribed resource (`type#name`) that changed before; "" when none did.
        verifying: The steps have run, and the state was read again. Return the steps that are still needed, without those that
            run every time (such as asking for the latest version).
        is_restricted: This is a plan that runs no command of the manifest, so what `status` could not run is unknown.
    """

    noop: bool = False
    triggered_by: str = ""
    verifying: bool = False
    is_restricted: bool = False


class StepResult(Struct, frozen=True, kw_only=True):
    """
    What a step leaves behind.

    Attributes:
        state: The resulting state, if the step has read it or it cannot be read afterwards (the exit code of a command).
            Then `status` is not called again.
        output: The end of what a command wrote, for the event.
        is_output_cut: The command wrote more than that.
        exit_code: The exit code of the command; None: it has none.
        error: The step failed, and no further step runs; the rest is kept all the same.
    """

    state: CommonState | None = None
    output: str = ""
    is_output_cut: bool = False
    exit_code: int | None = None
    error: CcmError | None = None


class Step(Struct, frozen=True, kw_only=True):
    """
    One change.

    Attributes:
        noop: The text printed under noop, such as "Would have created the file". The texts of several steps are joined by the
            type's `noop_separator`.
        action: Makes the change with verbs of the provider. Returns None if `status` is to read the resulting state, the state
            if the step has read it, or a StepResult if there is also output.
    """

    noop: str
    action: Callable[[Any], Awaitable[CommonState | StepResult | None]]


class Decision(Struct, frozen=True, kw_only=True):
    """
    The result of `decide`.

    Attributes:
        steps: The steps to run, in order; empty when the resource is in its desired state.
        error: Why the desired state cannot be reached, such as a directory in the place of a file. No step runs.
        reason: The difference, for the error if it remains after the steps: "mode mismatch: found 0600, wanted 0644".
        refreshed: The steps run because of a subscription.
        stable: Whether the state reports `stable`; None means: if there are no steps.
        unknown: Under `is_restricted`: what was not run although the decision depends on it. The rest of the decision is then
            ignored.
        changes: Properties that the steps change, for a diff. Empty: the diff shows `ensure`.
        contents: Reads the contents of files that the steps change, with the provider's help. Only called for a diff, before the
            first step. None: no content changes.
        command: The command that the steps run.
    """

    steps: tuple[Step, ...] = ()
    error: CcmError | None = None
    reason: str = ""
    refreshed: bool = False
    stable: bool | None = None
    unknown: str = ""
    changes: tuple[PropertyChange, ...] = ()
    contents: Callable[[Any], Awaitable[Sequence[FileChange]]] | None = None
    command: str = ""

    @property
    def is_stable(self) -> bool:
        """The value of `stable` in the state."""
        return not self.steps if self.stable is None else self.stable


class Provider(Protocol[P_contra, S_co]):
    """
    What every provider implements, besides the verbs that the steps of its type's `decide` call.

    A provider that can read many resources at once MAY also have

        async def look_ahead(self, wanted: Sequence[P]) -> Sequence[S | None]

    which returns the result of `status` for each, in order, or None where it is not known yet. It MUST NOT raise for one
    resource: after None the flow calls `status`, which raises. Its results are used until something on the host is changed.

    A provider whose changes share a last step, such as a reload, MAY defer it to `async def finish(self) -> None`. The flow calls
    it before a resource of another provider and after the last one. If it raises, that resource or the run fails.
    """

    async def status(self, wanted: P_contra) -> S_co:
        """
        Read the current state.

        MUST NOT change anything, and MUST read again each time.

        Raises:
            HostError: The state could not be read; the resource fails.
        """
        ...


class ChildManifest(Struct, frozen=True, kw_only=True):
    """
    A manifest to be applied within this run (`ResourceContext.apply_child`).

    Attributes:
        path: The manifest's file, absolute or relative to the directory of the parent manifest.
        noop, health_check_only: Stricter modes for the child. The modes of the run stay in force.
        allow_apply: Whether the child may contain `apply` resources.
        data: Data merged over the child's own; None: the child sees the parent's data.
        resource: The parent's resource, `apply#name`, for the child's events.
    """

    path: str
    noop: bool = False
    health_check_only: bool = False
    allow_apply: bool = True
    data: Mapping[str, Any] | None = None
    resource: str = ""


class ChildOutcome(Struct, frozen=True, kw_only=True):
    """
    The result of a child manifest.

    Attributes:
        resources: Number of resources.
        changed, failed: Number of resources that changed (under noop: would change), and that failed or had unmet requirements.
        noop: The child ran under noop.
    """

    resources: int = 0
    changed: int = 0
    failed: int = 0
    noop: bool = False


class ResourceContext(Protocol):
    """
    What a provider may use, for one manifest in one run. `ProviderSpec.make` passes on what the provider needs.

    Attributes:
        runner, files, clock: Ports, the only ways to the host.
        directory: Absolute directory of the manifest; relative sources begin there.
        shown_directory: The directory as it was written on the command line, for output; "" for the working directory.
        facts, data, environ: As expressions see them; `facts` are gathered on first access.
        may_run_commands: Whether the node's policy allows commands of the manifest. If not, the runner of a type with a
            `RunsCommand` field refuses to start anything.
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
        """Return a port that not every type needs, by name: "download", "locks". KeyError if this program does not have it."""
        ...

    def environment(self, data: Mapping[str, Any] | None = None) -> Environment:
        """
        Return what whole-file templates see: facts, environment variables, functions, and data.

        Args:
            data: Replaces the manifest's data; None keeps it.
        """
        ...

    def say(self, message: str, **fields: object) -> None:
        """Log a line about the current resource, such as a line of a command's output."""
        ...

    async def apply_child(self, child: ChildManifest) -> ChildOutcome:
        """
        Apply another manifest as part of this run, its events in the same session.

        Raises:
            InputError: The manifest cannot be read, is invalid or nested too deeply; nothing of it was applied.
        """
        ...


class OutputCallback(Protocol):
    """`ResourceContext.say`, for a provider that needs nothing else of the context."""

    def __call__(self, message: str, **fields: object) -> None: ...


class Probe(Protocol):
    """Tells a provider whether it can work on this host. Answers are cached for the run."""

    def has_program(self, name: str) -> bool:
        """Whether an executable of this name is in PATH or in one of the system's directories."""
        ...

    def exists(self, path: str) -> bool:
        """Whether an absolute path exists."""
        ...


class HostAccess(Struct, frozen=True, kw_only=True):
    """
    What a resource touches on the host, for the node's policy.

    Attributes:
        paths: Absolute paths that it manages.
        trees: Absolute paths of directories that it manages with their content.
        reads, reads_trees: Files and URLs, and directories, whose content it uses; relative to the manifest's directory.
        packages, services: Names of packages and services that it manages.
        commands: What runs a program besides properties with `RunsCommand`, as the beginning of a message: "`helper`".
    """

    paths: tuple[str, ...] = ()
    trees: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    reads_trees: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


def _always(facts: Mapping[str, Any], probe: Probe) -> bool:
    return True


class ProviderSpec(Struct, frozen=True, kw_only=True):
    """
    One way to manage a type.

    Attributes:
        name: Its name in manifests and events: the name of the tool.
        make: Builds the provider. It imports the provider's module, so that the module is not imported before.
        rank: Of the providers that can work on a host, the one with the lowest rank is used.
        is_usable: Whether it can work on this host. Called once for each run, in a thread; it must be quick.
        fits: Whether it is made for a host with these facts. Usable providers that fit come first. None: for any host.
        takes: Whether it can manage a resource with these properties; None: any.
        find_existing: Lists what the host has, for `ccm import TYPE:ARGUMENT`; see `resources/existing.py`. None: no import.
    """

    name: str
    make: Callable[[ResourceContext], Any]
    rank: int = 50
    is_usable: Callable[[Mapping[str, Any], Probe], bool] = _always
    fits: Callable[[Mapping[str, Any]], bool] | None = None
    takes: Callable[[Any], bool] | None = None
    find_existing: Callable[[ResourceContext, str], Awaitable[ExistingResources]] | None = None


class Flag(Struct, frozen=True, kw_only=True):
    """
    A flag of `ccm ensure TYPE` that differs from the default rule.

    The default rule: a property `log_output` is the flag `--log-output`, which takes a text, nothing (a boolean) or a number, or
    can be repeated (a list; a mapping takes K=V).

    Attributes:
        field: The property it sets; "" for one that only `CommandLine.gather` reads.
        names: The flag's names, such as ("--environment", "-e").
        help: One line; "" uses the property's description.
        default: The default; None leaves the property unset.
        kind: "text", "switch", "number", "list", "map", or "" to derive it from the property's type.
        placeholder: The name of the value in help.
    """

    names: tuple[str, ...]
    field: str = ""
    help: str = ""
    default: Any = None
    kind: str = ""
    placeholder: str = ""


class CommandLine(Struct, frozen=True, kw_only=True):
    """
    The command line of `ccm ensure TYPE`.

    Attributes:
        arguments: Properties given by position; the first is required, and so is each one in `required`.
        required: Other arguments that are required.
        flags: Flags that differ from the default rule, or are added to it.
        hidden: Properties without a flag.
        alias: A second name for the command, such as `pkg`; "" for none.
        gather: Converts values by flag name (`log_output`) to properties; may raise UsageError. None: unchanged.
        is_offered: Whether the type has a command.
        examples: What follows `ccm ensure TYPE` in the examples of its help.
    """

    arguments: tuple[str, ...] = ("name", "ensure")
    required: tuple[str, ...] = ()
    flags: tuple[Flag, ...] = ()
    hidden: frozenset[str] = frozenset()
    alias: str = ""
    gather: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    is_offered: bool = True
    examples: tuple[str, ...] = ()


class UndoRules(Struct, frozen=True, kw_only=True):
    """
    How changes of a type are undone.

    Attributes:
        earlier: Returns the earlier state, from the resource, the state that was read, the decision, and what keeps files. A
            relative path in the properties names a kept content by its digest.
        identify: Returns what a state is recognized by. A change is undone only if the state is still the one that the run left.
        located_by: Properties that find the resource on the host, with its name; `earlier` must return them, too.
        parts: Replaces `earlier` if a change is undone by several resources of `PART_TYPES`; the last one is undone first.
    """

    earlier: Callable[[Any, Any, Decision, KeepFile], Awaitable[EarlierState]]
    identify: Callable[[Any], Identity]
    located_by: tuple[str, ...] = ()
    parts: Callable[[Any, Any, KeepFile], AsyncIterator[EarlierState]] | None = None


class ResourceType(Struct, Generic[P, S], frozen=True, kw_only=True):
    """
    A resource type: everything that the rest of the program knows about it.

    Attributes:
        name: Its name in manifests, `[a-z][a-z0-9_]*`; also the name of its folder.
        summary: One line for help and docs.
        properties, state: The Structs of desired and current state. Descriptions are in `Meta(description=…)`, the rules of a
            field in markers beside it (`ccm_agent/model/formats/field_rules.py`).
        decide: Compares properties, with all templates rendered, with the state from `status`.
        providers: The ways to manage it.
        ensure: Valid values of `ensure`; empty: any text (a version).
        default_ensure: The default of `ensure`; "" makes it required.
        check: Raises PropertyError for invalid properties, when templates are resolved and before anything is changed; deferred
            fields may still contain expressions. May set defaults.
        check_in_manifest: Further checks for properties written in a manifest; a request may contain what it refuses. Called
            after `check`.
        check_when_applied: Checks of what Choria CCM refuses only when the resource's turn has come, of the properties and the
            values as written. In a manifest, the PropertyError fails this resource alone; others raise it at once.
        check_by_lint: Checks that only `ccm lint`, `ccmctl` and requests make. In a manifest, the resource fails by itself.
        finalize: Called once when no template is left: while the manifest is loaded if nothing is deferred, otherwise just before
            the resource is applied. May normalize; a PropertyError aborts the run.
        has_changed: Whether the resource changed, from the states before and after; None: it changed if steps ran.
        is_extension: Choria CCM does not have this type; `ccm lint --strict-ccm` reports it.
        find_extensions: Finds extensions of Choria CCM in the properties as written, where the markers `Extension` and
            `ExtensionValues` are not enough: pairs of the field and what Choria CCM lacks ("does not support `x` in a `mode`").
        verify: Whether reading the state again shows that the steps worked.
        why_unverified: The reason if `verify` is False.
        stable_when_changed: A resource that was changed and verified reports `stable` in its state, as Choria CCM's `file` does.
        contains_manifest: Its step is a run of its own. It also runs under noop and for health checks, and passes these modes on.
        noop_separator: Joins the noop texts of several steps; after a comma the next one begins in lower case.
        can_status: Whether `ccm status TYPE NAME` works with only a name; `why_no_status` says why not.
        status_name: Converts the name given to `ccm status` to one that the type accepts. None: unchanged.
        reach: What a resource touches, for the node's policy. None: unknown, so a policy that limits paths, packages or services
            allows the type only by name, and a restricted plan does not read its state.
        undo: How its changes are undone; None: they cannot be.
        ignorable: What `ignore` may name, each with the property values that leave it unmanaged in a resource that exists.
        command: The command line of `ccm ensure TYPE`.
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
    check_when_applied: Callable[[P, Mapping[str, Any]], None] | None = None
    check_by_lint: Callable[[P], None] | None = None
    finalize: Callable[[P], None] | None = None
    has_changed: Callable[[S, S], bool] | None = None
    is_extension: bool = False
    find_extensions: Callable[[Mapping[str, Any]], Iterable[tuple[str, str]]] | None = None
    verify: bool = True
    why_unverified: str = ""
    stable_when_changed: bool = False
    contains_manifest: bool = False
    noop_separator: str = ", "
    can_status: bool = True
    why_no_status: str = ""
    status_name: Callable[[str], str] | None = None
    reach: Callable[[P], HostAccess] | None = None
    undo: UndoRules | None = None
    ignorable: Mapping[str, Mapping[str, Any]] = {}
    command: CommandLine = CommandLine()

    @property
    def rules(self) -> FieldRules:
        """The rules of its properties, from the markers on their fields."""
        return field_rules(self.properties)

    @property
    def state_protocol(self) -> str:
        """The protocol id of its state."""
        return f"io.choria.ccm.v1.resource.{self.name}.state"


AnyType = ResourceType[Any, Any]


class ResolvedResource(Struct, kw_only=True):
    """
    A resource of a manifest, ready to be managed.

    Attributes:
        kind: Its type.
        wanted: Its properties; all templates except those in pending fields are rendered.
        pending: Fields that still contain templates; they are rendered just before the resource is applied.
        index, path: Its position in its manifest, from 0, and its path in the document: keys and indexes.
        refused: Why it fails when its turn has come; None if nothing is known.
        item: The element of `for_each` that it was made for, which its expressions see as `item`. Unset: there is none.
    """

    kind: AnyType
    wanted: CommonProperties
    pending: tuple[str, ...] = ()
    index: int = 0
    path: tuple[str | int, ...] = ()
    refused: InputError | None = None
    item: Any = UNSET

    @property
    def reference(self) -> str:
        """`type#name`, with its current name."""
        return f"{self.kind.name}#{self.wanted.name}"
