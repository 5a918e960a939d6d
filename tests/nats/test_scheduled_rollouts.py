"""Scheduled rollouts on a broker with security: who may add one, and whose a rollout server starts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from msgspec import Struct

from ccm_agent.bus.layout import RUNS
from ccm_agent.bus.subjects import ROLLOUTS, encode_token, key_subject, starts_key
from ccm_agent.model.records.rollout_records import ScheduledStart, ScheduleStarts
from ccm_ctl.app import ConnectionOptions, bus_settings, connected
from tests.support.fleet import FILES, a_file, manifest
from tests.support.schedules import MARGINS_S, add_at
from tests.support.secured import Secured, secured_fleet
from tests.support.signing import OWN

pytestmark = [pytest.mark.nats, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """The node web1, and the operators tester, bob (--apply role=web), timer (--schedules), server (--apply all), and eve."""
    with secured_fleet(tmp_path_factory.mktemp("scheduled")) as one:
        one.give("operator", "timer", "--schedules")
        one.give("operator", "server", "--apply", "all")
        one.give("operator", "eve")
        yield one


def add(secured: Secured, operator: str, name: str) -> str:
    """Add a scheduled rollout that is due soon; what the operator was told."""
    path = secured.fleet.write(f"{name}.yaml", manifest(a_file(name)))
    words = ["schedule", "add", name, path, "--every", f"{MARGINS_S[0]}s", "-t", "role=web", "--batch", "1"]
    return secured.as_(operator, *words, "--yes").err


def has_file(secured: Secured, name: str) -> bool:
    return (secured.fleet.agents["web1"].files / name).exists()


def test_a_server_starts_what_an_operator_with_schedules_signed(secured: Secured) -> None:
    said = add(secured, "timer", "signed")

    def serve() -> bool:
        secured.as_("server", "rollout", "serve", "--once")
        return has_file(secured, "signed")

    secured.fleet.wait_for(serve, "the server to start it")
    status = secured.as_("eve", "schedule", "status", "signed", "--json")

    assert "no rollout server is running" in said
    assert status.named("scheduled_start")[-1]["by"].startswith("server@")
    assert secured.as_("timer", "schedule", "rm", "signed", "--yes").code == 0


@pytest.mark.parametrize("operator", ["bob", "eve"])
def test_an_operator_without_schedules_adds_none(secured: Secured, operator: str) -> None:
    said = add(secured, operator, "denied")

    assert "not allow" in said or "denied" in said
    assert "denied" not in secured.as_("tester", "schedule", "list").out


def test_a_server_refuses_what_an_operator_signed_who_was_removed_since(secured: Secured) -> None:
    secured.give("operator", "former", "--schedules")
    add(secured, "former", "former")
    removed = secured.fleet.ctl("operator", "revoke", "former")

    def serve() -> bool:
        return "schedule former: refused: " in secured.as_("server", "rollout", "serve", "--once").err

    secured.fleet.wait_for(serve, "the refusal")

    assert removed.code == 0, removed.err
    assert not has_file(secured, "former")
    assert secured.as_("timer", "schedule", "rm", "former", "--yes").code == 0


def test_a_look_only_operator_can_neither_start_one_nor_serve(secured: Secured) -> None:
    add(secured, "timer", "looked")

    def serve() -> bool:
        return (
            "scheduled rollouts need credentials with --apply"
            in secured.as_("eve", "rollout", "serve", "--once").err
        )

    secured.fleet.wait_for(serve, "the refusal of the broker")

    assert not has_file(secured, "looked")
    assert secured.as_("tester", "run", "list", "--schedule", "looked", "--json").records == []
    assert secured.as_("timer", "schedule", "rm", "looked", "--yes").code == 0


def write_run_key(secured: Secured, operator: str, key: str, value: Struct | None) -> None:
    """An operator writes or removes keys of CCM_RUNS, signed as a program of ours would sign."""

    async def write() -> None:
        creds = (
            secured.keys / "tester.creds" if operator == "tester" else secured.directory / f"{operator}.creds"
        )
        environ = {**secured.fleet.environ, "CCM_CREDS": str(creds)}
        async with connected(bus_settings(ConnectionOptions(), environ)) as broker:
            runs, signatory = broker.fleet.runs, broker.fleet.signatory
            assert signatory is not None
            if value is None:
                for entry in await runs.matching([key]):
                    await runs.delete(entry.key)
                return
            body = msgspec.json.encode(value)
            await runs.update(key, body, 0, signature=signatory.record(key_subject(RUNS, key), body, OWN))

    asyncio.run(write())


def test_a_start_runs_once_whatever_is_stored_about_it(secured: Secured) -> None:
    """ann may write the starts of every schedule. tester removes what the holder of the broker can remove."""
    secured.give("operator", "ann", "--apply", "role=db")
    name, key = "count", starts_key("count")
    path = secured.fleet.write(
        "count.yaml", manifest(("exec", "count", {"command": f"sh -c 'echo >> {FILES}/count'"}))
    )
    made = add_at(secured.fleet, name, path, "-t", "role=web", "--batch", "1")
    forged = ScheduledStart(due=datetime.now(UTC) + timedelta(days=1), by="ann")
    write_run_key(secured, "ann", key, ScheduleStarts(name=name, starts=(forged,)))
    served: list[str] = []

    def serve() -> str:
        served.append(secured.as_("server", "rollout", "serve", "--once").err)
        return served[-1]

    def started() -> list[str]:
        status = secured.as_("eve", "schedule", "status", name, "--json")
        return [one["run"] for one in status.named("scheduled_start")]

    def is_open() -> bool:
        return bool(secured.as_("eve", "rollout", "list", "--json").named("rollout"))

    def lines() -> int:
        file = secured.fleet.agents["web1"].files / "count"
        return file.read_text().count("\n") if file.exists() else 0

    secured.fleet.wait_for(lambda: serve() and lines(), "the server to start it")
    [run], before = started(), "".join(served)
    write_run_key(secured, "ann", key, None)
    secured.fleet.wait_for(lambda: "is not repeated" in serve(), "the server to find the record")
    after_ann = (started(), lines())
    for pattern in (key, f"{ROLLOUTS}.{run}", f"{encode_token('server')}.{run}.>"):
        write_run_key(secured, "server" if pattern.endswith(">") else "ann", pattern, None)
    secured.fleet.wait_for(
        lambda: serve() and started() and not is_open(), "the server to begin and end it again"
    )
    after_all = (started(), lines())

    assert made.code == 0, made.err
    assert "the stored starts are ignored: ann signed it, but may not start a rollout on" in before
    assert after_ann == ([run], 1)
    assert after_all == ([run], 1)
