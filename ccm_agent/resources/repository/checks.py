"""Checks a repository's properties before anything is read or changed. No I/O."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from ccm_agent.model.errors import Place, PropertyError
from ccm_agent.model.formats.urls import mask_url
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.checks import PATH_BYTES, check_each, refuse, why_no_path
from ccm_agent.resources.repository.model import FILE, TEXT, URL, RepositoryProperties
from ccm_agent.resources.repository.openpgp import PublicKey, normal_fingerprint, parse_public_key

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
NAME_LENGTH = 100
MAIN = "main"
"""The section with dnf's own settings in its files."""
_ITEMS = {
    "suites": re.compile(r"(?:\./|/|[A-Za-z0-9][A-Za-z0-9._~+/-]*)"),
    "components": re.compile(r"[A-Za-z0-9][A-Za-z0-9._~+/-]*"),
    "architectures": re.compile(r"[a-z0-9][a-z0-9-]*"),
    "types": re.compile(r"deb|deb-src"),
}
_MOST_ITEMS, _ITEM_LENGTH = 100, 200
_URI_LENGTH = 2000
_URI = re.compile(r"[A-Za-z0-9._~:/?\[\]@!$&'()*+;=%-]+")
"""Matches the characters that RFC 3986 allows, except `#` and `,`, which are special characters in the file formats."""
_SCHEMES = ("https://", "http://", "file:/")
_WEB = ("https://", "http://")
_PATH = re.compile(r"/[A-Za-z0-9._/+@~-]+")


def check(wanted: RepositoryProperties) -> None:
    """Refuse values that would add another line to a file, unsafe values, and contradictory values."""
    check_each(
        wanted,
        _check_name,
        _check_presence,
        _check_uris,
        _check_list_urls,
        _check_items,
        _check_components,
        _check_description,
        _check_priority,
        _check_trust,
        _check_key,
        _check_fingerprint,
        _check_signed_by,
    )


def checked_key(data: bytes, wanted: RepositoryProperties) -> PublicKey:
    """
    Return the key in the data of a text or file.

    Raises:
        PropertyError: The data is not exactly one public key, or its fingerprint is not the desired one.
    """
    place = Place(path="$.key")
    try:
        key = parse_public_key(data)
    except ValueError as err:
        raise PropertyError(f"`key` is refused: {err}", place=place) from err
    if key.fingerprint != normal_fingerprint(wanted.key_fingerprint):
        raise PropertyError(
            f"`key` is refused: its fingerprint is {key.fingerprint}, which differs from `key_fingerprint`",
            place=place,
        )
    return key


def _check_name(wanted: RepositoryProperties) -> None:
    name = wanted.name
    if not NAME.fullmatch(name) or ".." in name or len(name) > NAME_LENGTH:
        refuse(
            f"{name[:NAME_LENGTH]!r} cannot be the name of a repository: it must begin with a letter or digit, contain only "
            f"letters, digits, `_`, `.` and `-`, and have at most {NAME_LENGTH} characters",
            "name",
        )
    if name == MAIN:
        refuse("`main` cannot be the name of a repository: dnf uses it for its settings", "name")


def _check_presence(wanted: RepositoryProperties) -> None:
    if wanted.ensure != PRESENT:
        return
    given = [one for one in ("uris", "metalink", "mirrorlist") if getattr(wanted, one)]
    if not given:
        refuse("`uris` is required: the URLs of the repository", "uris")
    if len(given) > 1:
        refuse(f"`{given[0]}` and `{given[1]}` are mutually exclusive", given[1])


def _check_uris(wanted: RepositoryProperties) -> None:
    if len(wanted.uris) > _MOST_ITEMS:
        refuse(f"`uris` has more than {_MOST_ITEMS} items", "uris")
    for number, uri in enumerate(wanted.uris):
        _check_uri(uri, f"uris[{number}]", _SCHEMES)


def _check_list_urls(wanted: RepositoryProperties) -> None:
    for field in ("metalink", "mirrorlist"):
        if uri := getattr(wanted, field):
            _check_uri(uri, field, _WEB)


