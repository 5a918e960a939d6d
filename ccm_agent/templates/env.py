"""
The environment of expressions and templates: facts, data, the process environment and a few functions.

One Environment serves one run. It is synchronous: its functions read files, key-value buckets and registrations when an
expression calls them. `manifest.expressions.reads_host` detects texts that may call such functions. A caller on
an event loop must render them in a thread.
"""

from __future__ import annotations

import copy
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccm_agent.model.errors import BusError, ExpressionError, UsageError
from ccm_agent.model.gathered import with_go_names
from ccm_agent.model.links import why_misled
from ccm_agent.templates.allowance import LONG_TEXT, Allowance, size_of
from ccm_agent.templates.lookup import ExpressionScope
from ccm_agent.templates.values import StringMap, from_bytes

if TYPE_CHECKING:
    from ccm_agent.templates.rendering import Renderer

READ_LIMIT = 64 * 1024 * 1024  # maximum number of bytes of one file
# short enough to run on an event loop: about a millisecond
BRIEF_STEPS = 2_000
BRIEF_BYTES = 64 * 1024
BRIEF_CPU_S = 0.005
TEMPLATE_DEPTH = 20  # maximum nesting of templates that render templates

# the functions of the environment that whole-file templates can use, by engine
_SHARED = ("lookup", "readFile", "file", "registrations", "kvGet", "secret")
TEMPLATE_FUNCTIONS = {
    "jet": (*_SHARED, "template"),
    "go": (*_SHARED, "jet"),
    "jinja": (*_SHARED, "template", "jet"),
}


