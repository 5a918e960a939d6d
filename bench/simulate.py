"""A synthetic fleet on a real server: every reading command of `ccmctl`, its time and memory. `--nodes N` sets the size."""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import msgspec
import nkeys
from msgspec import Struct

from bench.measure import TOP, Line, ratio
from bench.secured import secured_server
from ccm_agent.bus.connection.settings import BusSettings, settings_for
from ccm_agent.bus.layout import FACTS, NODES
from ccm_agent.bus.signatures.signing import SignatureKind, SigningKey
from ccm_agent.bus.signatures.trust import certify_node
from ccm_agent.bus.subjects import key_subject
from ccm_agent.clikit.table import Column, Style, table
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.model.secret import Secret
from ccm_agent.model.wire import FactsRecord, NodeRecord, Presence

COUNT = int(os.environ.get("BENCH_NODES", "20000"))
"""Nodes; 100,000 take 400 MB in the folder of temporary files, and some minutes to write."""

AT_ONCE = 500
"""Entries that are written before the first of them is acknowledged."""

ANSWER_S = 60.0
"""How long an acknowledgement may take beside AT_ONCE others on a busy machine."""

OFFLINE = 10
"""Each of so many nodes is offline; each of so many others has assigned facts."""

ASSIGNMENT = "bench"
"""The assignment for all nodes, none of which reports anything about it."""

MANIFEST = """
ccm:
  resources:
    - file:
        - /etc/motd:
            ensure: present
            content: hello
            owner: root
            group: root
            mode: "0644"
"""

ALL_NODES = [
    ["--no-cache", "node", "list"],
    ["node", "list"],  # the first one that keeps what it read
    ["node", "list"],
    ["node", "list", "--json"],
    ["node", "list", "-t", "role=role7"],
    ["assignment", "list"],
    ["assignment", "status", ASSIGNMENT],
    ["doctor"],
    ["run", "list"],
]
"""Commands that read the whole fleet."""

BARE = ["slots"]
"""A command that connects, reads a bucket and prints, without a look at the nodes."""

ONE_RATIO, ONE_MB = 1.5, 60.0
"""The limits of commands that name one node: CPU time as a multiple of that of BARE, and MB of memory."""

# VmHWM and not ru_maxrss: the kernel counts the memory of the process before `exec` in that
_MEASURED = """
import resource, runpy, sys
try:
    runpy.run_module("ccm_ctl", run_name="__main__", alter_sys=True)
finally:
    used = resource.getrusage(resource.RUSAGE_SELF)
    [peak] = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
    with open(REPORT, "w") as report:
        report.write(f"{used.ru_utime + used.ru_stime} {peak}")
"""


class FleetKeys(Struct, frozen=True):
    """The keys that sign for the fleet: the root's, and that of an operator who may assign facts."""

    root: SigningKey
    operator: SigningKey


class SignedEntry(Struct, frozen=True):
    """An entry of a bucket, as its author signed it."""

    bucket: str
    key: str
    value: bytes
    signature: str


class Cost(Struct, frozen=True):
    """What a command took: seconds of wall-clock and of CPU time, and its peak memory in MB."""

    wall_s: float
    cpu_s: float
    peak_mb: float


def measure() -> list[Line]:
    """Print a table of the commands; those that name one node have limits, whatever the number of nodes."""
    with secured_server([]) as server, tempfile.TemporaryDirectory(prefix="bench-cache-") as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        settings = settings_for(
            server.url, identity="bench", creds=os.environ["CCM_CREDS"], answer_s=ANSWER_S
        )
        asyncio.run(fill(settings, read_keys(), COUNT))
        costs = {"assign": assign_to_all(server.url, Path(cache))}
        for words in [*ALL_NODES, BARE, *name_one(node_name(OFFLINE))]:
            name = " ".join(words)
            costs[f"{name}, again" if name in costs else name] = run_measured(server.url, words)
        costs["top, first picture"] = run_top(server.url)
        costs["dashboard, its first rows"] = run_dashboard(server.url, Path(cache))
    print(cost_table(costs))
    bare, lines = costs[" ".join(BARE)], []
    for name in (" ".join(words) for words in name_one(node_name(OFFLINE))):
        cost = costs[name]
        lines.append(
            ratio(f"ccmctl {name}, CPU time", cost.cpu_s, bare.cpu_s, ONE_RATIO, f"`{' '.join(BARE)}`")
        )
        lines.append(Line("its memory", cost.peak_mb, "MB", ONE_MB))
    return lines


def cost_table(costs: Mapping[str, Cost]) -> str:
    """What each command took."""
    columns = [Column("COMMAND"), *(Column(title, right=True) for title in ("SECONDS", "OF CPU", "MB"))]
    rows = [
        [f"ccmctl {name}", f"{one.wall_s:.2f}", f"{one.cpu_s:.2f}", f"{one.peak_mb:.0f}"]
        for name, one in costs.items()
    ]
    return table(columns, rows, Style())


def assign_to_all(url: str, folder: Path) -> Cost:
    """Assign a manifest to all nodes."""
    manifest = folder / "manifest.yaml"
    manifest.write_text(MANIFEST)
    return run_measured(url, ["assign", ASSIGNMENT, str(manifest), "--all", "--yes"])


