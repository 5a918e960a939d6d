"""`ccmctl init --security`, `node add`, `operator add`: keys and credentials, made without a broker."""

from __future__ import annotations

import base64
import os
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ccm_agent.bus.access.credentials import name_in_credentials, public_key
from ccm_agent.bus.access.permissions import node_permissions, node_template
from ccm_agent.clikit.terminal import Terminal
from ccm_agent.model.secret import Secret
from ccm_ctl.__main__ import VERBS
from ccm_ctl.main import main
from tests.support.controller import Desk, Said


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    folder = tmp_path / "keys"
    assert Desk().ccmctl("init", "--security", "--keys", str(folder)).code == 0
    return folder


def ccmctl(keys: Path, *words: str) -> Said:
    return Desk().ccmctl(*words, environ={"CCM_KEYS": str(keys)})


def claims(creds: str) -> dict[str, Any]:
    part = creds.splitlines()[1].split(".")[1]
    found: dict[str, Any] = msgspec.json.decode(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return found


def preloaded(keys: Path) -> dict[str, dict[str, Any]]:
    """What the servers are told of each account, by its name."""
    preload = (keys / "nats-security.conf").read_text().partition("resolver_preload")[2]
    found = [claims(f"-\n{line.split(': ')[1]}") for line in preload.splitlines()[1:] if ": " in line]
    return {one["name"]: one["nats"] for one in found}


def test_configuration_of_an_earlier_version_is_written_again(keys: Path) -> None:
    path = keys / "nats-security.conf"
    current = preloaded(keys)
    path.write_text("".join(line for line in path.read_text().splitlines(True) if "Accounts:" not in line))
    before = path.read_text()

    first = ccmctl(keys, "init", "--security")
    second = ccmctl(keys, "init", "--security")

    assert "Copy it to each server, then run\n    nats-server --signal reload" in first.err
    assert "reload" not in second.err
    assert path.read_text() != before
    assert preloaded(keys) == current


def test_configuration_that_cannot_be_written_again_is_named(keys: Path) -> None:
    path = keys / "nats-security.conf"
    path.write_text("# of an earlier version\n")
    (keys / "operator.seed").unlink()

    said = ccmctl(keys, "init", "--security")

    assert "is of an earlier version and cannot be updated here" in said.err
    assert path.read_text() == "# of an earlier version\n"


def test_keys_are_made_once_with_the_first_operators_credentials(keys: Path) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in keys.iterdir()}

    assert {name for name, mode in modes.items() if mode == 0o600} == {
        "account.seed",
        "audit.seed",
        "join.seed",
        "node_signer.seed",
        "nodes.seed",
        "operator.seed",
        "ops.seed",
        "root.seed",
        "system.seed",
        "op.creds",
        "users.jsonl",
    }
    assert set(modes) - {"nats-security.conf", "trust.json"} == {
        name for name, mode in modes.items() if mode == 0o600
    }
    assert stat.S_IMODE(keys.stat().st_mode) == 0o700
    assert name_in_credentials((keys / "op.creds").read_text()) == "op"


def test_creating_keys_prints_the_next_step_and_no_secret(tmp_path: Path) -> None:
    said = Desk().ccmctl("init", "--security", "--keys", str(tmp_path / "k"))

    seeds = [path.read_text().strip() for path in (tmp_path / "k").glob("*.seed")]
    assert len(seeds) == 9
    assert [seed for seed in seeds if seed in said.out + said.err] == []
    assert "include nats-security.conf" in said.out
    assert f"export CCM_CREDS={tmp_path}/k/op.creds" in said.out


def test_a_nodes_credentials_contain_its_name_and_addresses_and_no_permissions(keys: Path) -> None:
    said = ccmctl(keys, "node", "add", "web1.example.com", "--address", "10.0.0.5", "--expires", "1h")

    found = claims(said.out)
    account = public_key(Secret((keys / "nodes.seed").read_text().strip()))
    assert (found["name"], found["exp"] - found["iat"]) == ("web1.example.com", 3600)
    assert found["nats"] == {
        "type": "user",
        "version": 2,
        "issuer_account": account,
        "tags": ["token:web1=2Eexample=2Ecom", "address:10_0_0_5"],
    }


