"""Resolved data as environment variables, for programs that read nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ccm_agent.model.errors import DataError

PREFIX = "HIERA"


def as_environment(data: object, prefix: str = PREFIX) -> str:
    """
    A line `PREFIX_KEY=value` for each key of a mapping, sorted; of anything else one line `PREFIX_VALUE=value`.

    Text stands as it is, line breaks and all; a fraction has six digits; lists, mappings, booleans and null are JSON. Keys are
    upper case.

    Raises:
        DataError: A list or mapping holds a number that JSON has no word for.
    """
    if not isinstance(data, Mapping):
        return f"{prefix}_VALUE={_json(data)}\n"
    return "".join(f"{prefix}_{_upper(key)}={_shown(data[key])}\n" for key in sorted(data))


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{value:f}" if isinstance(value, float) else _json(value)


def _json(value: object) -> str:
    from ccm_agent.templates.gojson import JSONError, write

    try:
        return write(value)
    except JSONError as err:
        raise DataError(f"the data cannot be written as JSON: {err}") from err


def _upper(key: str) -> str:
    # one character for one: ß has no upper case of its own
    return "".join(upper if len(upper := char.upper()) == 1 else char for char in key)
