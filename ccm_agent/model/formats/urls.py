"""
The secret parts of URLs: the user part, and the values of query parameters with secret names.

`looks_secret` is the only function that classifies names: of query parameters, environment variables and keys of data.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote, unquote_plus

from ccm_agent.model.formats.patterns import lazy_pattern

MASK = "***"

_SECRET_PART = re.compile(
    r"pass(word|wd|phrase|code)|pwd|secret|token|credential|signature|bearer|cookie|(api|access|auth|private|signing"
    r"|encryption|subscription|shared|account|storage|function|master|host)[-_ .]?key"
)
"""A name that contains one of these texts is secret: `X-Amz-Signature`, `db_password_file`, `apiKeyId`."""

_SECRET_WORDS = frozenset(
    {"pass", "pw", "psk", "creds", "auth", "authorization", "jwt", "otp", "sas", "hmac", "pin"}
)
"""
A name that contains one of these as a separate word is secret: `DB_PASS` and `auth`, but not `passenger` or
`author`.
"""

_SECRET_PARAMETERS = frozenset(
    {
        *("key", "sig", "code", "sid", "session", "sessionid", "ticket", "policy", "assertion"),
        *("googleaccessid", "awsaccesskeyid"),
    }
)
"""Query parameters with exactly these names are secret. Keys of data with these names are not."""

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_PARAMETER = lazy_pattern(
    r"(?:(?<=[?&;])|(?<=#)(?=(?:access_|id_|refresh_)?token=))([^\s=&;#?\"'<>]{1,100})=([^\s&;#\"'<>]+)"
)
_USER_PART = lazy_pattern(r"(?<![a-zA-Z0-9+.-])([a-zA-Z][a-zA-Z0-9+.-]*://)([^\s/?#\"'<>]+)@")


def is_web(text: str) -> bool:
    """Whether a text is an http or https URL."""
    return text.lower().startswith(("http://", "https://"))


def looks_secret(name: str) -> bool:
    """Whether the name of a key, a variable or a header indicates a secret value."""
    if _SECRET_PART.search(name.lower()):
        return True
    return any(word.lower() in _SECRET_WORDS for word in _WORDS.findall(name))


def mask_url(url: str) -> str:
    """
    Return a URL without its password and tokens. A user name without a password is removed too, because it
    can be a token.
    """
    scheme, mark, rest = url.partition("://")
    if not mark:
        return url
    host, slash, path = rest.partition("/")
    _, colon, port = host.rpartition("]")[2].partition(":")
    if "@" not in host and colon and not port.isdecimal():
        # not a port, so the text is part of a password that contains a slash
        host, slash, path = rest, "", ""
    _, at, host_only = host.rpartition("@")
    return mask_parameters(f"{scheme}://{MASK}@{host_only}{slash}{path}" if at else url)


def mask_urls(text: str) -> str:
    """Mask the recognizable secret parts of the URLs in a text."""
    if "://" in text:
        text = _USER_PART.sub(rf"\g<1>{MASK}@", text)
    return mask_parameters(text)


def mask_parameters(text: str) -> str:
    """Mask the values of secret query parameters in a text."""
    if "=" not in text or not any(mark in text for mark in "?&#;"):
        return text
    return _PARAMETER.sub(_masked, text)


def secrets_of_url(text: str) -> Iterator[str]:
    """Yield the passwords and tokens of the URLs in a text, both as written and decoded."""
    for found in _USER_PART.finditer(text):
        _, colon, password = found[2].partition(":")
        if colon:
            yield from _spellings(password)
    for found in _PARAMETER.finditer(text):
        if _is_secret_parameter(found[1]):
            yield from _spellings(found[2])


def _masked(found: re.Match[str]) -> str:
    return f"{found[1]}={MASK}" if _is_secret_parameter(found[1]) else found[0]


def _is_secret_parameter(name: str) -> bool:
    plain = unquote(name)
    return looks_secret(plain) or plain.lower() in _SECRET_PARAMETERS


def _spellings(value: str) -> Iterator[str]:
    yield value
    if "%" in value or "+" in value:
        yield unquote(value)
        yield unquote_plus(value)
