"""What `ccmctl doctor` says about files on the operator's host."""

from __future__ import annotations

from pathlib import Path

import pytest

from ccm_agent.bus.access.permissions import Role, operator_permissions
from ccm_agent.bus.connection.settings import BusSettings
from ccm_ctl.fleet.doctor.key_checks import look_at_credentials, look_at_keys
from ccm_ctl.fleet.doctor.results import MissingError
from ccm_ctl.fleet.keys.keys import Keys
from tests.support.controller import NOW
from tests.support.doctor import context, states, the

DAY_S = 86_400
NOW_S = int(NOW.timestamp())


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    made = Keys(tmp_path / "keys")
    made.make()
    made.make_root()
    return made


def credentials(keys: Keys, expires: int | None, *, has_trust: bool = True) -> Path:
    """A credentials file of the operator ann."""
    if has_trust:
        made = keys.add_operator("ann", Role(data=True), expires=expires)
    else:
        made = keys.add("operator", "ann", operator_permissions("ann", Role()), expires=expires)
    path = keys.folder.parent / "ann.creds"
    path.touch(mode=0o600)
    path.write_text(made.text.reveal())
    return path


def creds_settings(path: Path) -> BusSettings:
    return BusSettings(identity="ann", creds=str(path))


@pytest.mark.parametrize(
    ("expires", "state"),
    [
        (None, "ok"),
        (NOW_S + 15 * DAY_S, "ok"),
        (NOW_S + 13 * DAY_S, "warning"),
        (NOW_S - 60, "problem"),
    ],
)
def test_credentials_that_expire_soon_are_reported(
    keys: Keys, expires: int | None, state: str, tmp_path: Path
) -> None:
    path = credentials(keys, expires)

    results = look_at_credentials(context(tmp_path, settings=creds_settings(path)))

    assert states(results) == {
        "credentials.file": "ok",
        "credentials.expiry": state,
        "credentials.trust": "ok",
    }


def test_credentials_that_others_can_read_or_without_trust_are_problems(keys: Keys, tmp_path: Path) -> None:
    path = credentials(keys, None, has_trust=False)
    path.chmod(0o640)

    results = look_at_credentials(context(tmp_path, settings=creds_settings(path)))

    assert states(results) == {
        "credentials.file": "problem",
        "credentials.expiry": "ok",
        "credentials.trust": "problem",
    }
    assert the(results, "credentials.file").fix == f"chmod 600 {path}"


def test_without_credentials_there_is_nothing_to_report(tmp_path: Path) -> None:
    assert look_at_credentials(context(tmp_path)) == []


def test_credentials_that_cannot_be_read_are_not_ok(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="cannot be read"):
        look_at_credentials(context(tmp_path, settings=creds_settings(tmp_path / "none.creds")))


def test_folder_with_the_keys_is_reported_when_others_can_open_it(keys: Keys, tmp_path: Path) -> None:
    closed = look_at_keys(context(tmp_path))
    keys.folder.chmod(0o755)
    listed = look_at_keys(context(tmp_path))
    keys.folder.chmod(0o770)
    written = look_at_keys(context(tmp_path))
    keys.folder.chmod(0o700)

    found = [the(results, "keys.folder").state for results in (closed, listed, written)]
    assert found == ["ok", "warning", "problem"]


def test_seed_that_others_can_read_is_a_problem(keys: Keys, tmp_path: Path) -> None:
    (keys.folder / "nodes.seed").chmod(0o644)

    result = the(look_at_keys(context(tmp_path)), "keys.seeds")

    assert (result.state, result.names) == ("problem", ("nodes.seed",))
    assert result.fix == f"chmod 600 {keys.folder}/nodes.seed"


def test_root_key_beside_the_daily_keys_is_a_warning(keys: Keys, tmp_path: Path) -> None:
    beside = the(look_at_keys(context(tmp_path)), "keys.root")
    (keys.folder / "root.seed").rename(tmp_path / "root.seed")
    apart = the(look_at_keys(context(tmp_path)), "keys.root")

    assert (beside.state, apart.state) == ("warning", "ok")


def test_without_keys_there_is_nothing_to_report(tmp_path: Path) -> None:
    assert look_at_keys(context(tmp_path)) == []