def test_the_servers_have_the_permissions_of_nodes(keys: Path) -> None:
    [scope] = preloaded(keys)["nodes"]["signing_keys"]

    template = node_template()
    assert scope == {
        "kind": "user_scope",
        "role": "node",
        "key": public_key(Secret((keys / "node_signer.seed").read_text().strip())),
        "template": {
            "subs": 2_000,
            "data": -1,
            "payload": 1 << 20,
            "pub": {"allow": list(template.publish)},
            "sub": {"allow": list(template.subscribe)},
            "allowed_connection_types": ["STANDARD", "WEBSOCKET"],
        },
    }


def test_a_load_balancers_credentials_let_it_read_registrations(keys: Path) -> None:
    plain, lb = (
        claims(ccmctl(keys, "node", "add", "lb1", *more).out)["nats"]["tags"]
        for more in ([], ["--reads-registrations"])
    )

    assert [tag for tag in lb if tag not in plain] == ["reads:REGISTRATION"]


def test_a_folder_with_the_nodes_seed_alone_issues_credentials_as_earlier_versions_did(keys: Path) -> None:
    for path in keys.iterdir():
        if path.name != "nodes.seed":
            path.unlink()

    found = claims(ccmctl(keys, "node", "add", "web1", "--address", "10.0.0.5").out)

    allowed = node_permissions("web1", ["10.0.0.5"])
    assert found["nats"] == {
        "type": "user",
        "version": 2,
        "subs": 2_000,
        "data": -1,
        "payload": 1 << 20,
        "pub": {"allow": list(allowed.publish)},
        "sub": {"allow": list(allowed.subscribe)},
        "allowed_connection_types": ["STANDARD", "WEBSOCKET"],
    }


def test_a_folder_with_the_signing_key_and_the_servers_configuration_issues_credentials(keys: Path) -> None:
    for path in keys.iterdir():
        if path.name not in ("node_signer.seed", "nats-security.conf"):
            path.unlink()

    found = claims(ccmctl(keys, "node", "add", "web1").out)

    assert found["nats"]["tags"] == ["token:web1"]


def test_scopes_of_an_operator_are_written_like_targets(keys: Path) -> None:
    said = ccmctl(keys, "operator", "add", "bob", "--apply", "role=web", "--apply", "node=db1", "--data")

    allowed = claims(said.out)["nats"]["pub"]["allow"]
    assert [one for one in allowed if "manifest.apply" in one] == [
        "io.choria.ccm.v1.manifest.apply.request.fact.role.web",
        "io.choria.ccm.v1.manifest.apply.request.node.db1",
    ]
    assert [one for one in allowed if "manifest.plan" in one] == [
        "io.choria.ccm.v1.manifest.plan.request.fact.role.web",
        "io.choria.ccm.v1.manifest.plan.request.node.db1",
    ]
    assert "$KV.CCM_DATA.>" in allowed
    assert "$KV.CCM_FACTS.>" not in allowed


@pytest.mark.parametrize(
    ("words", "scopes"),
    [
        pytest.param([], [], id="who may only look plans nowhere"),
        pytest.param(["--plan", "all"], [">"], id="everywhere if an administrator says so"),
        pytest.param(["--plan", "everybody"], [">"], id="everywhere, as earlier versions called it"),
        pytest.param(["--plan", "role=web"], ["fact.role.web"], id="in a role"),
    ],
)
def test_a_plan_is_a_matter_of_trust(keys: Path, words: list[str], scopes: list[str]) -> None:
    """The guards and checks of a manifest run as root, and its author brings it along."""
    said = ccmctl(keys, "operator", "add", "bob", *words)

    allowed = claims(said.out)["nats"]["pub"]["allow"]
    start = "io.choria.ccm.v1.manifest"
    assert [one for one in allowed if one.startswith(start)] == [
        *(f"{start}.plan.request.{scope}" for scope in scopes),
        *(f"{start}.check.request.{scope}" for scope in scopes),
    ]
    assert "io.choria.ccm.v1.node.ping.request.>" in allowed


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["operator", "add", "x", "--apply", "web"],
            "web: not a valid scope; use all, node=NAME or a fact such as role=web",
        ),
        (["operator", "add", "a b"], "'a b': not a valid name; use letters, digits, `.`, `_`, `@` and `-`, "
            "and begin with a letter or digit"),
        (["operator", "add", "web1"], "web1: already the name of a node; choose another name"),
        (["node", "add", "op"], "op: already the name of an operator; choose another name"),
        (
            ["node", "add", "web2", "--address", "x.y"],
            "x.y: not a valid address; services register with an IP address such as 10.0.0.5",
        ),
        (["node", "revoke", "web9"], "web9: no node of that name has credentials from KEYS"),
    ],
)  # fmt: skip
def test_permissions_that_do_not_exist_are_refused(keys: Path, words: list[str], said: str) -> None:
    ccmctl(keys, "node", "add", "web1")

    done = ccmctl(keys, *words)

    assert (done.code, done.out, done.err.replace(str(keys), "KEYS")) == (1, "", f"ccmctl: {said}\n")


