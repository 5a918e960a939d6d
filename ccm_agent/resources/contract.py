"""
The contract of resource types and providers. Read it before you write a new type or provider.

A type is a folder next to this file with one public name, `TYPE`, a `ResourceType`. One shared flow (`converge.py`) applies
every resource:

    look      found = await provider.status(wanted)             # changes nothing
    decide    decision = TYPE.decide(wanted, found, context)    # pure: no await, I/O or clock
    act       await step.action(provider)                       # for each step; noop prints step.noop
    verify    look and decide again; fail if steps remain       # unless verify=False

*wanted* is the desired state: the resource's properties (a Struct that extends `CommonProperties`). *found* is the current
state that a provider read (a Struct that extends `CommonState`). A provider only has `status` and verbs. It does not make
decisions, does not handle noop, and does not emit events.

A failure raises an error of `model/errors.py`, which the flow converts to a failed outcome. If several providers can work on a
host, the provider with the **lowest rank** is used.

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
    The information for `decide` in addition to the desired and current state.

    Attributes:
        noop: Whether the steps' noop texts are printed and nothing is changed.
        triggered_by: The subscribed resource (`type#name`) that has changed; "" if none has.
        verifying: Whether the steps have run and the state was read again. `decide` then returns only the steps that are still
            needed, without steps that run every time, such as a query for the latest version.
        is_restricted: Whether this is a plan without commands. Results of commands that `status` could not run are unknown.
    """

    noop: bool = False
    triggered_by: str = ""
    verifying: bool = False
    is_restricted: bool = False


class StepResult(Struct, frozen=True, kw_only=True):
    """
    The result of a step.

    Attributes:
        state: The resulting state, if the step has already read it, or if it cannot be read afterwards, such as the exit code of
            a command. `status` is then not called again.
        output: The end of a command's output, for the event.
        is_output_cut: Whether the beginning of the output was removed.
        exit_code: The exit code of the command. None if there is none.
        error: The reason why the step failed. No further step runs, but the other fields are still used.
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
        noop: The noop text, such as "Would have created the file". The type's `noop_separator` joins the texts of several steps.
        action: Makes the change with the provider's verbs. Returns None if `status` must read the resulting state, the state if
            the step has read it, or a StepResult if there is also output.
    """

    noop: str
    action: Callable[[Any], Awaitable[CommonState | StepResult | None]]


class Decision(Struct, frozen=True, kw_only=True):
    """
    The result of `decide`.

    Attributes:
        steps: The steps to run, in order. Empty if the resource is in its desired state.
        error: The reason why the desired state cannot be reached, such as a directory in the place of a file. No step runs.
        reason: The difference, for the error if it remains: "mode mismatch: found 0600, wanted 0644".
        refreshed: Whether the steps run because of a subscription.
        stable: Whether the state reports `stable`. With None, it does so if there are no steps.
        unknown: In a restricted plan, skipped commands that the decision depends on. The rest of the decision is then ignored.
        changes: The properties that the steps change, for a diff. If empty, the diff shows `ensure`.
        contents: Reads changed file contents with the provider, for a diff, before the first step. None if no content changes.
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
    The interface that every provider implements, in addition to the verbs that its type's steps call.

    A provider that can read many resources together MAY also have

        async def look_ahead(self, wanted: Sequence[P]) -> Sequence[S | None]

    which returns the result of `status` for each resource, in order, or None if a result is not known yet. It MUST NOT raise for
    a single resource. After None the flow calls `status`, which raises. The results are used until the host changes. Its method
    `look_after(changed: P, following: P) -> tuple[S, S | None]`, if any, does so for a changed resource and the next one.

    A provider whose changes share a last step, such as a reload, MAY defer this step to `async def finish(self) -> None`. The
    flow calls it before a resource of another provider and after the last one. If it raises, that resource or the run fails.
    """

    async def status(self, wanted: P_contra) -> S_co:
        """
        Read the current state.

        MUST NOT change anything, and MUST read the state on each call.

        Raises:
            HostError: The state could not be read. The resource fails.
        """
        ...


