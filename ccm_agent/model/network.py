"""
What health checks ask of the network, as a port.

It stands beside `ports.py` because nothing that changes a host needs it: a check may talk to a server in ways that a download
never does.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from ccm_agent.model.secret import Secret


class HttpRequest(Struct, frozen=True, kw_only=True):
    """
    An HTTP request.

    Attributes:
        url: http or https.
        method: In capitals.
        headers: Names and values, in order; sent to the URL's own host and to no other that it redirects to.
        body: What is sent.
        username, password: Basic authentication, of the URL's own host too.
        follows_redirects: Go on where the server points, up to ten times; else its redirect is the answer.
        verifies: The server's certificate must be right.
        ca_file, cert_file, key_file: PEM files: who may have signed it, and what we show ourselves with; "" for none.
        proxy: URL of a proxy; "" for none.
        limit_bytes: How much of the body is kept.
    """

    url: str
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    username: str = ""
    password: Secret | None = None
    follows_redirects: bool = True
    verifies: bool = True
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    proxy: str = ""
    limit_bytes: int = 1 << 20


class HttpResponse(Struct, frozen=True, kw_only=True):
    """
    What a server answered, whatever its status.

    Attributes:
        status: The HTTP status.
        headers: Names and values.
        body: Its first `limit_bytes`.
    """

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


class Network(Protocol):
    """Looks at what the network offers. None of it has a limit of time: the caller sets one."""

    async def ask(self, ask: HttpRequest) -> HttpResponse:
        """
        Ask a web server.

        Raises:
            DownloadError: There is no answer; nothing secret of the URL is named.
        """
        ...

    async def reach(self, protocol: str, host: str, port: int, local: str = "") -> str:
        """
        Whether a "tcp" or "udp" address can be connected to: "" when it can, else why not.

        Args:
            local: Address to connect from; "" for any.
        """
        ...

    async def resolve(self, host: str) -> list[str]:
        """The addresses of a name as this host resolves it, sorted; none when it cannot be resolved."""
        ...

    async def records(self, server: str, port: int, name: str, record: str) -> list[str]:
        """
        What a name server says of a name, sorted; none for a name that there is not.

        Args:
            server, port: The name server.
            name: The name; for PTR an address.
            record: "A", "AAAA", "CAA", "CNAME", "MX", "NS", "PTR", "SRV", "SSHFP" or "TXT".

        Raises:
            DownloadError: There is no answer, or none that can be used.
        """
        ...
