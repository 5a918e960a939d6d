"""Fixtures of the tests of commands."""

from __future__ import annotations

import pytest

from ccm_ctl.fleet.data import fact_edits


@pytest.fixture(autouse=True)
def short_wait_for_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most fakes never report that they have taken their facts, which `ccmctl facts` waits for."""
    monkeypatch.setattr(fact_edits, "TAKEN_WITHIN_S", 0.5)
