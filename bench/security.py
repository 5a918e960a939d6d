"""Security: the cost of signing and verifying, and fleets with all security features compared with fleets without them."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.applied import apply_run
from bench.fleet import (
    REAL_AGENTS,
    REAL_FILES,
    ccmctl,
    lay_files,
    real_agents,
    wait_for_nodes,
)
from bench.measure import Line
from bench.node_processes import node_processes
from bench.secured import secured_server
from ccm_agent.testing.nats_server import NatsServer, temporary_server

AGENTS, ROUNDS, PASSES, LOOPS = 500, 5, 2, 300
LIMIT = 1.2
"""All security features together may cost 20 percent."""

REQUEST_BYTES, DOCUMENT_BYTES, SUMMARY_BYTES = 4_000, 64_000, 1_000


def each_us(work: Callable[[], object]) -> float:
    """Return the microseconds of one call, as the median of some loops."""
    taken = []
    for _ in range(7):
        began = time.perf_counter()
        for _ in range(LOOPS):
            work()
        taken.append((time.perf_counter() - began) / LOOPS * 1e6)
    return statistics.median(taken)


def signature_lines() -> list[Line]:
    """Measure signing and verifying of a request, a document and an event's summary."""
    import nkeys

    from ccm_agent.bus.signatures.signing import SignatureKind, SigningKey, verify
    from ccm_agent.model.secret import Secret

    key = SigningKey(Secret(nkeys.encode_seed(b"k" * 32, nkeys.PREFIX_BYTE_USER).decode()))
    now_ms = int(time.time() * 1000)
    lines = []
    for name, kind, size, signer, reader in (
        ("a request", SignatureKind.REQUEST, REQUEST_BYTES, "controller", "each agent"),
        ("a document", SignatureKind.DOCUMENT, DOCUMENT_BYTES, "controller", "each agent"),
        ("the summary of a run", SignatureKind.EVENT, SUMMARY_BYTES, "agent", "controller"),
    ):
        header, sign, check = _pair(key, verify, kind, size, now_ms)
        against = f"{size} bytes; its header has {len(header)}"
        lines.append(Line(f"signing {name} ({signer})", each_us(sign), "µs", None, against))
        lines.append(Line(f"verifying {name} ({reader})", each_us(check), "µs", None, against))
    return lines


def _pair(
    key: Any, verify: Callable[..., Any], kind: Any, size: int, now_ms: int
) -> tuple[str, Callable[[], object], Callable[[], object]]:
    body, subject = b"x" * size, "io.choria.ccm.v1.manifest.apply.request.all"

    def sign() -> str:
        header: str = key.sign(kind, subject, body, issued_ms=now_ms)
        return header

    made = sign()
    return made, sign, lambda: verify(made, kind, subject, body, now_ms=now_ms)


@contextmanager
def plain_server() -> Iterator[NatsServer]:
    """Start a server without accounts, credentials and signatures."""
    with temporary_server() as server:
        ccmctl(server, "init")
        yield server


def many(server: NatsServer, manifest: Path) -> list[float]:
    """Return the seconds of runs over simulated agents, after a warm-up run."""
    with node_processes("ours", server, AGENTS):
        wait_for_nodes(server, AGENTS)
        return [apply_run(server, manifest, AGENTS).seconds for _ in range(ROUNDS + 1)][1:]


def few(server: NatsServer, folder: Path, manifest: Path) -> tuple[list[float], float]:
    """Return the seconds of `ccmctl apply` over real agents, after a warm-up run, and the memory of an agent."""
    from bench.memory import resident_mib

    taken = []
    with real_agents(server, folder) as children:
        wait_for_nodes(server, REAL_AGENTS)
        for _ in range(ROUNDS + 1):
            began = time.perf_counter()
            ccmctl(server, "apply", str(manifest), "--targets", "node=real*", "--yes")
            taken.append(time.perf_counter() - began)
        memory = statistics.median(resident_mib(child.pid) for child in children)
    return taken[1:], memory


def measure() -> list[Line]:
    """Measure the cost of signatures, and fleets with all security features as a multiple of fleets without them, in turn."""
    lines = signature_lines()
    runs: dict[bool, list[float]] = {True: [], False: []}
    applies: dict[bool, list[float]] = {True: [], False: []}
    memory: dict[bool, list[float]] = {True: [], False: []}
    simulated = [f"node{i:05}" for i in range(AGENTS)]
    real = [f"real{i}" for i in range(REAL_AGENTS)]
    with tempfile.TemporaryDirectory() as name:
        manifest = lay_files(Path(name))
        for number in range(2 * PASSES):
            # on, off, off, on: other load affects both
            is_on = number % 4 in (0, 3)
            with secured_server(simulated) if is_on else plain_server() as server:
                runs[is_on] += many(server, manifest)
            with secured_server(real) if is_on else plain_server() as server:
                folder = Path(name, str(number))
                folder.mkdir()
                taken, used = few(server, folder, manifest)
            applies[is_on] += taken
            memory[is_on].append(used)
    return [
        *lines,
        _beside(f"a run over {AGENTS} simulated agents", runs, "s"),
        _beside(f"ccmctl apply of {REAL_FILES} right files on {REAL_AGENTS} agents", applies, "s"),
        _beside("memory of an agent", memory, "MiB"),
    ]


def _beside(name: str, taken: dict[bool, list[float]], unit: str) -> Line:
    on, off = statistics.median(taken[True]), statistics.median(taken[False])
    return Line(
        f"{name}, everything on",
        on / off,
        "times",
        LIMIT,
        f"{on:.2f} {unit} against {off:.2f} {unit} with everything off",
    )
