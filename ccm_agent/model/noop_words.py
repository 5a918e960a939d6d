"""Describe the change that an apply would have made to a resource."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from ccm_agent.model.outcome import TransactionEvent

_REPLACED = "Would have created the file"
"""Choria CCM's wording for a file that would be written, even if it already exists."""


def noop_words(event: TransactionEvent) -> str:
    """
    Describe the change that an apply would have made, for a terminal.

    Events contain Choria CCM's wording. It calls a file "created" even if the file exists and only differs.
    """
    if event.type != "file" or event.noop_message != _REPLACED:
        return event.noop_message
    state, wanted = _plain(event.status), _plain(event.properties)
    if state.get("ensure") != "present":
        return event.noop_message
    found = _plain(state.get("metadata"))
    parts = ["content"] if _content_differs(wanted, state, found) else []
    for word in ("owner", "group"):
        value = str(wanted.get(word, ""))
        if value not in (
            "",
            "*",
            found.get(word),
            str(found.get({"owner": "uid", "group": "gid"}[word], "")),
        ):
            parts.append(word)
    if _mode_differs(str(wanted.get("mode", "")), str(found.get("mode", ""))):
        parts.append("mode")
    return f"Would have changed {' and '.join(parts) or 'the file'}"


def _plain(value: Any) -> dict[str, Any]:
    plain = msgspec.to_builtins(value)
    return plain if isinstance(plain, dict) else {}


def _content_differs(wanted: dict[str, Any], state: dict[str, Any], found: dict[str, Any]) -> bool:
    content, digest = wanted.get("content"), str(_plain(state.get("source")).get("checksum", ""))
    if isinstance(content, str):
        is_digest = content.startswith("sha256:")  # the form that is sent over the bus
        digest = content[7:71] if is_digest else hashlib.sha256(content.encode(errors="replace")).hexdigest()
    return digest == "" or digest != found.get("checksum")


def _mode_differs(wanted: str, found: str) -> bool:
    try:
        return int(wanted, 8) != int(found, 8)
    except ValueError:
        return False  # a digit `x` keeps the current value
