"""The resources of a host that a node reports for an import, in parts that fit into messages."""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

from msgspec import Meta, Struct

from ccm_agent.model.formats.json_text import encode_message
from ccm_agent.model.formats.untrusted_json import decode_foreign

IMPORT_TYPES = (
    "package",
    "group",
    "user",
    "cron",
    "host",
    "kernel_module",
    "mount",
    "sysctl",
    "system",
    "service",
)
"""The types that nodes import by default, in the order in which a manifest should manage them. No type includes files."""

CONTENT_TYPES = ("repository", "file", "directory", "config", "systemd_unit", "container")
"""Types whose import reads files, whose texts are in the answer. A node imports them only for an operator who may also apply."""

TEXT_TYPES = ("config", "container")
"""Content types whose texts are properties."""

PATH_TYPES = ("file", "directory", "config")
"""Types that require a path, as in `file:/etc/nginx`."""

SITE_ORDER = (
    "repository",
    *IMPORT_TYPES[: IMPORT_TYPES.index("cron")],
    "file",
    "directory",
    "config",
    *IMPORT_TYPES[IMPORT_TYPES.index("cron") : -1],
    "systemd_unit",
    "container",
    "service",
)
"""
All types of an import, in the order in which a manifest should manage them. For example, files need their
owners, and services their units.
"""

_MARKERS = ("{{", "${", "{%", "{#")
"""Text with one of these markers would be rendered as a template."""

RESOURCES_LIMIT = 10_000
"""The maximum number of resources in one node's answer."""

PART_CHARACTERS = 60_000
"""
Limit of the characters in one answer. A character takes at most four bytes, so an answer stays far below
the broker's payload limit.
"""

PARTS_LIMIT = 100
"""The maximum number of answers of one node."""

WORDS_LIMIT = 100
"""The maximum number of types (with their paths) in one request."""

PATH_CHARACTERS = 1000
"""The maximum length of a path in a request or an answer, in characters."""

NAME_BYTES = 255
"""The maximum length of one name in a path. No file system supports longer names."""

FILE_BYTES = 1 << 20
"""A larger file is not imported over the bus."""

HOST_BYTES = 16 << 20
"""The maximum total size of the file contents that are imported from one node."""

HOST_FILES = 5_000
"""The maximum number of files with contents that are imported from one node."""

BATCH_BYTES = 3 << 20
BATCH_FILES = 1_000
"""
The maximum number of contents in one request, and their total size. In Base64 they fit into PARTS_LIMIT
answers.
"""


class LeftOutResource(Struct, frozen=True, kw_only=True):
    """A resource that an import leaves out."""

    type: Annotated[str, Meta(description="The type of the resource.")]
    name: Annotated[str, Meta(description="Its name.")]
    reason: Annotated[str, Meta(description="The reason, such as `contains what looks like a private key`.")]


class FoundContent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    A file of a resource, without its content, or a subdirectory of a directory resource.

    Attributes:
        path: Relative to the resource; "" for the resource itself.
        sha256: The digest (hex) of the content; "" for a directory.
        size_bytes: Its size.
        is_program: Whether the owner may execute the file.
    """

    path: str = ""
    sha256: str = ""
    size_bytes: Annotated[int, Meta(ge=0, le=FILE_BYTES)] = 0
    is_program: bool = False


class FoundResource(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    A resource on a host.

    Attributes:
        type, name: Its type and name.
        properties: Its other properties in the form of a manifest.
        needed_by: The requested type if it differs. An import of a repository includes its key, and an import
            of files includes symlinks.
        contents: The files of the resource. The node sends their contents in answers to requests with the digests.
    """

    type: str
    name: str
    properties: dict[str, Any]
    needed_by: str = ""
    contents: tuple[FoundContent, ...] = ()

    @property
    def section(self) -> str:
        """Return the type whose list in a manifest contains this resource."""
        return self.needed_by or self.type


