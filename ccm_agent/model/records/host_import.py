"""What a host has, as a node answers the request to import: resources, in parts that fit into messages."""

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
"""The types that nodes import, in the order in which a manifest should manage them. None of them has files with contents."""

_MARKERS = ("{{", "${", "{%", "{#")
"""Text with these would be read as a template."""

RESOURCES_LIMIT = 10_000
"""Resources in the answer of one node."""

PART_CHARACTERS = 60_000
"""Of the text in one answer; at most four bytes each, far below the payload that a broker accepts."""

PARTS_LIMIT = 100
"""Answers of one node."""


class LeftOutResource(Struct, frozen=True, kw_only=True):
    """Something that an import does not write."""

    type: Annotated[str, Meta(description="The type of the resource.")]
    name: Annotated[str, Meta(description="Its name.")]
    reason: Annotated[str, Meta(description="Why, such as `contains what looks like a private key`.")]


class FoundResource(Struct, frozen=True, kw_only=True):
    """A resource as it is on a host: its type, its name, and its other properties as a manifest has them."""

    type: str
    name: str
    properties: dict[str, Any]


class HostResources(Struct, frozen=True, kw_only=True):
    """
    What a host has of the requested types.

    Attributes:
        resources: In the order in which a manifest should manage them.
        left_out: What is not in it, and why: secrets, and what the node's policy forbids to manage.
    """

    resources: list[FoundResource] = []
    left_out: list[LeftOutResource] = []


class ResourcesPart(Struct, frozen=True, kw_only=True):
    """
    A part of HostResources: the body of an answer.

    Attributes:
        part, parts: Its position, from 0, and how many parts there are.
        digest: SHA-256 (hex) of the whole text, so that parts of two answers are not mixed.
        text: A part of the JSON text.
    """

    part: Annotated[int, Meta(ge=0, lt=PARTS_LIMIT)]
    parts: Annotated[int, Meta(ge=1, le=PARTS_LIMIT)]
    digest: Annotated[str, Meta(min_length=64, max_length=64)]
    text: Annotated[str, Meta(max_length=PART_CHARACTERS)]


def printable(text: str) -> str:
    """A text of a host for a line of a report: it cannot control a terminal, or end the line."""
    return "".join(one if one.isprintable() else "\ufffd" for one in text)


def holds_template(value: object) -> bool:
    """Whether text in a value, in lists and keys too, would be read as a template."""
    text = json.dumps(value)
    return any(marker in text for marker in _MARKERS)


def split_resources(found: HostResources) -> list[ResourcesPart]:
    """The parts to send; more than PARTS_LIMIT if it is too much."""
    body = encode_message(found)
    text, digest = body.decode(), hashlib.sha256(body).hexdigest()
    texts = list(_pieces(text))
    # without the limits of a Struct that is decoded: the caller refuses what is too much
    return [
        ResourcesPart(part=number, parts=len(texts), digest=digest, text=one)
        for number, one in enumerate(texts)
    ]


def join_parts(texts: list[str], digest: str) -> HostResources:
    """
    Decode what the parts of a node hold together.

    Raises:
        ValueError: They do not belong together.
        msgspec.DecodeError: The text has another form.
    """
    body = "".join(texts).encode()
    if hashlib.sha256(body).hexdigest() != digest:
        raise ValueError("its parts do not match their digest")
    return decode_foreign(body, HostResources)


def _pieces(text: str) -> Iterator[str]:
    for begin in range(0, len(text), PART_CHARACTERS):
        yield text[begin : begin + PART_CHARACTERS]
