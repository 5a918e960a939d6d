"""What `ccmctl doctor` says about a broker by what that says about itself."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ccm_ctl.fleet.doctor.broker_checks import (
    check_accounts,
    check_configuration,
    check_old_credentials,
    check_server,
    judge_accounts,
    judge_clock,
    judge_configuration,
    judge_old_credentials,
)
from ccm_ctl.fleet.doctor.results import CheckState
from ccm_ctl.fleet.keys.keys import Keys
from ccm_ctl.fleet.keys.moving import Left
from tests.support.controller import NOW
from tests.support.doctor import SECURED, context, states, the


@pytest.mark.parametrize(
    ("fields", "id_", "state"),
    [
        pytest.param({}, "broker.authentication", "ok", id="asks for credentials"),
        pytest.param({"asks_credentials": False}, "broker.authentication", "problem", id="asks for none"),
        pytest.param({}, "broker.tls", "ok", id="TLS"),
        pytest.param({"is_encrypted": False}, "broker.tls", "problem", id="no TLS over a network"),
        pytest.param(
            {"is_encrypted": False, "is_loopback": True}, "broker.tls", "ok", id="no TLS on loopback"
        ),
        pytest.param({}, "broker.version", "ok", id="version with schedules"),
        pytest.param({"version": (2, 12, 9)}, "broker.version", "warning", id="version without schedules"),
        pytest.param({"version": (2, 10, 0)}, "broker.version", "problem", id="version too old"),
        pytest.param(
            {"certificate_ends": NOW + timedelta(days=31)}, "broker.certificate", "ok", id="certificate"
        ),
        pytest.param(
            {"certificate_ends": NOW + timedelta(days=29)}, "broker.certificate", "warning", id="expires soon"
        ),
    ],
)
async def test_server_is_judged_by_its_description(
    fields: dict[str, Any], id_: str, state: str, tmp_path: Path
) -> None:
    server = msgspec.structs.replace(SECURED, **fields)

    results = await check_server(context(tmp_path, server=server))

    assert states(results)[id_] == state


async def test_problem_of_a_broker_without_tls_comes_with_its_fix(tmp_path: Path) -> None:
    server = msgspec.structs.replace(SECURED, is_encrypted=False)

    result = the(await check_server(context(tmp_path, server=server)), "broker.tls")

    assert result.fix == "ccmctl init --security --server-name HOST"


@pytest.mark.parametrize(
    ("off_s", "state"),
    [(0, "ok"), (-59, "ok"), (61, "warning"), (-299, "warning"), (300, "problem"), (-4000, "problem")],
)
def test_clock_differences_are_judged_by_the_tolerance_of_nodes(off_s: float, state: str) -> None:
    assert judge_clock(off_s).state == state


async def test_checks_on_accounts_do_not_apply_without_authentication(tmp_path: Path) -> None:
    server = msgspec.structs.replace(SECURED, asks_credentials=False)
    looked = context(tmp_path, server=server)

    found = [await ask(looked) for ask in (check_accounts, check_configuration, check_old_credentials)]

    assert found == [[], [], []]


def test_keys_of_the_old_layout_are_a_problem_and_a_move_is_a_warning(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys")
    keys.make()
    looked = context(tmp_path, keys_option=" --keys /k")

    separate = judge_accounts(keys, looked)
    keys.begin_moving(3600)
    moving = judge_accounts(keys, looked)
    (keys.folder / "ops.seed").unlink()
    old = judge_accounts(keys, looked)

    assert [separate.state, moving.state, old.state] == ["ok", "warning", "problem"]
    assert old.fix == "ccmctl init --security --migrate --keys /k"


def test_configuration_of_an_earlier_version_is_a_problem(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys")
    keys.make()
    lines = keys.configuration.read_text().splitlines()
    keys.configuration.write_text("\n".join(line for line in lines if not line.startswith("#")))

    [result] = asyncio.run(check_configuration(context(tmp_path)))

    assert (result.id, result.state, result.fix) == (
        "broker.configuration",
        "problem",
        "ccmctl init --security",
    )


def test_server_with_an_older_configuration_is_named(tmp_path: Path) -> None:
    answers = [
        msgspec.json.encode({"server": {"name": name}, "data": {"account_name": "A1", "jwt": token}})
        for name, token in (("n1", "new"), ("n2", "old"), ("n3", "new"))
    ]
    keys = Keys(tmp_path)

    assert judge_configuration({"A1": "old"}, answers[1:2], keys.configuration).state == CheckState.OK
    result = judge_configuration({"A1": "new"}, answers, keys.configuration)
    assert (result.state, result.names) == (CheckState.PROBLEM, ("n2",))


def test_old_credentials_are_a_problem_unless_the_fleet_moves(tmp_path: Path) -> None:
    left = [Left(kind="node", name="web1", connected=True)]
    looked = context(tmp_path)

    moving = judge_old_credentials(left, looked, is_moving=True)
    ended = judge_old_credentials(left, looked, is_moving=False)

    assert (moving.state, ended.state, ended.names) == ("warning", "problem", ("web1",))
    assert judge_old_credentials([], looked, is_moving=True).state == "ok"
