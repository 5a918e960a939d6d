"""What `--json` prints: one JSON object in a line, told apart by `record`."""

from __future__ import annotations

from typing import Any

import msgspec

from ccm_agent.clikit.text import safe_json

ERROR = "error"
"""The command failed: the code of the error and its message."""


def tag_of(kind: Any) -> str:
    """The name of the records that a Struct describes."""
    return str(kind.__struct_config__.tag)


def record(kind: str, /, **fields: Any) -> str:
    """One line of JSON Lines with its newline; fields that are None are left out."""
    kept = {key: value for key, value in fields.items() if value is not None}
    return safe_json(msgspec.json.encode({"record": kind, **kept}).decode()) + "\n"
