"""Signed documents: `ccmctl data list` of 10,000 of them compared with as many unsigned ones."""

from __future__ import annotations

import asyncio
import os
import resource
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from bench.measure import BIN, Line, ratio
from bench.secured import secured_server
from bench.security import plain_server
from ccm_agent.bus.signatures.signing import (
    SIGNATURE_HEADER,
    SignatureKind,
    SigningKey,
    signing_key_in_credentials,
)
from ccm_agent.bus.subjects import inbox_prefix, key_subject
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.testing.nats_server import NatsServer

COUNT, ROUNDS = 10_000, 3
LIMIT = 1.5
BUCKET = "CCM_DATA"


def measure() -> list[Line]:
    """Return the CPU time of the command with table and JSON output, as multiples of that in unsigned operation."""
    unsigned = dict(os.environ)
    lines = []
    with plain_server() as plain, secured_server([]) as secured:
        asyncio.run(_fill(plain, None))
        asyncio.run(_fill(secured, _operator_key()))
        for name, options in (("its table", []), ("its JSON", ["--json"])):
            pairs = [
                (_list(secured, os.environ, options), _list(plain, unsigned, options)) for _ in range(ROUNDS)
            ]
            ours, theirs = (statistics.median(taken) for taken in zip(*pairs, strict=True))
            what = f"CPU time of `ccmctl data list` of {COUNT} signed documents, {name}"
            lines.append(ratio(what, ours, theirs, LIMIT, "as many unsigned documents"))
    return lines


def _operator_key() -> SigningKey:
    key = signing_key_in_credentials(Path(os.environ["CCM_CREDS"]).read_text())
    assert key is not None
    return key


async def _fill(server: NatsServer, key: SigningKey | None) -> None:
    """Store the documents as `ccmctl data put` does, signed if there is a key."""
    import nats

    now_ms = int(time.time() * 1000)
    options = (
        {"user_credentials": os.environ["CCM_CREDS"], "inbox_prefix": inbox_prefix("bench")}
        if key is not None
        else {}
    )
    client = await nats.connect(server.url, **options)
    stream = client.jetstream()
    for first in range(0, COUNT, 500):
        waiting = []
        for number in range(first, first + 500):
            name = f"role/r{number}"
            document = Stamped(
                bucket=BUCKET, key=name, number=now_ms, count=1, body={"greeting": "hello " * 10},
                written_by="bench", time=datetime.now(UTC),
            )  # fmt: skip
            body, subject = msgspec.json.encode(document), key_subject(BUCKET, name)
            signed = (
                key.sign(SignatureKind.DOCUMENT, subject, body, issued_ms=now_ms) if key is not None else ""
            )
            headers = {SIGNATURE_HEADER: signed} if signed else None
            waiting.append(stream.publish(subject, body, headers=headers, timeout=30))
        await asyncio.gather(*waiting)
    await client.close()


def _list(server: NatsServer, environ: Mapping[str, str], options: Sequence[str]) -> float:
    """Return the CPU seconds of one list."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [str(BIN / "ccmctl"), "--server", server.url, *options, "data", "list"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.stdout.count("role/r") != COUNT or "unverified" in done.stdout:
        raise RuntimeError(f"not the documents that were stored: {done.stdout[-300:]}{done.stderr[-300:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
