"""`ccmctl doctor` as a command: exit code, records, and what it says without a real broker."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ccm_agent.bus.connection.settings import BusSettings
from ccm_agent.model.errors import BusUnavailableError
from ccm_agent.version import VERSION
from ccm_ctl.app import Broker
from tests.support.controller import Desk, FakeNode

TOP = Path(__file__).resolve().parents[4]
HEALTHY = {"signatures": True, "policy": True}


class Away(Desk):
    """A desk without a broker."""

    @contextlib.asynccontextmanager
    async def _connect(self, settings: BusSettings) -> AsyncIterator[Broker]:
        raise BusUnavailableError("no broker answers")
        yield


def desk(**record: object) -> Desk:
    return Desk(FakeNode("web1", record=HEALTHY | record))


def test_a_check_without_permission_is_unknown_and_not_ok() -> None:
    said = desk().ccmctl("doctor", "--json")

    found = {one["id"]: one["state"] for one in said.records if one["record"] == "check"}
    assert found["broker.authentication"] == "unknown"
    assert found["stream.CCM_EVENTS"] == "unknown"
    assert found["nodes.signatures"] == "ok"
    assert not [id_ for id_, state in found.items() if state == "ok" and not id_.startswith("nodes.")]


@pytest.mark.parametrize(
    ("record", "argv", "code"),
    [
        pytest.param({}, [], 0, id="an older version is a warning"),
        pytest.param({}, ["--strict"], 2, id="strict fails on a warning"),
        pytest.param({"signatures": False}, [], 2, id="a problem fails"),
    ],
)
def test_exit_code_reports_problems(record: dict[str, object], argv: list[str], code: int) -> None:
    said = desk(**record).ccmctl("doctor", *argv, "--json")

    assert (said.code, said.records[-1]["exit"]) == (code, code)


def test_without_a_broker_the_connection_is_the_problem() -> None:
    said = Away().ccmctl("doctor", "--json")

    first, *others, last = said.records
    assert (first["id"], first["state"], first["sentence"]) == (
        "broker.connection",
        "problem",
        "no broker answers",
    )
    assert {one["state"] for one in others} == {"unknown"}
    assert (said.code, last["counts"]["problem"]) == (2, 1)


def test_records_match_the_schema() -> None:
    schema = json.loads((TOP / "schemas/v1/check_result.json").read_text())["$defs"]

    for one in desk(signatures=False).ccmctl("doctor", "--json").records[:-1]:
        assert one.pop("record") == "check"
        assert set(one) <= set(schema["CheckResult"]["properties"])
        assert set(one) >= set(schema["CheckResult"]["required"])
        assert one["state"] in schema["CheckState"]["enum"]


def test_screen_names_the_node_and_the_command() -> None:
    said = desk(signatures=False).ccmctl("doctor")

    assert "Unsigned operation on 1 of 1 node (web1)" in said.out
    assert "fix: ccmctl node add web1 > web1.creds" in said.out
    assert (
        f"Agents of other versions than this ccmctl ({VERSION}) on 1 of 1 node (web1): 1.2.3: 1." in said.out
    )
