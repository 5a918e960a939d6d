"""Broker accounts: 10,000 nodes on one server, with the three accounts as shipped, one for all, and one for each node."""

from __future__ import annotations

import asyncio
import base64
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from bench.measure import Line
from bench.memory import resident_mib
from ccm_agent.testing.nats_server import NatsServer, temporary_server

NODES, PROCESSES, AT_ONCE, SINGLE = 10_000, 2, 16, 300
OWN_ACCOUNTS = (250, 1_000)
"""Numbers of accounts in the third layout. Memory grows with each, so 10,000 are estimated from the difference."""

SETTLE_S = 3.0
SPARE_FILES = 500


def raise_file_limit() -> int:
    """Raise the limit on open files to the user's maximum, and return it. The server inherits it."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def as_shipped() -> tuple[str, list[str]]:
    """Return the configuration with three accounts, and the scoped key that signs nodes, before its account's key."""
    from ccm_agent.bus.access.credentials import new_authority, public_key, server_configuration

    authority = new_authority()
    issuer = f"{authority.node_signer.reveal()} {public_key(authority.nodes)}"
    return server_configuration(authority), [issuer]


def one_for_all() -> tuple[str, list[str]]:
    """Return the configuration with one account for the streams and all users."""
    return _configuration([{"storage": True}])


def one_for_each(count: int) -> tuple[str, list[str]]:
    """
    Return an account for each node, with the same imports as the account of nodes, in addition to the account of the streams.
    """
    return _configuration([{"storage": True}, *({} for _ in range(count))])


def _configuration(accounts: Sequence[dict[str, bool]]) -> tuple[str, list[str]]:
    from ccm_agent.bus.access import credentials
    from ccm_agent.bus.access.accounts import Account, exports_and_imports

    authority = credentials.new_authority()
    operator = credentials.key_pair(authority.operator)
    streams = credentials.public_key(authority.account)
    keys = dict.fromkeys(Account, streams)
    is_several = len(accounts) > 1
    lines, seeds = [], []
    for number, account in enumerate(accounts):
        seed = authority.account if account else credentials.new_account()
        kind = Account.CTL if account else Account.NODES
        crossings = exports_and_imports(kind, keys) if is_several else {}
        if account:
            crossings.pop("imports", None)
        limits = credentials._limits(kind, moving=True)
        public = credentials.public_key(seed)
        token = credentials.signed_jwt(
            operator, public, "account", f"account{number}", {"limits": limits, **crossings}
        )
        lines.append(f"  {public}: {token}")
        seeds.append(seed.reveal())
    system = credentials.public_key(authority.system)
    token = credentials.signed_jwt(
        operator, system, "account", "system", {"limits": credentials._limits(Account.OPS, moving=True)}
    )
    itself = credentials.signed_jwt(operator, credentials._public(operator), "operator", "ccm", {}, issued=1)
    preload = "\n".join([*lines, f"  {system}: {token}"])
    text = (
        f"operator: {itself}\nsystem_account: {system}\nmax_control_line: {credentials.MAX_CONTROL_LINE}\n"
        f"resolver: MEMORY\nresolver_preload: {{\n{preload}\n}}\n"
    )
    return text, seeds[1:] if is_several else seeds


class Node:
    """A node's connection as bytes: the messages with which an agent logs in and subscribes."""

    def __init__(self, issuer: str, name: str) -> None:
        import nkeys

        from ccm_agent.bus.access.credentials import scoped_credentials, user_credentials
        from ccm_agent.bus.access.permissions import node_permissions
        from ccm_agent.model.secret import Secret

        seed, _, account = issuer.partition(" ")
        allowed = node_permissions(name)
        made = (
            scoped_credentials(Secret(seed), account, name, allowed.tags)
            if account
            else user_credentials(Secret(seed), name, allowed)
        )
        lines = made.text.reveal().splitlines()
        self.name = name
        self._jwt = lines[1]
        seed = lines[lines.index("-----BEGIN USER NKEY SEED-----") + 1]
        self._pair: Any = nkeys.from_seed(bytearray(seed.encode()))

    def hello(self, nonce: str) -> bytes:
        """Return CONNECT, the subscriptions of an agent with two routed facts, and PING."""
        signature = base64.urlsafe_b64encode(self._pair.sign(nonce.encode())).rstrip(b"=").decode()
        options = {
            "verbose": False, "pedantic": False, "headers": True, "no_responders": True, "protocol": 1, "lang": "bench",
            "version": "1", "jwt": self._jwt, "sig": signature, "name": self.name,
        }  # fmt: skip
        subjects = "".join(
            f"SUB {subject} {number}\r\n" for number, subject in enumerate(self._subjects(), 1)
        )
        return f"CONNECT {json.dumps(options)}\r\n{subjects}PING\r\n".encode()

    def _subjects(self) -> list[str]:
        from ccm_agent.bus.layout import ASSIGNMENTS, DATA, FACTS, TRUST
        from ccm_agent.bus.subjects import inbox_prefix, notification_subject, request_pattern

        scopes = ["all", f"node.{self.name}", "fact.role.web", "fact.site.dc1"]
        return [
            *map(request_pattern, scopes),
            *(notification_subject(ASSIGNMENTS, f"{scope}.*") for scope in scopes),
            notification_subject(FACTS, self.name),
            notification_subject(TRUST, "signers"),
            notification_subject(DATA, "common"),
            f"{inbox_prefix(self.name)}.*",
        ]