class ChildManifest(Struct, frozen=True, kw_only=True):
    """
    A manifest that is applied within this run (`ResourceContext.apply_child`).

    Attributes:
        path: The manifest's file, absolute or relative to the directory of the parent manifest.
        noop, health_check_only: Stricter modes for the child. The modes of the run also apply.
        allow_apply: Whether the child may contain `apply` resources.
        data: Data merged over the child's own data. With None, the child uses the parent's data.
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
        resources: The number of resources.
        changed, failed: The number of resources that changed or would change, and that failed or had unmet requirements.
        noop: Whether the child ran under noop.
    """

    resources: int = 0
    changed: int = 0
    failed: int = 0
    noop: bool = False


class ResourceContext(Protocol):
    """
    The interface that a provider may use, for one manifest in one run. `ProviderSpec.make` passes the required parts to it.

    Attributes:
        runner, files, clock: Ports. They are the only ways to access the host.
        directory: The absolute directory of the manifest, and the base of relative sources.
        shown_directory: The directory as written on the command line, for output. "" for the working directory.
        facts, data, environ: The values that expressions use. `facts` are gathered on first access.
        may_run_commands: Whether the node's policy allows commands of the manifest. If not, the runner of a type with a
            `RunsCommand` field refuses to start programs.
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
        """
        Return a port that only some types need, by name: "download", "locks". KeyError if this program does not have the port.
        """
        ...

    def environment(self, data: Mapping[str, Any] | None = None) -> Environment:
        """
        Return the environment of whole-file templates: facts, environment variables, functions, and data.

        Args:
            data: Replaces the manifest's data; None keeps it.
        """
        ...

    def say(self, message: str, **fields: object) -> None:
        """Log a line about the current resource, such as a line of a command's output."""
        ...

    async def apply_child(self, child: ChildManifest) -> ChildOutcome:
        """
        Apply another manifest as part of this run. Its events belong to the same session.

        Raises:
            InputError: The manifest cannot be read, is invalid, or is nested too deeply. None of its resources were applied.
        """
        ...


class OutputCallback(Protocol):
    """`ResourceContext.say`, for a provider that needs no other part of the context."""

    def __call__(self, message: str, **fields: object) -> None: ...


class Probe(Protocol):
    """Checks whether a provider can work on this host. Results are cached for the run."""

    def has_program(self, name: str) -> bool:
        """Whether an executable of this name is in PATH or in one of the system's directories."""
        ...

    def exists(self, path: str) -> bool:
        """Whether an absolute path exists."""
        ...


class HostAccess(Struct, frozen=True, kw_only=True):
    """
    The host objects that a resource accesses, for the node's policy.

    Attributes:
        paths: Absolute paths that the resource manages.
        trees: Absolute paths of directories that the resource manages with their content.
        reads, reads_trees: Files and URLs, and directories, whose content is read; relative to the manifest's directory.
        packages, services: Names of packages and services that the resource manages.
        commands: Parts that run a program, except properties with `RunsCommand`. Each is the beginning of a message: "`helper`".
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
    A provider of a type: one way to manage its resources.

    Attributes:
        name: The provider's name in manifests and events, which is the name of its tool.
        make: Creates the provider. It imports the provider's module, so the module is only loaded when needed.
        rank: If several providers can work on a host, the provider with the lowest rank is used.
        is_usable: Whether the provider can work on this host. Called once per run, in a thread. It must be fast.
        fits: Whether the provider suits a host with these facts. Usable providers that suit it are preferred.
            With None, the provider fits every host.
        takes: Whether the provider can manage a resource with these properties. With None, it accepts all properties.
        find_existing: Lists existing resources for `ccm import TYPE:ARGUMENT`; see `resources/existing.py`. None if unsupported.
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

    By default, a property `log_output` has the flag `--log-output`. The flag takes a text, a number, or no value (a boolean).
    It can be repeated for a list or a mapping (K=V).

    Attributes:
        field: The property that the flag sets; "" for a flag that only `CommandLine.gather` reads.
        names: The flag's names, such as ("--environment", "-e").
        help: One line; "" means the property's description.
        default: The default value. None leaves the property unset.
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
        arguments: Properties given by position. The first is required, and so are those in `required`.
        required: Other arguments that are required.
        flags: Flags that differ from the default rule, and additional flags.
        hidden: Properties without a flag.
        alias: A second name for the command, such as `pkg`; "" for none.
        gather: Converts values by flag name (`log_output`) to properties; may raise UsageError. With None, they are unchanged.
        is_offered: Whether the type has a command.
        examples: The text after `ccm ensure TYPE` in the examples of its help.
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
    The rules for undoing changes of a type.

    Attributes:
        earlier: Returns the earlier state. Its arguments are the resource, the state that was read, the decision, and a
            function that keeps files. A relative path in the properties is the digest of a kept content.
        identify: Returns the identity of a state. A change is undone only if the current state is the state that the run left.
        located_by: Properties that, together with the name, locate the resource on the host. `earlier` must return them, too.
        parts: Replaces `earlier` if several resources of `PART_TYPES` undo a change. They are applied in reverse order.
    """

    earlier: Callable[[Any, Any, Decision, KeepFile], Awaitable[EarlierState]]
    identify: Callable[[Any], Identity]
    located_by: tuple[str, ...] = ()
    parts: Callable[[Any, Any, KeepFile], AsyncIterator[EarlierState]] | None = None


