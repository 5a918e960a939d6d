"""
Jinja templates, in Jinja's sandbox.

An undefined name is an error, the last newline is kept, and nothing is escaped, because the output is
configuration, not HTML. A template can use mappings, lists, scalars, the listed methods of text, lists and
mappings, and the given functions.

This module does not count steps, because the kernel limits the time and memory of the process that runs the
template (ADR 31). It limits the length of the output and the size of integers, which the kernel cannot limit.

docs/reference/jinja.md lists the differences from plain Jinja.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Literal

from ccm_agent.model.errors import CcmError, Place, TemplateError, TemplateLimitError
from ccm_agent.model.gathered import GatheredList, GatheredRecord
from ccm_agent.templates.engines.bounds import OUT_OF_MEMORY, OUTPUT_MAX
from ccm_agent.templates.engines.external import call_plain
from ccm_agent.templates.goprint import go_print
from ccm_agent.templates.services import METHODS as SERVICE_METHODS
from ccm_agent.templates.services import Services
from ccm_agent.templates.values import GoValue

if TYPE_CHECKING:
    from jinja2 import Environment, Template

LEFT, RIGHT = "{{", "}}"

INTEGER_BITS_MAX = 4096

_Newline = Literal["\n", "\r\n"]

_TEXT_TESTS = (
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "islower",
    "isnumeric",
    "isspace",
    "istitle",
    "isupper",
)
_TEXT_CHANGES = (
    "capitalize",
    "casefold",
    "lower",
    "lstrip",
    "removeprefix",
    "removesuffix",
    "replace",
    "rstrip",
    "strip",
)
_TEXT_PARTS = (
    "partition",
    "rpartition",
    "rsplit",
    "split",
    "splitlines",
    "join",
    "format",
    "swapcase",
    "title",
    "upper",
)
_TEXT_PLACES = ("count", "endswith", "find", "index", "rfind", "rindex", "startswith")
_METHODS: dict[type, frozenset[str]] = {
    str: frozenset(_TEXT_TESTS + _TEXT_CHANGES + _TEXT_PARTS + _TEXT_PLACES),
    dict: frozenset(("get", "items", "keys", "values")),
    list: frozenset(("count", "index")),
    tuple: frozenset(("count", "index")),
    Services: frozenset(SERVICE_METHODS),
}


# errors that Jinja's filters raise for unsuitable values, in addition to Jinja's own errors
_FAILURES = (
    CcmError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    NameError,
    RecursionError,
    TypeError,
    ValueError,
)


class Jinja:
    """The `jinja` engine; see `engines.TemplateEngine`. One instance serves any number of concurrent renders."""

    left, right = LEFT, RIGHT

    def render(
        self,
        text: str,
        variables: Mapping[str, Any],
        *,
        name: str,
        left: str = "",
        right: str = "",
        context: Any = None,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        load: Callable[[str], str | None] | None = None,
    ) -> str:
        """
        Render a template; the arguments are those of `TemplateEngine.render`.

        A context is a mapping. Its members become names, in addition to the variables. `left` and `right`
        replace only `{{` and `}}`.
        """
        from jinja2 import TemplateError as JinjaError

        if context is not None and not isinstance(context, Mapping):
            raise TemplateError("the context of a Jinja template is a mapping", place=Place(source=name))
        known = {key: _plain_call(key, call) for key, call in (functions or {}).items()}
        try:
            template = _template(text, name, left or LEFT, right or RIGHT, load)
            return _printed(template.generate({**variables, **known, **(context or {})}))
        except (JinjaError, *_FAILURES) as err:
            raise _as_ours(err, name) from err


def _printed(parts: Iterable[str]) -> str:
    printed: list[str] = []
    room = OUTPUT_MAX
    for part in parts:
        room -= len(part)
        if room < 0:
            raise TemplateLimitError(f"output is too long: more than {OUTPUT_MAX} characters")
        printed.append(part)
    return "".join(printed)


def _plain_call(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*values: Any) -> Any:
        return call_plain(name, function, list(values))

    return call


def _as_ours(err: Exception, name: str) -> TemplateError:
    """Convert an error of Jinja or Python to a TemplateError with the line."""
    kind = TemplateLimitError if isinstance(err, (TemplateLimitError, MemoryError)) else TemplateError
    if isinstance(err, CcmError) and err.place is not None and err.place.line:
        return kind(err.message, place=err.place)
    line = getattr(err, "lineno", None) or _line_of(err, name)
    if isinstance(err, MemoryError):
        message = OUT_OF_MEMORY
    elif isinstance(err, NameError):
        # Jinja writes constants to Python source by their repr; `inf` and `nan` are undefined names there
        message = "a number is beyond the largest float"
    elif isinstance(err, RecursionError):
        message = "template is nested too deeply"
    elif type(err).__name__ == "TemplateNotFound":
        message = f"template {str(err)!r} does not exist"
    elif "no loader" in str(err):
        message = "there are no other templates to include or extend here"
    elif isinstance(err, CcmError):
        message = err.message
    else:
        message = getattr(err, "message", None) or str(err) or type(err).__name__
    return kind(message, place=Place(source=name, line=line))


def _line_of(err: Exception, name: str) -> int:
    line = 0
    trace = err.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == name:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def _template(
    text: str, name: str, left: str, right: str, load: Callable[[str], str | None] | None
) -> Template:
    newline: _Newline = "\r\n" if "\r\n" in text else "\n"
    if load is None:
        return _cached_template(text, name, left, right, newline)
    from jinja2 import FunctionLoader

    environment = _environment(left, right, newline).overlay(loader=FunctionLoader(load))
    return _compiled(environment, text, name)


@lru_cache(maxsize=256)
def _cached_template(text: str, name: str, left: str, right: str, newline: _Newline) -> Template:
    return _compiled(_environment(left, right, newline), text, name)


def _compiled(environment: Environment, text: str, name: str) -> Template:
    code = environment.compile(text, name, name)
    return environment.template_class.from_code(environment, code, environment.make_globals(None))


@cache
def _sandbox() -> type[Environment]:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Sandbox(ImmutableSandboxedEnvironment):
        """
        Jinja's sandbox. Members take precedence over methods, only listed methods exist, and the size of
        integers is limited.
        """

        intercepted_binops = frozenset(("*", "**"))

        def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
            if type(obj).__module__.startswith("jinja2."):  # loop, namespace, macros: the sandbox checks them
                return super().is_safe_attribute(obj, attr, value)
            return any(isinstance(obj, kind) and attr in names for kind, names in _METHODS.items())

        def getattr(self, obj: Any, attribute: str) -> Any:
            if isinstance(obj, Mapping) and attribute in obj:
                return obj[attribute]
            if isinstance(obj, GatheredRecord) and attribute not in _METHODS[dict]:
                return self.undefined(obj.no_field(attribute))
            return super().getattr(obj, attribute)

        def getitem(self, obj: Any, argument: Any) -> Any:
            if isinstance(obj, GatheredRecord) and isinstance(argument, str):
                return self.getattr(obj, argument)
            return super().getitem(obj, argument)

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            # one multiplication in C can take hours, and a Python signal handler cannot interrupt it
            if isinstance(left, int) and isinstance(right, int):
                bits = left.bit_length()
                if (bits + right.bit_length() if operator == "*" else bits * right) > INTEGER_BITS_MAX:
                    raise TemplateError(
                        f"an integer has at most {INTEGER_BITS_MAX} bits: '{operator}' makes a larger one"
                    )
            return super().call_binop(context, operator, left, right)

    return Sandbox


@lru_cache(maxsize=16)
def _environment(left: str, right: str, newline: _Newline) -> Environment:
    from jinja2 import StrictUndefined

    environment = _sandbox()(
        variable_start_string=left,
        variable_end_string=right,
        newline_sequence=newline,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
        autoescape=False,
        finalize=_finalized,
        cache_size=0,
    )
    del environment.globals["lipsum"]
    del environment.filters["urlize"]  # for HTML only, and its time is quadratic in the length of the text
    return environment


def _finalized(value: Any) -> Any:
    """Return the text that is printed for a value."""
    if isinstance(value, (GatheredRecord, GatheredList)):
        return go_print(value)
    return value.go_text() if isinstance(value, GoValue) else value
