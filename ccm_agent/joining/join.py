"""
Joins this host to a fleet: requests credentials for the node's own key from the join service, and writes them.

The connection uses the token's credentials and ends with the answer. No agent is started.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct

from ccm_agent.bus.access.credentials import credentials_text
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.messages import PendingReply
from ccm_agent.bus.connection.settings import settings_for
from ccm_agent.bus.signatures.join import (
    JoinError,
    JoinToken,
    SignedRequest,
    fingerprint,
    make_credentials,
    read_token,
    sign_request,
    verify_answer,
)
from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER, SignatureError, SigningKey
from ccm_agent.joining.membership import (
    JoinPlaces,
    check_configuration,
    choose_name,
    node_seed,
    read_membership,
    write_configuration,
    write_membership,
)
from ccm_agent.model.errors import BusDeniedError, BusError, BusUnavailableError
from ccm_agent.model.records.join import ANSWER_S, JoinAnswer, JoinState
from ccm_agent.version import VERSION

PATIENCE_S = 60.0
"""How long the join service may be unavailable."""

ASK_AGAIN_S = 5.0
"""How often a node checks whether an operator has accepted it."""

Told = Callable[[str], None]


class JoinedHost(Struct, frozen=True, kw_only=True):
    """
    A node that belongs to a fleet.

    Attributes:
        name: The node.
        expires: When its credentials expire, in seconds since 1970; 0: never.
        config: The agent's configuration.
        is_new: Whether it joined now; False if it had joined before.
    """

    name: str
    expires: int
    config: str
    is_new: bool


def join_fleet(
    text: str, name: str, places: JoinPlaces, on_waiting: Told, *, insecure: bool, wait_s: float
) -> JoinedHost:
    """
    Join the fleet of a token. This can be repeated after an interruption at any step.

    Args:
        text: The token.
        name: The node's name; "" uses the configured name, or this host's name.
        places: The paths of the files.
        on_waiting: Called with the fingerprint of the node's key if an operator must accept it.
        insecure: Whether to accept a broker that requires no credentials or offers no TLS.
        wait_s: How long to wait for an operator.

    Raises:
        CcmError: The node could not join. An error from the join service has the service's code.
    """
    token = read_token(text)
    name = choose_name(places, name)
    check_configuration(places)
    if places.leaving.exists():
        raise JoinError(
            f"{places.leaving}: this node was leaving its fleet; run `ccm leave` to the end, then repeat the command",
            code="join.leaving",
        )
    member, now = read_membership(places.credentials), time.time()
    if member is not None and member.root != token.root:
        raise JoinError(
            f"{places.credentials}: this node belongs to another fleet; remove the file and `nats` in config.yaml, "
            "then repeat the command",
            code="join.other_fleet",
        )
    if member is not None and member.name != name:
        raise JoinError(
            f"{places.credentials}: this node has already joined as {member.name}; leave out --name",
            code="join.other_name",
        )
    expires, is_new = (member.expires, False) if member is not None else (0, True)
    if member is None or member.is_expired(now):
        _check_expiry(token, now)
        # A node that was off for too long keeps its key.
        seed = member.seed if member is not None else node_seed(places)
        answer = asyncio.run(
            _ask(token, name, SigningKey(seed), on_waiting, insecure=insecure, wait_s=wait_s)
        )
        write_membership(places, make_credentials(answer, seed, token.root), token.ca)
        expires, is_new = answer.expires, True
    write_configuration(places, name, token.servers, insecure=insecure)
    return JoinedHost(name=name, expires=expires, config=str(places.config), is_new=is_new)


def _check_expiry(token: JoinToken, now: float) -> None:
    if token.expires and token.expires < now:
        clock = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
        raise JoinError(
            f"the join token has expired, if this host's clock is right ({clock}); create another one with "
            "`ccmctl token create`",
            code="join.expired_token",
        )


async def _ask(
    token: JoinToken, name: str, key: SigningKey, on_waiting: Told, *, insecure: bool, wait_s: float
) -> JoinAnswer:
    """Return the answer with credentials."""
    is_told = False
    until = time.monotonic() + PATIENCE_S
    async with _connected(token, insecure=insecure) as connection:
        while True:
            answer = await _ask_until(connection, token, name, key, until)
            if answer.state is JoinState.JOINED:
                return answer
            if answer.state is JoinState.REFUSED:
                raise JoinError(answer.message[:500], code=answer.code[:60] or "join.refused")
            if not is_told:
                on_waiting(fingerprint(key.public_key))
                is_told, until = True, time.monotonic() + wait_s
            if time.monotonic() + ASK_AGAIN_S > until:
                raise JoinError(
                    f"{name}: no operator has accepted this node; run `ccmctl node accept {name} "
                    f"{fingerprint(key.public_key)}`, then repeat the command",
                    code="join.not_accepted",
                )
            await asyncio.sleep(ASK_AGAIN_S)


async def _ask_until(
    connection: Connection, token: JoinToken, name: str, key: SigningKey, until: float
) -> JoinAnswer:
    """Repeat the request until an answer is verified, and return the answer."""
    while True:
        request = sign_request(key, name, _now_ms(), VERSION, token=token)
        doubts: list[SignatureError] = []
        try:
            with connection.asking(request.subject) as waiting:
                await connection.publish(request.subject, request.body, request.headers, reply=waiting.inbox)
                return await _verified(waiting, request, name, key.public_key, token.root, doubts)
        except BusDeniedError as err:
            raise _refused() from err
        except BusUnavailableError as err:
            if time.monotonic() > until:
                raise _no_answer(doubts) from err
        await asyncio.sleep(random.uniform(0.5, 2.0))


async def _verified(
    waiting: PendingReply,
    request: SignedRequest,
    name: str,
    key: str,
    root: str,
    doubts: list[SignatureError],
) -> JoinAnswer:
    """Return the answer that the fleet signed. Other answers, which anyone on the broker can send, are ignored."""
    while True:
        message = await waiting.next(ANSWER_S)
        header = message.headers.get(SIGNATURE_HEADER, "")
        try:
            return verify_answer(message.body, header, request, name, key, root, now_ms=_now_ms())
        except SignatureError as err:
            doubts.append(err)


@asynccontextmanager
async def _connected(token: JoinToken, *, insecure: bool) -> AsyncIterator[Connection]:
    """Yield a connection with the token's credentials, which are on disk while it is open."""
    folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="ccm-join-"))
    try:
        creds, ca = folder / "token.creds", folder / "ca.pem"
        await asyncio.to_thread(_write, creds, credentials_text(token.jwt, token.seed).reveal())
        if token.ca:
            await asyncio.to_thread(_write, ca, token.ca)
        settings = settings_for(
            token.servers,
            identity=token.id,
            program="ccm join",
            creds=str(creds),
            ca=str(ca) if token.ca else "",
            insecure=insecure,
        )
        async with Connection(settings) as connection:
            await _connect(connection)
            yield connection
    finally:
        await asyncio.to_thread(shutil.rmtree, folder)


async def _connect(connection: Connection) -> None:
    try:
        await connection.connect_now()
    except BusDeniedError as err:
        if "refused our credentials" in err.message:
            raise _refused() from err
        raise
    except BusUnavailableError:
        # The connection retries in the background.
        try:
            async with asyncio.timeout(PATIENCE_S):
                await connection.wait_connected()
        except TimeoutError:
            raise connection.disconnect_error() from None


def _write(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")


def _refused() -> BusError:
    return JoinRefusedError(
        "the broker refused the token: it has expired, this host is not in its networks, or the broker belongs to another "
        "fleet; create another one with `ccmctl token create`"
    )


class JoinRefusedError(BusDeniedError):
    """The broker refused the credentials of a join token."""

    code = "join.broker_refused"


def _no_answer(doubts: list[SignatureError]) -> JoinError:
    if doubts:
        return JoinError(
            f"only answers arrived that the fleet of the token did not sign ({doubts[-1].message}); check the broker's address",
            code="join.untrusted_answer",
        )
    return JoinError(
        "no join service answered; run `ccmctl join serve`, then repeat the command", code="join.no_answer"
    )


def _now_ms() -> int:
    return int(time.time() * 1000)
