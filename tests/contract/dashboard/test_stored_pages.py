"""What the pages of stored things give over HTTP: changes of data, and services."""

from __future__ import annotations

import json
from datetime import timedelta

from ccm_agent.model.errors import BusUnavailableError
from ccm_agent.model.records.registration import RegistrationEntry
from ccm_agent.registration.entries import StreamEntry, entry_subject
from ccm_agent.testing.memory_bus import MemoryBus
from ccm_ctl.fleet.data.documents import Documents
from tests.contract.dashboard.test_server import Site, served
from tests.support.controller import NOW, fleet_on

SHOP = {"cluster": "prod", "service": "shop", "protocol": "http", "address": "192.0.2.2"}


async def put(site: Site, key: str, *texts: str) -> None:
    """Store revisions of a document."""
    fleet = fleet_on(MemoryBus(site.broker, "op"))
    for text in texts:
        await Documents(fleet, fleet.data, "CCM_DATA").change(key, lambda _, text=text: text)  # type: ignore[misc]


async def test_changes_of_data_have_no_secret_and_no_text_that_cannot_be_read() -> None:
    async with served() as site:
        await site.sign_in()
        await put(
            site, "common", "data: {port: 1, pin: 11111}", "data: {port: 2, pin: 22222}", "data: [planted"
        )
        _, listed = await site.ask("GET", "/api/data/common")
        first, second, broken = sorted(one["revision"] for one in listed["revisions"])
        said = {
            number: (await site.ask("GET", f"/api/data/common?changes={number}"))[1]
            for number in (first, second, broken)
        }
        refused = [
            (await site.ask("GET", f"/api/data/common?changes={word}"))[0]
            for word in ("x", "-1", "9" * 30, "")
        ]

    assert (said[first]["before"], [one["kind"] for one in said[first]["changes"]]) == (0, ["added", "added"])
    assert said[second]["changes"] == [
        {"path": "data.port", "kind": "changed", "before": 1, "after": 2},
        {"path": "data.pin", "kind": "changed", "before": "***", "after": "***"},
    ]
    assert (said[broken]["changes"], "not readable YAML" in said[broken]["problem"]) == ([], True)
    assert refused == [404] * 4
    assert not any(word in json.dumps(said) for word in ("planted", "11111", "22222"))


class Services:
    """The registered services as a test says."""

    def __init__(self, *entries: StreamEntry, is_away: bool = False) -> None:
        self._entries = list(entries)
        self._is_away = is_away

    async def stored(self) -> list[StreamEntry]:
        """All of them."""
        if self._is_away:
            raise BusUnavailableError("the broker is away")
        return self._entries


async def test_services_are_shown_with_their_health() -> None:
    entry = RegistrationEntry(**SHOP, port=8080, priority=9, ttl="15s")
    subject = entry_subject(entry)
    earlier = NOW - timedelta(minutes=3)
    healthy = StreamEntry(subject=subject, sequence=2, time=NOW, entry=entry)
    gone = StreamEntry(subject=subject, sequence=1, time=earlier, reason="MaxAge")
    spoilt = StreamEntry(subject=subject, sequence=3, time=NOW, is_spoilt=True)
    async with served(services=Services(healthy, gone, spoilt)) as site:
        await site.sign_in()
        status, said = await site.ask("GET", "/api/registrations")
    async with served(services=Services(is_away=True)) as site:
        await site.sign_in()
        away, problem = await site.ask("GET", "/api/registrations")

    assert status == away == 200
    assert [
        (one["address"], one["port"], one["is_gone"], one["reason"]) for one in said["registrations"]
    ] == [
        ("192.0.2.2", 8080, False, ""),
        ("192.0.2.2", None, True, "MaxAge"),
    ]
    assert problem == {"registrations": [], "problem": "the broker is away"}
