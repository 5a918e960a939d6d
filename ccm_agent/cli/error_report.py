"""Report all errors in a file in the form of `ccm lint`: each error has its line and a mark below the position."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ccm_agent.clikit.text import plural
from ccm_agent.manifest.findings import ERROR, Finding, format_finding
from ccm_agent.model.errors import CcmError, DocumentError, InputError, MisfitError, Place

if TYPE_CHECKING:
    from ccm_agent.app import App

SHOWN = 20
"""The maximum number of errors shown for one file."""

_PLACE = re.compile(r"(?P<source>[^\n:]{1,4096}):(?P<line>[0-9]{1,9}):(?P<column>[0-9]{1,9}): ")
"""The position at the beginning of an error."""

LIMIT_BYTES = 16 << 20
"""The maximum size of a file whose lines are shown."""


class ReportedError(InputError):
    """An error of several lines: the number of errors in a file, followed by each error in the form of `ccm lint`."""

    def __init__(self, cause: InputError, message: str) -> None:
        self.code = cause.code
        super().__init__(message)


def report_manifest(app: App, err: InputError, ending: str = "; nothing was changed") -> InputError:
    """
    Return an error with all errors of a manifest that cannot be applied.

    Args:
        app: The app that checks the manifest.
        err: The error that ended the command.
        ending: The end of the first line, which describes the state of the run.

    Returns:
        The report, or the original error if it does not refer to a line of a file.
    """
    text = _text_of(err)
    if text is None or err.place is None:
        return err

    source = err.place.source
    found = [one for one in app.lint(source, text) if one.level == ERROR]
    if not any(one.place.line == err.place.line for one in found):
        found = [_finding(err), *found] if _is_manifest(found) else [_finding(err)]
    return _report(err, source, ending, text, found)


def report_reason(app: App, reason: str) -> CcmError:
    """Return an error with the reason why a run ended early. If it begins with a position in a manifest, the lines are shown."""
    found = _PLACE.match(reason)
    if found is None:
        return CcmError(reason)
    place = Place(found["source"], int(found["line"]), int(found["column"]))
    err = InputError(reason[found.end() :], place=place)
    report = report_manifest(app, err, ending="; the run stopped there")
    return CcmError(reason) if report is err else report


def report_document(err: DocumentError) -> InputError:
    """Return a report of all errors of a configuration file, or the original error if it does not refer to a line of a file."""
    text = _text_of(err)
    if text is None or err.place is None:
        return err
    errors = (err, *err.others)
    return _report(
        err, err.place.source, "", _without_unknown_values(text, errors), [_finding(one) for one in errors]
    )


def _without_unknown_values(text: str, errors: Sequence[DocumentError]) -> str:
    """Remove the values of unknown keys from a document, because a misspelled key may have a password as its value."""
    lines = text.split("\n")
    for err in errors:
        if isinstance(err, MisfitError) and err.unknown_key and err.place is not None and err.place.line:
            line = lines[err.place.line - 1]
            colon_at = line.find(":", max(err.place.column - 1, 0) + len(err.unknown_key))
            if colon_at >= 0 and line[colon_at + 1 :].strip():
                lines[err.place.line - 1] = f"{line[:colon_at]}: …"
    return "\n".join(lines)


def _text_of(err: InputError) -> str | None:
    """Return the text of the file with the error; None if the error does not refer to a line of a file."""
    if err.place is None or not err.place.line:
        return None
    path = Path(err.place.source)
    try:
        if not path.is_file() or path.stat().st_size > LIMIT_BYTES:
            return None
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None


def _is_manifest(found: Sequence[Finding]) -> bool:
    """Whether the file is a manifest. For other files, such as templates, the check would report misleading errors."""
    return all(one.rule not in ("syntax", "form", "no-resources", "unknown-key") for one in found)


def _finding(err: InputError) -> Finding:
    return Finding(level=ERROR, message=err.message, rule=err.code, place=err.place or Place())


def _report(err: InputError, source: str, ending: str, text: str, found: Sequence[Finding]) -> ReportedError:
    ordered = sorted(found, key=lambda one: (one.place.line, one.place.column))
    more = [f"and {len(ordered) - SHOWN} more"] if len(ordered) > SHOWN else []
    lines = [f"{source}: {plural(len(ordered), 'error')}{ending}"]
    lines += [format_finding(one, text) for one in ordered[:SHOWN]]
    return ReportedError(err, "\n".join([*lines, *more]))
