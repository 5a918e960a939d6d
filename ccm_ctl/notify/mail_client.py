"""An SMTP client with a time limit for a whole session; smtplib only limits each reading of a socket."""

from __future__ import annotations

import io
import smtplib
import socket
import time
from typing import Any


class SlowMailServerError(Exception):
    """A mail server did not reply in time. It is not an OSError, which smtplib takes for the end of the connection."""


class MailClient(smtplib.SMTP):
    """
    A client whose session ends in time, however slowly the server sends its replies.

    Args:
        host, port: The server.
        limit_s: Seconds for the whole session. Connecting may take half of it.
        options: As in smtplib.

    Raises:
        SlowMailServerError: The time is over; also from every method that reads a reply.
    """

    def __init__(self, host: str, port: int, *, limit_s: float, **options: Any) -> None:
        self._ends_at = time.monotonic() + limit_s
        super().__init__(host, port, timeout=limit_s / 2, **options)

    def getreply(self) -> tuple[int, bytes]:
        """As in smtplib, which calls it for each reply, with a new `file` after each change of the socket."""
        if self.file is None and self.sock is not None:
            self.file = io.BufferedReader(_TimedReader(self.sock, self._ends_at))
        try:
            return super().getreply()
        except SlowMailServerError:
            self.close()
            raise


class TlsMailClient(MailClient, smtplib.SMTP_SSL):
    """The same over TLS from the beginning."""


class _TimedReader(io.RawIOBase):
    """The bytes of a socket, until a time."""

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
