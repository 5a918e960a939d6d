"""Joining: BENCH_JOINS hosts (2000) join a real fleet with a token, first one by one, then BENCH_AT_ONCE (100) at a time."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from bench.accounts import raise_file_limit
from bench.measure import BIN, Line
from bench.secured import secured_server
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.settings import settings_for
from ccm_agent.bus.signatures.join import make_credentials, sign_request, verify_answer
from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER, SigningKey
from ccm_agent.joining.join import join_fleet
from ccm_agent.joining.membership import JoinPlaces, Membership, read_membership
from ccm_agent.model.errors import CcmError
from ccm_agent.version import VERSION
from ccm_ctl.fleet.keys.join_records import USES_LIMIT

JOINS = min(int(os.environ.get("BENCH_JOINS", "2000")), USES_LIMIT)
AT_ONCE = int(os.environ.get("BENCH_AT_ONCE", "100"))
"""Hosts that join at the same moment. They are threads of this process, which shares the cores with broker and service."""
RENEWALS = 200
LIMIT_S = 1_200.0
"""After this time, no further host begins, and the benchmark ends with the results so far."""
PATIENCE_S = 60.0


class Hosts:
    """Hosts with their files in one directory."""

    def __init__(self, server: str, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self._until = time.monotonic() + LIMIT_S
        self.errors: list[str] = []

    def join(self, line: str, name: str) -> float:
        """Join a host, and return the seconds that it took, or 0 if it failed."""
        began = time.perf_counter()
        if time.monotonic() > self._until:
            self.errors.append(f"{name}: not tried within {LIMIT_S:g} s")
            return 0.0
        places = JoinPlaces.below(str(self._folder / name))
        try:
            joined = join_fleet(
                line.removeprefix("ccm join "), name, places, lambda _: None, insecure=False, wait_s=0
            )
        except CcmError as err:
            self.errors.append(f"{name}: {err.code}: {err.message}")
            return 0.0
        if not joined.is_new:
            self.errors.append(f"{name}: had joined before")
        return time.perf_counter() - began

    async def renewals(self, names: list[str]) -> list[float]:
        """Renew the credentials of each host over an existing connection, and return the seconds of each."""
        return [await self._renew(name) for name in names]

    async def _renew(self, name: str) -> float:
        path = self._folder / name / "node.creds"
        member = await asyncio.to_thread(read_membership, path)
        assert member is not None
        async with Connection(settings_for(self._server, identity=name, creds=str(path))) as connection:
            await connection.connect_now()
            began = time.perf_counter()
            await asyncio.to_thread(path.write_bytes, await _renewed(connection, member))
            return time.perf_counter() - began


async def _renewed(connection: Connection, member: Membership) -> bytes:
    """Return the new credentials of a node."""
    key, now_ms = SigningKey(member.seed), int(time.time() * 1000)
    request = sign_request(key, member.name, now_ms, VERSION, certificate=member.certificate)
    message = await connection.request(request.subject, request.body, request.headers, within_s=PATIENCE_S)
    header = message.headers[SIGNATURE_HEADER]
    answer = verify_answer(
        message.body, header, request, member.name, key.public_key, member.root, now_ms=now_ms
    )
    return make_credentials(answer, member.seed, member.root)


@contextmanager
def join_service(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a join service with its own operator in a separate process."""
    creds, log = folder / "joiner.creds", folder / "service.log"
    creds.touch(mode=0o600)
    creds.write_text(ccmctl("operator", "add", "joiner", "--join", "--facts"))
    environ = {**os.environ, "CCM_CREDS": str(creds), "CCM_OPERATOR": "joiner"}
    with log.open("wb") as out:
        child = subprocess.Popen(
            [str(BIN / "ccmctl"), "join", "serve"],
            env=environ,
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
        )
    try:
        end = time.monotonic() + PATIENCE_S
        while "waiting for nodes" not in log.read_text():
            if child.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the join service does not start: {log.read_text()[-500:]}")
            time.sleep(0.05)
        yield child
    finally:
        child.send_signal(signal.SIGINT)
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def ccmctl(*words: str) -> str:
    """Return the output of a command."""
    done = subprocess.run(
        [str(BIN / "ccmctl"), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"ccmctl {words[0]} {words[1]} ended with {done.returncode}: {done.stderr[-500:]}")
    return done.stdout


class Round:
    """Some hosts, and the token that they use."""

    def __init__(self) -> None:
        words = ("--role", "web", "--uses", str(JOINS), "--expires", "2h", "--json")
        [made] = _records("token", "create", *words)
        self.token, self.line = made["token"], str(made["command"])
        self.taken: list[float] = []

    @property
    def well(self) -> list[float]:
        """The seconds of each successful join, sorted."""
        return sorted(one for one in self.taken if one)

    def miscounted(self) -> int:
        """The difference of the broker's count of uses from the actual number."""
        [used] = [one["used"] for one in _records("token", "list", "--json") if one["token"] == self.token]
        return abs(int(str(used)) - len(self.well))


def measure() -> list[Line]:
    """Measure sequential and concurrent joins and renewals. Each join must succeed, and the broker must count each once."""
    raise_file_limit()
    with secured_server([]) as server, tempfile.TemporaryDirectory(prefix="bench-join-") as folder:
        os.environ["NATS_URL"] = server.url
        hosts = Hosts(server.url, Path(folder))
        # the first token creates the certifying key, which the service reads
        row, crowd = Round(), Round()
        with join_service(Path(folder)), ThreadPoolExecutor(AT_ONCE) as threads:
            row.taken = [hosts.join(row.line, f"row{number}") for number in range(JOINS)]
            began = time.perf_counter()
            crowd.taken = list(
                threads.map(lambda number: hosts.join(crowd.line, f"once{number}"), range(JOINS))
            )
            seconds = time.perf_counter() - began
            names = [f"once{number}" for number in range(min(RENEWALS, JOINS)) if crowd.taken[number]]
            renewed = sorted(asyncio.run(hosts.renewals(names)))
            miscounted = row.miscounted() + crowd.miscounted()
    what = f"{JOINS} in a row, {JOINS} at once{''.join(f'; {one}' for one in hosts.errors[:1])}"
    return [
        Line("joins that failed", len(hosts.errors), "joins", 0, what),
        Line("uses that the broker missed or counted twice", miscounted, "uses", 0),
        _line("a join, in a row", row.well),
        _line(f"a join, {AT_ONCE} at once", crowd.well, f"{len(crowd.well) / seconds:.0f} a second; "),
        _line("a renewal", renewed),
    ]


def _line(name: str, taken: list[float], more: str = "") -> Line:
    """Return a line with the median of sorted times."""
    times = [one * 1000 for one in taken] or [0.0]
    most = f"{more}99 % within {times[int(len(times) * 0.99)]:.0f} ms"
    return Line(f"{name}, median", statistics.median(times), "ms", None, most)


def _records(*words: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in ccmctl(*words).splitlines()]
