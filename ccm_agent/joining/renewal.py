"""
Renews the credentials of a node at two thirds of their lifetime, over the existing connection.

The new credentials replace the file. The broker closes the connection when the old credentials expire, and the next connection
reads the new file. The new certificate is announced immediately, so that readers have it before the old one expires.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ccm_agent.bus.signatures.join import JoinError, make_credentials, sign_request, verify_answer
from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER, SignatureError, SigningKey, read_claims
from ccm_agent.joining.membership import read_membership
from ccm_agent.model.errors import BusError, CcmError, FileError
from ccm_agent.model.records.join import ANSWER_S, JoinAnswer, JoinState
from ccm_agent.storage.journal import replace_file
from ccm_agent.version import VERSION

if TYPE_CHECKING:
    from ccm_agent.bus.connection.connection import Connection
    from ccm_agent.joining.membership import Membership

log = logging.getLogger(__name__)

LOOK_S = 3600.0
"""The longest sleep, so that a change of the clock takes effect soon."""


class CredentialRenewal:
    """
    Keeps one credentials file valid.

    Attributes:
        told: The error code of the last failed attempt; "" if no attempt has failed.
    """

    def __init__(self, connection: Connection, path: Path, now_s: Callable[[], float] = time.time) -> None:
        """
        Manage a credentials file.

        Args:
            connection: The node's connection to the broker.
            path: The credentials file.
            now_s: Returns the time in seconds since 1970.
        """
        self._connection = connection
        self._path = path
        self._now_s = now_s
        self.told = ""

    async def run(self, on_renewed: Callable[[], None]) -> None:
        """
        Renew until cancelled; returns immediately if the credentials do not expire, or if the fleet did not certify the key.
        """
        while True:
            try:
                member = await asyncio.to_thread(read_membership, self._path)
            except CcmError:
                return  # the connection reports the problem with the file
            if member is None or not member.expires or not member.certificate:
                return
            lifetime_s = member.expires - issued_s(member)
            if member.expires <= self._now_s():
                self._tell(
                    "join.expired",
                    "the credentials of this node have expired; run `ccm join` with a token from `ccmctl token create`: "
                    "the node keeps its identity and state",
                )
            elif self._now_s() >= due_s(member) and self._connection.connected:
                await self._try(member, on_renewed)
            await asyncio.sleep(self._pause_s(member, lifetime_s))

    async def _try(self, member: Membership, on_renewed: Callable[[], None]) -> None:
        try:
            answer = await self._ask(member)
            if answer.state is not JoinState.JOINED:
                raise JoinError(answer.message[:500], code=answer.code[:60] or "join.refused")
            body = make_credentials(answer, member.seed, member.root)
            await asyncio.to_thread(self._write, body)
        except (JoinError, BusError, FileError) as err:
            self._tell(err.code, err.message)
            return
        self.told = ""
        log.info("the credentials were renewed", extra={"expires": answer.expires})
        on_renewed()

    async def _ask(self, member: Membership) -> JoinAnswer:
        """Return the first answer that the fleet signed."""
        key, now_ms = SigningKey(member.seed), int(self._now_s() * 1000)
        request = sign_request(key, member.name, now_ms, VERSION, certificate=member.certificate)
        with self._connection.asking(request.subject) as waiting:
            await self._connection.publish(
                request.subject, request.body, request.headers, reply=waiting.inbox
            )
            while True:
                message = await waiting.next(ANSWER_S)
                header = message.headers.get(SIGNATURE_HEADER, "")
                try:
                    return verify_answer(
                        message.body, header, request, member.name, key.public_key, member.root, now_ms=now_ms
                    )
                except SignatureError as err:
                    log.info("an answer to a renewal was ignored", extra={"reason": err.message})

    def _write(self, body: bytes) -> None:
        try:
            replace_file(self._path, [body])
        except OSError as err:
            raise FileError(f"{self._path}: cannot be written: {err.strerror}", errno=err.errno or 0) from err

    def _pause_s(self, member: Membership, lifetime_s: float) -> float:
        """
        Return the time until the renewal is due. Once it is due, return a hundredth of the lifetime, so that the nodes of a
        fleet do not send requests at the same time.
        """
        left_s = due_s(member) - self._now_s()
        wait_s = left_s + 1 if left_s > 0 else lifetime_s / 100
        return min(max(wait_s, 1.0) * random.uniform(1.0, 1.2), LOOK_S)

    def _tell(self, code: str, message: str) -> None:
        """Log a reason once, until the reason changes."""
        if code != self.told:
            log.warning("the credentials cannot be renewed", extra={"code": code, "reason": message})
        self.told = code


def issued_s(member: Membership) -> float:
    """Return when the credentials were issued, in seconds since 1970."""
    try:
        return read_claims(member.certificate).issued / 1000
    except SignatureError:
        return member.expires


def due_s(member: Membership) -> float:
    """Return when the credentials should be renewed: at two thirds of their lifetime."""
    begins_s = issued_s(member)
    return begins_s + (member.expires - begins_s) * 2 / 3
