"""
What `--json` prints: one JSON object in a line, told apart by `record`.

The shapes are part of what scripts rely on: fields are added, never changed. docs/reference/ccmctl.md lists them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ccm_ctl.render.text import safe_json

RUN = "run"
"""A run: what was asked of how many nodes, or its entry in the list of runs."""
EVENT = "event"
"""An event of a node, as it stands on the bus."""
RESULT = "result"
"""Where a node came to in a run; a later one of the same node replaces it."""
END = "end"
"""A run is over: nodes by state, and the exit code."""
NODE = "node"
REPLY = "reply"
FACTS = "facts"
DOCUMENT = "document"
MADE = "made"
SIGNER = "signer"
SCHEDULE = "schedule"
ASSIGNMENT = "assignment"
"""An assignment that stands, or stood."""
STANDING = "standing"
"""How a node stands to the assignment that counts for it."""
WHY = "why"
"""Why a node is as it is."""
EXPLAINED = "explained"
"""Where a value of hiera data comes from."""
LEFT = "left"
"""A node or operator whose credentials are of the time of one account for all."""
CHECK = "check"
"""What one check of `doctor` found."""
CHECKS = "checks"
"""The checks of `doctor` by state, and the exit code."""
VERIFICATION = "verification"
"""What verifying the stored events of a node found."""
ERROR = "error"


def record(kind: str, /, **fields: Any) -> str:
    """One line of JSON Lines with its newline; fields that are None are left out."""
    kept = {key: value for key, value in fields.items() if value is not None}
    return safe_json(msgspec.json.encode({"record": kind, **kept}).decode()) + "\n"
