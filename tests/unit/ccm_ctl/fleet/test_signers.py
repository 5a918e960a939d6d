"""The signers list in the folder with a fleet's keys."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ccm_agent.bus.access.credentials import new_root
from ccm_agent.bus.access.permissions import Role
from ccm_agent.bus.signatures.trust import verify_certificate
from ccm_agent.model.errors import InputError, NotFoundError
from ccm_agent.model.secret import Secret
from ccm_ctl.fleet.keys.signers import FILE, Signers, build_signer
from tests.support.signing import new_key


def signers(folder: Path, root: Secret | None = None) -> Signers:
    root = root or new_root()
    return Signers(folder, lambda: root)


def test_each_change_of_the_list_has_a_higher_number(tmp_path: Path) -> None:
    found = signers(tmp_path)
    bob, eve = new_key().public_key, new_key().public_key

    first = found.add(build_signer("bob", bob, Role(apply=("all",))))
    second = found.add(build_signer("eve", eve, Role(data=True), expires=2_000_000_000))
    third = found.remove([bob])

    assert first.number < second.number < third.number
    assert [(one.name, one.data, one.expires) for one in found.read().signers] == [
        ("eve", True, 2_000_000_000)
    ]


def test_certificate_of_a_node_counts_until_it_ends(tmp_path: Path) -> None:
    found, key = signers(tmp_path), new_key().public_key
    found.add(build_signer("bob", new_key().public_key, Role()))
    ends = int(time.time()) + 60

    trust = found.for_node("web1", key, ends, {"CCM_FACTS/web1": 3})

    assert trust.floors == {"CCM_FACTS/web1": 3}
    verify_certificate(trust.certificate, "web1", key, trust.root, now_ms=int(time.time() * 1000))


def test_unsigned_is_allowed_for_a_time_and_no_more(tmp_path: Path) -> None:
    found = signers(tmp_path)
    now_ms = int(time.time() * 1000)

    assert found.allow_unsigned(60).allows_unsigned(now_ms + 30_000)
    assert not found.read().allows_unsigned(now_ms + 120_000)
    assert not found.allow_unsigned(0).allows_unsigned(now_ms)


def test_another_root_key_than_the_one_that_signed_is_an_error(tmp_path: Path) -> None:
    signers(tmp_path).allow_unsigned(0)

    with pytest.raises(InputError, match="was not signed with the root"):
        signers(tmp_path).allow_unsigned(0)


def test_damaged_list_is_an_error(tmp_path: Path) -> None:
    found = signers(tmp_path)
    found.allow_unsigned(0)
    path = tmp_path / FILE
    whole = path.read_text()

    for text in ("", "{}", whole.replace('"body":"{', '"body":" {')):
        path.write_text(text)
        with pytest.raises(InputError):
            found.read()


def test_folder_without_a_list_names_the_command_to_create_one(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="init --security"):
        signers(tmp_path).read()
