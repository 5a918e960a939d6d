"""
Connections in accounts without users: to query the servers of the broker, to push accounts, and to create the audit stream.

They require `system.seed` and `audit.seed`. The credentials are made for each connection and expire a minute later. In the
system account, every server of a cluster answers a query.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from ccm_agent.bus.access.credentials import Credentials, name_in_jwt
from ccm_agent.bus.access.sites import mirror_credentials
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.settings import BusSettings, replaced
from ccm_agent.bus.site_streams import domain_of
from ccm_agent.model.errors import BusUnavailableError, ProtocolError
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.secret import Secret
from ccm_ctl.fleet.keys.keys import Keys
from ccm_ctl.fleet.keys.sites import SITE_PREFIX, issue_time, site_tokens
from ccm_ctl.fleet.whole_file import create_file

QUIET_S = 1.0
"""If no answer arrives within this many seconds, all servers are assumed to have answered."""

_APPLIED = 200
_ASKER = "ccmctl-servers"
_AUDIT_MAKER = "ccmctl-audit"
_MIRROR_MAKER = "ccmctl-mirrors"
_VARZ = "$SYS.REQ.SERVER.PING.VARZ"
FLAG = "js_ack_fc_v2"
"""With it, subjects of flow control begin with the domain. Without it, answers to flow control do not cross accounts."""
_VALID_S = 60


class _Server(Struct, frozen=True):
    name: str = ""


class _Settings(Struct, frozen=True):
    feature_flags: dict[str, bool] = {}


class _Varz(Struct, frozen=True):
    """A server's answer about its settings."""

    server: _Server = _Server()
    data: _Settings = _Settings()


class _Result(Struct, frozen=True):
    code: int = 0


class _Pushed(Struct, frozen=True):
    """A server's answer to a JWT of an account."""

    server: _Server = _Server()
    data: _Result = _Result()


@contextlib.asynccontextmanager
async def system_connection(
    settings: BusSettings, keys: Keys, subjects: Sequence[str]
) -> AsyncIterator[Connection]:
    """
    Open a connection in the system account that may publish on these subjects only.

    Raises:
        BusError: The broker cannot be reached, or refuses the credentials.
        NotFoundError, InputError: `system.seed` is not in the folder, or is not usable.
    """
    made = await asyncio.to_thread(keys.asker, _ASKER, subjects, int(time.time()) + _VALID_S)
    async with _connection_with(settings, made) as connection:
        yield connection


@contextlib.asynccontextmanager
async def audit_connection(settings: BusSettings, keys: Keys) -> AsyncIterator[Connection]:
    """
    Open a connection in the account of the audit stream that may only create this stream.

    Raises:
        BusError: The broker cannot be reached, or does not have the account yet.
        NotFoundError, InputError: `audit.seed` is not in the folder, or is not usable.
    """
    made = await asyncio.to_thread(keys.audit_maker, _AUDIT_MAKER, int(time.time()) + _VALID_S)
    async with _connection_with(settings, made) as connection:
        yield connection


@contextlib.asynccontextmanager
async def site_connection(settings: BusSettings, keys: Keys, site: str) -> AsyncIterator[Connection]:
    """
    Open a connection in the account of a site at the center, to create its mirrors.

    Raises:
        BusError: The broker cannot be reached, or does not have the account yet.
        NotFoundError, InputError: The seed of the account is not in the folder, or is not usable.
    """
    account = await asyncio.to_thread(keys.seed, f"{SITE_PREFIX}{site}")
    issued = await asyncio.to_thread(issue_time, keys.folder, site)
    text = mirror_credentials(account, issued, issued + _VALID_S)
    async with _connection_as(settings, _MIRROR_MAKER, text) as connection:
        yield connection


