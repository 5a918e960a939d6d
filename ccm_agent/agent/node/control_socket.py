"""
The way to an agent for whoever is at its host: a socket in its state folder, for its owner and root alone.

A question is one line of JSON, `{"ask": …}`, and so is each line of the answer; the last one has `end`. Nothing here can be
reached from elsewhere, and nothing needs the broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import stat
import struct
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from ccm_agent.model.errors import CcmError, FileError, HostError
from ccm_agent.model.json_text import encode_told
from ccm_agent.model.untrusted_json import decode_foreign

if TYPE_CHECKING:
    from ccm_agent.agent.agent import Agent

log = logging.getLogger(__name__)

SOCKET = "agent.sock"
"""In the state folder."""

STATUS = "status"
LOOK = "look"
"""Whether the node is disabled may be another matter now; answered with the status when it is known and obeyed."""
ONCE = "once"
"""Converge now; answered now and then with the status, and at the end with what came of it."""

QUESTION_LIMIT_BYTES = 4096
QUESTION_S = 5.0
"""Whoever connects and says nothing is sent away after this time."""

PULSE_S = 3.0
"""An answer that takes long is said to be alive this often."""

SILENCE_S = 30.0
"""An agent that says nothing for so long is not waited for."""


class _Question(Struct):
    ask: str


class ControlSocket:
    """The socket of one agent."""

    def __init__(self, agent: Agent, folder: Path, users: Collection[int] = ()) -> None:
        """
        Nothing listens yet.

        Args:
            agent: Who answers.
            folder: Its state folder.
            users: Ids of the users who may ask; root and the agent's own unless given.
        """
        self._users = users or (0, os.geteuid())
        self._agent = agent
        self._folder = folder

    async def run(self) -> None:
        """Answer, and keep the file of the status right, for ever."""
        try:
            listening = await asyncio.to_thread(_listen, self._folder)
            server = await asyncio.start_unix_server(self._serve, sock=listening, limit=QUESTION_LIMIT_BYTES)
        except OSError as err:
            log.warning("commands on this host cannot reach the agent", extra={"reason": str(err)})
            await self._agent.local_status.keep(self._folder)
            return
        try:
            await self._agent.local_status.keep(self._folder)
        finally:
            # without waiting for those who are being answered: they see the end of the connection
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if _peer(writer) not in self._users:
                return
            async with asyncio.timeout(QUESTION_S):
                question = decode_foreign(await reader.readline(), _Question)
            await self._answer(question.ask, writer)
        except CcmError as err:
            await _say(writer, {"end": "error", "reason": str(err), "code": err.code})
        except (OSError, TimeoutError, ValueError, msgspec.DecodeError) as err:
            log.info("somebody at this host could not be answered", extra={"reason": str(err)})
        finally:
            writer.close()

    async def _answer(self, ask: str, writer: asyncio.StreamWriter) -> None:
        if ask == ONCE:
            await self._converge(writer)
            return
        if ask == LOOK:
            await self._agent.look_at_disabling()
        elif ask != STATUS:
            await _say(
                writer, {"end": "error", "reason": f"this agent knows no `{ask}`; is it an older one?"}
            )
            return
        await _say(writer, {"end": ask, "status": await self._agent.local_status.now()})

    async def _converge(self, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._agent.converge_once(), name="local:once")
        try:
            while not task.done():
                await _say(writer, {"status": await self._agent.local_status.now()})
                await asyncio.wait([task], timeout=PULSE_S)
            await _say(writer, {"end": ONCE, "ended": msgspec.to_builtins(task.result())})
        finally:
            # whoever asked may have gone; what was begun for him goes on
            if not task.done():
                task.cancel()


async def _say(writer: asyncio.StreamWriter, line: dict[str, Any]) -> None:
    writer.write(encode_told(line) + b"\n")
    async with asyncio.timeout(QUESTION_S):
        await writer.drain()


def _peer(writer: asyncio.StreamWriter) -> int:
    """User id of the process at the other end. unix(7), SO_PEERCRED."""
    credentials = writer.get_extra_info("socket").getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
    )
    _, uid, _ = struct.unpack("3i", credentials)
    return int(uid)


def _listen(folder: Path) -> socket.socket:
    """A listening socket in a folder that we have claimed: one that is there is a dead agent's. Blocking."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(SOCKET, dir_fd=fd)
        made.bind(_short(fd))
        os.chmod(SOCKET, stat.S_IRUSR | stat.S_IWUSR, dir_fd=fd)
        made.listen(8)
    except OSError:
        made.close()
        raise
    finally:
        os.close(fd)
    return made


def _short(fd: int) -> str:
    """The socket's path by its open folder: a longer one than 107 bytes could not be bound. unix(7), sun_path."""
    return f"/proc/self/fd/{fd}/{SOCKET}"


def ask(
    folder: Path, question: str, on_line: Callable[[dict[str, Any]], None] = lambda line: None
) -> dict[str, Any] | None:
    """
    Ask the agent of a state folder. Blocking.

    Args:
        folder: The state folder.
        question: STATUS, LOOK or ONCE.
        on_line: Told each line of an answer that takes long.

    Returns:
        The last line of the answer; None when no agent answers there.

    Raises:
        FileError: We may not go there.
        HostError: The agent does not do it, or ended before it had answered.
    """
    try:
        with _connected(folder) as to:
            to.sendall(msgspec.json.encode({"ask": question}) + b"\n")
            with to.makefile("rb") as lines:
                for line in lines:
                    told: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
                    if told.get("end") == "error":
                        raise HostError(f"{told.get('reason', 'the agent refuses')}")
                    if "end" in told:
                        return told
                    on_line(told)
    except (FileNotFoundError, ConnectionRefusedError):
        return None
    except PermissionError as err:
        raise FileError(f"{folder}: {err.strerror}; are you root?") from err
    except TimeoutError as err:
        raise HostError(
            f"{folder}: the agent has been silent for {SILENCE_S:g} s; its log says what it is at"
        ) from err
    except (BrokenPipeError, ConnectionResetError):
        pass
    except (OSError, msgspec.DecodeError) as err:
        raise HostError(f"{folder}: the agent cannot be asked: {err}") from err
    raise HostError(f"{folder}: the agent ended, or refused, before it had answered; its log says why")


def _connected(folder: Path) -> socket.socket:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        made.settimeout(SILENCE_S)
        made.connect(_short(fd))
    except BaseException:
        made.close()
        raise
    finally:
        os.close(fd)
    return made
