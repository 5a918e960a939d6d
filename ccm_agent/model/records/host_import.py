"""The resources of a host, as a node reports them for an import, in parts that fit into messages."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
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
"""The types that nodes import, in the order in which a manifest should manage them. No type includes the content of files."""

_MARKERS = ("{{", "${", "{%", "{#")
"""Text with one of these markers would be rendered as a template."""

RESOURCES_LIMIT = 10_000
"""Limit of the resources in one node's answer."""

PART_CHARACTERS = 60_000
"""
Limit of the characters in one answer. A character takes at most four bytes, so an answer stays far below
the broker's payload limit.
"""

PARTS_LIMIT = 100
"""Limit of the answers of one node."""


class LeftOutResource(Struct, frozen=True, kw_only=True):
    """A resource that an import leaves out."""

    type: Annotated[str, Meta(description="The type of the resource.")]
    name: Annotated[str, Meta(description="Its name.")]
    reason: Annotated[str, Meta(description="Why, such as `contains what looks like a private key`.")]


class FoundResource(Struct, frozen=True, kw_only=True):
    """A resource on a host: its type, its name, and its other properties in the form of a manifest."""

    type: str
    name: str
    properties: dict[str, Any]


class HostResources(Struct, frozen=True, kw_only=True):
    """
    The resources of a host of the requested types.

    Attributes:
        resources: The resources, in the order in which a manifest should manage them.
        left_out: Resources that are left out, with the reason: secrets, and resources that the node's policy does not permit.
    """

    resources: list[FoundResource] = []
    left_out: list[LeftOutResource] = []


class ResourcesPart(Struct, frozen=True, kw_only=True):
    """
    A part of HostResources: the body of an answer.

    Attributes:
        part, parts: The position of the part, from 0, and the number of parts.
        digest: SHA-256 (hex) of the whole text, so that parts of two answers are not mixed.
        text: A part of the JSON text.
    """

    part: Annotated[int, Meta(ge=0, lt=PARTS_LIMIT)]
    parts: Annotated[int, Meta(ge=1, le=PARTS_LIMIT)]
    digest: Annotated[str, Meta(min_length=64, max_length=64)]
    text: Annotated[str, Meta(max_length=PART_CHARACTERS)]


def printable(text: str) -> str:
    """Make a text from a host safe for a line of a report: it cannot control a terminal or end the line."""
    return "".join(one if one.isprintable() else "\ufffd" for one in text)


def holds_template(value: object) -> bool:
    """Whether a text in a value, including lists and keys, would be rendered as a template."""
    text = json.dumps(value)
    return any(marker in text for marker in _MARKERS)


def split_resources(found: HostResources) -> list[ResourcesPart]:
    """Return the parts to send. There may be more than PARTS_LIMIT; the caller checks that."""
    body = encode_message(found)
    text, digest = body.decode(), hashlib.sha256(body).hexdigest()
    texts = list(_pieces(text))
    # no limits are checked here: the caller refuses too many parts
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
