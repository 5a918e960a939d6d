"""
The agent's log: one line for each record on standard error, as text or JSON, with the fields that the record carries.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}
_WORDS = {logging.DEBUG: "DEBUG", logging.INFO: "INFO", logging.WARNING: "WARN", logging.ERROR: "ERROR"}
_OWN = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {"message", "asctime", "taskName"}


def set_up_logging(level: str, form: str, stream: TextIO | None = None) -> None:
    """
    Send the log to standard error; called again, it replaces what was set up before.

    Args:
        level: "debug", "info", "warn" or "error".
        form: "text" or "json".
        stream: Where to, if not to standard error.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("ccm_agent").setLevel(_LEVELS[level])


class TextFormatter(logging.Formatter):
    """`2026-11-21T12:00:00Z WARN  no broker error="…"`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the traceback below it if there is one."""
        fields = "".join(f" {key}={_shown(value)}" for key, value in _fields(record).items())
        word = _WORDS.get(record.levelno, record.levelname)
        line = f"{_time(record)} {word:<5} {_one_line(record.getMessage())}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Fields of the record stand beside time, level and message."""
        line: dict[str, Any] = {
            "time": _time(record),
            "level": _WORDS.get(record.levelno, record.levelname).lower(),
            "message": record.getMessage(),
            "logger": record.name,
        }
        line |= {key: value for key, value in _fields(record).items() if key not in line}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _OWN}


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _shown(value: object) -> str:
    text = _one_line(str(value))
    is_bare = text and not any(char in text for char in ' "=')
    return text if is_bare else '"' + text.replace('"', '\\"') + '"'


def _one_line(text: str) -> str:
    """A text that cannot begin a line of its own, nor move a terminal's cursor: what is logged came from outside."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
