"""
Whole-file templates, rendered in a process of their own: the side that asks.

A template comes from a manifest and can do anything that its language can. The process has limits of CPU time and memory that the
kernel keeps, and no credentials; when it dies, one template has failed. What a template reads of the host or the broker is asked
here, so that the node's policy judges it. `render_service.py` is the other side.

What goes there is pickled, since values have types that no other form keeps. What comes back is MessagePack: the process that
runs the template made it, and a pickle could do anything here.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from ccm_agent.model.errors import (
    CcmError,
    ExpressionError,
    ExpressionLimitError,
    FileError,
    Place,
    TemplateError,
    TemplateLimitError,
)
from ccm_agent.model.ports import RenderWorker, Tree

if TYPE_CHECKING:
    from ccm_agent.templates.env import Environment

_ERRORS: dict[str, type[CcmError]] = {
    kind.__name__: kind
    for kind in (ExpressionError, ExpressionLimitError, FileError, TemplateError, TemplateLimitError)
}


class TextJob(Struct, frozen=True, kw_only=True):
    """
    One template.

    Attributes:
        engine, body, left, right, name: As `Environment.render` takes them.
        variables: What it sees instead of the environment's values and functions; None for those.
        depth: How many templates it is in already.
    """

    engine: str
    body: str
    left: str
    right: str
    name: str
    variables: Mapping[str, Any] | None
    depth: int


class DirectoryOptions(Struct, frozen=True, kw_only=True):
    """
    How the templates of a directory are rendered.

    Attributes:
        source: What errors call the directory.
        engine: `jet`, `go` or `jinja`.
        left_delimiter, right_delimiter: What opens and closes an action; "" for the engine's own.
        skip_empty: A template that renders to white space makes no file.
    """

    source: str
    engine: str
    left_delimiter: str = ""
    right_delimiter: str = ""
    skip_empty: bool = False


class RenderedDirectory(Struct, kw_only=True):
    """
    What a directory of templates renders to.

    Attributes:
        directories: Paths of the directories, a parent before what is in it.
        files: Content by path.
    """

    directories: list[str] = []
    files: dict[str, bytes] = {}


class RenderJob(Struct, frozen=True, kw_only=True):
    """
    What the process is to do.

    Attributes:
        text, tree: One of them is set; a tree with how it is rendered.
        facts: What templates see; None when it is to ask for them when it needs them.
        data, environ, working_dir, is_lenient: As `Environment` has them.
    """

    text: TextJob | None = None
    tree: tuple[Tree, DirectoryOptions] | None = None
    facts: dict[str, Any] | None = None
    data: dict[str, Any]
    environ: dict[str, str]
    working_dir: str
    is_lenient: bool


class HostFunctionCall(Struct, frozen=True, tag=True):
    """Something of the host or the broker that a template asks for."""

    function: str
    arguments: list[bytes]


class RenderStarted(Struct, frozen=True, tag=True):
    """The template that is rendered now, for errors of a process that says nothing more."""

    name: str


class RenderedFile(Struct, frozen=True, tag=True):
    """A file that a directory of templates renders to."""

    path: bytes
    content: bytes


class RenderDone(Struct, frozen=True, tag=True):
    """All is rendered; of a directory, the files came before."""

    text: bytes = b""
    directories: list[bytes] = []


class RenderFailed(Struct, frozen=True, tag=True, kw_only=True):
    """A template failed."""

    kind: str
    message: str
    source: str = ""
    line: int = 0
    column: int = 0
    path: str = ""


Said = HostFunctionCall | RenderStarted | RenderedFile | RenderDone | RenderFailed
"""What the process says; it ends with Done or Failed."""

said = msgspec.msgpack.Decoder(Said)

BYTES_MAX = 64 << 20
"""Of all files of one directory: `render` and `write` in loops could make anything of little."""


class Renderer:
    """
    Renders in a worker; blocking, so it belongs into a thread.

    Args:
        worker: The process.
    """

    def __init__(self, worker: RenderWorker) -> None:
        self._worker = worker

    def text(self, job: TextJob, environment: Environment) -> str:
        """
        A template with an environment; what it does to data ends with it.

        Raises:
            CcmError: As `Environment.render`.
            TemplateLimitError: It takes more time or memory than it may.
        """
        done, _ = self._run(_job(environment, text=job), environment, job.name)
        return _text(done.text)

    def tree(self, source: Tree, wish: DirectoryOptions, environment: Environment) -> RenderedDirectory:
        """
        A directory of templates; see `tree.render_tree`.

        Raises:
            CcmError: As `tree.render_tree`.
            TemplateLimitError: It takes more time or memory than it may.
        """
        done, files = self._run(_job(environment, tree=(source, wish)), environment, wish.source)
        return RenderedDirectory(directories=list(map(_text, done.directories)), files=files)

    def _run(
        self, job: RenderJob, environment: Environment, name: str
    ) -> tuple[RenderDone, dict[str, bytes]]:
        conversation = _Conversation(environment, name)
        try:
            request = pickle.dumps(job, pickle.HIGHEST_PROTOCOL)
        except RecursionError:
            raise TemplateError("the data are nested too deeply", place=Place(source=name)) from None
        except (pickle.PicklingError, AttributeError, TypeError) as err:
            raise TemplateError(
                f"templates cannot take a value of the data: {err}", place=Place(source=name)
            ) from err
        try:
            self._worker.call(request, conversation.hear)
        except TemplateLimitError as err:
            raise TemplateLimitError(err.message, place=Place(source=conversation.name)) from None
        except (msgspec.MsgspecError, UnicodeError) as err:
            raise TemplateError(
                f"the process that renders templates says what cannot be read: {err}",
                place=Place(source=name),
            ) from err
        if conversation.failed is not None:
            raise conversation.failed
        assert conversation.done is not None
        return conversation.done, conversation.files


class _Conversation:
    """
    What the process says about one job, and what it is answered.

    Attributes:
        name: The template that it renders.
        files: What came of it.
        done, failed: How it ended.
    """

    def __init__(self, environment: Environment, name: str) -> None:
        self.name = name
        self.files: dict[str, bytes] = {}
        self.done: RenderDone | None = None
        self.failed: CcmError | None = None
        self._room = BYTES_MAX
        self._behind: CcmError | None = None
        self._functions: dict[str, Callable[..., Any]] = {
            "readFile": environment.read_file,
            "registrations": environment.registrations,
            "kvGet": environment.kv_get,
            "facts": lambda: dict(environment.facts.items()),
        }

    def hear(self, message: bytes) -> bytes | None:
        """The answer to a question, None for all else; b"" at the end."""
        one = said.decode(message)
        if isinstance(one, HostFunctionCall):
            return self._answer(one)
        if isinstance(one, RenderStarted):
            self.name = one.name
            return None
        if isinstance(one, RenderedFile):
            self._room -= len(one.content)
            if self._room < 0:
                raise TemplateLimitError(f"the files are more than {BYTES_MAX} bytes")
            self.files[_text(one.path)] = one.content
            return None
        if isinstance(one, RenderDone):
            self.done = one
        else:
            self.failed = self._error(one)
        return b""

    def _answer(self, question: HostFunctionCall) -> bytes:
        """What the environment's function gives or raises; only functions of the list can be called."""
        try:
            function = self._functions[question.function]
            return pickle.dumps((True, function(*map(_text, question.arguments))), pickle.HIGHEST_PROTOCOL)
        except CcmError as err:
            self._behind = err
            return pickle.dumps((False, err.message))

    def _error(self, failed: RenderFailed) -> CcmError:
        kind = _ERRORS.get(failed.kind, TemplateError)
        place = Place(source=failed.source, line=failed.line, column=failed.column, path=failed.path)
        error = kind(failed.message, place=place if str(place) else None)
        if self._behind is not None and self._behind.message in failed.message:
            error.__cause__ = (
                self._behind
            )  # the broker is away, or the policy refused: that is what counts then
        return error


def _job(
    environment: Environment,
    *,
    text: TextJob | None = None,
    tree: tuple[Tree, DirectoryOptions] | None = None,
) -> RenderJob:
    # facts that are gathered when they are asked for are not gathered for a template that names none
    facts = environment.facts if type(environment.facts) is dict else None
    return RenderJob(
        text=text,
        tree=tree,
        facts=facts,
        data=environment.data,
        environ=dict(environment.environ),
        working_dir=environment.working_dir,
        is_lenient=environment.is_lenient,
    )


def as_bytes(text: str) -> bytes:
    """A text on its way through MessagePack, which knows no lone surrogates."""
    return text.encode("utf-8", "surrogatepass")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")
