"""
When the state of this node began: since when its log of requests knows what was carried out.

A signed request is valid for an hour, and by the log it is carried out once. A node that is new, or whose state folder was
removed, has no such log: the holder of the broker could deliver a request again. So what was signed before is refused.
"""

from __future__ import annotations

import logging
from pathlib import Path

from ccm_agent.model.errors import FileError
from ccm_agent.storage.state_file import StateFile

log = logging.getLogger(__name__)

LEDGER = "ledger.log"
"""The log of requests, in the state folder."""

_FILE = "began.json"


def state_began(folder: Path, now_ms: int) -> int:
    """
    When the log of requests in a state folder began, in milliseconds since 1970; 0 for one of an earlier version. Blocking.

    Call it before the log is opened: a folder without one begins now.
    """
    file = StateFile(folder / _FILE, int)
    if (folder / LEDGER).exists():
        return file.load() or 0
    try:
        file.write(now_ms)
    except FileError as err:
        # the next start takes the log for one of an earlier version; this process knows better
        log.warning("when the state began is not saved", extra={"reason": str(err)})
    return now_ms
