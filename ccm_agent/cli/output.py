"""Format results for people: a line for each outcome in Choria CCM's format, and the summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ccm_agent.clikit.cells import Style, paint
from ccm_agent.clikit.text import counted, one_line, plural, span
from ccm_agent.model.noop_words import noop_words
from ccm_agent.model.outcome import Outcome, SessionSummary, TransactionEvent

LEVELS = {"debug": "DEBUG", "info": "INFO", "warning": "WARN", "error": "ERROR"}

_LEVEL_OF = {
    Outcome.STABLE: "info",
    Outcome.CHANGED: "warning",
    Outcome.REFRESHED: "warning",
    Outcome.SKIPPED: "warning",
    Outcome.FAILED: "error",
    Outcome.UNMET: "error",
    Outcome.UNKNOWN: "warning",
}
_COLORS = {"info": "\x1b[32m", "warning": "\x1b[33m", "error": "\x1b[31m", "debug": "\x1b[36m"}
_RESET = "\x1b[0m"

NOT_REACHED = frozenset((Outcome.FAILED, Outcome.UNMET))
"""Outcomes of resources that are not in their desired state."""

OUTPUT_LINES = 12
"""The maximum number of lines shown from the end of a command's output. Errors are usually at the end."""

_NOT_IN_WORDS = frozenset(' "=')

_NS_PER_S = 1_000_000_000


