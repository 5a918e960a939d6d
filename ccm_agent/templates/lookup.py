"""
Look up GJSON paths in values.

Plain keys are looked up directly in the values. GJSON handles only the rest of the path, on the JSON of the
value at that point. The result is the same as with JSON from the start: numbers are converted as in
`Result.looked_up`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from ccm_agent.model.errors import BusError, ExpressionError
from ccm_agent.model.gathered import GatheredRecord
from ccm_agent.templates.allowance import ELEMENT_BYTES, Allowance
from ccm_agent.templates.values import StringMap, clean_text, is_number

VALUE_LIMIT = 500_000  # maximum number of values in a list or map that is looked up

NOTHING = object()
"""The result of `find` for a path that does not exist."""

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+\Z")
_INDEX = re.compile(r"[0-9]{1,9}\Z")


class LookupRoot(dict[str, Any]):
    """The root value of lookups."""


class SecretSource(Protocol):
    """Opens the secrets of one run."""

    def open(self, name: str) -> str:
        """
        Return the value of a secret. After the call, the value is masked in all output.

        Raises:
            BusError: The secret cannot be opened on this node, or not at this time.
            ExpressionError: The secret cannot be opened in this context.
            PolicyError: This run may not open the secret.
        """
        ...

    def require_opened(self, value: object) -> None:
        """Raise the error of `open` if the value refers to a secret of the data that could not be opened."""
        ...


class ExpressionScope:
    """
    The scope of expressions: values, and functions that a subclass adds.

    Attributes:
        facts: The node's facts. Gathered facts can also be read by Go's field names.
        data: Resolved hiera data.
        environ: The process environment; a missing name returns "".
        working_dir: The base of relative paths; "" for the process's working directory.
        is_lenient: Whether a lookup of a missing key returns "" instead of raising an error.
        allowance: The limits that all expressions share.
        variables: Facts, data and environment by their names in expressions.
        added: Names of the variables that `with_variable` added.
        secrets: Opens secrets; None if there are none.
        functions, function_names: The functions that expressions can call.
        host_functions: The functions that read from the host or the broker for the render process.
    """

    functions: dict[str, Callable[..., Any]]
    function_names: frozenset[str]
    host_functions: dict[str, Callable[..., Any]]

    def __init__(
        self,
        *,
        facts: dict[str, Any],
        data: dict[str, Any],
        environ: StringMap,
        working_dir: str,
        is_lenient: bool,
        allowance: Allowance,
    ) -> None:
        self.facts = facts
        self.data = data
        self.environ = environ
        self.working_dir = working_dir
        self.is_lenient = is_lenient
        self.allowance = allowance
        self.variables: dict[str, Any] = {"Facts": facts, "Data": data, "Environ": environ}
        self.added: tuple[str, ...] = ()
        self.secrets: SecretSource | None = None
        self._root = LookupRoot(facts=facts, data=data, environ=environ)

    @contextmanager
    def with_variable(self, name: str, value: Any) -> Iterator[None]:
        """
        Evaluate with an additional variable, also in lookups: `item` of `for_each`, or `result` of `until`.
        """
        before = self.added
        self.added = (*before, name)
        self.variables[name] = self._root[name] = value
        try:
            yield
        finally:
            self.added = before
            del self.variables[name], self._root[name]

    def require_opened(self, value: object) -> None:
        """
        Check that a value has no reference to a secret that could not be opened.

        Raises:
            ExpressionError: The value has such a reference; chained from the BusError, if there is one.
        """
        if self.secrets is None:
            return
        try:
            self.secrets.require_opened(value)
        except BusError as err:
            raise ExpressionError(err.message) from err

    def lookup(self, path: str, default: Any = None) -> Any:
        """
        Look up a value by a GJSON path that begins with `facts`, `data` or `environ`.

        A number is an int if its JSON has no decimal point; numbers inside a list or map are floats.

        Args:
            path: The path.
            default: The result if the path does not exist; None means no default.

        Raises:
            ExpressionError: The path does not exist, there is no default, and the environment is not lenient.
        """
        found = find(self._root, path, self.allowance)
        if found is not NOTHING:
            self.require_opened(found)
            return found
        if default is not None:
            return default
        if self.is_lenient:
            return ""
        raise ExpressionError(
            f"lookup of {path!r} found nothing: no such key; give a default as second argument"
        )


def find(root: LookupRoot, path: str, allowance: Allowance) -> Any:
    """
    Return the value at a path, or NOTHING. Plain keys are looked up directly; GJSON handles the rest of the path.

    Raises:
        ExpressionError: The path is invalid, or the value cannot be converted.
        ExpressionLimitError: The allowance is used up.
    """
    allowance.spend(1)
    value: Any = root
    rest = path
    while True:
        key, dot, following = rest.partition(".")
        if not _PLAIN_KEY.match(key) or (dot and not following):
            return _find_in(value, rest, allowance)
        if isinstance(value, dict) and _has(value, key):
            value = value[key]
        elif isinstance(value, list) and _INDEX.match(key) and int(key) < len(value):
            value = value[int(key)]
        else:
            return _find_behind_nothing(following, allowance)
        if not dot:
            return _as_looked_up(value, allowance)
        rest = following
        if rest[0] not in "@[{" and not isinstance(value, (dict, list)):
            return NOTHING


def _has(value: dict[str, Any], key: str) -> bool:
    """Whether the JSON of a value has a key. The JSON of a gathered fact does not contain Go's names."""
    return value.has_json_name(key) if isinstance(value, GatheredRecord) else key in value


