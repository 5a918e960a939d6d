"""
One process's connection to the broker, which is maintained in the background and reconnects without limit.

    async with Connection(settings) as connection:
        await connection.connect_now()      # a controller: connect now or fail
        ...                                 # an agent works without the broker meanwhile

Without a connection, every call that needs the broker fails immediately with BusUnavailableError. Nothing is buffered here,
because buffered messages could be sent twice. Subscriptions persist: each new connection restores them before it calls the
`on_connect` hooks.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import math
import random
import re
import time
from typing import TYPE_CHECKING

from ccm_agent.bus.access.denials import PUBLISH, denied, no_inbox
from ccm_agent.bus.connection.headers import format_headers
from ccm_agent.bus.connection.messages import Message, PendingReply, ServerInfo
from ccm_agent.bus.connection.server_rotation import ServerRotation
from ccm_agent.bus.connection.settings import replaced
from ccm_agent.bus.connection.subscription import Subscription
from ccm_agent.model.errors import (
    BusDeniedError,
    BusError,
    BusUnavailableError,
    CcmError,
    ProtocolError,
)
from ccm_agent.model.limited_log import LimitedLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType

    from ccm_agent.bus.connection.client import BusClient
    from ccm_agent.bus.connection.settings import BusSettings

log = logging.getLogger(__name__)

_ASK_AGAIN_S = 5.0
"""Seconds until a cancellation is repeated. Closing a connection takes less time."""

_TOLD_PAUSE_S = 10.0
"""A pause of more seconds is logged, because the agent would otherwise seem to hang."""

_DENIED = re.compile(r'permissions violation for (publish|subscription) to "(.*?)"')


class Connection:
    """
    A connection that reconnects automatically, with its operations.

    Attributes:
        connected: Whether the broker is connected and has all subscriptions.
        since: When `connected` last changed, by `time.monotonic`.
        server: The server at the other end; None before the first connection.
        last_error: Why the last attempt failed or the connection was lost; None while connected.
        denials: The number of operations that the broker refused.
        malformed: The number of messages dropped because their headers or subjects were malformed.
    """

    def __init__(self, settings: BusSettings, generator: random.Random | None = None) -> None:
        """
        Create the object without connecting.

        Args:
            settings: The settings of the connection.
            generator: Generates the order of the servers and the pauses; None creates one.
        """
        self.settings = settings
        self.since = time.monotonic()
        self.server: ServerInfo | None = None
        self.last_error: BusError | None = None
        self.denials = 0
        self.malformed = 0
        self._limited = LimitedLog(log)
        self._connections = 0
        self._client: BusClient | None = None
        self._up = asyncio.Event()
        self._down = asyncio.Event()
        self._down.set()
        self._tried = asyncio.Event()
        self._random = generator or random.Random()
        self._rotation = ServerRotation(settings, self._random)
        self._subscriptions: dict[Subscription, None] = {}
        self._hooks: dict[object, Callable[[], None]] = {}
        self._waiting: dict[str, PendingReply] = {}
        self._watching: dict[object, tuple[str, list[BusDeniedError]]] = {}
        self._count = 0
        self._inbox = ""
        self._answers: Subscription | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Connection:
        self._task = asyncio.create_task(self._run_forever(), name="bus:connection")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if task is not None:
            while not task.done():
                # Cancel again if the cancellation was lost; see `_round_trip`.
                task.cancel()
                await asyncio.wait([task], timeout=_ASK_AGAIN_S)

    @property
    def connected(self) -> bool:
        """Whether the broker is connected and has all subscriptions."""
        return self._up.is_set()

    @property
    def reconnects(self) -> int:
        """The number of times that a lost connection was restored."""
        return max(0, self._connections - 1)

    async def wait_connected(self) -> None:
        """Wait until the broker is connected, without a time limit."""
        await self._up.wait()

    async def wait_lost(self) -> None:
        """Wait until the connection is lost."""
        await self._down.wait()

    async def connect_now(self) -> None:
        """
        Return when connected, or raise after one failed attempt for each server.

        Raises:
            BusError: The connection failed; the message has the address and the reason.
        """
        up = asyncio.create_task(self._up.wait(), name="bus:up")
        tried = asyncio.create_task(self._tried.wait(), name="bus:tried")
        try:
            await asyncio.wait([up, tried], return_when=asyncio.FIRST_COMPLETED)
        finally:
            up.cancel()
            tried.cancel()
        if not self.connected:
            raise self.disconnect_error()

    def disconnect_error(self) -> BusError:
        """Return the error for a broker that is not connected."""
        return self.last_error or BusUnavailableError(f"{self.settings.address}: not connected yet")

    def on_connect(self, hook: Callable[[], None]) -> Callable[[], None]:
        """
        Call a function after each connect, once subscriptions are restored; it must not block.

        Use it to read again data that may have changed while disconnected. The returned function removes the hook.
        """
        key = object()
        self._hooks[key] = hook
        return lambda: self._hooks.pop(key, None) and None

    async def publish(
        self,
        subject: str,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        *,
        reply: str = "",
        confirm: bool = False,
    ) -> None:
        """
        Send a message.

        Args:
            subject: The subject.
            body: The message body.
            headers: The message headers.
            reply: The reply subject.
            confirm: Whether to wait until the broker has processed it, so that a refusal raises here; otherwise, it is only
                logged.

        Raises:
            BusUnavailableError: The broker is unavailable.
            BusDeniedError: The broker refused it (with `confirm`).
            ProtocolError: The message is larger than the broker accepts, or is not valid.
        """
        client = self._living()
        block = self._header_block(subject, headers) if headers else b""
        self._check_size(subject, len(block) + len(body))
        if not confirm:
            await self._send(client, subject, reply, block, body)
            return
        key, refusals = object(), list[BusDeniedError]()
        self._watching[key] = (subject, refusals)
        try:
            await self._send(client, subject, reply, block, body)
            await self._round_trip(client, self.settings.answer_s)
            if refusals:
                raise refusals[0]
        finally:
            self._watching.pop(key, None)

    async def request(
        self,
        subject: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        within_s: float = 0,
    ) -> Message:
        """
        Send a request, and return the first reply.

        Args:
            subject: The subject.
            body, headers: The request.
            within_s: Timeout in seconds; 0 uses `answer_s` of the settings.

        Raises:
            BusUnavailableError: The broker is unavailable, or did not answer in time.
            BusDeniedError: The broker refused the request.
            ProtocolError: The request is larger than the broker accepts.
        """
        with self.asking(subject) as waiting:
            await self.publish(subject, body, headers, reply=waiting.inbox)
            return await waiting.next(within_s or self.settings.answer_s)

    @contextlib.contextmanager
    def asking(self, subject: str) -> Iterator[PendingReply]:
        """Open an inbox for the replies to a request on a subject; publish with `reply=waiting.inbox` inside the block."""
        self._living()
        self._count += 1
        token = format(self._count, "x")
        off_at = self.server.url if self.server and not self.server.has_jetstream else ""
        waiting = PendingReply(subject, f"{self._inbox}.{token}", off_at)
        self._waiting[token] = waiting
        try:
            yield waiting
        finally:
            self._waiting.pop(token, None)

    async def subscribe(
        self, subjects: Sequence[str], on_message: Callable[[Message], None]
    ) -> list[Subscription]:
        """
        Subscribe to subjects, on this connection and every later one.

        While connected, this returns when the broker has accepted all subscriptions. Otherwise they start with the next
        connection; a refusal is then logged and set in `Subscription.denied`.

        Args:
            subjects: Patterns; each becomes one subscription.
            on_message: Called on the event loop; it must not block.

        Raises:
            BusDeniedError: The broker refused one of them; then all are removed.
        """
        made = [Subscription(subject, on_message) for subject in subjects]
        self._subscriptions.update(dict.fromkeys(made))
        client = self._client
        if client is None or not self.connected:
            return made
        try:
            await self._attach(client, made, self.settings.answer_s)
        except BusUnavailableError:
            return made  # the next connection subscribes
        except BaseException:
            await self.unsubscribe(made)
            raise
        refused = next((each.denied for each in made if each.denied), None)
        if refused is not None:
            await self.unsubscribe(made)
            raise refused
        return made

    async def unsubscribe(self, subscriptions: Sequence[Subscription]) -> None:
        """End subscriptions; unknown ones are ignored."""
        for each in subscriptions:
            self._subscriptions.pop(each, None)
            await each.detach()

    # --- lifecycle of connections ---

    async def _run_forever(self) -> None:
        """Connect, serve until the connection ends, and repeat until cancelled."""
        await asyncio.sleep(self._random.uniform(0, self.settings.first_spread_s))
        while True:
            began = time.monotonic()
            try:
                client = await self._connect()
                began = time.monotonic()
                await self._serve(client)
                self._rotation.ended(time.monotonic() - began)
            except CcmError as err:
                self._missed(err, time.monotonic() - began)
            except Exception as err:  # one iteration of a worker that must run for years
                log.exception("the connection failed unexpectedly")
                self._missed(
                    BusError(f"{self.settings.address}: {type(err).__name__}: {err}"),
                    time.monotonic() - began,
                )
            await self._pause()

    async def _pause(self) -> None:
        pause_s = self._rotation.pause_s()
        if pause_s >= _TOLD_PAUSE_S:
            log.warning(
                "connecting again later",
                extra={
                    "pause": f"{pause_s:.0f} s",
                    "failed_attempts": self._rotation.misses,
                    "error": str(self.last_error),
                },
            )
        await asyncio.sleep(pause_s)

    def _missed(self, err: CcmError, after_s: float) -> None:
        self._rotation.missed(err, after_s)
        was, self.last_error = self.last_error, err if isinstance(err, BusError) else BusError(str(err))
        if self._rotation.are_all_tried:
            self._tried.set()
        if self._rotation.misses == 1 or type(was) is not type(self.last_error):
            log.warning("no broker", extra={"error": str(err)})

    async def _connect(self) -> BusClient:
        # Importing nats takes 0.2 s, so it is imported late and in a thread.
        client_module = await asyncio.to_thread(importlib.import_module, "ccm_agent.bus.connection.client")
        settings = replaced(self.settings, connect_s=self._rotation.limit_s())
        client: BusClient = client_module.BusClient(settings, self._on_malformed)
        await client.open(self._rotation.next(), self._on_error)
        return client

    async def _serve(self, client: BusClient) -> None:
        """Restore all subscriptions on a new connection, and return when it has ended."""
        watched = [asyncio.create_task(client.ended.wait(), name="bus:ended")]
        if client.reading is not None:
            watched.append(client.reading)  # type: ignore[arg-type]
        try:
            await self._adopt(client)
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            self.last_error = BusUnavailableError(f"{self.settings.address}: the connection was lost")
            log.warning("connection to the broker lost", extra={"server": self.server and self.server.url})
        finally:
            watched[0].cancel()
            await self._release(client)

    async def _adopt(self, client: BusClient) -> None:
        self.server = client.server_info()
        self._client = client
        self._inbox = client.new_inbox()
        self._answers = Subscription(f"{self._inbox}.*", self._on_answer)
        # A broker that was slow to accept us is still slow, and a new connection would cost it more than this reply.
        within_s = max(self.settings.answer_s, self._rotation.limit_s())
        await self._attach(client, [self._answers], within_s)
        if self._answers.denied is not None:
            raise no_inbox(self.settings)
        # A caller may subscribe while earlier subscriptions are restored.
        while missing := [each for each in self._subscriptions if not each.is_attached(client)]:
            await self._attach(client, missing, within_s)
        self._connections += 1
        self.last_error = None
        self.since = time.monotonic()
        self._tried.clear()
        self._down.clear()
        self._up.set()
        log.info("connected to the broker", extra={"server": self.server and self.server.url})
        for hook in list(self._hooks.values()):
            try:
                hook()
            except Exception:  # an error in a hook must not end the connection
                log.exception("a hook of the connection failed")

    async def _attach(
        self, client: BusClient, subscriptions: Sequence[Subscription], within_s: float
    ) -> None:
        """Subscribe, and return when the broker has accepted or refused each subscription."""
        import nats.errors

        try:
            for each in subscriptions:
                await each.attach(client)
        except (nats.errors.Error, OSError) as err:
            raise BusUnavailableError(f"{self.settings.address}: subscribing failed: {err}") from err
        await self._round_trip(client, within_s)

    async def _release(self, client: BusClient) -> None:
        """Release a connection: fail pending calls and free its resources, in bounded time even with a dead peer."""
        lost = client.ended.is_set()
        self._rotation.learn(server.geturl() for server in client.discovered_servers)
        self._client = None
        if self._up.is_set():
            self._up.clear()
            self._down.set()
            self.since = time.monotonic()
        away = (
            self.disconnect_error()
            if lost
            else BusUnavailableError("the connection to the broker is being closed")
        )
        for waiting in self._waiting.values():
            waiting.receive(away)
        await client.disconnect()

    # --- errors of the broker ---

    def _on_answer(self, message: Message) -> None:
        waiting = self._waiting.get(message.subject.rpartition(".")[2])
        if waiting is not None:
            waiting.receive(message)

    def _on_malformed(self, subject: str, reason: str) -> None:
        self.malformed += 1
        self._limited.warning("a malformed message is dropped", extra={"subject": subject, "reason": reason})

    async def _on_error(self, err: Exception) -> None:
        """Handle errors that nats-py reports outside of a call. Refusals arrive only here, after the call that caused them."""
        found = _DENIED.search(str(err))
        if found is None:
            log.debug("the client reports", extra={"error": f"{type(err).__name__}: {err}"})
            return
        kind, subject = found[1], found[2]  # in lower case, because nats-py converts the broker's text
        self.denials += 1
        word = PUBLISH if kind == "publish" else "subscribe to it"
        told = False
        if kind == "publish":
            for waiting in list(self._waiting.values()):
                if waiting.subject.lower() == subject:
                    waiting.receive(denied(self.settings, word, waiting.subject))
                    told = True
            for watched, refusals in self._watching.values():
                if watched.lower() == subject:
                    refusals.append(denied(self.settings, word, watched))
                    told = True
        else:
            for each in (*self._subscriptions, *([self._answers] if self._answers else [])):
                if each.subject.lower() == subject:
                    each.denied = denied(self.settings, word, each.subject)
        if not told:
            self._limited.warning("the broker refuses", extra={"operation": word, "subject": subject})

    # --- helpers ---

    def _living(self) -> BusClient:
        client = self._client
        if client is None or not self.connected or client.ended.is_set():
            raise BusUnavailableError(str(self.disconnect_error()))
        return client

    def _header_block(self, subject: str, headers: Mapping[str, str]) -> bytes:
        try:
            return format_headers(headers)
        except ProtocolError as err:
            raise ProtocolError(f"{subject}: not sent: {err.message}") from err

    def _check_size(self, subject: str, size: int) -> None:
        """Check the size including headers. The broker closes the connection if a message is too large."""
        limit = self.server.max_payload_bytes if self.server else size
        if size > limit:
            raise ProtocolError(
                f"{subject}: the message is too large: {size} bytes, but the broker accepts at most {limit}; raise its "
                "`max_payload` or send less"
            )

    async def _send(self, client: BusClient, subject: str, reply: str, block: bytes, body: bytes) -> None:
        import nats.errors

        try:
            await client.send(subject, reply, block, body)
        except (nats.errors.Error, OSError) as err:
            if client.ended.is_set() or not client.is_connected:
                raise BusUnavailableError(str(self.disconnect_error())) from err
            raise ProtocolError(f"{subject}: cannot be sent: {err}") from err

    async def _round_trip(self, client: BusClient, within_s: float) -> None:
        """Wait until the broker has processed everything sent before."""
        import nats.errors

        task = asyncio.current_task()
        asked = task.cancelling() if task else 0
        try:
            async with asyncio.timeout(within_s):
                await client.flush(math.ceil(within_s))
        except (TimeoutError, nats.errors.Error, OSError) as err:
            raise BusUnavailableError(
                f"{self.settings.address}: the broker did not answer: {err or 'too slow'}"
            ) from err
        if task and task.cancelling() > asked:
            # nats-py uses `wait_for`, which in Python 3.11 can lose a cancellation that arrives with the result.
            raise asyncio.CancelledError
        if client.ended.is_set():
            raise BusUnavailableError(f"{self.settings.address}: the connection was lost")
