"""
The render process for whole-file templates: the parent's side.

A template comes from a manifest and can use all features of its language. The kernel limits the CPU time and
memory of the render process, which has no credentials. If the process dies, only one template has failed. The
parent reads files and queries the broker for the template, so the node's policy applies. `render_service.py` is
the child's side.

Jobs are pickled, because no other format preserves all types of values. Answers are MessagePack, because they
come from the process that runs the template. Unpickling them could run code in the parent.
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
    from ccm_agent.templates.lookup import ExpressionScope

_ERRORS: dict[str, type[CcmError]] = {
    kind.__name__: kind
    for kind in (ExpressionError, ExpressionLimitError, FileError, TemplateError, TemplateLimitError)
}


class TextJob(Struct, frozen=True, kw_only=True):
    """
    One template.

    Attributes:
        engine, body, left, right, name: See `Environment.render`.
        variables: Variables that replace the environment's values and functions; None for no replacement.
        depth: The current nesting of templates.
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
    The settings for rendering a directory of templates.

    Attributes:
        source: The directory's name in errors.
        engine: `jet`, `go` or `jinja`.
        left_delimiter, right_delimiter: The delimiters; "" for the engine's default.
        skip_empty: Whether a template that renders only white space creates no file.
    """

    source: str
    engine: str
    left_delimiter: str = ""
    right_delimiter: str = ""
    skip_empty: bool = False


class RenderedDirectory(Struct, kw_only=True):
    """
    The result of rendering a directory of templates.

    Attributes:
        directories: Paths of the directories, each parent before its children.
        files: The content of each file, by path.
    """

    directories: list[str] = []
    files: dict[str, bytes] = {}


class RenderJob(Struct, frozen=True, kw_only=True):
    """
    One job of the render process.

    Attributes:
        text, tree: Exactly one of them is set; a tree comes with its options.
        facts: The facts; None if the process should request them on first use.
        data, environ, working_dir, is_lenient: See `Environment`.
    """

    text: TextJob | None = None
    tree: tuple[Tree, DirectoryOptions] | None = None
    facts: dict[str, Any] | None = None
    data: dict[str, Any]
    environ: dict[str, str]
    working_dir: str
    is_lenient: bool


class HostFunctionCall(Struct, frozen=True, tag=True):
    """A call of a function that reads from the host or the broker."""

    function: str
    arguments: list[bytes]


class RenderStarted(Struct, frozen=True, tag=True):
    """The template that is being rendered. It is used in the error message if the process dies."""

    name: str


class RenderedFile(Struct, frozen=True, tag=True):
    """A rendered file of a directory of templates."""

    path: bytes
    content: bytes


class RenderDone(Struct, frozen=True, tag=True):
    """The job is done. For a directory, the files were sent before."""

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
"""A message of the process. The last message of a job is RenderDone or RenderFailed."""

said = msgspec.msgpack.Decoder(Said)

BYTES_MAX = 64 << 20
"""Limit for all files of one directory: loops with `render` and `write` could create huge output."""


class Renderer:
    """
    Renders templates in a worker process. Blocking: call it in a thread.

    Args:
        worker: The worker process.
    """

    def __init__(self, worker: RenderWorker) -> None:
        self._worker = worker

    def text(self, job: TextJob, environment: ExpressionScope) -> str:
        """
        Render a template with an environment. Changes that the template makes to the data are discarded.

        Raises:
            CcmError: See `Environment.render`.
            TemplateLimitError: The template exceeds the limits of time or memory.
        """
        done, _ = self._run(_job(environment, text=job), environment, job.name)
        return _text(done.text)

    def tree(self, source: Tree, wish: DirectoryOptions, environment: ExpressionScope) -> RenderedDirectory:
        """
        Render a directory of templates; see `tree.render_tree`.

        Raises:
            CcmError: See `tree.render_tree`.
            TemplateLimitError: The templates exceed the limits of time or memory.
        """
        done, files = self._run(_job(environment, tree=(source, wish)), environment, wish.source)
        for content in files.values():
            environment.require_opened(content)
        return RenderedDirectory(directories=list(map(_text, done.directories)), files=files)

    def _run(
        self, job: RenderJob, environment: ExpressionScope, name: str
    ) -> tuple[RenderDone, dict[str, bytes]]:
        conversation = _Conversation(environment, name)
        try:
            request = pickle.dumps(job, pickle.HIGHEST_PROTOCOL)
        except RecursionError:
            raise TemplateError("the data are nested too deeply", place=Place(source=name)) from None
        except (pickle.PicklingError, AttributeError, TypeError) as err:
            raise TemplateError(
                f"a value in the data cannot be passed to templates: {err}", place=Place(source=name)
            ) from err
        try:
            self._worker.call(request, conversation.hear)
        except TemplateLimitError as err:
            raise TemplateLimitError(err.message, place=Place(source=conversation.name)) from None
        except (msgspec.MsgspecError, UnicodeError) as err:
            raise TemplateError(
                f"the output of the rendering process cannot be read: {err}",
                place=Place(source=name),
            ) from err
        if conversation.failed is not None:
            raise conversation.failed
        assert conversation.done is not None
        return conversation.done, conversation.files


class _Conversation:
    """
    The exchange of messages for one job.

    Attributes:
        name: The template that is being rendered.
        files: The rendered files.
        done, failed: The result.
    """

    def __init__(self, environment: ExpressionScope, name: str) -> None:
        self.name = name
        self.files: dict[str, bytes] = {}
        self.done: RenderDone | None = None
        self.failed: CcmError | None = None
        self._room = BYTES_MAX
        self._behind: CcmError | None = None
        self._functions: dict[str, Callable[..., Any]] = {
            **environment.host_functions,
            "facts": lambda: dict(environment.facts.items()),
        }

    def hear(self, message: bytes) -> bytes | None:
        """Return the answer to a HostFunctionCall; None for other messages; b"" after the last message."""
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
        """Return the result or error of the environment's function; only listed functions can be called."""
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
            )  # a lost broker connection or a refusal by the policy is the error to report
        return error


def _job(
    environment: ExpressionScope,
    *,
    text: TextJob | None = None,
    tree: tuple[Tree, DirectoryOptions] | None = None,
) -> RenderJob:
    # facts are not gathered for a template that does not use them
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
    """Encode a text for MessagePack, which does not support lone surrogates."""
    return text.encode("utf-8", "surrogatepass")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")
