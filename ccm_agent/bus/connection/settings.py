"""
Settings of a broker connection: addresses, credentials and limits, from a configuration or a context of the `nats` program.

This module does not connect and does not show secrets: passwords and tokens are `Secret` from the moment they are read,
including those in a URL.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec
from msgspec import Struct

from ccm_agent.bus.subjects import inbox_prefix
from ccm_agent.model.codec import decode_json
from ccm_agent.model.errors import DocumentError, NotFoundError, Place, UsageError
from ccm_agent.model.secret import Secret, mask_url

DEFAULT_SERVER = "nats://127.0.0.1:4222"

_SCHEMES = ("nats", "tls", "ws", "wss")
_UNSUPPORTED = (
    "nsc",
    "user_jwt",
    "user_seed",
    "jetstream_domain",
    "jetstream_api_prefix",
    "socks_proxy",
    "windows_cert_store",
)
_SEED_MARK = b"BEGIN USER NKEY SEED"
_CONTEXT_NAME = re.compile(r"[^/\0]+")


class BusSettings(Struct, frozen=True, kw_only=True):
    """
    The settings of a connection.

    Attributes:
        servers: URLs without credentials (`settings_for` removes them); each of them leads to the cluster.
        identity: The node's identity or the operator's name; replies arrive at an inbox with this name.
        program: The connection's name in the broker's list.
        user, password, token: Credentials of these kinds.
        creds: File with a user's JWT and seed, as `nsc` and `ccmctl node add` write it; read again for each connection.
        nkey: File with a seed; also read again for each connection.
        ca, cert, key: PEM files for TLS; any of them, or a `tls://` URL, makes TLS mandatory.
        tls_first: Whether TLS begins before the server sends its information.
        tls_hostname: The name the server's certificate must have; "" uses the name in the URL.
        inbox: Prefix for replies, instead of the one derived from `identity`; usually "".
        insecure: Whether to accept a broker that requires no credentials or offers no TLS, on any host.
        answer_s: Timeout for the broker's replies.
        connect_s: How long the first attempts to connect may take.
        longest_connect_s: How long later attempts may take; the limit doubles with each round of all servers.
        ping_s: The interval of pings on an idle connection; after two missing pongs, the connection is considered lost.
        spread_s: The longest random wait before the first attempt after a loss, so that the nodes of a fleet do not reconnect
            at the same time.
        first_spread_s: The same for the very first attempt.
        pause_s: The longest random pause between two attempts while the broker is down; the limit starts at half a second and
            doubles with each round.
        longest_pause_s: The same while the broker is overloaded; the limit starts at `pause_s` and doubles.
        operator_flag: Returns the option of `ccmctl operator add` that allows publishing on a subject, for errors that operators
            see; "" if no option does. None for a node.
    """

    servers: tuple[str, ...] = (DEFAULT_SERVER,)
    identity: str = "ccm"
    program: str = "ccm"
    user: str = ""
    password: Secret | None = None
    token: Secret | None = None
    creds: str = ""
    nkey: str = ""
    ca: str = ""
    cert: str = ""
    key: str = ""
    tls_first: bool = False
    tls_hostname: str = ""
    inbox: str = ""
    insecure: bool = False
    answer_s: float = 5.0
    connect_s: float = 5.0
    longest_connect_s: float = 30.0
    ping_s: float = 30.0
    spread_s: float = 1.0
    first_spread_s: float = 0.0
    pause_s: float = 8.0
    longest_pause_s: float = 120.0
    operator_flag: Callable[[str], str] | None = None

    @property
    def inbox_prefix(self) -> str:
        """The prefix of the inbox: replies arrive on `<prefix>.>`."""
        return self.inbox or inbox_prefix(self.identity)

    @property
    def acknowledge_s(self) -> float:
        """
        The time limit for the broker to store an event.

        It is longer than for a reply: under load, a repeated event makes the broker even slower, and a lost connection is
        noticed without waiting.
        """
        return 3 * self.answer_s

    @property
    def demands_tls(self) -> bool:
        """Whether TLS is required before anything is sent."""
        schemes = {urlsplit(server).scheme for server in self.servers}
        return bool(self.ca or self.cert or self.tls_first or schemes & {"tls", "wss"})

    @property
    def has_credentials(self) -> bool:
        """Whether there are credentials. If so, a broker that does not require any is refused."""
        return bool(self.creds or self.nkey or self.user or self.token)

    @property
    def address(self) -> str:
        """The servers as readable text."""
        return ", ".join(mask_url(server) for server in self.servers)


def settings_for(servers: str | list[str] | tuple[str, ...], **others: Any) -> BusSettings:
    """
    Return settings for URLs that may contain credentials; one text may contain several URLs, separated by commas.

    Args:
        servers: URLs; the scheme defaults to `nats`.
        others: Fields of BusSettings; a user, password or token among them takes precedence over those in the URLs.

    Raises:
        UsageError: A URL is not valid; the error does not show its credentials.
    """
    texts = servers.split(",") if isinstance(servers, str) else list(servers)
    bare: list[str] = []
    found: dict[str, Any] = {}
    for text in texts:
        url, credentials = _without_credentials(text.strip())
        bare.append(url)
        found = found or credentials
    if others.get("creds") or others.get("nkey"):
        found = {}
    return BusSettings(servers=tuple(bare), **(found | others))


def read_seed(path: Path) -> bytearray:
    """
    Return the seed in a credentials file, which the caller should erase. All else that is read is erased here. Blocking.

    Raises:
        ValueError: The file contains no seed.
    """
    with path.open("rb", buffering=0) as file:
        content = bytearray(os.fstat(file.fileno()).st_size)
        file.readinto(content)
    try:
        begins = content.index(b"\n", content.index(_SEED_MARK)) + 1
        return content[begins : content.index(b"\n", begins)]
    finally:
        content[:] = bytes(len(content))


def accepts_insecure(environ: Mapping[str, str]) -> bool:
    """Whether the environment accepts any broker, as `--insecure` does: CCM_INSECURE is set, and not to 0 or false."""
    return environ.get("CCM_INSECURE", "").strip().lower() not in ("", "0", "false", "no")


def _without_credentials(text: str) -> tuple[str, dict[str, Any]]:
    text = text if "://" in text else f"nats://{text}"
    shown = mask_url(text)
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in _SCHEMES:
        raise UsageError(f"{shown}: not a valid broker URL; expected nats://host:4222 (or tls, ws, wss)")
    name = f"[{host}]" if ":" in host else host
    netloc = f"{name}:{port}" if port else name
    if not port and parts.scheme in ("nats", "tls"):
        netloc = f"{name}:4222"
    found: dict[str, Any] = {}
    if parts.password is not None:
        found = {"user": unquote(parts.username or ""), "password": Secret(unquote(parts.password))}
    elif parts.username:
        found = {"token": Secret(unquote(parts.username))}
    return urlunsplit((parts.scheme, netloc, parts.path, "", "")), found


def settings_from_context(name: str = "", **others: Any) -> BusSettings:
    """
    Return the settings of a context of the `nats` program. Blocking: reads one or two small files.

    Args:
        name: The context; "" is the selected one.
        others: Fields of BusSettings that take precedence over the context's.

    Raises:
        NotFoundError: The context does not exist, or none is selected.
        DocumentError: The context's file does not parse, or has a setting that is not supported here.
    """
    home = _configuration_home() / "nats"
    if not name:
        name = _read(home / "context.txt").strip()
        if not name:
            raise NotFoundError("nats context: none is selected; run `nats context select NAME`, or name one")
    if not _CONTEXT_NAME.fullmatch(name) or name.startswith("."):
        raise NotFoundError(f"nats context {name!r}: not a valid name of a context")
    path = home / "context" / f"{name}.json"
    text = _read(path)
    if not text:
        raise NotFoundError(
            f"nats context {name}: {path} does not exist; `nats context ls` lists the contexts"
        )
    return _from_context(decode_json(text, str(path)), path, others)


def _from_context(context: object, path: Path, others: dict[str, Any]) -> BusSettings:
    place = Place(source=str(path))
    if not isinstance(context, dict):
        raise DocumentError("not a context of the nats program: it is not a JSON object", place=place)
    asked = [field for field in _UNSUPPORTED if context.get(field)]
    if asked:
        raise DocumentError(
            f"`{asked[0]}` is not supported here; use url, creds, nkey, user and password, token or TLS files",
            place=place,
        )

    def text(field: str) -> str:
        value = context.get(field) or ""
        if not isinstance(value, str):
            raise DocumentError("must be text", place=Place(source=str(path), path=f"$.{field}"))
        return value

    fields: dict[str, Any] = {
        field: _expanded(text(field)) for field in ("creds", "nkey", "ca", "cert", "key") if text(field)
    }
    if text("user"):
        fields |= {"user": text("user"), "password": Secret(text("password"))}
    if text("token"):
        fields["token"] = Secret(text("token"))
    if text("inbox_prefix"):
        fields["inbox"] = text("inbox_prefix")
    fields["tls_first"] = bool(context.get("tls_first"))
    return settings_for(text("url") or DEFAULT_SERVER, **(fields | others))


def _configuration_home() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")


def _expanded(path: str) -> str:
    return str(Path(path).expanduser())


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as err:
        raise NotFoundError(f"nats context: {path} cannot be read: {err}") from err


def replaced(settings: BusSettings, **fields: Any) -> BusSettings:
    """Return the same settings with other values."""
    return msgspec.structs.replace(settings, **fields)
