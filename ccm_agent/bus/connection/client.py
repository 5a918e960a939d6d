"""
nats-py's client, with overrides. This is the only module that uses its private names.

A `BusClient` serves one connection and never reconnects: when it ends, `bus.connection.connection` creates another one. So
there is only one way to recover from a failure: a lost server, an `-ERR` that closes nats-py's client permanently, or expired
credentials. Messages queued for a dead connection are never sent later, or twice, on the next one. Each override states its
purpose. If an override is removed, a test in tests/nats or tests/contract/bus fails.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from ccm_agent.bus.connection import websockets
from ccm_agent.bus.connection.broker_errors import plain_reason
from ccm_agent.bus.connection.headers import MalformedHeadersError, broker_headers, parse_headers
from ccm_agent.bus.connection.late_imports import late_imports
from ccm_agent.bus.connection.messages import Message, ServerInfo
from ccm_agent.bus.connection.parser import Parser
from ccm_agent.bus.connection.settings import read_seed
from ccm_agent.model.errors import (
    BusDeniedError,
    BusError,
    BusSetupError,
    BusUnavailableError,
    ProtocolError,
)
from ccm_agent.model.secret import Secret

with late_imports():
    import nats.aio.client
    import nats.errors
    from nats.aio.transport import TcpTransport

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nats.aio.msg import Msg

    from ccm_agent.bus.connection.settings import BusSettings

log = logging.getLogger(__name__)

PING = b"PING\r\n"

_NO_SUBJECT = re.compile(r"[\s\0]")

MAX_MISSED_PINGS = 2

_ACCEPT = "accept it: `insecure: true` in the agent's configuration (`--insecure` for ccmctl, CCM_INSECURE=1 for ccm)"

GOODBYE_S = 1.0
"""Seconds that a graceful close may take."""


class RefusedBrokerError(nats.errors.Error):
    """The broker does not meet our security requirements; `reason` is the error to raise."""

    def __init__(self, reason: BusError) -> None:
        self.reason = reason
        super().__init__(str(reason))


class _Listener:
    """Used instead of nats-py's future for one answer; receives each message as it is read."""

    def __init__(self, on_message: Callable[[Message], None]) -> None:
        self.on_message = on_message


