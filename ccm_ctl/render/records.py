"""
What `--json` prints: one JSON object in a line, told apart by `record`.

The shapes are part of what scripts rely on: fields are added, never changed. docs/reference/ccmctl.md lists them.
"""

from __future__ import annotations

from typing import Any

import msgspec

RUN = "run"
EVENT = "event"
NODE = "node"
END = "end"
ERROR = "error"
NOTE = "note"


def record(kind: str, **fields: Any) -> str:
    """One line of JSON Lines with its newline; fields that are None are left out."""
    kept = {key: value for key, value in fields.items() if value is not None}
    return msgspec.json.encode({"record": kind, **kept}).decode() + "\n"
