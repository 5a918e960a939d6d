"""What `ccmctl doctor` says about the audit trail without credentials; `nats/test_audit.py` has the rest."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.settings import BusSettings
from ccm_ctl.fleet.doctor.audit_checks import check_trail
from tests.support.doctor import SECURED, context


@pytest.mark.parametrize("asks_credentials", [False, True])
async def test_a_fleet_without_credentials_has_no_audit_trail_which_is_a_warning(
    tmp_path: Path, *, asks_credentials: bool
) -> None:
    server = msgspec.structs.replace(SECURED, asks_credentials=asks_credentials)
    unsigned = context(tmp_path, server=server, connection=Connection(BusSettings(identity="ann")))

    found = [(one.state, one.sentence, one.fix) for one in await check_trail(unsigned)]

    sentence = "The fleet has no audit trail: without credentials, nothing proves who did what."
    expected = [] if asks_credentials else [("warning", sentence, "ccmctl init --security")]
    assert found == expected
