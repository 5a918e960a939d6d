"""Format registration entries and changes for `ccm registration query` and `watch`."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ccm_agent.cli.output import plain
from ccm_agent.model.codec import encode_yaml
from ccm_agent.model.records.registration import (
    REMOVE,
    RegistrationChange,
    RegistrationEntry,
    entry_document,
    ttl_text,
)


def as_json(entries: Sequence[RegistrationEntry]) -> str:
    """Return the entries as a JSON list."""
    return json.dumps([entry_document(entry) for entry in entries], indent=2, ensure_ascii=False)


def as_yaml(entries: Sequence[RegistrationEntry]) -> str:
    """Return the entries as a YAML list."""
    return encode_yaml([entry_document(entry) for entry in entries])


def listing(entries: Sequence[RegistrationEntry]) -> str:
    """Format the entries in Choria CCM's layout, grouped by service and cluster."""
    if not entries:
        return "No results found"
    lines: list[str] = []
    group: tuple[str, str] | None = None
    for entry in entries:
        if group != (entry.cluster, entry.service):
            lines += [f"Service: {entry.service} @ {entry.cluster}", ""]
        group = entry.cluster, entry.service
        rows: list[tuple[str, object]] = [
            ("Cluster", entry.cluster),
            ("Protocol", entry.protocol),
            ("Service", entry.service),
            ("Address", entry.address),
            ("Port", "<nil>" if entry.port is None else entry.port),
            ("Priority", entry.priority),
        ]
        lines += [f"{name:>14}: {value}" for name, value in rows]
        if entry.annotations:
            lines.append(f"{'Annotations':>14}:")
            lines += [
                f"{'':16}{plain(key)}: {plain(word)}" for key, word in sorted(entry.annotations.items())
            ]
        lines.append("")
    return "\n".join(lines)


def change_note(change: RegistrationChange) -> tuple[str, str, dict[str, object]]:
    """Format a change as a log line: its level, message and fields."""
    entry = change.entry
    fields: dict[str, object] = {
        "cluster": entry.cluster,
        "service": entry.service,
        "protocol": entry.protocol,
        "address": entry.address,
        "port": entry.port,
    }
    if change.action == REMOVE:
        return "warning", "Removed entry", fields | {"reason": change.reason}
    return "info", "Updated entry", fields | ({"ttl": ttl_text(entry.ttl)} if entry.ttl else {})


def change_json(change: RegistrationChange) -> str:
    """Format a change as a line of JSON."""
    document = {"action": change.action, "entry": entry_document(change.entry)}
    return json.dumps(document | ({"reason": change.reason} if change.reason else {}), ensure_ascii=False)
