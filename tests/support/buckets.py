"""What operators put into buckets and object stores, and what nobody should find there."""

from __future__ import annotations

import asyncio
import base64
import json

from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.settings import settings_for
from ccm_agent.bus.kv import NatsKeyValue
from ccm_agent.bus.objects import NatsObjects
from ccm_agent.bus.streams import store
from tests.support.fleet import Fleet


def put_data(fleet: Fleet, key: str, content: str) -> None:
    """Write a plain document; "" deletes it."""

    async def put() -> None:
        async with Connection(settings_for(fleet.url)) as connection:
            await connection.connect_now()
            bucket = NatsKeyValue(connection, "CCM_DATA")
            await (bucket.put(key, content.encode()) if content else bucket.delete(key))

    asyncio.run(put())


def purge_data(fleet: Fleet, key: str) -> None:
    """Remove a document with all its history, as `nats kv purge` does."""

    async def purge() -> None:
        async with Connection(settings_for(fleet.url)) as connection:
            await connection.connect_now()
            headers = {"KV-Operation": "PURGE", "Nats-Rollup": "sub"}
            await store(connection, f"$KV.CCM_DATA.{key}", b"", headers)

    asyncio.run(purge())


def put_object(fleet: Fleet, key: str, content: bytes) -> None:
    """Store an object."""

    async def put() -> None:
        async with Connection(settings_for(fleet.url)) as connection:
            await connection.connect_now()
            await NatsObjects(connection, "CCM_MANIFESTS").put(key, content)

    asyncio.run(put())


def put_spoiled(fleet: Fleet, key: str, size: int, digest: bytes, chunks: list[bytes]) -> None:
    """An object whose description says what its chunks need not be."""
    nuid = f"spoiled{key.partition('.')[0]}"

    async def put() -> None:
        async with Connection(settings_for(fleet.url)) as connection:
            await connection.connect_now()
            for chunk in chunks:
                await store(connection, f"$O.CCM_MANIFESTS.C.{nuid}", chunk)
            meta = {
                "name": key,
                "bucket": "CCM_MANIFESTS",
                "nuid": nuid,
                "size": size,
                "chunks": len(chunks),
                "digest": "SHA-256=" + base64.urlsafe_b64encode(digest).decode(),
            }
            subject = f"$O.CCM_MANIFESTS.M.{base64.urlsafe_b64encode(key.encode()).decode()}"
            await store(connection, subject, json.dumps(meta).encode(), {"Nats-Rollup": "sub"})

    asyncio.run(put())
