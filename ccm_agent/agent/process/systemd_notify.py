"""
Telling systemd how we are: sd_notify(3), which is one datagram to a socket that the environment names.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Mapping

log = logging.getLogger(__name__)


class SystemdNotifier:
    """
    Talks to the service manager, if there is one.

    Attributes:
        watchdog_s: How often the service manager wants a sign of life; 0: never.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        wanted = environ.get("WATCHDOG_USEC", "")
        is_for_us = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self.watchdog_s = int(wanted) / 1e6 if wanted.isdecimal() and is_for_us else 0.0

    def ready(self, status: str) -> None:
        """The service is up."""
        self._send(f"READY=1\nSTATUS={status}")

    def status(self, status: str) -> None:
        """One line that `systemctl status` shows."""
        self._send(f"STATUS={status}")

    def reloading(self) -> None:
        """The configuration is being read again; `ready` ends it."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """The service is going down."""
        self._send("STOPPING=1")

    def alive(self) -> None:
        """A sign of life for the watchdog."""
        self._send("WATCHDOG=1")

    def _send(self, state: str) -> None:
        if not self._address:
            return
        # a leading @ is systemd's way to write an abstract socket
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto(state.encode(), address)
        except OSError as err:
            log.debug("the service manager does not listen", extra={"reason": str(err)})