def run_top(url: str) -> Cost:
    """`ccmctl top`, until it has counted the nodes."""
    from bench.top import once

    command = [sys.executable, "-m", "ccm_ctl", "--server", url, "top"]
    return Cost(*once(command, os.environ, f"{COUNT} nodes".encode()), 0)


def run_dashboard(url: str, folder: Path) -> Cost:
    """The answer from which the dashboard draws its first page, to the first browser."""
    from http.cookiejar import CookieJar
    from urllib.request import HTTPCookieProcessor, Request, build_opener

    from bench.dashboard import served
    from bench.top import cpu_s

    with served({**os.environ, "CCM_SERVER": url}, folder) as (process, printed):
        address, _, token = printed.partition("/#token=")
        opener = build_opener(HTTPCookieProcessor(CookieJar()))
        headers = {"Origin": address, "Content-Type": "application/json"}
        body = msgspec.json.encode({"token": token})
        opener.open(Request(f"{address}/api/session", body, headers)).read()
        before, began = cpu_s(process.pid), time.perf_counter()
        found = msgspec.json.decode(opener.open(f"{address}/api/fleet", timeout=ANSWER_S).read())
        cost = Cost(time.perf_counter() - began, cpu_s(process.pid) - before, 0)
        if len(found["rows"]) != COUNT:
            raise RuntimeError(f"the dashboard has {len(found['nodes'])} nodes")
    return cost


def name_one(node: str) -> list[list[str]]:
    """Commands that name one node, which should be offline: nobody answers for the synthetic nodes."""
    target = ["-t", f"node={node}"]
    return [
        ["node", "show", node],
        ["facts", "show", node],
        ["why", node],
        ["node", "list", *target],
        ["ping", *target],
        ["exec", *target, "--yes", "true"],
    ]


def node_name(number: int) -> str:
    """The name of a synthetic node."""
    return f"node{number:06}"


def read_keys() -> FleetKeys:
    """The keys of the fleet that this environment names."""
    from ccm_agent.bus.signatures.signing import signing_key_in_credentials

    root = SigningKey(Secret(Path(os.environ["CCM_KEYS"], "root.seed").read_text().strip()))
    operator = signing_key_in_credentials(Path(os.environ["CCM_CREDS"]).read_text())
    assert operator is not None
    return FleetKeys(root, operator)


async def fill(settings: BusSettings, keys: FleetKeys, count: int) -> None:
    """Write the entries of this many nodes, as agents and operators write them; nothing expires."""
    from ccm_agent.bus.connection.connection import Connection
    from ccm_agent.bus.kv import NatsKeyValue

    async with Connection(settings) as connection:
        await connection.connect_now()
        buckets = {name: NatsKeyValue(connection, name) for name in (NODES, FACTS)}
        entries = (entry for number in range(count) for entry in make_entries(keys, number))
        while some := list(islice(entries, AT_ONCE)):
            await asyncio.gather(
                *(buckets[one.bucket].store_signed(one.key, one.value, 0, one.signature) for one in some)
            )


def make_entries(keys: FleetKeys, number: int) -> Iterator[SignedEntry]:
    """Record, facts, presence and assigned facts of a node, as far as it has them."""
    node, now = node_name(number), datetime.now(UTC)
    now_ms = int(now.timestamp() * 1000)
    key = SigningKey(Secret(nkeys.encode_seed(secrets.token_bytes(32), nkeys.PREFIX_BYTE_USER).decode()))
    routed = {"role": f"role{number % 20}", "site": f"site{number % 7}"}
    record = NodeRecord(
        node=node, machine=secrets.token_hex(16), started=now, version="1.0", facts=routed, signatures=True,
        selector_patterns=True, key=key.public_key,
        certificate=certify_node(keys.root, node, key.public_key, issued_ms=now_ms),
    )  # fmt: skip
    facts = FactsRecord(node=node, time=now, facts=routed | {"host": {"text": "gathered " * 100}})
    parts: dict[str, Struct] = {"node": record, "facts": facts}
    if number % OFFLINE:
        parts["presence"] = Presence(node=node, machine=record.machine, started=now, time=now)
    for kind, content in parts.items():
        value, subject = msgspec.json.encode(content), key_subject(NODES, f"{kind}.{node}")
        signature = key.sign(SignatureKind.STATE, subject, value, issued_ms=now_ms)
        yield SignedEntry(NODES, f"{kind}.{node}", value, signature)
    if number % OFFLINE == 1:
        assigned = Stamped(
            bucket=FACTS, key=node, number=now_ms, count=1, body={"env": "prod"}, written_by="bench", time=now
        )
        value = msgspec.json.encode(assigned)
        signature = keys.operator.sign(
            SignatureKind.DOCUMENT, key_subject(FACTS, node), value, issued_ms=now_ms
        )
        yield SignedEntry(FACTS, node, value, signature)


def run_measured(url: str, words: Sequence[str]) -> Cost:
    """Run a command; that an offline node did not answer is no failure of it."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        report = Path(folder, "report")
        program = f"REPORT = {str(report)!r}\n{_MEASURED}"
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", program, "--server", url, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=TOP,
            check=False,
        )
        wall_s = time.perf_counter() - began
        if "Traceback" in done.stderr.decode() or not done.stdout:
            raise RuntimeError(f"{' '.join(words)}: {done.returncode}: {done.stderr.decode()[-500:]}")
        cpu_s, peak_kib = report.read_text().split()
    return Cost(wall_s, float(cpu_s), float(peak_kib) * 1024 / 1e6)