class Environment(ExpressionScope):
    """
    The values and functions for the expressions and templates of one run.

    Attributes:
        is_restricted: Whether expressions can use `lookup`, but no function that reads from the host.
        renderer: The render process for whole-file templates; None to render them in this process.
        depth: The current nesting of templates that render each other.
    """

    def __init__(
        self,
        *,
        facts: dict[str, Any] | None = None,
        data: dict[str, Any] | None = None,
        environ: Mapping[str, str] | None = None,
        working_dir: str | os.PathLike[str] = "",
        is_lenient: bool = False,
        is_restricted: bool = False,
        registrations: Callable[[str, str, str, str], Any] | None = None,
        kv_get: Callable[[str, str], str] | None = None,
        extra_functions: Mapping[str, Callable[..., Any]] | None = None,
        allowance: Allowance | None = None,
        renderer: Renderer | None = None,
    ) -> None:
        super().__init__(
            facts=with_go_names(facts) if type(facts) is dict else {} if facts is None else facts,
            data={} if data is None else data,
            environ=StringMap(environ or {}),
            working_dir=os.fspath(working_dir),
            is_lenient=is_lenient,
            allowance=allowance or Allowance(),
        )
        self.is_restricted = is_restricted
        self._registrations = registrations
        self._kv_get = kv_get
        self.renderer = renderer
        self.depth = 0
        self._check_read: Callable[[str], None] | None = None
        self._all_functions: dict[str, Callable[..., Any]] = {
            "lookup": self._call_lookup,
            "readFile": self._call_read_file,
            "file": self._call_read_file,
            "template": self._call_template,
            "jet": self._call_jet,
            "registrations": self._call_registrations,
            "kvGet": self._call_kv_get,
            "secret": self._call_secret,
        }
        names = ("lookup",) if is_restricted else tuple(self._all_functions)
        self.functions = {name: self._all_functions[name] for name in names}
        self.functions.update(extra_functions or {})
        self.function_names = frozenset(self.functions)
        self.host_functions = {
            "readFile": self.read_file,
            "registrations": self.registrations,
            "kvGet": self.kv_get,
            "secret": self.secret,
        }

    def confine(
        self, check_read: Callable[[str], None], refuse_broker: Callable[[], None] | None = None
    ) -> None:
        """
        Check all following reads against the node's policy.

        Args:
            check_read: Called with the normalized path of each file before it is opened; raises PolicyError.
            refuse_broker: Called before each broker lookup, and raises; None allows lookups.
        """
        self._check_read = check_read
        if refuse_broker is None:
            return

        def refused(*_arguments: str) -> Any:
            refuse_broker()

        self._registrations = self._kv_get = refused

    @contextmanager
    def brief(self) -> Iterator[None]:
        """
        Evaluate with limits that are small enough for an event loop.

        Raises:
            ExpressionLimitError: The limits are exceeded; nothing has changed.
        """
        whole, self.allowance = self.allowance, Allowance(BRIEF_STEPS, BRIEF_BYTES, BRIEF_CPU_S)
        try:
            yield
        finally:
            brief, self.allowance = self.allowance, whole
            whole.steps -= BRIEF_STEPS - brief.steps
            whole.memory -= BRIEF_BYTES - brief.memory

    # functions for engines and other callers

    def read_file(self, path: str) -> str:
        """
        Return the content of a file; bytes that are not UTF-8 become surrogate escapes.

        Raises:
            ExpressionError: The file cannot be read, or is too large.
        """
        full = path if Path(path).is_absolute() or not self.working_dir else str(Path(self.working_dir, path))
        if self._check_read is not None:
            self._check_read(os.path.normpath(full))
        try:
            with open(os.path.normpath(full), "rb", opener=_open_regular) as file:
                content = file.read(READ_LIMIT + 1)
        except (OSError, ValueError) as err:
            reason = err.strerror if isinstance(err, OSError) and err.strerror else str(err)
            raise ExpressionError(f"cannot read {full}: {reason}") from err
        if len(content) > READ_LIMIT:
            raise ExpressionError(f"cannot read {full}: it is larger than {READ_LIMIT} bytes")
        text = from_bytes(content)
        if len(text) > LONG_TEXT:
            self.allowance.hold(size_of(text))
        return text

    def template(self, text: str) -> Any:
        """
        Render a text with `{{ }}`, or the `.templ` or `.jet` file with that name.

        Raises:
            ExpressionError: An expression fails, or templates render each other endlessly.
        """
        from ccm_agent.templates.resolve import render_value

        if text.endswith(".jet"):
            return self.jet(text)
        if text.endswith(".templ"):
            text = self.read_file(text)
        with _Nested(self):
            return render_value(text, self)

    def jet(self, body: str, left: str = "[[", right: str = "]]") -> str:
        """
        Render a Jet template, or the `.jet` file with that name. An empty delimiter means Jet's default, `{{` or `}}`.

        Raises:
            TemplateError: The template does not parse or fails.
        """
        if body.endswith(".jet"):
            body = self.read_file(body)
        return self.render("jet", body, left=left or "{{", right=right or "}}")

    def render(
        self,
        engine: str,
        body: str,
        *,
        left: str = "",
        right: str = "",
        name: str = "input",
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """
        Render a template with a whole-file engine, in the render process if there is a renderer.

        Args:
            engine: `jet`, `go` or `jinja`.
            body: The template.
            left: The opening delimiter; "" for the engine's default.
            right: The closing delimiter.
            name: The template's name in errors.
            variables: Variables that replace facts, data, environment variables and functions; None for no
                replacement.

        Raises:
            TemplateError: The engine is unknown, or the template does not parse or fails.
            TemplateLimitError: The template exceeds the limits of time or memory.
        """
        with _Nested(self):
            if self.renderer is not None:
                text = self._rendered_apart(engine, body, left, right, name, variables)
                self.require_opened(text)
                return text
            from ccm_agent.templates.engines import engine as engine_of

            found = engine_of(engine)
            functions = {} if variables is not None else self.template_functions(engine)
            if variables is None:
                variables = {"facts": self.facts, "data": self.data, "environ": self.environ}
            text = found.render(body, variables, name=name, left=left, right=right, functions=functions)
            self.require_opened(text)
            return text

    def _rendered_apart(
        self, engine: str, body: str, left: str, right: str, name: str, variables: Mapping[str, Any] | None
    ) -> str:
        from ccm_agent.templates.rendering import TextJob

        assert self.renderer is not None
        job = TextJob(
            engine=engine,
            body=body,
            left=left,
            right=right,
            name=name,
            variables=variables,
            depth=self.depth - 1,
        )
        return self.renderer.text(job, self)

    def copied(self) -> Environment:
        """Return a copy with its own data and without a renderer."""
        made = Environment(
            facts=self.facts,
            data=copy.deepcopy(self.data),
            environ=self.environ,
            working_dir=self.working_dir,
            is_lenient=self.is_lenient,
            is_restricted=self.is_restricted,
            registrations=self._registrations,
            kv_get=self._kv_get,
            allowance=self.allowance,
        )
        made._check_read = self._check_read
        made.secrets = self.secrets
        return made

    def template_functions(self, engine: str) -> dict[str, Callable[..., Any]]:
        """
        Return the functions that a template of a whole-file engine can use, in addition to the engine's
        own.
        """
        return {key: _with_exact_count(key, self._all_functions[key]) for key in TEMPLATE_FUNCTIONS[engine]}

    def registrations(self, cluster: str, protocol: str, service: str, address: str) -> Any:
        """
        Return the registered services that match.

        Raises:
            ExpressionError: This run has no broker connection.
        """
        if self._registrations is None:
            raise ExpressionError("registrations() is not available: no broker is configured")
        return self._registrations(cluster, protocol, service, address)

    def kv_get(self, bucket: str, key: str) -> str:
        """
        Return the value of a key in a bucket.

        Raises:
            ExpressionError: This run has no broker connection.
        """
        if self._kv_get is None:
            raise ExpressionError("kvGet() is not available: no broker is configured")
        return self._kv_get(bucket, key)

    def secret(self, name: str) -> str:
        """
        Return the value of a secret. After the call, the value is masked in all output of the run.

        Raises:
            ExpressionError: The secret cannot be opened; chained from the BusError, if there is one.
        """
        if self.secrets is None:
            raise ExpressionError("secret() is not available here: only agents open secrets, in their runs")
        try:
            return self.secrets.open(name)
        except (BusError, UsageError) as err:
            raise ExpressionError(f"secret(): {err.message}") from err

    # the same functions, called by expressions with unchecked arguments

    def _call_lookup(self, *arguments: Any) -> Any:
        _count("lookup", arguments, (1, 2))
        return self.lookup(_texts("lookup", arguments, 1)[0], arguments[1] if len(arguments) > 1 else None)

    def _call_read_file(self, *arguments: Any) -> str:
        return self.read_file(_texts("readFile", arguments, 1)[0])

    def _call_template(self, *arguments: Any) -> Any:
        return self.template(_texts("template", arguments, 1)[0])

    def _call_jet(self, *arguments: Any) -> str:
        _count("jet", arguments, (1, 3))
        return self.jet(*_texts("jet", arguments, len(arguments)))

    def _call_registrations(self, *arguments: Any) -> Any:
        _count("registrations", arguments, (4,))
        return self.registrations(*_texts("registrations", arguments, 4))

    def _call_kv_get(self, *arguments: Any) -> str:
        _count("kvGet", arguments, (2,))
        return self.kv_get(*_texts("kvGet", arguments, 2))

    def _call_secret(self, *arguments: Any) -> str:
        _count("secret", arguments, (1,))
        return self.secret(*_texts("secret", arguments, 1))


class _Nested:
    """Counts the nesting of templates that render templates."""

    def __init__(self, env: Environment) -> None:
        self.env = env

    def __enter__(self) -> None:
        if self.env.depth >= TEMPLATE_DEPTH:
            raise ExpressionError(
                f"templates render each other more than {TEMPLATE_DEPTH} deep: is there a circle?"
            )
        self.env.depth += 1

    def __exit__(self, *_exception: object) -> None:
        self.env.depth -= 1


def _open_regular(path: str, flags: int) -> int:
    """Open a regular file, and refuse any other kind. Does not block on a FIFO."""
    handle = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        raise ValueError("it is a directory" if stat.S_ISDIR(mode) else "it is not a regular file")
    if why := why_misled(os.path.abspath(path), handle):  # noqa: PTH100 - symlinks must not be resolved
        os.close(handle)
        raise ValueError(why)
    return handle


def _count(name: str, arguments: tuple[Any, ...], allowed: tuple[int, ...]) -> None:
    if len(arguments) not in allowed:
        wanted = " or ".join(map(str, allowed))
        raise ExpressionError(f"{name}() takes {wanted} arguments, not {len(arguments)}")


def _with_exact_count(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function for whole-file templates, so an extra argument is an error."""
    if name not in ("readFile", "file", "template"):
        return function

    def call(*arguments: Any) -> Any:
        _count(name, arguments, (1,))
        return function(*arguments)

    return call


def _texts(name: str, arguments: tuple[Any, ...], count: int) -> tuple[str, ...]:
    """Return the first arguments, which must be text; extra arguments are ignored, as in the reference."""
    if len(arguments) < count:
        raise ExpressionError(f"{name}() takes text as its argument")
    for index, argument in enumerate(arguments[:count]):
        if not isinstance(argument, str):
            raise ExpressionError(f"{name}() takes text as argument {index + 1}")
    return arguments[:count]