def _check_uri(uri: str, field: str, schemes: Sequence[str]) -> None:
    """Refuse an invalid URL. Errors quote it only after a check that it does not contain a password."""
    what = f"`{field}`"
    if not uri.startswith(tuple(schemes)):
        refuse(f"{what} must begin with {', '.join(f'`{one}`' for one in schemes)}", field)
    if not _URI.fullmatch(uri) or len(uri) > _URI_LENGTH:
        refuse(
            f"{what} has a space, a comma or another character that is not allowed in this URL, or is too long",
            field,
        )
    try:
        parts = urlsplit(uri)
        host, _ = parts.hostname, parts.port
    except ValueError:
        refuse(f"{what} is not a valid URL", field)
    # apt determines the host differently: it uses the last `@` before the path, and skips the text in brackets
    authority, *rest = uri.partition("://")[2].split("/", 1)
    if not uri.startswith("file:/") and (authority != parts.netloc or {"[", "]"} & set("".join(rest))):
        refuse(f"{what} has a host that apt and other programs parse differently", field)
    if uri.startswith("file:/") and {"%", "?", ";"} & set(uri):
        refuse(f"{what} must be `file:` with a plain path, without `%`, `?` and `;`", field)
    if "@" in parts.netloc:
        refuse(
            f"{what} has a user name or password, which every user of the host could read; apt reads them from "
            "/etc/apt/auth.conf.d",
            field,
        )
    if mask_url(uri) != uri:
        refuse(f"{what} has a secret as a parameter, which every user of the host could read", field)
    if not host and not uri.startswith("file:/"):
        refuse(f"{what} has no host", field)
    if uri.startswith("file:/") and (host or ".." in parts.path.split("/")):
        refuse(f"{what} must be `file:` with an absolute path without `..`", field)


def _check_items(wanted: RepositoryProperties) -> None:
    for field, pattern in _ITEMS.items():
        items: list[str] = getattr(wanted, field)
        if len(items) > _MOST_ITEMS:
            refuse(f"`{field}` has more than {_MOST_ITEMS} items", field)
        for number, item in enumerate(items):
            if not pattern.fullmatch(item) or ".." in item or len(item) > _ITEM_LENGTH:
                refuse(
                    f"{item[:_ITEM_LENGTH]!r} is not valid in `{field}`: each item is a single word",
                    f"{field}[{number}]",
                )


def _check_components(wanted: RepositoryProperties) -> None:
    paths = [one for one in wanted.suites if one.endswith("/")]
    if paths and wanted.components:
        refuse(f"`components` cannot be used with the suite `{paths[0]}`, which is a path", "components")
    if wanted.suites and len(paths) < len(wanted.suites) and not wanted.components:
        refuse(
            "`components` are required, such as `[main]`; a suite that ends with a slash has none",
            "components",
        )


def _check_description(wanted: RepositoryProperties) -> None:
    text = wanted.description
    if not text.isprintable() or text != text.strip() or len(text) > _ITEM_LENGTH:
        refuse(f"`description` must be one line of at most {_ITEM_LENGTH} characters", "description")


def _check_priority(wanted: RepositoryProperties) -> None:
    if wanted.priority is not None and not 1 <= wanted.priority <= 99:
        refuse("`priority` must be from 1 to 99", "priority")


def _check_trust(wanted: RepositoryProperties) -> None:
    given = [one for one in ("key", "signed_by", "trusted") if getattr(wanted, one)]
    if not given and wanted.ensure == PRESENT:
        refuse(
            "`key` is required, with `key_fingerprint`: packages of the repository run as root. `signed_by` names a key that is "
            "on the host; `trusted: true` accepts unsigned packages",
            "key",
        )
    if len(given) > 1:
        refuse(f"`{given[0]}` and `{given[1]}` are mutually exclusive", given[1])
    if wanted.trusted and wanted.repo_gpgcheck:
        refuse("`repo_gpgcheck` requires a key, but `trusted: true` uses none", "repo_gpgcheck")


def _check_key(wanted: RepositoryProperties) -> None:
    key = wanted.key
    if wanted.key_form == TEXT:
        data = key.encode(errors="replace")
        try:
            normal_fingerprint(wanted.key_fingerprint)
        except ValueError:
            return  # another check reports this error
        checked_key(data, wanted)
    elif wanted.key_form == URL:
        if not key.startswith("https://"):
            refuse("`key` must be an `https://` URL, a file, or the text of a key", "key")
        _check_uri(key, "key", ("https://",))
    elif wanted.key_form == FILE and (why := why_no_path(key)):
        refuse(f"the path in `key` {why}", "key")


def _check_fingerprint(wanted: RepositoryProperties) -> None:
    if not wanted.key_fingerprint:
        if wanted.key:
            refuse(
                "`key_fingerprint` is required with `key`, to reject other keys; `gpg --show-keys FILE` prints it",
                "key_fingerprint",
            )
        return
    if not wanted.key and wanted.ensure != ABSENT:
        refuse("`key_fingerprint` requires `key`", "key_fingerprint")
    try:
        normal_fingerprint(wanted.key_fingerprint)
    except ValueError as err:
        refuse(f"`key_fingerprint` is not a fingerprint: {err}", "key_fingerprint")


def _check_signed_by(wanted: RepositoryProperties) -> None:
    path = wanted.signed_by
    if path and (not _PATH.fullmatch(path) or posixpath.normpath(path) != path or len(path) > PATH_BYTES):
        refuse("`signed_by` must be the absolute path of a key, without spaces or `..`", "signed_by")