async def lacking_flag(settings: BusSettings, keys: Keys) -> list[str]:
    """
    Return the servers of the center that have no `js_ack_fc_v2` in `feature_flags`.

    Raises:
        BusError: The broker cannot be reached.
        ProtocolError: A server's answer is not valid.
        NotFoundError, InputError: `system.seed` is not in the folder, or is not usable.
    """
    async with system_connection(settings, keys, [_VARZ]) as connection:
        bodies = await ask_servers(connection, _VARZ)
    try:
        answers = [decode_foreign(body, _Varz) for body in bodies]
    except msgspec.MsgspecError as err:
        raise ProtocolError(f"a server's answer on {_VARZ} is not valid: {err}") from err
    return sorted(one.server.name for one in answers if not one.data.feature_flags.get(FLAG))


async def push_accounts(settings: BusSettings, keys: Keys, names: Collection[str]) -> list[str]:
    """
    Send the JWTs of accounts to the running servers. They apply them immediately, and close connections that are no longer
    allowed.

    A server reads its configuration when it restarts. `nats-security.conf` must be updated before that.

    Args:
        settings: The address of the broker.
        keys: The folder with the configuration.
        names: The accounts, such as `nodes`.

    Returns:
        The names of the servers that applied all accounts, sorted.

    Raises:
        BusError: The broker cannot be reached, or refuses the credentials.
        NotFoundError, InputError: `system.seed` is not in the folder, or is not usable.
    """
    tokens = await asyncio.to_thread(keys.account_tokens)
    chosen = {_claims_subject(key): key for key, token in tokens.items() if name_in_jwt(token) in names}
    async with system_connection(settings, keys, list(chosen)) as connection:
        # The account of the streams has other limits at a site. With those of the center, it would lose its leaf node.
        tokens |= await asyncio.to_thread(site_tokens, keys.folder, domain_of(connection))
        chosen = {subject: tokens[key] for subject, key in chosen.items()}
        answers = [await ask_servers(connection, *each) for each in chosen.items()]
    applied = [{_server_of(body) for body in bodies} for bodies in answers]
    return sorted(set.intersection(*applied) - {""}) if applied else []


def _claims_subject(account: str) -> str:
    """Return the subject on which servers receive a new JWT of an account. `account` is its public key."""
    return f"$SYS.REQ.ACCOUNT.{account}.CLAIMS.UPDATE"


def _server_of(body: bytes) -> str:
    """Return the name of the server that applied an account's JWT, or "" if it did not."""
    try:
        answer = decode_foreign(body, _Pushed)
    except msgspec.MsgspecError:
        return ""
    return answer.server.name if answer.data.code == _APPLIED else ""


@contextlib.asynccontextmanager
async def _connection_with(settings: BusSettings, made: Credentials) -> AsyncIterator[Connection]:
    async with _connection_as(settings, made.name, made.text) as connection:
        yield connection


@contextlib.asynccontextmanager
async def _connection_as(settings: BusSettings, name: str, text: Secret) -> AsyncIterator[Connection]:
    folder = await asyncio.to_thread(tempfile.mkdtemp, prefix="ccmctl-")
    try:
        path = Path(folder) / "user.creds"
        await asyncio.to_thread(create_file, path, text.reveal().encode())
        fields = {"creds": str(path), "nkey": "", "user": "", "password": None, "token": None}
        async with Connection(replaced(settings, identity=name, inbox="", **fields)) as connection:
            await connection.connect_now()
            yield connection
    finally:
        await asyncio.to_thread(shutil.rmtree, folder)


async def ask_servers(connection: Connection, subject: str, question: object = None) -> list[bytes]:
    """
    Return the answer of each server. `question` is sent as JSON, or unchanged if it is text.

    A server without a cluster is the only one. The function then returns after its answer.

    Raises:
        BusUnavailableError: No server answered.
    """
    body = (
        question.encode() if isinstance(question, str) else msgspec.json.encode(question) if question else b""
    )
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


def _encoded(question: object) -> bytes:
    return b"" if question is None else msgspec.json.encode(question)
