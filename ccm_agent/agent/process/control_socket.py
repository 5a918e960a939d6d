"""
Commands on the node's own host: a socket in the state folder, accessible only to its owner and root, and its client
functions.

A request is one line of JSON, `{"ask": …}`. Each line of the reply is also JSON, and the last line has `end`. The socket cannot
be reached over the network and works without a broker. If no agent is running, the commands read and write the state folder.
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
"""The socket's name in the state folder."""

STATUS = "status"
LOOK = "look"
"""Request: the node may have been disabled or enabled. The reply is the status, after the agent has applied the change."""
ONCE = "once"
"""Request: converge now. The reply has the status every few seconds, and the result at the end."""

QUESTION_LIMIT_BYTES = 4096
QUESTION_S = 5.0
"""A client that sends nothing is disconnected after this time."""

PULSE_S = 3.0
"""While a request is in progress, a line of the reply is sent this often to show that the agent is alive."""

SILENCE_S = 30.0
"""The client stops waiting for an agent that sends nothing for this time."""


_KEEP_SOCKET: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
"""
Python 3.13 would remove the socket by its path. The path contains a descriptor, which is closed by then and may refer to
another file.
"""


class _Question(Struct):
    ask: str


class ControlSocket:
    """The socket of one agent."""

    def __init__(self, agent: Agent, folder: Path, users: Collection[int] = ()) -> None:
        """
        Create the socket object; it does not listen yet.

        Args:
            agent: The agent that answers.
            folder: The agent's state folder.
            users: Ids of the users who may connect; by default root and the agent's user.
        """
        self._users = users or (0, os.geteuid())
        self._agent = agent
        self._folder = folder

    async def run(self) -> None:
        """Answer requests and keep the status file current, until cancelled."""
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
            # Do not wait for connected clients: they notice that the connection closes.
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
            # The client may have disconnected; the run that it started continues.
            if not task.done():
                task.cancel()


async def _say(writer: asyncio.StreamWriter, line: dict[str, Any]) -> None:
    writer.write(encode_message(line) + b"\n")
    async with asyncio.timeout(QUESTION_S):
        await writer.drain()


def _peer(writer: asyncio.StreamWriter) -> int:
    """Return the user id of the process at the other end. See unix(7), SO_PEERCRED."""
    credentials = writer.get_extra_info("socket").getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
    )
    _, uid, _ = struct.unpack("3i", credentials)
    return int(uid)


def _listen(folder: Path) -> socket.socket:
    """
    Return a listening socket in a folder that this process has locked; an existing socket is from a dead agent. Blocking.
    """
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
    """
    Return the socket's path through its open folder, because a path over 107 bytes cannot be bound. See unix(7), sun_path.
    """
    return f"/proc/self/fd/{fd}/{SOCKET}"


def ask(
    folder: Path, question: str, on_line: Callable[[dict[str, Any]], None] = lambda line: None
) -> dict[str, Any] | None:
    """
    Send a request to the agent of a state folder. Blocking.

    Args:
        folder: The state folder.
        question: STATUS, LOOK or ONCE.
        on_line: Called with each line of the reply before the last one.

    Returns:
        The last line of the reply; None if no agent answers.

    Raises:
        FileError: The folder or the socket is not accessible.
        HostError: The agent refused the request, or exited before it replied.
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
"""The maximum characters of a reason, because it is in the node's record and in each refusal."""

KNOWS = "knows"
"""The agent has been notified that the node was disabled or enabled, and has applied it."""
SOON = "soon"
"""An agent is running but could not be notified; it reads the file every few seconds."""
OFF = "off"
"""No agent is running; the next one will read the file."""


def status(folder: Path) -> dict[str, Any]:
    """
    Return the known status of the agent of a state folder.

    If no agent answers, this is the status that the agent left on disk: `running` is false, `lock_owner` is the process that
    nevertheless locks the folder (0: none), and `time` is the time of the status.

    Raises:
        FileError: The folder is not accessible.
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
        for_s: The duration in seconds; 0: until the node is enabled.
        why: The reason, for other operators.
        by: The operator.

    Returns:
        The stored state, and KNOWS, SOON or OFF for the agent.

    Raises:
        FileError: The folder is not writable.
    """
    now = datetime.now(UTC).replace(microsecond=0)
    until = now + timedelta(seconds=for_s) if for_s else None
    disabled = Disabled(since=now, until=until, why=why[:WHY_LIMIT], by=by[:WHY_LIMIT])
    admission.disable(folder, disabled)
    return disabled, _told(folder)


def enable(folder: Path) -> tuple[bool, str]:
    """
    Enable a node again. Returns whether it was disabled, and KNOWS, SOON or OFF for the agent.

    Raises:
        FileError: The folder is not writable.
    """
    _check(folder)
    return admission.enable(folder), _told(folder)


def converge_once(folder: Path, on_status: Callable[[dict[str, Any]], None]) -> list[dict[str, Any]] | None:
    """
    Send the agent of a state folder a request to converge now, and wait for the result.

    Args:
        folder: The state folder.
        on_status: Called every few seconds with the agent's status; an exception from it ends the wait, but not the run.

    Returns:
        The result for each manifest and assignment, as a `ConvergenceResult`; None if no agent is running.

    Raises:
        FileError: The socket is not accessible.
        HostError: The agent refused the request or exited.
    """
    answer = ask(folder, ONCE, lambda line: on_status(line["status"]))
    return None if answer is None else list(answer["ended"])


def check_owner(folder: Path) -> None:
    """
    Check that an agent started by this user does not leave files in the state folder that the folder's own agent cannot read.

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
