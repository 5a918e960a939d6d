"""Fixtures of all unit tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from blockbuster import BlockBuster, blockbuster_ctx


@pytest.fixture(autouse=True)
def blockbuster() -> Iterator[BlockBuster]:
    """What blocks the event loop (a sleep, a file, a socket) in our own code fails the test that does it."""
    with blockbuster_ctx(scanned_modules=["ccm_agent", "ccm_ctl"]) as found:
        # getcwd(2) reads no disk, and a relative path that nearly nobody writes is not worth a hop
        found.functions["os.getcwd"].can_block_in("resources/exec/providers/commands.py", "_absolute")
        yield found