class HostResources(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    The resources of the requested types on a host.

    Attributes:
        resources: The resources, in the order in which a manifest should manage them.
        left_out: Resources that are left out, with the reason: secrets, and resources that the node's policy does not permit.
        contents: The contents by digest, in the answer to a request with digests. In that case the lists are empty.
    """

    resources: list[FoundResource] = []
    left_out: list[LeftOutResource] = []
    contents: dict[str, bytes] = {}


class ResourcesPart(Struct, frozen=True, kw_only=True):
    """
    A part of HostResources: the body of an answer.

    Attributes:
        part, parts: The position of the part, from 0, and the number of parts.
        digest: SHA-256 (hex) of the whole text, which prevents mixing the parts of two answers.
        text: A part of the JSON text.
    """

    part: Annotated[int, Meta(ge=0, lt=PARTS_LIMIT)]
    parts: Annotated[int, Meta(ge=1, le=PARTS_LIMIT)]
    digest: Annotated[str, Meta(min_length=64, max_length=64)]
    text: Annotated[str, Meta(max_length=PART_CHARACTERS)]


def printable(text: str) -> str:
    """Make a text from a host safe for a line of a report. It then cannot control a terminal or end the line."""
    return "".join(one if one.isprintable() else "\ufffd" for one in text)


def holds_template(value: object) -> bool:
    """Whether a text in a value, including lists and keys, would be rendered as a template."""
    text = json.dumps(value)
    return any(marker in text for marker in _MARKERS)


def why_not_imported(word: str) -> str:
    """Return the reason why nodes cannot import `TYPE` or `TYPE:PATH`; "" if they can."""
    kind, colon, path = word.partition(":")
    if kind in PATH_TYPES:
        return "" if is_absolute(path) else f"name an absolute path, such as {kind}:/etc/nginx"
    if kind not in SITE_ORDER:
        return f"not a type to import; types: {', '.join(SITE_ORDER)}"
    return f"`{kind}` has no path; write `{kind}`" if colon else ""


def is_absolute(path: str) -> bool:
    """Return whether a path is absolute and normal, is not `/`, and can be a name in a manifest."""
    return path.startswith("/") and is_inside(path[1:])


def is_inside(path: str) -> bool:
    """Return whether a path is relative and normal, does not leave its directory, and can be a name in a manifest."""
    if not path.isprintable() or len(path) > PATH_CHARACTERS or posixpath.normpath(path) != path:
        return False
    parts = path.split("/")
    return parts[0] not in ("", ".", "..") and all(len(one.encode()) <= NAME_BYTES for one in parts)


def in_site_order(words: Iterable[str]) -> list[str]:
    """Return the types (with their paths) without duplicates, in the order of SITE_ORDER."""
    return sorted(dict.fromkeys(words), key=lambda one: SITE_ORDER.index(one.partition(":")[0]))


def content_words(words: Iterable[str]) -> list[str]:
    """Return the types whose import reads files."""
    return [one for one in words if one.partition(":")[0] in CONTENT_TYPES]


def split_resources(found: HostResources) -> list[ResourcesPart]:
    """Return the parts to send. The caller must check that there are at most PARTS_LIMIT."""
    body = encode_message(found)
    text, digest = body.decode(), hashlib.sha256(body).hexdigest()
    texts = list(_pieces(text))
    # built here without a check of limits, because the caller refuses too many parts
    return [
        ResourcesPart(part=number, parts=len(texts), digest=digest, text=one)
        for number, one in enumerate(texts)
    ]


def join_parts(texts: list[str], digest: str) -> HostResources:
    """
    Join and decode the parts of a node.

    Raises:
        ValueError: The parts do not belong together.
        msgspec.DecodeError: The text has another form.
    """
    body = "".join(texts).encode()
    if hashlib.sha256(body).hexdigest() != digest:
        raise ValueError("its parts do not match their digest")
    return decode_foreign(body, HostResources)


def _pieces(text: str) -> Iterator[str]:
    for begin in range(0, len(text), PART_CHARACTERS):
        yield text[begin : begin + PART_CHARACTERS]
