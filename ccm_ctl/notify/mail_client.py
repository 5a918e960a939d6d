"""An SMTP client with a time limit for a whole session. smtplib limits only each read from a socket."""

from __future__ import annotations

import io
import smtplib
import socket
import time
from typing import Any


class SlowMailServerError(Exception):
    """A mail server did not reply in time. This is not an OSError, because smtplib would treat that as a closed connection."""


class MailClient(smtplib.SMTP):
    """
    A client whose session ends in time, no matter how slowly the server replies.

    Args:
        host, port: The server.
        limit_s: The time limit of the whole session, in seconds. Connecting may take half of it.
        options: The options of smtplib.

    Raises:
        SlowMailServerError: The time limit has passed. Every method that reads a reply can raise this.
    """

    def __init__(self, host: str, port: int, *, limit_s: float, **options: Any) -> None:
        self._ends_at = time.monotonic() + limit_s
        super().__init__(host, port, timeout=limit_s / 2, **options)

    def getreply(self) -> tuple[int, bytes]:
        """Read a reply. smtplib calls this for each reply, and `self.file` is None after each change of the socket."""
        if self.file is None and self.sock is not None:
            self.file = io.BufferedReader(_TimedReader(self.sock, self._ends_at))
        try:
            return super().getreply()
        except SlowMailServerError:
            self.close()
            raise


class TlsMailClient(MailClient, smtplib.SMTP_SSL):
    """A `MailClient` that uses TLS from the beginning."""


class _TimedReader(io.RawIOBase):
    """Reads the bytes of a socket until a deadline."""

    def __init__(self, connected: socket.socket, ends_at: float) -> None:
        self._socket = connected
        self._ends_at = ends_at

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = self._ends_at - time.monotonic()
        if left_s <= 0:
            raise SlowMailServerError
        self._socket.settimeout(left_s)
        try:
            return self._socket.recv_into(buffer)
        except TimeoutError:
            raise SlowMailServerError from None
