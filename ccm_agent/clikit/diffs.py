"""Format the changes of a resource as text for people. Nodes send this text, so it is made safe for terminals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccm_agent.clikit.cells import Style, paint
from ccm_agent.clikit.text import one_line, plural, safe, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ccm_agent.model.outcome import TransactionEvent
    from ccm_agent.model.resource_diff import ContentInfo, FileDiff, ResourceDiff

INDENT = "  "
_MEANINGS = {"+": "good", "-": "bad", "@": "quiet", "\\": "quiet"}


def diff_block(event: TransactionEvent, style: Style, *, before: str = "") -> str:
    """
    Return lines about the changes of a resource below its name; "" for an event without a diff.

    Args:
        event: The event.
        style: The width and color.
        before: A prefix of the first line, such as the names of nodes.
    """
    if event.diff is None:
        return ""
    verb = _refresh(event) or ("would change" if event.noop else "failed" if event.failed else "changed")
    head = paint(f"{before}{one_line(f'{event.type}#{event.name}')} {verb}", "strong", style)
    return f"{head}\n{_text(event, event.diff, style)}"


def diff_lines(event: TransactionEvent, style: Style) -> str:
    """Return the lines without a heading, to print below the line of the resource."""
    if event.diff is None:
        return ""
    refresh = _refresh(event)
    return (f"{INDENT}{refresh}\n" if refresh else "") + _text(event, event.diff, style)


def _refresh(event: TransactionEvent) -> str:
    cause = one_line(event.diff.refresh) if event.diff is not None else ""
    if not cause:
        return ""
    return (
        f"would refresh because {cause} would change" if event.noop else f"refreshed because {cause} changed"
    )


def _text(event: TransactionEvent, diff: ResourceDiff, style: Style) -> str:
    return "".join(f"{INDENT}{line}".rstrip() + "\n" for line in _lines(event, diff, style))


def _lines(event: TransactionEvent, diff: ResourceDiff, style: Style) -> Iterator[str]:
    for one in diff.properties:
        change = f"{one.before} → {one.after}" if one.before else one.after
        yield f"{one_line(one.property)}: {one_line(change)}"
    if diff.command:
        yield f"command: {one_line(diff.command)}"
    for file in diff.files:
        is_own = file.path == event.name
        yield f"{'content' if is_own else f'{one_line(file.action)} {one_line(file.path)}'}: {_about(file)}"
        for line in safe(file.text).split("\n")[:-1]:
            yield paint(line.expandtabs(8), _MEANINGS.get(line[:1], ""), style)
        if file.left_out:
            yield paint(f"… {plural(file.left_out, 'more line')}", "quiet", style)
    if diff.files_left_out:
        yield f"… {plural(diff.files_left_out, 'more file')}"
    if diff.why:
        yield f"no diff: {one_line(diff.why)}"
    elif "diff" in event.cut:
        yield paint("the event was too large for the whole diff", "quiet", style)


def _about(file: FileDiff) -> str:
    if file.form in ("text", "lines"):
        counts = [plural(file.added, "line") + " added" if file.added else ""]
        counts.append(
            f"{file.removed if file.added else plural(file.removed, 'line')} removed" if file.removed else ""
        )
        words = ", ".join(one for one in counts if one) or ("" if file.why else "empty")
    else:
        versions = " → ".join(_version(one) for one in (file.before, file.after) if one is not None)
        words = f"{'binary, ' if file.form == 'binary' else ''}{versions}".removesuffix(", ")
    why = f"not shown: {one_line(file.why)}" if file.why else ""
    return "; ".join(part for part in (words, why) if part) or "binary"


def _version(version: ContentInfo) -> str:
    digest = f"sha256:{one_line(version.sha256)[:12]}" if version.sha256 else ""
    if not version.size_bytes and digest:
        return digest
    return f"{size(version.size_bytes)}{f' {digest}' if digest else ''}"
