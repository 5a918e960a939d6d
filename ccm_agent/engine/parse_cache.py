"""
Manifests that were read before: a node that converges on the same text for years parses it once.
"""

from __future__ import annotations

import marshal
from collections import OrderedDict
from typing import Any, cast

from ccm_agent.model import codec

LIMIT_BYTES = 16 << 20
"""Of the texts and values that are kept; what was used longest ago goes first."""


class ParseCache:
    """The values of documents, by their text. To be used by one thread at a time, as an engine is."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._size_bytes = 0

    def read(self, text: str, source: str) -> object:
        """
        The values of a document, new ones each time: whoever gets them may change them.

        Args:
            text: The document.
            source: Where it stands, for errors.

        Raises:
            DocumentError: As `codec.decode_manifest`; what cannot be read is not kept.
        """
        kept = self._kept.get(text)
        if kept is not None:
            self._kept.move_to_end(text)
            # it was made below, in this process; nobody else's bytes come here
            return cast("object", marshal.loads(kept))
        value = codec.decode_manifest(text, source)
        self._keep(text, value)
        return value

    def _keep(self, text: str, value: object) -> None:
        try:
            kept = marshal.dumps(cast("Any", value))
        except ValueError:
            return  # a value of some type of ours
        self._kept[text] = kept
        self._size_bytes += len(text) + len(kept)
        while self._size_bytes > self._limit_bytes:
            old, gone = self._kept.popitem(last=False)
            self._size_bytes -= len(old) + len(gone)
