"""Stored documents that agents follow: assigned facts and hiera data. The rules are those of `model.wire`."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ccm_agent.model.formats.untrusted_json import Moment


class TextPlace(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    Where the text of a node's own document is stored (`bus.node_data`).

    Attributes:
        slot: The slot of the document in CCM_NODE_DATA.
        revision: The revision of CCM_NODE_DATA that stored the text; 0 if the document was absent.
        at: The revision of CCM_DATA since which the document has this content; 0 means the revision of this entry.
    """

    slot: int = 0
    revision: int = 0
    at: int = 0


class Stamped(Struct, kw_only=True, omit_defaults=True):
    """
    A document that agents follow and that contains its own key: facts and data written by `ccmctl`.

    An agent refuses a document with a different key, or with a lower number than it has already seen for that key.

    Attributes:
        bucket, key: Bucket and key of the document.
        number: Increases with each write. It is at least the milliseconds since 1970, so agents also accept
            writes to a broker that was restored from a backup.
        count: The version of the document, from 1, for display; 0 in older documents: use the number.
        written_by, time: Author and time, for display.
        message: The reason that the author gave. Every node that may read the document can read it.
        body: The document: assigned facts as a mapping, a hiera document as text. If `text` is set, the body is
            a value that older agents refuse, because they do not support `text`.
        text: The location of the text of a node's own document; None if the text is in `body`.
        earlier: Earlier revisions of a node's own document that were moved out of CCM_DATA, oldest first.
    """

    bucket: str
    key: str
    number: int
    body: Any
    count: int = 0
    written_by: str = ""
    time: Moment | None = None
    message: str = ""
    text: TextPlace | None = None
    earlier: list[TextPlace] = []