async def connected(port: int, node: Node) -> tuple[float, Any]:
    """Connect. Returns the seconds until the server had processed all subscriptions, and the connection."""
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 17)
    info = json.loads((await reader.readline()).removeprefix(b"INFO "))
    writer.write(node.hello(info["nonce"]))
    while (line := await reader.readline()) != b"PONG\r\n":
        if line == b"PING\r\n":
            writer.write(b"PONG\r\n")
        elif not line or line.startswith(b"-ERR"):
            raise RuntimeError(f"the server refuses {node.name}: {line.decode()!r}")
    return time.perf_counter() - began, (reader, writer)


async def serve(port: int, seeds: list[str], first: int, count: int, at_once: int) -> None:
    """Connect nodes when a line arrives on the input, `at_once` at the same time, and hold them until the input ends."""
    raise_file_limit()
    loop = asyncio.get_running_loop()
    nodes = [Node(seeds[i % len(seeds)], f"node{i:05}") for i in range(first, first + count)]
    print("made", flush=True)
    await loop.run_in_executor(None, sys.stdin.readline)
    slots, kept = asyncio.Semaphore(at_once), []

    async def one(node: Node) -> float:
        async with slots:
            took, connection = await connected(port, node)
            kept.append(connection)
            return took

    times = await asyncio.gather(*map(one, nodes))
    print(json.dumps(times), flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


class Fleet:
    """Open connections, and the time that each took."""

    def __init__(self, children: Sequence[subprocess.Popen[str]]) -> None:
        began = time.perf_counter()
        for child in children:
            _say(child)
        self.times = sorted(one for child in children for one in json.loads(_line(child)))
        self.seconds = time.perf_counter() - began


@contextmanager
def held(
    server: NatsServer,
    seeds: list[str],
    count: int,
    first: int = 0,
    *,
    processes: int = PROCESSES,
    at_once: int = AT_ONCE,
) -> Iterator[Fleet]:
    """Connect nodes for the duration of the context."""
    each = count // processes
    with ExitStack() as stack:
        children = []
        for i in range(processes):
            start = first + i * each
            own = [seeds[j % len(seeds)] for j in range(start, start + each)] if len(seeds) > 1 else seeds
            command = [
                sys.executable,
                "-m",
                "bench.accounts",
                str(server.port),
                str(start),
                str(each),
                str(at_once),
            ]
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.callback(child.wait, 60)
            stack.callback(_close, child)
            children.append(child)
            _say(child, json.dumps(own))
        for child in children:
            _line(child)
        yield Fleet(children)


def _say(child: subprocess.Popen[str], text: str = "") -> None:
    assert child.stdin is not None
    child.stdin.write(text + "\n")
    child.stdin.flush()


def _line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    line = child.stdout.readline()
    if not line:
        raise RuntimeError("a process with connections has ended")
    return line


def _close(child: subprocess.Popen[str]) -> None:
    if child.stdin is not None:
        child.stdin.close()


def layout_lines(name: str, configuration: tuple[str, list[str]], count: int) -> list[Line]:
    """Measure memory and times of one layout with this many nodes."""
    text, seeds = configuration
    with temporary_server(text) as server:
        time.sleep(SETTLE_S)
        empty = resident_mib(server.pid)
        with held(server, seeds, count) as fleet:
            time.sleep(SETTLE_S)
            full = resident_mib(server.pid)
            with held(server, seeds, SINGLE, count, processes=1, at_once=1) as more:
                single = more.times
        rush = f"{statistics.median(fleet.times) * 1000:.0f} ms, 99 % within {fleet.times[int(count * 0.99)] * 1000:.0f} ms"
        how = f"{count / fleet.seconds:.0f} a second when {PROCESSES * AT_ONCE} at a time connect, each in {rush}"
    return [
        Line(f"{name}: memory of the server with {count} nodes", full, "MiB", None, f"{empty:.0f} MiB before they came"),
        Line(
            f"{name}: one more node connects, median", statistics.median(single) * 1000, "ms", None,
            f"99 % within {single[int(len(single) * 0.99)] * 1000:.1f} ms; {how}",
        ),
    ]  # fmt: skip


def own_accounts_lines() -> list[Line]:
    """Measure memory and times with an account for each node, and estimate those of 10,000."""
    lines, found = [], []
    for count in OWN_ACCOUNTS:
        made = layout_lines("an account for each node", one_for_each(count + SINGLE), count)
        lines += made
        found.append(made[0].value)
    (few, many), (low, high) = OWN_ACCOUNTS, found
    each = (high - low) / (many - few)
    estimate = low + each * (NODES - few)
    lines.append(
        Line(
            f"an account for each node: memory with {NODES} nodes, estimated",
            estimate,
            "MiB",
            None,
            f"{each * 1024:.0f} KiB for each node",
        )
    )
    return lines


def measure() -> list[Line]:
    """Return numbers without budgets. They compare the costs of the layouts."""
    files = raise_file_limit()
    count = min(NODES, files - SPARE_FILES - SINGLE)
    lines = layout_lines("three accounts, as shipped", as_shipped(), count)
    lines += layout_lines("one account for all", one_for_all(), count)
    return lines + own_accounts_lines()


if __name__ == "__main__":
    port, *numbers = map(int, sys.argv[1:])
    asyncio.run(serve(port, json.loads(sys.stdin.readline()), *numbers))
