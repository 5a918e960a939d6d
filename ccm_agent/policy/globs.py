"""
Globs of a policy: paths, URLs and names.

A path is matched name by name, so `*` never matches a slash. For any path in a request, matching takes time
proportional to the pattern length times the path length.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from fnmatch import fnmatchcase
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from ccm_agent.model.errors import PropertyError

ANY_DEPTH = "**"
_DEFAULT_PORTS = {"http": 80, "https": 443}


class PathGlob(Struct, frozen=True):
    """
    A pattern for absolute paths.

    Attributes:
        names: The pattern between its slashes; ANY_DEPTH matches any number of directories.
    """

    names: tuple[str, ...]

    def matches(self, path: str) -> bool:
        """Whether the pattern matches the path. `/srv/**` matches `/srv` and everything below it."""
        return len(self.names) in self._states(path)

    def covers(self, directory: str) -> bool:
        """Whether the pattern matches the directory and every possible path below it."""
        return self.names[-1:] == (ANY_DEPTH,) and len(self.names) - 1 in self._states(directory)

    def reaches_into(self, directory: str) -> bool:
        """Whether the pattern matches the directory, or a possible path below it."""
        return bool(self._states(directory))

    def _states(self, path: str) -> set[int]:
        """Return the possible numbers of pattern names that the names of a path match."""
        states = self._with_skips({0})
        for name in _names_in(path):
            after: set[int] = set()
            for at in states:
                if at == len(self.names):
                    continue
                if self.names[at] == ANY_DEPTH:
                    after.add(at)
                elif fnmatchcase(name, self.names[at]):
                    after.add(at + 1)
            states = self._with_skips(after)
            if not states:
                break
        return states

    def _with_skips(self, states: set[int]) -> set[int]:
        """Add the states after ANY_DEPTH, which also matches zero directories."""
        found = set(states)
        for at in sorted(states):
            while at < len(self.names) and self.names[at] == ANY_DEPTH:
                at += 1
                found.add(at)
        return found


class UrlGlob(Struct, frozen=True):
    """A pattern for http and https URLs: scheme, host and port are literal, and the path is a PathGlob."""

    scheme: str
    host: str
    path: PathGlob

    def matches(self, url: str) -> bool:
        """Whether the pattern matches the URL, ignoring the URL's query and user part."""
        parts = url_parts(url)
        if parts is None:
            return False
        scheme, host, path = parts
        return scheme == self.scheme and fnmatchcase(host, self.host) and self.path.matches(path)


def path_glob(pattern: str) -> PathGlob:
    """
    Parse a path pattern of a policy.

    Raises:
        PropertyError: The pattern is relative, not canonical, or has `**` next to other characters.
    """
    if not pattern.startswith("/"):
        raise PropertyError(f"`{pattern}` is not an absolute path; begin it with a slash")
    if pattern != "/" and pattern.endswith("/"):
        raise PropertyError(f"`{pattern}` ends in a slash; write `{pattern}**` to match everything below it")
    if posixpath.normpath("/" + pattern.lstrip("/")) != pattern:
        raise PropertyError(f"`{pattern}` is not canonical: write it without `.`, `..` and double slashes")
    names = tuple(_names_in(pattern))
    if any(ANY_DEPTH in name and name != ANY_DEPTH for name in names):
        raise PropertyError(f"`{pattern}`: `**` must be the only text between two slashes")
    return PathGlob(names)


def source_glob(pattern: str) -> PathGlob | UrlGlob:
    """
    Parse a pattern of `sources`: a path, or an http or https URL.

    Raises:
        PropertyError: The pattern is neither.
    """
    if "://" not in pattern:
        return path_glob(pattern)
    parts = url_parts(pattern)
    if parts is None:
        raise PropertyError(
            f"`{pattern}` is not a URL pattern: write https://host/path/**, without user, query and `..`"
        )
    scheme, host, path = parts
    return UrlGlob(scheme, host, path_glob(path))


def url_parts(url: str) -> tuple[str, str, str] | None:
    """
    Split a URL into scheme, host (with a port that is not the scheme's default), and path.

    Returns:
        None for a text that is not an http or https URL, or that has an ambiguous path.
    """
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme.lower(), (parts.hostname or "").lower(), parts.port
    except ValueError:
        return None
    names = unquote(parts.path).split("/")
    if scheme not in _DEFAULT_PORTS or not host or "\\" in url or ".." in names or "." in names:
        return None
    if port not in (None, _DEFAULT_PORTS[scheme]):
        host = f"{host}:{port}"
    return scheme, host, parts.path or "/"


def matches_name(name: str, patterns: Sequence[str]) -> bool:
    """Whether one of the patterns matches the name."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _names_in(path: str) -> list[str]:
    return [name for name in path.split("/") if name]
