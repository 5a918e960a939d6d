"""Manifests that ask who is registered, and that say what they register."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from ccm_agent.app_expressions import make_expressions
from ccm_agent.engine.request import ManifestSource
from ccm_agent.model.errors import BusError, BusUnavailableError, InputError, PropertyError, UnsettledError
from ccm_agent.model.outcome import SessionSummary
from ccm_agent.model.records.registration import RegistrationEntry
from ccm_agent.templates.broker_functions import BrokerFunctions
from tests.support.engine import Bench, bench

ENTRY = RegistrationEntry(
    cluster="prod", service="web", protocol="http", address="10.0.0.1", port=8080, priority=10
)
LISTED = "{{ map(registrations('prod', 'http', 'web', '*'), .Address)[0] }}"


class Registry:
    """Who knows the broker: what is registered there, or why it cannot be told."""

    def __init__(self, entries: list[RegistrationEntry] | None = None, error: BusError | None = None) -> None:
        self.entries = entries or []
        self.error = error
        self.asked: list[tuple[str, ...]] = []

    async def registrations(self, *query: str) -> list[RegistrationEntry]:
        await asyncio.sleep(0)
        self.asked.append(query)
        if self.error is not None:
            raise self.error
        return self.entries

    async def kv_get(self, bucket: str, key: str) -> bytes | None:
        return {"greeting": b"hello", "raw": b"\xff"}.get(key) if bucket == "CCM_DATA" else None


def bench_with(registry: Registry, **world: Any) -> Bench:
    asking = BrokerFunctions(asyncio.get_running_loop(), lambda: registry)
    return bench(make_expressions=partial(make_expressions, asking=lambda: asking), **world)


async def apply(on: Bench, *resources: str, top: str = "", **options: Any) -> SessionSummary:
    listed = "\n".join(f"    - {one}" for one in resources)
    on.files.put("/work/m.yaml", f"{top}\nccm:\n  resources:\n{listed}\n")
    return await on.engine.apply(ManifestSource(path="/work/m.yaml"), on.options(**options))


async def test_a_property_lists_the_registered_nodes() -> None:
    registry = Registry([ENTRY])
    on = bench_with(registry)

    await apply(on, f'note: {{name: now, text: "{LISTED}"}}', f'note: {{name: turn, later: "{LISTED}"}}')

    assert on.board.notes == {"now": "10.0.0.1", "turn": "10.0.0.1"}
    assert registry.asked == [("prod", "http", "web", "*")] * 2


async def test_a_key_of_a_bucket_is_read() -> None:
    on = bench_with(Registry())

    await apply(on, "note: {name: a, text: \"{{ kvGet('CCM_DATA', 'greeting') }}\"}")

    assert on.board.notes == {"a": "hello"}


@pytest.mark.parametrize("error", [UnsettledError("not yet"), BusUnavailableError("no broker answers")])
async def test_an_undecidable_value_fails_only_its_resource(error: BusError) -> None:
    on = bench_with(Registry(error=error))
    on.board.notes["pool"] = "as it was"

    summary = await apply(
        on,
        f'note: {{name: pool, later: "{LISTED}"}}',
        "note: {name: other, text: x}",
        "note: {name: follows, text: y, require: [note#pool]}",
    )

    failed, other, follows = on.events
    assert on.board.notes == {"pool": "as it was", "other": "x"}
    assert (failed.failed, failed.changed, failed.code) == (True, False, error.code)
    assert error.message in failed.error[0]
    assert (other.changed, follows.skipped, follows.unmet_requirements) == (True, True, ["note#pool"])
    assert (summary.state, summary.reason) == ("failed", "")


async def test_an_error_found_before_any_change_refuses_the_manifest() -> None:
    on = bench_with(Registry(error=UnsettledError("not yet")))

    with pytest.raises(InputError, match="not yet"):
        await apply(on, "note: {name: first, text: x}", f'note: {{name: pool, text: "{LISTED}"}}')

    assert on.board.notes == {}


async def test_a_template_that_fails_by_itself_breaks_the_run_off_as_ever() -> None:
    on = bench_with(Registry())

    summary = await apply(on, f'note: {{name: pool, later: "{LISTED}"}}', "note: {name: other, text: x}")

    assert "out of range" in summary.reason
    assert on.events == []


async def test_entries_are_rendered_and_a_port_keeps_its_type() -> None:
    published: list[RegistrationEntry] = []

    async def register(entry: RegistrationEntry) -> None:
        published.append(entry)

    on = bench(register=register)
    entry = (
        'cluster: "{{ Data.where }}", service: web, protocol: http, address: "{{ Facts.ip }}", '
        'port: "{{ Data.port }}", priority: 10, ttl: 10m, annotations: {port: "{{ Data.port }}", n: 1}'
    )

    await apply(
        on,
        f"note: {{name: a, text: x, register_when_stable: [{{{entry}}}]}}",
        top="data: {where: prod, port: 8080}",
        facts={"ip": "10.0.0.1"},
    )

    assert published == [
        RegistrationEntry(
            cluster="prod",
            service="web",
            protocol="http",
            address="10.0.0.1",
            port=8080,
            priority=10,
            ttl="10m",
            annotations={"port": "8080", "n": "1"},
        )
    ]


@pytest.mark.parametrize(
    ("field", "value"), [("port", '"{{ Data.text }}"'), ("address", "web1.example.com"), ("priority", "0")]
)
async def test_an_entry_that_cannot_be_right_is_refused_with_its_place(field: str, value: str) -> None:
    entry = {
        "cluster": "c",
        "service": "s",
        "protocol": "http",
        "address": "10.0.0.1",
        "port": "80",
        "priority": "1",
    }
    shown = ", ".join(f"{key}: {word}" for key, word in (entry | {field: value}).items())

    with pytest.raises(PropertyError) as caught:
        await apply(
            bench(),
            f"note: {{name: a, register_when_stable: [{{{shown}}}]}}",
            top='data: {text: "8080"}',
        )

    assert caught.value.place is not None
    assert caught.value.place.path == f"$.ccm.resources[0].note.register_when_stable[0].{field}"
    assert caught.value.place.line == 4
