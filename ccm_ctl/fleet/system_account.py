"""
Connections in accounts that have no users: to ask the servers of the broker, and to create the audit stream.

They need `system.seed` and `audit.seed`. The credentials are made for each connection and expire a minute later. Every server
of a cluster answers a question in the system account.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ccm_agent.bus.connection import Connection
from ccm_agent.bus.settings import replaced
from ccm_agent.model.errors import BusUnavailableError
from ccm_ctl.fleet.whole_file import create_file

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from ccm_agent.bus.credentials import Credentials
    from ccm_agent.bus.settings import BusSettings
    from ccm_ctl.fleet.keys import Keys

QUIET_S = 1.0
"""A second without a further answer means that all servers have answered."""

_ASKER = "ccmctl-servers"
_AUDIT_MAKER = "ccmctl-audit"
_VALID_S = 60


@contextlib.asynccontextmanager
async def system_connection(
    settings: BusSettings, keys: Keys, subjects: Sequence[str]
) -> AsyncIterator[Connection]:
    """
    A connection in the system account that may publish on these subjects only.

    Raises:
        BusError: The broker cannot be reached, or refuses the credentials.
        NotFoundError, InputError: `system.seed` is not in the folder, or cannot be used.
    """
    made = keys.asker(_ASKER, subjects, int(time.time()) + _VALID_S)
    async with _connection_with(settings, made) as connection:
        yield connection


@contextlib.asynccontextmanager
async def audit_connection(settings: BusSettings, keys: Keys) -> AsyncIterator[Connection]:
    """
    A connection in the account of the audit stream that may create this stream and nothing else.

    Raises:
        BusError: The broker cannot be reached, or does not know the account yet.
        NotFoundError, InputError: `audit.seed` is not in the folder, or cannot be used.
    """
    made = keys.audit_maker(_AUDIT_MAKER, int(time.time()) + _VALID_S)
    async with _connection_with(settings, made) as connection:
        yield connection


@contextlib.asynccontextmanager
async def _connection_with(settings: BusSettings, made: Credentials) -> AsyncIterator[Connection]:
    with tempfile.TemporaryDirectory(prefix="ccmctl-") as folder:
        path = Path(folder) / "user.creds"
        create_file(path, made.text.reveal().encode())
        fields = {"creds": str(path), "nkey": "", "user": "", "password": None, "token": None}
        async with Connection(replaced(settings, identity=made.name, inbox="", **fields)) as connection:
            await connection.connect_now()
            yield connection


async def ask_servers(connection: Connection, subject: str, question: object = None) -> list[bytes]:
    """
    The answer of each server. A server without a cluster is the only one, so nothing more is waited for.

    Raises:
        BusUnavailableError: No server answered.
    """
    body = b"" if question is None else msgspec.json.encode(question)
    answers: list[bytes] = []
    is_alone = connection.server is not None and not connection.server.cluster
    with connection.asking(subject) as waiting:
        await connection.publish(subject, body, reply=waiting.inbox)
        limit_s = connection.settings.answer_s
        while True:
            try:
                answers.append((await waiting.next(limit_s)).body)
            except BusUnavailableError:
                if not answers:
                    raise
                return answers
            if is_alone:
                return answers
            limit_s = QUIET_S
