"""URLs to which a secret may be sent."""

from __future__ import annotations

import ipaddress
from typing import Any
from urllib.parse import urlsplit


def is_safe_url(url: Any, *, query: bool = False) -> bool:
    """
    Whether a URL is encrypted or refers to this host, and contains nothing that a reader could
    misinterpret.
    """
    if not isinstance(url, str) or not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        return False
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    if not host or "@" in parts.netloc or parts.fragment or (parts.query and not query):
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))


def is_loopback(host: str) -> bool:
    """Whether the name or address is this host."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