def _find_behind_nothing(rest: str, allowance: Allowance) -> Any:
    """Return the result of a modifier on a missing path: `nope.@keys` is an empty list."""
    if rest[:1] not in ("@", "[", "{") or not rest:
        return NOTHING
    from ccm_agent.templates.gjson import get
    from ccm_agent.templates.gjson_modifiers import NAMES
    from ccm_agent.templates.gjson_paths import is_piping

    found = get("", rest, allowance) if is_piping(rest, NAMES) else None
    return found.looked_up() if found is not None and found.exists else NOTHING


def _find_in(value: Any, path: str, allowance: Allowance) -> Any:
    from ccm_agent.templates.gjson import get
    from ccm_agent.templates.gojson import TEXT_LIMIT, JSONError, write

    limit = min(TEXT_LIMIT, 16 * allowance.steps + 16)
    try:
        if isinstance(value, LookupRoot):  # not sorted, as in Go's JSON of a struct
            text = "{" + ",".join(f'"{key}":{write(item, limit=limit)}' for key, item in value.items()) + "}"
        else:
            text = write(value, limit=limit)
    except JSONError as err:
        if limit < TEXT_LIMIT:
            allowance.spend(limit >> 4)
        raise ExpressionError(f"lookup of {path!r} failed: the data has no JSON: {err}") from None
    allowance.spend(len(text) >> 4)
    found = get(text, path, allowance)
    return found.looked_up() if found.exists else NOTHING


def _as_looked_up(value: Any, allowance: Allowance) -> Any:
    """Convert a value as if to JSON and back."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, float):
        from ccm_agent.templates.gjson import scalar_number
        from ccm_agent.templates.gojson import JSONError, number_text

        try:
            return scalar_number(number_text(value))
        except JSONError as err:
            raise ExpressionError(f"lookup failed: {err}") from None
    if not isinstance(value, (list, dict)):
        return value
    limit = min(VALUE_LIMIT, allowance.steps + 1)
    room = [limit]
    try:
        return _with_floats(value, room)
    except RecursionError:
        raise ExpressionError("lookup failed: the value is nested too deeply") from None
    finally:
        allowance.spend(limit - room[0])
        allowance.hold(ELEMENT_BYTES * (limit - room[0]))


def _with_floats(value: Any, room: list[int]) -> Any:
    room[0] -= 1
    if room[0] < 0:
        raise ExpressionError("lookup failed: the value contains too many values")
    if isinstance(value, dict):
        return {key: _with_floats(item, room) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_floats(item, room) for item in value]
    if isinstance(value, str):
        return clean_text(value)
    return float(value) if is_number(value) else value
