"""What the tests of `ccmctl doctor` share: a context without a broker, and results by their ids."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ccm_agent.bus.connection.messages import ServerInfo
from ccm_agent.bus.connection.settings import BusSettings
from ccm_ctl.fleet.doctor.results import CheckResult, CheckState, DoctorContext
from ccm_ctl.fleet.keys.keys import Keys
from tests.support.controller import NOW

SECURED = ServerInfo(
    url="tls://nats1:4222", version=(2, 14, 0), asks_credentials=True, is_encrypted=True, has_jetstream=True
)


def context(folder: Path, **fields: Any) -> DoctorContext:
    """A context at the time of the tests; the folder with the keys is below `folder` and need not exist."""
    values: dict[str, Any] = {
        "settings": BusSettings(identity="ann"),
        "keys": Keys(folder / "keys"),
        "keys_option": "",
        "now": NOW,
        "server": SECURED,
        "version": "1.2.3",
    }
    return DoctorContext(**(values | fields))


def states(results: Sequence[CheckResult]) -> dict[str, CheckState]:
    """The state of each check."""
    return {one.id: one.state for one in results}


def the(results: Sequence[CheckResult], id_: str) -> CheckResult:
    """The result of one check."""
    [found] = [one for one in results if one.id == id_]
    return found
