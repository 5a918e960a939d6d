"""A node whose key was stolen writes a script into every text that it controls: no page runs it, and all pages still work."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec.structs import fields
from playwright.sync_api import Browser, Page, expect

from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.settings import settings_for
from ccm_agent.bus.events import NatsEvents
from ccm_agent.bus.kv import NatsKeyValue
from ccm_agent.bus.streams import store
from ccm_agent.bus.subjects import event_subject, parse_event, registration_subject, run_pattern
from ccm_agent.model.ids import new_id
from ccm_agent.model.records.registration import RegistrationEntry, instance_of
from ccm_agent.model.wire import NodeRecord
from ccm_ctl.fleet.events.messages import _KINDS
from tests.dashboard.conftest import SCRIPT, Site, context_of
from tests.support.fleet import a_file, fleet, manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

PLAIN = {"protocol", "event_id", "timestamp", "node", "run", "number", "key", "certificate"}
"""What says where a message belongs. A message with a script there is none of ours."""


def hostile(said: dict[str, Any], kind: type[Any]) -> dict[str, Any]:
    """The same with the script in each text, list and mapping that may hold one."""
    made = dict(said)
    for name in (one.encode_name for one in fields(kind)):
        if name in PLAIN:
            continue
        for value in (poisoned(made.get(name)), SCRIPT, [SCRIPT], {SCRIPT: SCRIPT}):
            tried = made | {name: value}
            if value is not None and is_of(tried, kind):
                made = tried
                break
    return made


def poisoned(value: Any) -> Any:
    """A value with the script in place of each text in it."""
    if isinstance(value, str):
        return SCRIPT
    if isinstance(value, list):
        return [poisoned(one) for one in value] or None
    if isinstance(value, dict):
        return {name: poisoned(one) for name, one in value.items()} | {SCRIPT: SCRIPT} if value else None
    return value


def is_of(said: dict[str, Any], kind: type[Any]) -> bool:
    try:
        msgspec.json.decode(json.dumps(said), type=kind)
    except msgspec.MsgspecError:
        return False
    return True


async def write(url: str, run: str, invented: str) -> None:
    """What the stolen key of web1 writes: its record, facts, registrations, and the events of a run that it invents."""
    async with Connection(settings_for(url)) as connection:
        await connection.connect_now()
        bucket, events = NatsKeyValue(connection, "CCM_NODES"), NatsEvents(connection)
        entry = await bucket.get("node.web1")
        assert entry is not None
        record = hostile(json.loads(entry.value), NodeRecord)
        now = datetime.now(UTC).isoformat()
        await bucket.put("node.web1", json.dumps(record).encode())
        facts = {
            "node": "web1",
            "time": now,
            "digest": SCRIPT,
            "facts": {SCRIPT: SCRIPT, "a": {SCRIPT: [SCRIPT]}},
        }
        await bucket.put("facts.web1", json.dumps(facts).encode())
        number = 0
        for stored in await events.read(run_pattern(run)):
            address = parse_event(stored.subject)
            if address.node != "web1" or address.protocol not in _KINDS:
                continue
            said = json.loads(stored.body)
            plain = hostile(said, _KINDS[address.protocol])
            for change in ({}, {"failed": True}, {"skipped": True}) if "skipped" in said else ({},):
                number += 1
                event = plain | change | {"number": number, "event_id": new_id(), "run": invented}
                subject = event_subject(address.protocol, "web1", invented)
                await events.publish(subject, event["event_id"], json.dumps(event).encode())
        usual = {
            "cluster": "prod",
            "service": "web",
            "protocol": "http",
            "address": "10.0.0.9",
            "priority": 1,
        }
        for change in (
            {"annotations": {SCRIPT: SCRIPT}},
            *({name: SCRIPT} for name in (*usual, "port", "ttl")),
        ):
            entry_body = json.dumps(usual | change).encode()
            instance = instance_of(RegistrationEntry(**usual)) if "annotations" in change else new_id()
            await store(
                connection, registration_subject("prod", "http", "web", "10.0.0.9", instance), entry_body, {}
            )


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, str]]:
    """A fleet whose web1 was taken over, and the run that it invented."""
    with fleet(tmp_path_factory.mktemp("taken")) as built:
        built.add("web1", "web2", interval="1h")
        path = built.write("site.yaml", manifest(a_file("motd")))
        run, invented = built.ctl("apply", path, "--all", "--yes", "--json").run, new_id()
        on_its_own(lambda: asyncio.run(write(built.url, run, invented)))
        site = Site(built)
        site.serve()
        yield site, invented


def on_its_own(work: Callable[[], object]) -> None:
    """Work in a thread: that of the browser has an event loop."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()


def test_no_page_runs_what_a_node_writes(browser: Browser, taken: tuple[Site, str]) -> None:
    site, run = taken
    with context_of(browser) as context:  # fails on a dialog, and on what the content policy had to stop
        page = context.new_page()
        page.goto(site.printed)
        page.wait_for_selector("header")
        for path in ("/nodes/web1", f"/runs/{run}", "/changes", "/registrations"):
            page.goto(site.address + path)

            expect(page.locator("main").get_by_text(SCRIPT).first).to_be_attached()
            check(page, path)
        for path in ("/?facts=motto", "/runs", "/assignments", "/data", "/schedules", "/slots", "/studio"):
            page.goto(site.address + path)
            page.wait_for_selector("main h1, main table, main .empty, main .heat-map", state="attached")
            check(page, path)


def check(page: Page, path: str) -> None:
    """Nothing of the script became a part of the page."""
    planted = page.evaluate("document.querySelectorAll('img[src=x], body script, main img').length")
    assert (path, planted, page.title().startswith("owned")) == (path, 0, False)
