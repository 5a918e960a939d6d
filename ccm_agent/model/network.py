"""
The port through which health checks use the network.

It is separate from `ports.py` because only checks need it. A check uses more protocols than a download.
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
        method: The method, in upper case.
        headers: Names and values, in order; sent only to the URL's own host, not to other hosts after a redirect.
        body: The request body.
        username, password: Basic authentication; also sent only to the URL's own host.
        follows_redirects: Whether to follow up to ten redirects. Otherwise, the redirect itself is the response.
        verifies: Whether to verify the server's certificate.
        ca_file, cert_file, key_file: PEM files: the accepted authorities, and the client certificate with its key; "" for none.
        proxy: URL of a proxy; "" for none.
        limit_bytes: The maximum number of bytes of the response body that are kept.
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
    A server's response, with any status.

    Attributes:
        status: The HTTP status.
        headers: Names and values.
        body: The first `limit_bytes` of the response body.
    """

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


class Network(Protocol):
    """Network operations for checks. The caller sets the time limit."""

    async def ask(self, ask: HttpRequest) -> HttpResponse:
        """
        Send an HTTP request.

        Raises:
            DownloadError: There is no response. The message does not contain secrets of the URL.
        """
        ...

    async def reach(self, protocol: str, host: str, port: int, local: str = "") -> str:
        """
        Connect to a "tcp" or "udp" address. Returns "" on success, otherwise the reason for the failure.

        Args:
            local: Address to connect from; "" for any.
        """
        ...

    async def resolve(self, host: str) -> list[str]:
        """Resolve a name on this host. Returns sorted addresses, or an empty list if the name cannot be resolved."""
        ...

    async def records(self, server: str, port: int, name: str, record: str) -> list[str]:
        """
        Query a name server for the records of a name. Returns them sorted, or an empty list if the name does
        not exist.

        Args:
            server, port: The name server.
            name: The name; for PTR an address.
            record: "A", "AAAA", "CAA", "CNAME", "MX", "NS", "PTR", "SRV", "SSHFP" or "TXT".

        Raises:
            DownloadError: There is no answer, or it is unusable.
        """
        ...