def event_line(event: TransactionEvent, *, color: bool = False) -> str:
    """Format an outcome: `WARN  file#/etc/motd changed ensure=present runtime=3ms provider=posix`."""
    outcome = event.outcome
    name = f"{event.alias} (alias)" if event.alias else event.name
    fields: list[tuple[str, object]] = [
        ("ensure", event.requested_ensure),
        ("runtime", duration_text(event.duration // 1_000_000 * 1_000_000)),
        ("provider", event.provider),
    ]
    if event.noop:
        fields.append(("noop", noop_words(event) or "true"))
    elif event.pruned:
        fields.append(("pruned", event.pruned))
    if event.unknown and not event.skipped:
        fields.append(("health_checks", Outcome.UNKNOWN.value))
    if outcome is Outcome.FAILED:
        fields.append(("errors", ", ".join(event.error)))
    elif event.skipped and event.error:
        fields.append(("reason", ", ".join(event.error)))
    fields += [("unmet", one) for one in event.unmet_requirements if outcome is Outcome.UNMET]
    fields += [("refresh_pending", one) for one in event.refresh_pending]
    return _line(_LEVEL_OF[outcome], f"{event.type}#{plain(name)} {outcome.value}", fields, color)


def output_lines(event: TransactionEvent) -> list[str]:
    """
    Return the last lines of a failed command's output, to print below its outcome.

    Empty if the error message already contains the output.
    """
    said = [plain(line.expandtabs(4)) for line in event.output.rstrip().splitlines()]
    if event.outcome is not Outcome.FAILED or not said or any(said[-1] in one for one in event.error):
        return []
    return [f"      │ {line}".rstrip() for line in said[-OUTPUT_LINES:]]


def note_line(level: str, message: str, fields: Mapping[str, object], *, color: bool = False) -> str:
    """Format a log line: `INFO  Executing manifest manifest=m.yaml resources=3`."""
    return _line(level, plain(message), list(fields.items()), color)


def summary_text(summary: SessionSummary) -> str:
    """Format the summary of a manifest in Choria CCM's layout."""
    checks = f"{summary.health_checked_count}"
    counts = (
        ("ok", summary.health_check_ok_count),
        ("critical", summary.health_check_critical_count),
        ("warning", summary.health_check_warning_count),
    )
    unknown = summary.health_check_unknown_count
    if unknown or any(number for _, number in counts):
        listed = ", ".join(f"{word}: {number}" for word, number in counts)
        checks += f" ({listed} unknown: {unknown})"
    rows: list[tuple[str, object]] = [
        ("Run Time", duration_text(_rounded(summary.total_duration))),
        *_resource_rows(summary),
        ("Refreshed Resources", summary.refreshed_count),
        ("Unmet Requirements", summary.requirements_unmet_count),
        ("Checked Resources", checks),
        ("Total Errors", summary.total_errors),
    ]
    return _table("Manifest Run Summary", rows)


def failure_lines(events: Sequence[TransactionEvent]) -> str:
    """Format a line for each resource that failed or was not reached: `exec#false failed: exit code 1 …`."""
    lines = []
    for event in events:
        unmet = ", ".join(event.unmet_requirements)
        reason = f"not applied: requires {unmet}" if unmet else f"failed: {'; '.join(event.error)}"
        lines.append(f"{plain(f'{event.type}#{event.name}')} {one_line(reason)}\n")
    return "".join(lines)


def summary_line(title: str, summary: SessionSummary, style: Style) -> str:
    """Format the summary of a manifest as one line: `site.yaml: 3 resources: 2 stable, 1 changed in 42 ms`."""
    counts = {
        "stable": summary.stable_resources,
        "would change" if summary.noop else "changed": summary.changed_resources,
        "skipped": summary.skipped_resources,
        "unknown": summary.unknown_count,
        "pending": len(summary.refresh_pending),
        "with a warning": summary.health_check_warning_count,
        "failed": summary.failed_resources,
        "with unmet requirements": summary.requirements_unmet_count,
        "critical": summary.health_check_critical_count,
    }
    bad = summary.failed_resources or summary.requirements_unmet_count or summary.health_check_critical_count
    waits = summary.changed_resources or summary.unknown_count or summary.refresh_pending
    meaning = "bad" if bad else "change" if waits or summary.health_check_warning_count else "good"
    words = f"{plural(summary.total_resources, 'resource')}: {counted(counts) or 'nothing to do'}"
    took = span(summary.total_duration / _NS_PER_S)
    return f"{plain(title)}: {paint(words, meaning, style)} in {took}\n"


def report_text(summary: SessionSummary) -> str:
    """Format the summary of a session of single resources."""
    rows: list[tuple[str, object]] = []
    if summary.total_duration > 0:
        rows.append(("Run Time", duration_text(_rounded(summary.total_duration))))
    resources = _resource_rows(summary)
    rows += [resources[0], ("Unique Resources", summary.unique_resources), *resources[1:]]
    rows += [("Refreshed Resources", summary.refreshed_count), ("Total Errors", summary.total_errors)]
    return _table("Session Summary", rows)


def duration_text(nanoseconds: int) -> str:
    """Format a duration as Go does: `0s`, `3ms`, `1.5s`, `1m2.5s`, `2h0m0s`."""
    if nanoseconds == 0:
        return "0s"
    if nanoseconds < _NS_PER_S:
        for unit, size in (("ms", 1_000_000), ("µs", 1000), ("ns", 1)):
            if nanoseconds >= size:
                return f"{_decimal(nanoseconds, size)}{unit}"
    minutes, rest = divmod(nanoseconds, 60 * _NS_PER_S)
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(rest, _NS_PER_S)}s"
    if hours:
        return f"{hours}h{minutes}m{text}"
    return f"{minutes}m{text}" if minutes else text


def _decimal(number: int, unit: int) -> str:
    whole, rest = divmod(number, unit)
    digits = str(rest).rjust(len(str(unit)) - 1, "0").rstrip("0") if rest else ""
    return f"{whole}.{digits}" if digits else str(whole)


def _rounded(nanoseconds: int) -> int:
    return round(nanoseconds / 1_000_000) * 1_000_000


def _resource_rows(summary: SessionSummary) -> list[tuple[str, object]]:
    return [
        ("Total Resources", summary.total_resources),
        ("Stable Resources", summary.stable_resources),
        ("Changed Resources", summary.changed_resources),
        ("Failed Resources", summary.failed_resources),
        ("Skipped Resources", summary.skipped_resources),
    ]


def _table(title: str, rows: list[tuple[str, object]]) -> str:
    return f"{title}\n\n" + "".join(f"{label:>21}: {value}\n" for label, value in rows)


def _line(level: str, message: str, fields: list[tuple[str, object]], color: bool) -> str:
    word = f"{LEVELS[level]:<5}"
    if color:
        word = f"{_COLORS[level]}{word}{_RESET}"
    return " ".join([word, message, *(f"{key}={_value(value)}" for key, value in fields)])


def _value(value: object) -> str:
    """Format a field's value. Values that are not a single word are in quotes."""
    text = value if isinstance(value, str) else str(value)
    if text and text.isprintable() and _NOT_IN_WORDS.isdisjoint(text):
        return text
    return _quoted(text)


def _quoted(text: str) -> str:
    """Return the text as a JSON string, with non-printable characters escaped."""
    written = msgspec.json.encode(text).decode()
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in written)


def plain(text: str) -> str:
    """Remove control characters from a name, so that it cannot break the line or control the terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\t" else _quoted(char)[1:-1] for char in text)
