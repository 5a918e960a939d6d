"""The output of `--json`: one JSON object per line, with its kind in `record`."""

from __future__ import annotations

from typing import Any

import msgspec

from ccm_agent.clikit.text import safe_json

ERROR = "error"
"""The record of a failed command, with the code of the error and its message."""


def tag_of(kind: Any) -> str:
    """Return the value of `record` for a Struct."""
    return str(kind.__struct_config__.tag)


def record(kind: str, /, **fields: Any) -> str:
    """Return one line of JSON Lines with its newline. Fields that are None are left out."""
    kept = {key: value for key, value in fields.items() if value is not None}
    return safe_json(msgspec.json.encode({"record": kind, **kept}).decode()) + "\n"
