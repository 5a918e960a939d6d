"""
Removes this host from its fleet: the join service removes the stored data of the node, and then the files of `ccm join` are
removed.

    leave.json     the request to the fleet and its result, before any file is removed
    node.creds     the credentials, with the key
    ca.pem         the broker's CA certificate
    config.yaml    the lines that `ccm join` added; then `leave.json` is removed

After an interruption at any step, the command can be repeated. The state directory is kept: an administrator may need it, and a
node that joins again under its name uses it.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from msgspec import Struct

from ccm_agent.agent.state.settings import BrokerSettings
from ccm_agent.agent.state.state_folder import StateLock
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.settings import settings_for
from ccm_agent.bus.signatures.join import JoinError, sign_request, verify_answer
from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER, SignatureError, SigningKey
from ccm_agent.joining.membership import (
    JoinPlaces,
    Membership,
    choose_name,
    forget_configuration,
    forget_files,
    read_membership,
    read_settings,
)
from ccm_agent.model.errors import BusError, BusUnavailableError, FileError, LockError
from ccm_agent.model.formats.json_text import encode_message
from ccm_agent.model.records.join import JoinAnswer, JoinState
from ccm_agent.storage.journal import replace_file
from ccm_agent.storage.state_file import StateFile
from ccm_agent.version import VERSION

ANSWER_S = 5.0
"""How long one attempt waits; the service does not repeat answers."""

VOID = frozenset({"join.certificate", "join.revoked", "join.name_taken"})
"""Refusals that further attempts cannot change: the credentials are already invalid."""


class LeftHost(Struct, frozen=True, kw_only=True):
    """
    A host that no longer belongs to a fleet.

    Attributes:
        name: The node.
        was_member: Whether it had credentials of a node, or `ccm join` had configured it.
        is_told: Whether the fleet removed its stored data of the node.
        reason: Why the fleet did not remove it; "" if it did.
        removed: The files that were removed or changed by this call.
        kept: The paths that were kept.
    """

    name: str
    was_member: bool
    is_told: bool
    reason: str = ""
    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


class _Told(Struct, frozen=True, kw_only=True):
    """The result of the request to the fleet; `reason` is None if the request was not sent yet."""

    name: str
    is_told: bool = False
    reason: str | None = None


def leave_fleet(places: JoinPlaces, *, wait_s: float) -> LeftHost:
    """
    Leave the fleet. This can be repeated after an interruption at any step.

    Args:
        places: The paths of the files.
        wait_s: How long the broker and the join service may be unavailable. After that, only this host's files are removed.

    Raises:
        LockError: The agent is running.
        JoinError: The join service refused the request, but may accept a later one. Nothing was removed.
        CcmError: A file cannot be used.
    """
    settings = read_settings(places)
    state = Path(settings.state_dir) if settings is not None else places.state
    lock = StateLock(state)
    has_state = state.exists()
    if has_state:
        try:
            lock.take()
        except LockError as err:
            raise LockError(
                f"{err.message.partition(';')[0]}; stop the agent first: `systemctl disable --now ccm-agent`"
            ) from err
    try:
        told = _tell(places, settings.broker if settings is not None else None, wait_s)
        removed = forget_files(places)
        if forget_configuration(places):
            removed.append(places.config)
        _forget(places)
    finally:
        lock.release()
    kept = [path for path in (state, places.config) if path.exists()]
    return LeftHost(
        name=told.name,
        was_member=bool(told.is_told or removed),
        is_told=told.is_told,
        reason=told.reason or "",
        removed=tuple(map(str, removed)),
        kept=tuple(map(str, kept)),
    )


def _tell(places: JoinPlaces, broker: BrokerSettings | None, wait_s: float) -> _Told:
    """Request that the fleet remove the data that it stores about this node. The returned result is on disk."""
    known = StateFile(places.leaving, _Told).load()
    if known is not None and known.reason is not None:
        return known
    member = read_membership(places.credentials)
    name = member.name if member is not None else choose_name(places, "")
    if member is None or broker is None or not broker.servers:
        told = _Told(name=name, reason="this host has no credentials of a joined node")
        return told if known is None else _keep(places, told)
    _keep(places, _Told(name=name))
    try:
        asyncio.run(_ask(member, _settings(broker, member, places), wait_s))
        told = _Told(name=name, is_told=True, reason="")
    except JoinError as err:
        if err.code not in VOID:
            _forget(places)
            raise
        told = _Told(name=name, reason=err.message)
    except BusError as err:
        told = _Told(name=name, reason=err.message)
    return _keep(places, told)


def _settings(broker: BrokerSettings, member: Membership, places: JoinPlaces) -> Any:
    tls = broker.tls
    return settings_for(
        broker.servers,
        identity=member.name,
        program="ccm leave",
        creds=str(places.credentials),
        ca=tls.ca if tls is not None else "",
        cert=tls.cert if tls is not None else "",
        key=tls.key if tls is not None else "",
        insecure=broker.insecure,
    )


async def _ask(member: Membership, settings: Any, wait_s: float) -> None:
    """
    Wait until the fleet has removed its stored data of the node.

    Raises:
        JoinError: The join service refused.
        BusError: The broker or the join service is unavailable, or the broker does not accept the credentials.
    """
    until = time.monotonic() + wait_s
    async with Connection(settings) as connection:
        try:
            await connection.connect_now()
        except BusUnavailableError:
            # The connection retries in the background.
            try:
                async with asyncio.timeout(wait_s):
                    await connection.wait_connected()
            except TimeoutError:
                raise connection.disconnect_error() from None
        while True:
            try:
                answer = await _answer(connection, member)
                break
            except BusUnavailableError:
                if time.monotonic() > until:
                    raise
            await asyncio.sleep(1)
    if answer.state is not JoinState.LEFT:
        raise JoinError(answer.message[:500], code=answer.code[:60] or "join.refused")


async def _answer(connection: Connection, member: Membership) -> JoinAnswer:
    """Return the first answer that the fleet signed. Other answers, which anyone on the broker can send, are ignored."""
    key, now_ms = SigningKey(member.seed), int(time.time() * 1000)
    request = sign_request(key, member.name, now_ms, VERSION, certificate=member.certificate, is_leaving=True)
    with connection.asking(request.subject) as waiting:
        await connection.publish(request.subject, request.body, request.headers, reply=waiting.inbox)
        while True:
            message = await waiting.next(ANSWER_S)
            header = message.headers.get(SIGNATURE_HEADER, "")
            try:
                return verify_answer(
                    message.body,
                    header,
                    request,
                    member.name,
                    key.public_key,
                    member.root,
                    now_ms=int(time.time() * 1000),
                )
            except SignatureError:
                continue


def _keep(places: JoinPlaces, told: _Told) -> _Told:
    try:
        replace_file(places.leaving, [encode_message(told)])
    except OSError as err:
        raise FileError(
            f"{places.leaving}: cannot be written: {err.strerror}; run this as root, or name a directory with --state"
        ) from err
    return told


def _forget(places: JoinPlaces) -> None:
    try:
        places.leaving.unlink(missing_ok=True)
    except OSError as err:
        raise FileError(f"{places.leaving}: cannot be removed: {err.strerror}; remove it manually") from err