class ResourceType(Struct, Generic[P, S], frozen=True, kw_only=True):
    """
    A resource type, with all information that the rest of the program needs.

    Attributes:
        name: The type's name in manifests, `[a-z][a-z0-9_]*`. This is also the name of its folder.
        summary: One line for help and docs.
        properties, state: The desired and current state. Rules are markers on fields; see `model/formats/field_rules.py`.
        decide: Compares the rendered properties with the state from `status`.
        providers: The available providers of the type.
        ensure: The valid values of `ensure`. If empty, any text (a version) is valid.
        default_ensure: The default of `ensure`. "" makes it required.
        check: Raises PropertyError for invalid properties. Called after templates are rendered and before anything is changed.
            Deferred fields may still contain expressions. May set defaults.
        check_in_manifest: Further checks for properties in a manifest, which do not apply to a request. Called after `check`.
        check_when_applied: Checks for errors that Choria CCM reports only when it applies the resource, with the values as
            written. In a manifest, the PropertyError fails only this resource. Otherwise it is raised immediately.
        check_by_lint: Checks that only `ccm lint`, `ccmctl` and requests make. In a manifest, the resource itself fails later.
        finalize: Called once when no template is left. This happens while the manifest is loaded if no field is deferred,
            otherwise just before the resource is applied. May normalize. A PropertyError aborts the run.
        has_changed: Whether the resource changed, based on both states. None means that it changed if steps ran.
        is_extension: Whether Choria CCM lacks this type. `ccm lint --strict-ccm` reports it.
        find_extensions: Finds extensions of Choria CCM that the markers `Extension` and `ExtensionValues` do not cover. Returns
            pairs of the field and the missing feature ("does not support `x` in a `mode`").
        verify: Whether reading the state again shows that the steps worked.
        why_unverified: The reason if `verify` is False.
        stable_when_changed: Whether a changed and verified resource reports `stable`, as Choria CCM's `file` does.
        contains_manifest: Whether the step applies another manifest. It also runs, in the same mode, under noop and for
            health checks.
        noop_separator: Joins the noop texts of several steps. After a comma, the next text begins in lower case.
        can_status: Whether `ccm status TYPE NAME` works with only a name. If not, `why_no_status` gives the reason.
        status_name: Converts the name given to `ccm status` to a name that the type accepts. None leaves it unchanged.
        reach: Returns the host objects that a resource accesses, for the node's policy. With None, a policy that limits paths,
            packages or services allows the type only if it names the type. A restricted plan then does not read its state.
        undo: The rules for undoing its changes. None if they cannot be undone.
        ignorable: The properties that `ignore` accepts, each with the values that leave it unmanaged in an existing resource.
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
        """The rules of the type's properties, from the markers on their fields."""
        return field_rules(self.properties)

    @property
    def state_protocol(self) -> str:
        """The protocol id of the type's state."""
        return f"io.choria.ccm.v1.resource.{self.name}.state"


AnyType = ResourceType[Any, Any]


class ResolvedResource(Struct, kw_only=True):
    """
    A resource of a manifest, ready to be managed.

    Attributes:
        kind: The resource's type.
        wanted: The resource's properties. All templates except those in pending fields are rendered.
        pending: Fields that still contain templates. They are rendered just before the resource is applied.
        index, path: The resource's position in its manifest, from 0, and its path in the document: keys and indexes.
        refused: The error with which the resource fails when it is applied. None if no error is known yet.
        item: The element of `for_each` for this resource, which its expressions use as `item`. Unset without `for_each`.
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
