"""Scheduled rollouts on a broker with security: who may add one, and whose a rollout server starts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.fleet import a_file, manifest
from tests.support.schedules import MARGINS_S
from tests.support.secured import Secured, secured_fleet

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

    assert "no rollout server runs" in said
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