class BusClient(nats.aio.client.Client):
    """
    One connection to one server.

    Attributes:
        ended: Set when the connection has ended, before nats-py's cleanup, which can take minutes with a dead peer.
    """

    def __init__(
        self, settings: BusSettings, on_malformed: Callable[[str, str], None] = lambda subject, reason: None
    ) -> None:
        """
        Create a client without connecting.

        Args:
            settings: The settings of the connection.
            on_malformed: Called with the subject of each dropped malformed message, and the reason.
        """
        super().__init__()
        self.ended = asyncio.Event()
        self._settings = settings
        self._on_malformed = on_malformed
        self._inbox_beginning = f"{settings.inbox_prefix}."
        self._parser = Parser(self)
        self._ps = cast("Any", self._parser)
        self._met: OSError | None = None

    async def open(self, url: str, on_error: Callable[[Exception], Awaitable[None]]) -> None:
        """
        Connect to one server.

        Raises:
            BusError: The connection failed and is closed; the message has the reason.
        """
        settings = self._settings
        try:
            if urlsplit(url).scheme in websockets.SCHEMES:
                await asyncio.to_thread(websockets.load_websockets)
            async with asyncio.timeout(settings.connect_s):
                options = self._limits() | self._credentials() | await self._tls(url)
                await self.connect(
                    servers=[url],
                    name=settings.program,
                    inbox_prefix=settings.inbox_prefix,
                    error_cb=on_error,
                    allow_reconnect=False,
                    **options,
                )
            if not self.is_connected:
                await self.close()
                raise nats.errors.ConnectionClosedError
        except BaseException as err:
            self.abort()
            if isinstance(err, Exception):
                raise self._explained(url, err) from err
            raise

    def _read_creds_user_nkey(self, creds: Any) -> bytearray:
        """Override: nats-py reads each byte with its own system call."""
        return read_seed(Path(creds))

    async def _connect_to_server(self, s: Any) -> None:
        """Override: remember the cause of a failure, because nats-py reports only "no servers"."""
        try:
            await super()._connect_to_server(s)
        except OSError as err:
            self._met = err
            raise

    async def _process_connect_init(self) -> None:
        """Override: handle a ping of an overloaded broker before its pong. nats-py would then never send anything again."""
        transport = cast("Any", self._transport)
        read = transport.readline
        # The server's first INFO is for nats-py.
        transport.readline = lambda: self._parser.read_reply(read) if self._server_info else read()
        try:
            await super()._process_connect_init()
        finally:
            transport.readline = read

    async def listen(self, subject: str, on_message: Callable[[Message], None]) -> Any:
        """
        Subscribe, and call `on_message` for each message as it is read; it must not raise.

        nats-py gives each subscription with a callback its own queue and task. If one packet has messages for two subscriptions,
        it would handle all messages of the first before those of the second. A stop could then be handled before its apply.
        """
        return await self.subscribe(subject, future=cast("asyncio.Future[Msg]", _Listener(on_message)))

    async def send(self, subject: str, reply: str, block: bytes, body: bytes) -> None:
        """
        Send a message with a formatted block of headers, which may be empty.

        nats-py's `publish` formats each header in several steps, which takes longer than sending the message.

        Raises:
            nats.errors.Error: A subject is not valid, or the connection has ended.
        """
        if not subject or _NO_SUBJECT.search(f"{subject}{reply}"):
            raise nats.errors.BadSubjectError
        if not self.is_connected:
            raise nats.errors.ConnectionClosedError
        size = len(block) + len(body)
        head = (
            f"HPUB {subject} {reply} {len(block)} {size}\r\n"
            if block
            else f"PUB {subject} {reply} {size}\r\n"
        )
        await self._send_command(b"".join((head.encode(), block, body, b"\r\n")))
        if self._flush_queue is not None and self._flush_queue.empty():
            await self._flush_pending()

    def abort(self) -> None:
        """Drop the connection immediately and discard unsent messages; safe to call at any time."""
        transport = self._transport
        for name in ("_io_writer", "_bare_io_writer"):
            writer = getattr(transport, name, None)
            if writer is not None:
                writer.transport.abort()

    async def disconnect(self) -> None:
        """Close the connection, gracefully if possible, within a time limit even if the peer is dead."""
        try:
            async with asyncio.timeout(GOODBYE_S):
                if not self.ended.is_set():
                    await self.flush()
                    await self.close()
        except (TimeoutError, OSError, nats.errors.Error) as err:
            log.debug("the connection was not closed cleanly", extra={"error": str(err)})
        finally:
            self.abort()
            await self.close()

    @property
    def info(self) -> dict[str, Any]:
        """The server's information about itself."""
        return dict(self._server_info)

    def server_info(self) -> ServerInfo:
        """The parsed information about the server."""
        info = self.info
        connected = self.connected_url
        numbers = re.findall(r"\d+", str(info.get("version", "")).partition("-")[0])[:3]
        major, minor, patch = (*map(int, numbers), 0, 0, 0)[:3]
        return ServerInfo(
            url=connected.geturl() if connected else self._settings.address,
            name=str(info.get("server_name", "")),
            id=str(info.get("server_id", "")),
            version=(major, minor, patch),
            cluster=str(info.get("cluster", "")) if info.get("cluster") != info.get("server_name") else "",
            domain=str(info.get("domain", "")),
            max_payload_bytes=int(info.get("max_payload", 1 << 20)),
            has_jetstream=bool(info.get("jetstream")),
            asks_credentials=bool(info.get("auth_required")),
            is_loopback=self.is_loopback,
            is_encrypted=self.is_encrypted,
            certificate_ends=self.certificate_ends,
        )

    @property
    def reading(self) -> asyncio.Task[None] | None:
        """The task that reads; nats-py does not notice if it fails."""
        task: asyncio.Task[None] | None = self._reading_task
        return task

    def _limits(self) -> dict[str, Any]:
        return {
            # Together these make nats-py try once; it has no setting for that.
            "max_reconnect_attempts": 1,
            "reconnect_time_wait": 0,
            "connect_timeout": self._settings.connect_s,
            "ping_interval": self._settings.ping_s,
            "max_outstanding_pings": MAX_MISSED_PINGS,
            "pending_size": 0,
        }

    def _credentials(self) -> dict[str, Any]:
        settings = self._settings
        if settings.creds:
            return {"user_credentials": settings.creds}
        if settings.nkey:
            return {"nkeys_seed": settings.nkey}
        if settings.user:
            return {"user": settings.user, "password": (settings.password or Secret("")).reveal()}
        if settings.token:
            return {"token": settings.token.reveal()}
        return {}

    async def _tls(self, url: str) -> dict[str, Any]:
        settings = self._settings
        if not settings.demands_tls:
            return {}

        def context() -> ssl.SSLContext:
            try:
                made = ssl.create_default_context(cafile=settings.ca or None)
                if settings.cert:
                    made.load_cert_chain(settings.cert, settings.key or None)
            except (OSError, ValueError) as err:
                files = ", ".join(path for path in (settings.ca, settings.cert, settings.key) if path)
                raise BusSetupError(f"{files}: cannot be used for TLS: {err}") from err
            return made

        tls: dict[str, Any] = {
            "tls": await asyncio.to_thread(context),
            "tls_hostname": settings.tls_hostname or self._certified_name(url),
        }
        if settings.tls_first:
            tls["tls_handshake_first"] = True
        return tls

    def _certified_name(self, url: str) -> str | None:
        """
        Return the host name to verify in the server's certificate: for cluster members known by IP address, the configured
        name.
        """
        host = urlsplit(url).hostname
        if url not in self._settings.servers and host and _is_number(host):
            return urlsplit(self._settings.servers[0]).hostname
        return host

    def _explained(self, url: str, err: Exception) -> BusError:
        """Return the cause of a failure as one of our errors. nats-py's text is kept only if it is the server's message."""
        if isinstance(err, BusError):
            return err
        if isinstance(err, RefusedBrokerError):
            return err.reason
        # nats-py reports "no servers" for the one server that it was given; its earlier error is the cause
        met: Exception = err
        if isinstance(err, nats.errors.NoServersError):
            met = self._met or self.last_error or err
        text = str(met).removeprefix("nats: ").strip("'\"")
        lowered = text.lower()
        if "authentication timeout" in lowered:
            return BusUnavailableError(
                f"{url}: cannot connect to the broker: it did not check our credentials in time; it may be overloaded"
            )
        if "authorization violation" in lowered or "authentication" in lowered:
            return BusDeniedError(f"{url}: the broker refused our credentials; {self._which_credentials()}")
        if isinstance(met, ssl.SSLError):
            return BusDeniedError(
                f"{url}: the TLS handshake with this broker failed: {met.reason or met}; check `ca` and the broker's name"
            )
        if isinstance(met, FileNotFoundError | PermissionError) and met.filename:
            return BusSetupError(f"{met.filename}: credentials cannot be read: {met.strerror}")
        if isinstance(met, (OSError, TimeoutError, nats.errors.Error)):
            why = plain_reason(met) or text or f"no answer in {self._settings.connect_s:g} s"
            return BusUnavailableError(
                f"{url}: cannot connect to the broker: {why}; check that it is running"
            )
        if (path := self._settings.creds or self._settings.nkey) and isinstance(met, (TypeError, ValueError)):
            return BusSetupError(
                f"{path}: contains no credentials; create some with `ccmctl node add` or `ccmctl operator add`"
            )
        return BusSetupError(f"{url}: cannot connect: {type(met).__name__}; {self._which_credentials()}")

    def _which_credentials(self) -> str:
        settings = self._settings
        if settings.creds or settings.nkey:
            return f"the credentials are from {settings.creds or settings.nkey}"
        if settings.user:
            return f"the user is {settings.user}"
        return "a token was sent" if settings.token else "no credentials were sent"

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        """
        Override: fail pending calls before the cleanup, stop sending, and leave no task behind.

        nats-py first waits for the transport. With a dead peer, this takes as long as TCP retries. It never wakes callers that
        wait for a pong.
        """
        self.ended.set()
        self._pending.clear()
        self._pending_data_size = 0
        for waiting in self._pongs:
            if not waiting.done():
                waiting.set_result(False)
        subscriptions = list(self._subs.values())
        try:
            await super()._close(status, do_cbs)
        except (OSError, RuntimeError) as err:
            log.debug("cleanup of a lost connection failed", extra={"error": str(err)})
        finally:
            for subscription in subscriptions:
                subscription._stop_processing()

    async def _send_ping(self, future: asyncio.Future[bool] | None = None) -> None:
        """Override: queue a ping after earlier messages. nats-py's ping overtakes them, so its pong would not confirm them."""
        self._pongs.append(future or asyncio.get_running_loop().create_future())
        await self._send_command(PING)
        await self._flush_pending()

    async def _flush_pending(self, force_flush: bool = False) -> Any:
        """
        Override: write immediately over TCP while the kernel accepts all data.

        nats-py wakes a task for each message, which costs more than the message.
        """
        writer = self._transport._io_writer if isinstance(self._transport, TcpTransport) else None
        if writer is None or not self.is_connected or writer.transport.get_write_buffer_size():
            return await super()._flush_pending(force_flush)
        commands, self._pending, self._pending_data_size = self._pending, [], 0
        writer.write(b"".join(commands))
        return None

    async def _process_pong(self) -> None:
        """Override: accept the pong for a ping whose sender was cancelled. It would otherwise end nats-py's reading task."""
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()

    def _connect_command(self) -> bytes:
        """
        Override: check the broker before credentials are sent. Without TLS on the server, nats-py would send them unencrypted.
        """
        refused = self._why_refused()
        if refused is not None:
            raise RefusedBrokerError(refused)
        command: bytes = super()._connect_command()
        return command

    def _why_refused(self) -> BusError | None:
        info, settings = self._server_info, self._settings
        server = self._current_server
        where = server.uri.geturl() if server else settings.address
        if settings.demands_tls and not self.is_encrypted:
            return BusDeniedError(
                f"{where}: this broker offers no TLS, and your settings require it; give the broker a certificate"
            )
        if settings.insecure:
            return None
        if not info.get("auth_required") and settings.has_credentials:
            # This also applies on loopback, where any local user can take the port of a broker that is down.
            return BusDeniedError(
                f"{where}: this broker requires no credentials, but you supplied some, so it may be an impostor. "
                f"Check the URL and which program listens there, or {_ACCEPT}"
            )
        if self.is_loopback:
            return None
        if not info.get("auth_required"):
            return BusDeniedError(
                f"{where}: this broker requires no credentials, so anyone who can reach it can command its nodes. "
                f"Configure users on it, or {_ACCEPT}"
            )
        if not self.is_encrypted:
            return BusDeniedError(
                f"{where}: this broker does not offer TLS, so anyone on the network path can read and change messages. "
                "Give the broker a certificate and set `ca` to its authority (`ccmctl init --security --server-name HOST` "
                f"creates both), or {_ACCEPT}"
            )
        return None

    @property
    def is_loopback(self) -> bool:
        """Whether the peer's address is on this machine; the host name is not considered."""
        peer = self._of_transport("peername")
        try:
            address = ipaddress.ip_address(peer[0])
        except (TypeError, IndexError, ValueError):
            return False
        # `::ffff:127.0.0.1`, which Python before 3.13 does not treat as loopback
        mapped = getattr(address, "ipv4_mapped", None)
        return (mapped or address).is_loopback

    @property
    def is_encrypted(self) -> bool:
        """Whether this connection uses TLS, with a verified certificate."""
        return self._of_transport("ssl_object") is not None

    @property
    def certificate_ends(self) -> datetime | None:
        """When the server's certificate expires; None without TLS."""
        tls = self._of_transport("ssl_object")
        text = (tls.getpeercert() or {}).get("notAfter") if tls is not None else None
        return datetime.fromtimestamp(ssl.cert_time_to_seconds(text), UTC) if text else None

    def _of_transport(self, name: str) -> Any:
        """Return asyncio's extra information about the connection, over TCP or a websocket; None without a connection."""
        for field in ("_io_writer", "_ws"):
            stream = getattr(self._transport, field, None)
            if stream is not None:
                return stream.get_extra_info(name)
        return None

    def deliver(self, sid: int, subject: bytes, reply: bytes, body: bytes, block: bytes) -> None:
        """
        Pass a message to its subscription. This replaces nats-py's `_process_msg`. That method raises on some header blocks of
        eight bytes, which ends the reading task. It also repairs broken lines, and takes several times as long.

        A message whose header block, subject or reply subject is malformed is dropped. A reply to our own request is still
        delivered, with the headers that the broker appended, and marked as a copy. A stored message may have a malformed block,
        and the reader of a stream counts the messages.
        """
        subscription = self._subs.get(sid)
        if subscription is None:
            return
        try:
            text, reply_text = subject.decode(), reply.decode()
            if not (text.isprintable() and reply_text.isprintable()):
                raise ProtocolError("its subject or reply subject contains control characters")
            headers = self._parse_headers(block, text) if block else {}
        except (UnicodeDecodeError, ProtocolError) as err:
            self._on_malformed(subject.decode("utf-8", "replace"), str(err))
            return
        listener = cast("_Listener", subscription._future)
        listener.on_message(Message(subject=text, body=body, headers=headers, reply=reply_text))

    def _parse_headers(self, block: bytes, subject: str) -> dict[str, str]:
        try:
            return parse_headers(block)
        except MalformedHeadersError:
            if subject.startswith(self._inbox_beginning):
                return broker_headers(block)
            raise


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
