"""What the center reports about its sites, from the broker's answers."""

from __future__ import annotations

from typing import Any

import pytest

from ccm_agent.model.errors import ProtocolError
from ccm_ctl.fleet.doctor.site_checks import judge_sites
from ccm_ctl.fleet.nodes.sites import ERROR_LENGTH, site_sources


def source(site: str, silent_s: float, error: str = "") -> dict[str, Any]:
    """A source as STREAM.INFO describes it; -1: no contact since the broker has started."""
    external = {"api": f"$JS.{site}.API", "deliver": "up"}
    active = int(silent_s * 1e9) if silent_s >= 0 else -1
    described = {"error": {"code": 503, "description": error}} if error else {}
    return {"name": "KV_CCM_NODES", "external": external, "lag": 0, "active": active, **described}


def info(*sources: dict[str, Any]) -> dict[str, Any]:
    return {"ts": "2026-11-29T12:00:00.123456789Z", "sources": list(sources)}


@pytest.mark.parametrize(
    ("sources", "state", "names"),
    [
        pytest.param([source("paris", 2), source("oslo", 29)], "ok", (), id="contact with all"),
        pytest.param([source("paris", 2), source("oslo", 30)], "warning", ("oslo",), id="one is cut off"),
        pytest.param([source("paris", -1)], "warning", ("paris",), id="no contact since the start"),
        pytest.param([source("paris", 2, "full")], "warning", ("paris",), id="an error"),
    ],
)
def test_site_without_contact_or_with_an_error_is_a_warning(
    sources: list[dict[str, Any]], state: str, names: tuple[str, ...]
) -> None:
    result = judge_sites({"KV_CCM_NODES": site_sources(info(*sources))})

    assert (result.state, result.names) == (state, names)


def test_stream_without_sources_on_other_brokers_has_no_sites() -> None:
    assert site_sources({"ts": "2026-11-29T12:00:00Z"}) == []
    assert site_sources(info({"name": "KV_LOCAL", "active": 1, "lag": 0})) == []


def test_long_error_of_another_broker_is_shortened() -> None:
    [one] = site_sources(info(source("paris", 1, "x" * 10_000)))

    assert len(one.error) == ERROR_LENGTH


@pytest.mark.parametrize(
    "report",
    [
        info(source("paris", 1) | {"active": "now"}),
        {"ts": "2026-11-29T12:00:00Z", "sources": 5},
        {"ts": "2026-11-29T12:00:00Z", "sources": ["paris"]},
        {"ts": "2026-11-29T12:00:00Z", "mirror": "center"},
        info(source("paris", 1) | {"lag": float("inf")}),
    ],
)
def test_invalid_report_is_an_error(report: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        site_sources(report)


def test_negative_lag_is_none() -> None:
    [one] = site_sources(info(source("paris", 1) | {"lag": -5}))

    assert one.lag == 0


def test_name_of_a_site_adds_no_line_to_the_command_that_doctor_suggests() -> None:
    result = judge_sites({"KV_CCM_NODES": site_sources(info(source("paris\nreboot", -1)))})

    assert result.names == ("'paris\\nreboot'",)
    assert len(result.fix.splitlines()) == 1
