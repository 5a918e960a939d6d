"""
The composition root of the process that renders templates; `system/render_process.py` starts it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from ccm_agent.facts.gather import LazyFacts
from ccm_agent.system.render_process import IDLE_S, CpuLimit, confine, receive, send
from ccm_agent.templates.render_service import serve


def main(cpu_s: int, grace_s: int, memory_bytes: int) -> None:
    """
    Render templates for requests on the socket that is standard input.

    Args:
        cpu_s: The limit of the CPU time of one job, in seconds.
        grace_s: Additional CPU time in seconds. After it, the kernel kills the process.
        memory_bytes: The memory limit, in addition to the memory that the process already uses.
    """
    with socket.socket(fileno=0) as channel:
        confine(memory_bytes)
        serve(_Channel(channel), CpuLimit(cpu_s, grace_s), _facts)


class _Channel:
    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel

    def request(self) -> bytes:
        self._channel.settimeout(IDLE_S)
        try:
            return self.answer()
        except TimeoutError:
            return b""
        finally:
            self._channel.settimeout(None)

    def answer(self) -> bytes:
        try:
            return receive(self._channel)
        except ConnectionError:
            return b""

    def send(self, message: bytes) -> None:
        send(self._channel, message)


def _facts(ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    return LazyFacts([ask], families={})
