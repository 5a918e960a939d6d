"""Documents that agents obey: assigned facts and hiera data, as they are stored. The rules are those of `model.wire`."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ccm_agent.model.untrusted_json import Moment


class TextPlace(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    Where the text of a node's own document is stored (`bus.node_data`).

    Attributes:
        slot: Which slot of the document in CCM_NODE_DATA.
        revision: The revision of CCM_NODE_DATA that wrote it there; 0: the document was absent.
        at: The revision of CCM_DATA from which on the document said that; 0: the revision of the entry that says so.
    """

    slot: int = 0
    revision: int = 0
    at: int = 0


class Stamped(Struct, kw_only=True, omit_defaults=True):
    """
    A document that agents obey names itself: facts and data that `ccmctl` writes.

    An agent refuses one that holds another key, or a lower number than it has seen for that key.

    Attributes:
        bucket, key: Where it belongs.
        number: Grows with each write, and is at least the milliseconds since 1970, so that a restored broker is obeyed.
        count: Which version of the document it is, from 1 on, for people; 0, as in documents of before: the number says it.
        written_by, time: Who and when, for people.
        message: Why, in the author's words. Every node that may read the document can read it.
        body: The document: assigned facts as a mapping, a hiera document as text. With `text`: what an agent that does not know
            that field cannot take for a document.
        text: Where the text of a node's own document is; None: it is in `body`.
        earlier: Of such a document, what it said at revisions that were moved out of CCM_DATA, oldest first.
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