def test_a_seed_that_others_can_read_or_that_is_not_valid_is_refused(keys: Path, tmp_path: Path) -> None:
    seed = keys / "node_signer.seed"
    seed.chmod(0o640)
    readable = ccmctl(keys, "node", "add", "web1")
    seed.chmod(0o600)
    secret = seed.read_text().strip()
    seed.write_text(secret[:-3] + "AAA")
    broken = ccmctl(keys, "node", "add", "web1")
    absent = ccmctl(tmp_path / "none", "node", "add", "web1")

    assert "other users can read this seed" in readable.err
    assert broken.code == 1
    assert broken.err == f"ccmctl: {seed}: the seed is damaged; restore it from a backup\n"
    assert secret[:-3] not in broken.err
    assert absent.err.endswith(
        "not found; create the keys with `ccmctl init --security`, or name their directory with --keys\n"
    )


def test_a_file_that_credentials_go_to_becomes_its_owners_alone(keys: Path, tmp_path: Path) -> None:
    path = tmp_path / "web1.creds"
    with path.open("w") as out:
        os.fchmod(out.fileno(), 0o644)
        code = main(
            ["node", "add", "web1"],
            VERBS,
            terminal=Terminal("ccmctl", out=out),
            environ={"CCM_KEYS": str(keys)},
        )

    assert (code, stat.S_IMODE(path.stat().st_mode)) == (0, 0o600)
    assert name_in_credentials(path.read_text()) == "web1"


def test_revoking_names_every_key_of_the_name_to_the_servers(keys: Path) -> None:
    ccmctl(keys, "node", "add", "web1")
    ccmctl(keys, "node", "add", "web1")

    said = ccmctl(keys, "node", "revoke", "web1")

    assert said.out.startswith(
        "web1: 2 credentials files revoked. No server was reached. To apply this, copy"
    )
    accounts = preloaded(keys)
    users = [msgspec.json.decode(line) for line in (keys / "users.jsonl").read_bytes().splitlines()]
    assert set(accounts["nodes"]["revocations"]) == {
        user["public_key"] for user in users if user["name"] == "web1"
    }
    assert [name for name, claims in accounts.items() if "revocations" in claims] == ["nodes"]
    assert ccmctl(keys, "node", "revoke", "web1").code == 1


def test_the_accounts_of_nodes_and_operators_store_nothing(keys: Path) -> None:
    accounts = preloaded(keys)

    assert {name: one["limits"]["disk_storage"] for name, one in accounts.items()} == {
        "ctl": -1,
        "audit": -1,
        "ops": 0,
        "nodes": 0,
        "join": 0,
        "system": 0,
    }
    assert accounts["nodes"]["limits"]["conn"] > accounts["ops"]["limits"]["conn"] > 0


@pytest.mark.parametrize(
    ("words", "account"),
    [
        (["node", "add", "web1"], "node_signer"),
        (["operator", "add", "bob", "--apply", "all", "--schedules"], "ops"),
        (["operator", "add", "bob", "--admin"], "account"),
    ],
)
def test_credentials_are_of_the_account_that_their_role_needs(
    keys: Path, words: list[str], account: str
) -> None:
    said = ccmctl(keys, *words)

    seed = Secret((keys / f"{account}.seed").read_text().strip())
    assert claims(said.out)["iss"] == public_key(seed)
