"""Describe the failure of an HTTP request without the text of the error, which may contain a URL with a secret."""

from __future__ import annotations


def describe_http_problem(err: Exception) -> str:
    """Return the problem of a request without a response, or "" for other errors."""
    from aiohttp import (
        ClientConnectorCertificateError,
        ClientConnectorDNSError,
        ClientConnectorError,
        ClientSSLError,
    )

    if isinstance(err, ClientConnectorDNSError):
        return "the host name was not found"
    if isinstance(err, ClientConnectorCertificateError | ClientSSLError):
        return "its TLS certificate is not valid"
    if isinstance(err, ClientConnectorError):
        return f"no connection: {err.os_error.strerror or 'the host cannot be reached'}"
    return ""
