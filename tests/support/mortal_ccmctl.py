"""
`ccmctl` as a process that dies at a write that a test names.

    python -m tests.support.mortal_ccmctl ARGUMENTS

DIE (an environment variable) is a kind and a number: `wrap 2` ends the process with SIGKILL before it writes the second entry of
a node. The kinds: `value`, `head` and `wrap` of a secret; `removal` of a value; `record` of a run; `request` to nodes.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from ccm_agent.bus.kv import NatsKeyValue
from ccm_agent.bus.requests import NatsRequests
from ccm_ctl.__main__ import main

KIND, NUMBER = os.environ["DIE"].split()
COUNTS: dict[str, int] = {}


def dies_at(kind: str) -> None:
    """Count what is about to be written."""
    COUNTS[kind] = COUNTS.get(kind, 0) + 1
    if (kind, COUNTS[kind]) == (KIND, int(NUMBER)):
        os.kill(os.getpid(), signal.SIGKILL)


def kind_of(key: str) -> str:
    """The kind of what is under a key."""
    return "record" if key.endswith(".request") else key.partition(".")[0]


update, delete, publish = NatsKeyValue.update, NatsKeyValue.delete, NatsRequests.publish


async def mortal_update(self: NatsKeyValue, key: str, *rest: Any, **more: Any) -> int:
    """See `KeyValue.update`."""
    dies_at(kind_of(key))
    return await update(self, key, *rest, **more)


async def mortal_delete(self: NatsKeyValue, key: str, *rest: Any, **more: Any) -> None:
    """See `KeyValue.delete`."""
    dies_at("removal" if kind_of(key) == "value" else "")
    await delete(self, key, *rest, **more)


async def mortal_publish(self: NatsRequests, *rest: Any, **more: Any) -> None:
    """See `Requests.publish`."""
    dies_at("request")
    await publish(self, *rest, **more)


if __name__ == "__main__":
    NatsKeyValue.update = mortal_update  # type: ignore[method-assign]
    NatsKeyValue.delete = mortal_delete  # type: ignore[method-assign]
    NatsRequests.publish = mortal_publish  # type: ignore[method-assign]
    sys.exit(main())
