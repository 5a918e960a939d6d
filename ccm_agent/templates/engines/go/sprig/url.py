"""
Sprig's `urlParse` and `urlJoin`.

Source: masterminds.github.io/sprig, "URL Functions"; RFC 3986; the documentation of Go's package net/url.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from ccm_agent.model.errors import TemplateError
from ccm_agent.templates.engines.gotypes import go_kind
from ccm_agent.templates.values import from_bytes, to_bytes

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_USERINFO = re.compile(r"[A-Za-z0-9._:~!$&'()*+,;=%@-]*")
# characters that are allowed in a host; other ASCII characters are not allowed, not even escaped
_HOST_SAFE = "!$&'()*+,;=:[]<>\""
_HOST_WRONG = re.compile(r"[^A-Za-z0-9._~!$&'()*+,;=:\[\]<>\"%\x80-\U0010ffff-]")
_HOST_ESCAPE = re.compile(r"%(?!25)[0-7]")

_SAFE = {
    "path": "$&+,/:;=@",
    "user": "$&+,;=",
    "fragment": "$&+,/:;=?@!()*",
    "host": _HOST_SAFE,
}


def _fail(why: str) -> TemplateError:
    return TemplateError(f"text is not a URL: {why}")  # the text may contain a password


def _escape(text: str, part: str) -> str:
    return quote(to_bytes(text), safe=_SAFE[part])


def _unescape(text: str) -> str:
    if _ESCAPE.search(text):
        raise _fail("a % is not followed by two hexadecimal digits")
    return from_bytes(unquote_to_bytes(to_bytes(text)))


def _url_parse(text: str) -> dict[str, Any]:
    """Return the parts of a URL by name."""
    if _CONTROL.search(text):
        raise _fail("it contains a control character")
    rest, _, fragment = text.partition("#")
    parts = dict.fromkeys(("scheme", "host", "hostname", "path", "query", "opaque", "userinfo"), "")
    parts["fragment"] = _unescape(fragment)
    match = _SCHEME.fullmatch(rest)
    if match:
        parts["scheme"], rest = match[1].lower(), match[2]
    elif rest.startswith(":"):
        raise _fail("the scheme before ':' is missing")
    rest, _, parts["query"] = rest.partition("?")
    if parts["scheme"] and not rest.startswith("/"):
        parts["opaque"] = rest
        return parts
    if not rest.startswith("/") and ":" in rest.partition("/")[0]:
        raise _fail("the first part of a relative path cannot contain ':'")
    if rest.startswith("//") and (parts["scheme"] or not rest.startswith("///")):
        authority, slash, rest = rest[2:].partition("/")
        rest = slash + rest
        _read_authority(authority, parts)
    parts["path"] = _unescape(rest)
    return parts


def _read_authority(authority: str, parts: dict[str, Any]) -> None:
    userinfo, at, host = authority.rpartition("@")
    if at:
        parts["userinfo"] = _userinfo(userinfo)
    parts["host"] = _host(host, parts["scheme"])
    parts["hostname"] = _hostname(parts["host"])


def _userinfo(userinfo: str) -> str:
    if not _USERINFO.fullmatch(userinfo):
        raise _fail("the part before '@' contains a character that is not allowed there")
    name, colon, password = userinfo.partition(":")
    return _escape(_unescape(name), "user") + colon + _escape(_unescape(password), "user")


def _host(host: str, scheme: str) -> str:
    if host.startswith("["):
        inner, closing, port = host[1:].rpartition("]")
        address = _unescape(inner)
        try:
            ipaddress.IPv6Address(address)
        except ValueError:
            closing = ""
        if not closing:
            raise _fail("the text in [ ] is not an IPv6 address")
        _check_port(port)
        return f"[{address}]{port}"
    if "[" in host:
        raise _fail("'[' is inside the host")
    if ":" in host:
        first = scheme in ("http", "https")
        _check_port(host[host.index(":") if first else host.rindex(":") :])
    wrong = _HOST_WRONG.search(host)
    if wrong:
        raise _fail("the host contains a character that is not allowed")
    if _HOST_ESCAPE.search(host):
        raise _fail("only non-ASCII characters can be escaped in a host")
    return _unescape(host)


def _check_port(port: str) -> None:
    if port and not (port[0] == ":" and port[1:].strip("0123456789") == ""):
        raise _fail("the port is not a number")


def _hostname(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0] if ":" in host else host


def _url_join(parts: Mapping[str, Any]) -> str:
    """Build a URL from its parts."""
    texts = {
        name: _part(parts, name)
        for name in ("scheme", "host", "path", "query", "opaque", "fragment", "userinfo")
    }
    url = f"{texts['scheme']}:" if texts["scheme"] else ""
    if texts["opaque"]:
        url += texts["opaque"]
    else:
        url += _authority_and_path(texts, begun=bool(url))
    if texts["query"]:
        url += f"?{texts['query']}"
    return url + (f"#{_escape(texts['fragment'], 'fragment')}" if texts["fragment"] else "")


def _authority_and_path(texts: dict[str, str], *, begun: bool) -> str:
    userinfo, host = texts["userinfo"], texts["host"]
    path = "*" if texts["path"] == "*" else _escape(texts["path"], "path")
    out = ""
    if host or userinfo or (begun and path):
        out = "//"
        out += f"{_userinfo(userinfo)}@" if userinfo else ""
        out += _escape(host, "host")
    if path and not path.startswith("/") and host:
        out += "/"
    if not begun and not out and ":" in path.partition("/")[0]:
        out = "./"
    return out + path


def _part(parts: Mapping[str, Any], name: str) -> str:
    value = parts.get(name, "")
    if not isinstance(value, str):
        raise TemplateError(f"{name!r} must be text, not a {go_kind(value)}")
    return value


FUNCTIONS: dict[str, Callable[..., Any]] = {"urlJoin": _url_join, "urlParse": _url_parse}
