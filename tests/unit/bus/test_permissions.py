"""The words by which people ask for permissions. What a broker makes of the lists is in tests/nats/test_permissions.py."""

from __future__ import annotations

import pytest

from ccm_agent.bus.access.permissions import operator_flag_for


@pytest.mark.parametrize(
    ("subject", "word"),
    [
        ("io.choria.ccm.v1.manifest.plan.request.fact.role.web", "--plan"),
        ("io.choria.ccm.v1.manifest.apply.request.node.web1", "--apply"),
        ("$KV.CCM_ASSIGNMENTS.fact.role.web.site", "--apply"),
        ("$KV.CCM_DATA.common", "--data"),
        ("$KV.CCM_FACTS.web1", "--facts"),
        ("choria.ccm.schedule.nightly", "--schedules"),
        ("$JS.API.STREAM.CREATE.CCM_EVENTS", "--admin"),
        ("io.choria.ccm.v1.node.ping.request.all", ""),
        ("$SYS.REQ.SERVER.PING", ""),
    ],
)
def test_denied_operator_is_shown_the_missing_option(subject: str, word: str) -> None:
    assert operator_flag_for(subject) == word
