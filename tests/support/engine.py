"""An engine on fakes, with a type of its own: notes on a board that is a dictionary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct

from ccm_agent.app_expressions import make_expressions
from ccm_agent.engine.deps import EngineDeps
from ccm_agent.engine.request import ApplyOptions
from ccm_agent.engine.run import LocalEngine
from ccm_agent.hiera.sources import Sources
from ccm_agent.model.errors import DesiredStateError, HostError, PropertyError
from ccm_agent.model.formats.field_rules import (
    Alias,
    Deferred,
    Extension,
    PublishDigest,
    Quoted,
    Sensitive,
    Untemplated,
    Url,
)
from ccm_agent.model.outcome import TransactionEvent
from ccm_agent.model.resource import CommonProperties, CommonState
from ccm_agent.resources.apply import TYPE as APPLY
from ccm_agent.resources.catalog import Catalog
from ccm_agent.resources.contract import AnyType, Decision, DecisionContext, ProviderSpec, ResourceType, Step
from ccm_agent.testing.clock import FakeClock
from ccm_agent.testing.files import FakeFiles
from ccm_agent.testing.runner import FakeRunner


class NoteProperties(CommonProperties, kw_only=True, omit_defaults=True):
    """A note with a text."""

    text: Annotated[str, Alias("txt"), PublishDigest, Meta(description="What it says.")] = ""
    later: Annotated[str, Deferred, Meta(description="Deferred.")] = ""
    plain: Annotated[str, Untemplated, Meta(description="Never a template.")] = ""
    pin: Annotated[str, Sensitive, Meta(description="Secret.")] = ""
    url: Annotated[str, Url, Meta(description="A link.")] = ""
    words: Annotated[dict[str, str], Meta(description="By language.")] = {}
    sizes: Annotated[list[int], Meta(description="Numbers.")] = []
    bold: Annotated[bool, Extension, Meta(description="Thick letters.")] = False
    mode: Annotated[str, Quoted, Meta(description="Octal.")] = ""
    subscribe: Annotated[list[str], Meta(description="References.")] = []


class NoteState(CommonState, kw_only=True):
    """What the note says."""

    text: str = ""


class Board:
    """
    The provider: notes by name.

    Attributes:
        notes: What is there.
        looks, looks_ahead: Names that were looked at, singly and together.
        broken: Names whose notes cannot be written, or are written wrong.
    """

    def __init__(self) -> None:
        self.notes: dict[str, str] = {}
        self.looks: list[str] = []
        self.looks_ahead: list[list[str]] = []
        self.broken: dict[str, str] = {}

    async def status(self, wanted: NoteProperties) -> NoteState:
        self.looks.append(wanted.name)
        return self._state(wanted)

    async def look_ahead(self, wanted: Sequence[NoteProperties]) -> Sequence[NoteState | None]:
        self.looks_ahead.append([one.name for one in wanted])
        return [self._state(one) for one in wanted]

    async def write(self, wanted: NoteProperties) -> None:
        why = self.broken.get(wanted.name, "")
        if why == "bug":
            raise ZeroDivisionError("division by zero")
        if why == "unable":
            raise HostError("the pen is empty", output="scratch\n")
        self.notes[wanted.name] = "scribble" if why == "wrong" else note_text(wanted)

    def _state(self, wanted: NoteProperties) -> NoteState:
        text = self.notes.get(wanted.name)
        return NoteState(
            protocol="io.choria.ccm.v1.resource.note.state",
            type="note",
            name=wanted.name,
            ensure="absent" if text is None else "present",
            text=text or "",
        )


def note_text(wanted: NoteProperties) -> str:
    """What a note says in the end."""
    return wanted.later or wanted.text


def check(wanted: NoteProperties) -> None:
    if wanted.name.startswith("/"):
        raise PropertyError("a note has no path")


def decide(wanted: NoteProperties, found: NoteState, context: DecisionContext) -> Decision:
    async def write(board: Board) -> None:
        await board.write(wanted)

    if context.triggered_by:
        return Decision(steps=(Step(noop="Would have rewritten", action=write),), refreshed=True)
    if found.text == note_text(wanted) and found.ensure == "present":
        return Decision()
    if found.text == "carved in stone":
        return Decision(error=DesiredStateError("it is carved in stone"))
    steps = [Step(noop="Would have written it", action=write)]
    if wanted.bold:
        steps.append(Step(noop="Would have underlined it", action=write))
    return Decision(steps=tuple(steps), reason=f"it says {found.text!r}")


def note_type(board: Board, **changes: Any) -> AnyType:
    """The type, its provider always the same board."""
    fields: dict[str, Any] = {
        "name": "note",
        "summary": "Notes.",
        "properties": NoteProperties,
        "state": NoteState,
        "decide": decide,
        "check": check,
        "providers": (ProviderSpec(name="board", make=lambda _context: board),),
        "ensure": ("present", "absent"),
        "default_ensure": "present",
    }
    return ResourceType(**(fields | changes))


class Types(Catalog):
    """A catalog of the types that a test gives."""

    def __init__(self, *kinds: AnyType) -> None:
        super().__init__()
        self._found = {kind.name: kind for kind in kinds}

    def names(self) -> list[str]:
        return sorted(self._found)

    def _own(self, name: str) -> AnyType | None:
        return None

    def _foreign(self, name: str) -> AnyType | None:
        return None

    def foreign_providers(self, type_name: str) -> list[ProviderSpec]:
        return []


class Bench(Struct):
    """
    An engine and what it works on.

    Attributes:
        engine: The engine; its working directory is /work.
        board: Where notes are.
        files: Where manifests are.
        events, notes: What was told, in order.
    """

    engine: LocalEngine
    board: Board
    files: FakeFiles
    runner: FakeRunner
    events: list[TransactionEvent]
    notes: list[tuple[str, str, dict[str, object]]]

    def options(self, **fields: Any) -> ApplyOptions:
        """Options that keep what is told."""

        def on_note(level: str, message: str, found: Mapping[str, object]) -> None:
            self.notes.append((level, message, dict(found)))

        return ApplyOptions(on_event=self.events.append, on_note=on_note, **fields)

    @property
    def outcomes(self) -> list[tuple[str, str]]:
        """Name and outcome of each event."""
        return [(event.name, event.outcome.value) for event in self.events]


def bench(*kinds: AnyType, board: Board | None = None, **deps: Any) -> Bench:
    """A bench with notes, child manifests and the types that are given."""
    board = board or Board()
    files, runner = FakeFiles(), FakeRunner()
    known = {kind.name: kind for kind in (note_type(board), APPLY, *kinds)}
    made: dict[str, Any] = {
        "runner": runner,
        "files": files,
        "clock": FakeClock(),
        "catalog": Types(*known.values()),
        "make_expressions": make_expressions,
        "gather_facts": lambda more: {"os": "linux", **more},
        "sources": lambda directory: Sources(files, directory=directory),
        "directory": "/work",
        "port": {}.__getitem__,
        "version": "1.2.3",
    }
    return Bench(
        engine=LocalEngine(EngineDeps(**(made | deps))),
        board=board,
        files=files,
        runner=runner,
        events=[],
        notes=[],
    )
