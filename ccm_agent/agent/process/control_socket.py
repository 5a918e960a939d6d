"""
Commands on the node's own host: a socket in the state folder, for its owner and root alone, and what the commands ask through
it.

A question is one line of JSON, `{"ask": …}`, and so is each line of the answer; the last one has `end`. The socket cannot be
reached over the network, and needs no broker. Where no agent runs, the commands read and write the state folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import stat
import struct
import sys
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from ccm_agent.agent.runs import admission
from ccm_agent.agent.state.state_folder import lock_owner, read_status, saved_identity
from ccm_agent.model.errors import CcmError, FileError, HostError, UsageError
from ccm_agent.model.formats.json_text import encode_message
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.wire import Disabled

if TYPE_CHECKING:
    from ccm_agent.agent.process.agent import Agent

log = logging.getLogger(__name__)

SOCKET = "agent.sock"
"""In the state folder."""

STATUS = "status"
LOOK = "look"
"""Whether the node is disabled may be another matter now; answered with the status when it is known and obeyed."""
ONCE = "once"
"""Converge now; answered now and then with the status, and at the end with the result."""

QUESTION_LIMIT_BYTES = 4096
QUESTION_S = 5.0
"""A client that sends nothing is disconnected after this time."""

PULSE_S = 3.0
"""An answer that takes long is said to be alive this often."""

SILENCE_S = 30.0
"""An agent that says nothing for so long is not waited for."""


_KEEP_SOCKET: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
"""Python 3.13 would look for the socket by its path, whose descriptor is closed by then and may be another file's."""


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
        """Answer, and keep the status file current, until cancelled."""
        try:
            listening = await asyncio.to_thread(_listen, self._folder)
            server = await asyncio.start_unix_server(
                self._serve, sock=listening, limit=QUESTION_LIMIT_BYTES, **_KEEP_SOCKET
            )
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
            log.info("a command on this host could not be answered", extra={"reason": str(err)})
        finally:
            writer.close()

    async def _answer(self, ask: str, writer: asyncio.StreamWriter) -> None:
        if ask == ONCE:
            await self._converge(writer)
            return
        if ask == LOOK:
            await self._agent.reload_maintenance()
        elif ask != STATUS:
            await _say(
                writer,
                {
                    "end": "error",
                    "reason": f"this agent does not support `{ask}`; upgrade it if it is older than this program",
                },
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
            # the client may have gone; the run that it started continues
            if not task.done():
                task.cancel()


async def _say(writer: asyncio.StreamWriter, line: dict[str, Any]) -> None:
    writer.write(encode_message(line) + b"\n")
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
        on_line: Called with each line of an answer that takes long.

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
                        raise HostError(f"{told.get('reason', 'the agent refused the request')}")
                    if "end" in told:
                        return told
                    on_line(told)
    except (FileNotFoundError, ConnectionRefusedError):
        return None
    except PermissionError as err:
        raise FileError(f"{folder}: {err.strerror}; run this as root") from err
    except TimeoutError as err:
        raise HostError(f"{folder}: the agent sent nothing for {SILENCE_S:g} s; see its log") from err
    except (BrokenPipeError, ConnectionResetError):
        pass
    except (OSError, msgspec.DecodeError) as err:
        raise HostError(f"{folder}: the agent cannot be reached: {err}") from err
    raise HostError(
        f"{folder}: the agent exited or closed the connection before the end of its answer; see its log"
    )


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


WHY_LIMIT = 500
"""In characters: it is in the node's record and in each refusal."""

KNOWS = "knows"
"""The agent knows that the node was disabled or enabled, and obeys."""
SOON = "soon"
"""An agent runs but could not be notified; it reads the file every few seconds."""
OFF = "off"
"""No agent runs; the next one will know."""


def status(folder: Path) -> dict[str, Any]:
    """
    What is known of the agent of a state folder.

    When no agent answers, this is what the agent left on disk: `running` is false, and `lock_owner` is the process that has the
    folder all the same (0: none), and `time` when it was written.

    Raises:
        FileError: We may not look.
        HostError: The agent does not answer.
    """
    _check(folder)
    answer = ask(folder, STATUS)
    if answer is not None:
        return {**answer["status"], "running": True}
    left = read_status(folder)
    disabled = admission.read_disabled(folder)
    is_over = disabled is not None and disabled.until is not None and disabled.until <= datetime.now(UTC)
    return {
        "node": saved_identity(folder),
        **left,
        "running": False,
        "holder": lock_owner(folder),
        "disabled": msgspec.to_builtins(disabled) if disabled and not is_over else None,
        "spool": {**left.get("spool", {}), "bytes": _size(folder / "spool")},
        "connected": False,
    }


def disable(folder: Path, *, for_s: float, why: str, by: str) -> tuple[Disabled, str]:
    """
    Disable a node.

    Args:
        folder: The agent's state folder.
        for_s: For how long; 0: until it is enabled.
        why: The reason, for other operators.
        by: Who says so.

    Returns:
        What is stored now, and whether the agent KNOWS, will SOON, or is OFF.

    Raises:
        FileError: We may not write there.
    """
    now = datetime.now(UTC).replace(microsecond=0)
    until = now + timedelta(seconds=for_s) if for_s else None
    disabled = Disabled(since=now, until=until, why=why[:WHY_LIMIT], by=by[:WHY_LIMIT])
    admission.disable(folder, disabled)
    return disabled, _told(folder)


def enable(folder: Path) -> tuple[bool, str]:
    """
    Enable a node again: whether it was disabled, and whether the agent KNOWS, will SOON, or is OFF.

    Raises:
        FileError: We may not write there.
    """
    _check(folder)
    return admission.enable(folder), _told(folder)


def converge_once(folder: Path, on_status: Callable[[dict[str, Any]], None]) -> list[dict[str, Any]] | None:
    """
    Have the agent of a state folder converge now, and wait for the end.

    Args:
        folder: The state folder.
        on_status: Called every few seconds with the agent's status; an exception that it raises ends the waiting, not the run.

    Returns:
        How it ended for each manifest and assignment, as `Ended`; None when no agent runs.

    Raises:
        FileError: We may not ask.
        HostError: The agent does not, or has ended.
    """
    answer = ask(folder, ONCE, lambda line: on_status(line["status"]))
    return None if answer is None else list(answer["ended"])


def check_owner(folder: Path) -> None:
    """
    Check that an agent of this user leaves nothing in a state folder that the folder's own agent cannot read.

    Raises:
        UsageError: The folder belongs to another user's agent.
    """
    if folder.is_dir() and folder.stat().st_uid != os.geteuid():
        raise UsageError(
            f"{folder}: belongs to the user {folder.stat().st_uid}, whose agent is not running; run this as that user"
        )


def _told(folder: Path) -> str:
    try:
        if ask(folder, LOOK) is not None:
            return KNOWS
    except HostError:
        return SOON
    return SOON if lock_owner(folder) else OFF


def _check(folder: Path) -> None:
    if not folder.is_dir():
        raise FileError(f"{folder}: the state folder does not exist; install and start the agent first")
    if not os.access(folder, os.R_OK | os.X_OK):
        raise FileError(f"{folder}: only its owner may read it; run this as root")


def _size(folder: Path) -> int:
    try:
        return sum(path.stat().st_size for path in folder.iterdir())
    except OSError:
        return 0
