"""Names and addresses of sites, and what their accounts exchange with the center."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from ccm_agent.bus.access import credentials
from ccm_agent.bus.access.sites import center_configuration, check_site, down, site_configuration, up
from ccm_agent.bus.connection.settings import settings_for
from ccm_agent.model.errors import InputError, ProtocolError, UsageError
from ccm_ctl.fleet.keys import system_account
from ccm_ctl.fleet.keys.keys import Keys
from ccm_ctl.fleet.keys.sites import checked_leaves, new_site_account, site_folder, sites_in, write_site


@pytest.mark.parametrize(
    "name",
    ["", "Paris", "9th", "a.b", "a/b", "../x", "a b", "a*", "a>", "-a", "é", "a" * 33, "center", "a\n"],
)
def test_a_name_that_is_no_token_of_a_subject_and_of_a_file_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        check_site(name)


def test_lowercase_letters_digits_and_hyphens_are_a_name() -> None:
    assert check_site("shop-12") == "shop-12"


@pytest.mark.parametrize(
    "text",
    [
        "http://hub1",
        "tls://u:p@hub1",
        'tls://a"b',
        "tls://hub1/x",
        "tls://",
        "tls://h:x",
        "tls://a b",
        'tls://[::1%"}]',
        "nats-leaf://[::1%en$A]:1",
        "tls://hub\n1",
        "tls://hub\t1",
    ],
)
def test_an_address_that_is_not_a_host_and_a_port_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        checked_leaves(text)


def test_only_an_address_on_this_host_goes_without_tls() -> None:
    assert checked_leaves("nats-leaf://hub1,hub2:7000, 127.0.0.1,tls://localhost,nats-leaf://[::1]:7") == [
        "tls://hub1:7422",
        "tls://hub2:7000",
        "nats-leaf://127.0.0.1:7422",
        "tls://localhost:7422",
        "nats-leaf://[::1]:7",
    ]


def test_each_site_imports_what_is_delivered_to_it_alone_and_allows_one_leaf_node() -> None:
    authority = credentials.new_authority()
    text = credentials.server_configuration(authority)
    seeds = {"paris": new_site_account(), "oslo": new_site_account()}

    center = center_configuration(text, authority.operator, seeds)

    found = credentials.account_tokens(center)
    for site, other in (("paris", "oslo"), ("oslo", "paris")):
        claims = credentials.claims_in(found[credentials.public_key(seeds[site])])["nats"]
        assert (claims["limits"]["leaf"], claims["limits"]["consumer"]) == (3, 10)
        assert f"{down(site)}.>" in {one["subject"] for one in claims["imports"]}
        assert f"{up(site)}.>" in {one["subject"] for one in claims["exports"]}
        assert other not in str([claims["imports"], claims["exports"]])
    streams = credentials.claims_in(found[credentials.public_key(authority.account)])["nats"]
    subjects = [one["subject"] for one in streams["exports"]]
    assert len(subjects) == len(set(subjects))
    assert streams["limits"]["leaf"] == 0
    of_site = credentials.account_tokens(site_configuration(text, authority.operator))
    assert (
        credentials.claims_in(of_site[credentials.public_key(authority.account)])["nats"]["limits"]["leaf"]
        == 1
    )
    assert not {credentials.public_key(seed) for seed in seeds.values()} & set(of_site)


def test_a_revocation_keeps_the_sites_and_a_removed_seed_ends_one(tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    keys.make()
    keys.write_seed("site-paris", new_site_account())
    own = credentials.public_key(keys.seed("site-paris"))
    was_current = keys.is_configuration_current

    assert keys.refresh()
    with_site = own in keys.account_tokens()
    secrets = {path.name for path in (tmp_path / "site-paris").iterdir()}
    (tmp_path / "site-paris.seed").unlink()
    is_current = keys.is_configuration_current
    keys.refresh()

    assert (was_current, with_site, secrets, is_current) == (False, True, {"nats-security.conf"}, False)
    assert own not in keys.account_tokens()


def test_seed_that_is_not_named_after_a_site_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "site-paris.seed").touch()
    assert sites_in(tmp_path) == ["paris"]
    (tmp_path / "site-paris.old.seed").touch()

    with pytest.raises(InputError, match=r"site-paris\.old\.seed"):
        sites_in(tmp_path)


def test_folder_of_a_site_has_no_seed_and_its_credentials_are_private(tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    keys.make()
    keys.write_seed("site-paris", new_site_account())
    keys.configure()
    there = site_folder(tmp_path, "paris")
    (there / "site.conf").write_bytes(b"\xff")

    text = keys.configuration.read_text()
    assert write_site(tmp_path, "paris", keys.seed("site-paris"), text, checked_leaves("hub1"))

    assert there.stat().st_mode & 0o777 == 0o700
    assert (there / "leaf.creds").stat().st_mode & 0o777 == 0o600
    seeds = [path.read_text().strip() for path in tmp_path.glob("*.seed")]
    written = "".join(path.read_text() for path in there.iterdir())
    assert "USER NKEY SEED" in written, "the control"
    assert [seed for seed in seeds if seed in written] == []


def _varz(name: str, flags: dict[str, bool]) -> bytes:
    return msgspec.json.encode({"server": {"name": name}, "data": {"feature_flags": flags}})


@pytest.mark.parametrize(
    ("answers", "lacking"),
    [
        pytest.param(
            [
                _varz("b", {}),
                _varz("a", {system_account.FLAG: False}),
                _varz("c", {system_account.FLAG: True}),
            ],
            ["a", "b"],
            id="two lack it",
        ),
        pytest.param([_varz("a", {system_account.FLAG: True})], [], id="set"),
    ],
)
async def test_servers_without_the_flag_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answers: list[bytes], lacking: list[str]
) -> None:
    _answer(monkeypatch, answers)

    assert (
        await system_account.lacking_flag(
            settings_for("nats://127.0.0.1:4222", identity="ann"), Keys(tmp_path)
        )
        == lacking
    )


@pytest.mark.parametrize("answer", [b"", b"[" * 5000, b'{"data": {"feature_flags": "all"}}'])
async def test_an_answer_of_a_server_that_is_not_valid_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: bytes
) -> None:
    _answer(monkeypatch, [_varz("a", {system_account.FLAG: True}), answer])

    with pytest.raises(ProtocolError, match="is not valid"):
        await system_account.lacking_flag(
            settings_for("nats://127.0.0.1:4222", identity="ann"), Keys(tmp_path)
        )


def _answer(monkeypatch: pytest.MonkeyPatch, answers: list[bytes]) -> None:
    @contextlib.asynccontextmanager
    async def connected(*_: object) -> AsyncIterator[None]:
        yield None

    async def ask(*_: object) -> list[bytes]:
        return answers

    monkeypatch.setattr(system_account, "system_connection", connected)
    monkeypatch.setattr(system_account, "ask_servers", ask)
