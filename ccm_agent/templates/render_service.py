"""
The render process for whole-file templates: the child's side.

It serves one job at a time. It has no secrets except those in the data of its jobs. It exits after some idle
time. It also exits after a template has exceeded a limit, because its caches may then use most of the memory
limit.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from ccm_agent.model.errors import CcmError, ExpressionError, TemplateLimitError
from ccm_agent.templates.allowance import Allowance
from ccm_agent.templates.engines.bounds import OUT_OF_MEMORY
from ccm_agent.templates.env import Environment
from ccm_agent.templates.rendering import (
    HostFunctionCall,
    RenderDone,
    RenderedFile,
    RenderFailed,
    RenderJob,
    RenderStarted,
    Said,
    TextJob,
    as_bytes,
)

_UNLIMITED = 1 << 62

_encode = msgspec.msgpack.Encoder().encode

MakeFacts = Callable[[Callable[[], dict[str, Any]]], dict[str, Any]]
"""A function that creates facts that are requested from the parent on first use."""


class RenderChannel(Protocol):
    """The connection to the parent process."""

    def request(self) -> bytes:
        """Return the next job; b"" after the last one."""
        ...

    def answer(self) -> bytes:
        """Return the answer to a request; b"" if the parent has exited."""
        ...

    def send(self, message: bytes) -> None:
        """Send a message."""
        ...


class Limiter(Protocol):
    """Limits the CPU time of one job."""

    def __enter__(self) -> None:
        """Start the measurement; TemplateLimitError is raised in the running code when the limit is exceeded."""
        ...

    def __exit__(self, *exception: object) -> None:
        """End the measurement."""
        ...


def serve(channel: RenderChannel, limiter: Limiter, make_facts: MakeFacts) -> None:
    """Serve jobs until there are no more or a limit is exceeded."""
    has_limit_been_met = False
    while not has_limit_been_met:
        request = channel.request()
        if not request:
            return
        job = pickle.loads(request)
        del request
        try:
            with limiter:
                _run(job, channel, make_facts)
        except CcmError as err:
            has_limit_been_met = isinstance(err, TemplateLimitError)
            _say(channel, _failed(err))
        except MemoryError:
            has_limit_been_met = True
            _say(channel, _failed(TemplateLimitError(OUT_OF_MEMORY)))
        except RecursionError:
            _say(channel, RenderFailed(kind="TemplateError", message="template is nested too deeply"))
        except Exception as err:  # noqa: BLE001 - an internal error of an engine is reported as the template's error
            _say(
                channel,
                RenderFailed(kind="TemplateError", message=f"template failed: {type(err).__name__}: {err}"),
            )


def _run(job: RenderJob, channel: RenderChannel, make_facts: MakeFacts) -> None:
    environment = _Asking(job, channel, make_facts)
    if job.text is not None:
        text = as_bytes(_render(job.text, environment))
        _say(channel, RenderDone(text=text))
        return
    assert job.tree is not None
    from ccm_agent.templates.tree import render_tree

    source, wish = job.tree
    rendered = render_tree(
        source, wish, environment, lambda name: _say(channel, RenderStarted(name=_clean(name)))
    )
    while rendered.files:
        path = next(iter(rendered.files))
        _say(channel, RenderedFile(path=as_bytes(path), content=rendered.files.pop(path)))
    _say(channel, RenderDone(directories=list(map(as_bytes, rendered.directories))))


def _render(job: TextJob, environment: Environment) -> str:
    environment.depth = job.depth
    return environment.render(
        job.engine, job.body, left=job.left, right=job.right, name=job.name, variables=job.variables
    )


class _Asking(Environment):
    """An environment that requests files, facts and broker lookups from the parent."""

    def __init__(self, job: RenderJob, channel: RenderChannel, make_facts: MakeFacts) -> None:
        self._channel = channel
        super().__init__(
            facts=job.facts if job.facts is not None else make_facts(lambda: self._ask("facts")),
            data=job.data,
            environ=job.environ,
            working_dir=job.working_dir,
            is_lenient=job.is_lenient,
            registrations=lambda *arguments: self._ask("registrations", *arguments),
            kv_get=lambda *arguments: self._ask("kvGet", *arguments),
            allowance=Allowance(
                _UNLIMITED, _UNLIMITED, _UNLIMITED
            ),  # the kernel enforces the limits in this process
        )

    def read_file(self, path: str) -> str:
        """Return the content of a file. The parent reads it and checks the policy."""
        content: str = self._ask("readFile", path)
        return content

    def secret(self, name: str) -> str:
        """Return the value of a secret, which the parent opens."""
        value: str = self._ask("secret", name)
        return value

    def _ask(self, function: str, *arguments: str) -> Any:
        _say(self._channel, HostFunctionCall(function, list(map(as_bytes, arguments))))
        answer = self._channel.answer()
        if not answer:
            raise SystemExit(0)
        is_given, value = pickle.loads(answer)
        if not is_given:
            raise ExpressionError(value)
        return value


def _say(channel: RenderChannel, message: Said) -> None:
    channel.send(_encode(message))


def _failed(err: CcmError) -> RenderFailed:
    place = err.place
    if place is None:
        return RenderFailed(kind=type(err).__name__, message=_clean(err.message))
    return RenderFailed(
        kind=type(err).__name__,
        message=_clean(err.message),
        source=_clean(place.source),
        line=place.line,
        column=place.column,
        path=_clean(place.path),
    )


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
