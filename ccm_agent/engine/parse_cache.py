"""
A cache of parsed manifests. A node that applies the same text many times parses it only once.
"""

from __future__ import annotations

import marshal
from collections import OrderedDict
from typing import Any, cast

from ccm_agent.model import codec

LIMIT_BYTES = 16 << 20
"""The maximum total size of the cached texts and values. The least recently used document is removed first."""


class ParseCache:
    """Parsed documents by their text. Only one thread may use the cache at a time, as for an engine."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._size_bytes = 0

    def read(self, text: str, source: str) -> object:
        """
        Return the values of a document, as a copy that the caller may change.

        Args:
            text: The document.
            source: The document's name in error messages.

        Raises:
            DocumentError: See `codec.decode_manifest`. A failure is not cached.
        """
        kept = self._kept.get(text)
        if kept is not None:
            self._kept.move_to_end(text)
            # this process created these bytes below; they never come from outside
            return cast("object", marshal.loads(kept))
        value = codec.decode_manifest(text, source)
        self._keep(text, value)
        return value

    def _keep(self, text: str, value: object) -> None:
        try:
            kept = marshal.dumps(cast("Any", value))
        except ValueError:
            return  # a value that marshal does not support
        self._kept[text] = kept
        self._size_bytes += len(text) + len(kept)
        while self._size_bytes > self._limit_bytes:
            old, gone = self._kept.popitem(last=False)
            self._size_bytes -= len(old) + len(gone)
