"""
The agent's log: one line for each record on standard error, as text or JSON, with the record's fields.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

from ccm_agent.model.limited_log import FloodFilter
from ccm_agent.model.secret import Masker

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}
_WORDS = {logging.DEBUG: "DEBUG", logging.INFO: "INFO", logging.WARNING: "WARN", logging.ERROR: "ERROR"}
_PLAIN = (str, int, float, bool, dict, list, tuple, type(None))
_OWN = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {"message", "asctime", "taskName"}


def set_up_logging(
    level: str, form: str, stream: TextIO | None = None, *, secrets: Masker | None = None
) -> None:
    """
    Configure logging to standard error. A repeated call replaces the previous configuration.

    Args:
        level: "debug", "info", "warn" or "error".
        form: "text" or "json".
        stream: The output stream, instead of standard error.
        secrets: Secrets to mask in each line and traceback, including secrets that are added later.
    """
    masker = secrets if secrets is not None else Masker()
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter(masker) if form == "json" else TextFormatter(masker))
    handler.addFilter(FloodFilter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("ccm_agent").setLevel(_LEVELS[level])


class _MaskingFormatter(logging.Formatter):
    """Masks secrets in a record before it is written."""

    def __init__(self, masker: Masker | None = None) -> None:
        super().__init__()
        self.masker = masker if masker is not None else Masker()

    def message(self, record: logging.LogRecord) -> str:
        """Return the message."""
        return self.masker.text(record.getMessage())

    def fields(self, record: logging.LogRecord) -> dict[str, Any]:
        """Return the record's extra fields by name; values other than text and numbers are converted to text."""
        return {
            key: self.masker.value(value if isinstance(value, _PLAIN) else str(value))
            for key, value in vars(record).items()
            if key not in _OWN
        }

    def traceback(self, record: logging.LogRecord) -> str:
        """Return the traceback of the record; "" if it has none."""
        return self.masker.text(self.formatException(record.exc_info)) if record.exc_info else ""


class TextFormatter(_MaskingFormatter):
    """`2026-11-21T12:00:00Z WARN  no broker error="…"`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, followed by the traceback if there is one."""
        fields = "".join(f" {key}={_shown(value)}" for key, value in self.fields(record).items())
        word = _WORDS.get(record.levelno, record.levelname)
        line = f"{_time(record)} {word:<5} {_one_line(self.message(record))}{fields}"
        traceback = self.traceback(record)
        return f"{line}\n{traceback}" if traceback else line


class JsonFormatter(_MaskingFormatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the time, level and message with the record's fields, as a JSON object."""
        line: dict[str, Any] = {
            "time": _time(record),
            "level": _WORDS.get(record.levelno, record.levelname).lower(),
            "message": self.message(record),
            "logger": record.name,
        }
        line |= {key: value for key, value in self.fields(record).items() if key not in line}
        if traceback := self.traceback(record):
            line["traceback"] = traceback
        return msgspec.json.encode(line, enc_hook=str).decode()


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _shown(value: object) -> str:
    text = _one_line(str(value))
    is_bare = text and not any(char in text for char in ' "=')
    return text if is_bare else '"' + text.replace('"', '\\"') + '"'


def _one_line(text: str) -> str:
    """Escape control characters, so that logged input cannot start a new line or move a terminal's cursor."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
