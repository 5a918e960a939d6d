"""`ccmctl group`: what is saved, who may have written it, and what `--targets @NAME` becomes."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER, SigningKey
from ccm_agent.bus.signatures.trust import TRUST_BUCKET, Signer, SignersList
from ccm_agent.model.ports import KeyValueEntry
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.testing.clock import FakeClock
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.fleet.nodes.groups import EXPANDED_LIMIT
from ccm_ctl.fleet.trust.verified_reader import VerifiedReader
from tests.support.authorship import new_seed
from tests.support.controller import NOW, Desk, FakeNode
from tests.support.signing import OwnSignatory

NOW_MS = int(NOW.timestamp() * 1000)
MOTD = "ccm:\n  resources:\n    - exec:\n        - /bin/true: {}\n"


@pytest.fixture
def desk() -> Desk:
    return Desk(
        FakeNode("web1", {"role": "web", "env": "prod"}),
        FakeNode("web2", {"role": "web", "env": "test"}),
        FakeNode("db1", {"role": "db", "env": "prod"}),
    )


def selected(desk: Desk, *targets: str) -> list[str]:
    """The nodes that a command selects."""
    options = [word for target in targets for word in ("-t", target)]
    return [one["node"] for one in desk.ccmctl("node", "list", *options, "--json").named("node")]


def test_group_is_saved_listed_and_removed(desk: Desk) -> None:
    saved = desk.ccmctl(
        "group", "set", "canary", "-t", "role=web,env=prod", "-t", "node=db1", "--message", "agreed"
    )
    again = desk.ccmctl("group", "set", "canary", "-t", "role=web,env=prod", "-t", "node=db1")
    [listed] = desk.ccmctl("group", "list", "--json").records
    screen = desk.ccmctl("group", "list").out
    removed = desk.ccmctl("group", "rm", "canary")

    assert (saved.code, saved.out, again.out) == (
        0,
        "@canary: saved, 2 nodes now\n",
        "@canary: unchanged, 2 nodes now\n",
    )
    assert (listed["targets"], listed["by"], listed["message"]) == (
        ["role=web,env=prod", "node=db1"],
        "op",
        "agreed",
    )
    assert screen.splitlines()[1].split("  ") == [
        "@canary",
        "role=web,env=prod or node=db1",
        "op",
        "just now",
    ]
    assert (removed.out, desk.ccmctl("group", "rm", "canary").code) == ("@canary: removed\n", 1)
    assert (
        desk.ccmctl("group", "list").out == "no groups yet; `ccmctl group set NAME -t SELECTOR` creates one\n"
    )


def test_group_is_replaced_by_its_selectors(desk: Desk, tmp_path: Path) -> None:
    desk.ccmctl("group", "set", "first", "-t", "role=web", "-t", "role=db")
    desk.ccmctl("group", "set", "prod", "-t", "env=prod")
    (tmp_path / "motd.yaml").write_text(MOTD)

    assert selected(desk, "@first") == ["db1", "web1", "web2"]
    assert selected(desk, "@first,env=prod") == selected(desk, "@prod , @first") == ["db1", "web1"]
    assert selected(desk, "@prod", "node=web2") == ["db1", "web1", "web2"]
    assert selected(desk, "@prod,role!=web") == ["db1"]
    assert (
        desk.ccmctl("assign", "motd", str(tmp_path / "motd.yaml"), "-t", "@prod,role=web", "--yes").code == 0
    )
    [write] = desk.broker.buckets["CCM_ASSIGNMENTS"]
    assert msgspec.json.decode(write.body, type=Stamped).body["targets"] == ["env=prod,role=web"]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["node", "list", "-t", "@canry"], "@canry: there is no such group, did you mean `canary`?"),
        (["node", "list", "-t", "@Δ"], "expected `@` and the name of a saved selector"),
        (["node", "list", "-t", "@canary=1"], "expected `@` and the name of a saved selector"),
        (["node", "list", "-t", "!@canary"], "a saved selector cannot be negated"),
        (["group", "set", "a.b", "-t", "role=web"], "not a valid name for a group"),
        (["group", "set", "a", "-t", "role=web,@canary"], "@canary: a group cannot contain another group"),
        (["group", "set", "a", *(["-t", "role=web"] * 21)], "a group has at most 20 selectors"),
        (["group", "set", "a", "-t", "=web"], "expected the name of a fact"),
        (
            ["node", "list", "-t", "@many,@many,@many"],
            f"the groups expand to more than {EXPANDED_LIMIT} selectors",
        ),
    ],
)
def test_what_is_not_a_group_is_refused(desk: Desk, argv: list[str], said: str) -> None:
    desk.ccmctl("group", "set", "canary", "-t", "node=web1")
    desk.ccmctl(
        "group", "set", "many", *(word for number in range(10) for word in ("-t", f"node=web{number}"))
    )

    refused = desk.ccmctl(*argv)

    assert refused.code == 1
    assert said in refused.err


def test_document_that_is_not_a_group_is_left_out_of_the_list_and_refused_as_target(desk: Desk) -> None:
    async def spoil(broker: MemoryBroker) -> None:
        await MemoryBus(broker, "x").bucket(TRUST_BUCKET).put("group.bad", b'{"targets": ["all"]}')

    desk.hooks.append(spoil)

    assert desk.ccmctl("group", "list", "--json").records == []
    assert (
        "@bad: its document was not written by `ccmctl group set`"
        in desk.ccmctl("node", "list", "-t", "@bad").err
    )


def test_group_counts_only_with_the_signature_of_an_administrator() -> None:
    admin, other = SigningKey(new_seed()), SigningKey(new_seed())
    signers = SignersList(
        number=1,
        issued=0,
        signers=(
            Signer(name="anna", key=admin.public_key, admin=True),
            Signer(name="otto", key=other.public_key, apply=(">",), facts=True, data=True),
        ),
    )

    clock = FakeClock(NOW)

    def judge(key: SigningKey | None, name: str = "group.a", newest: SignersList | None = signers) -> str:
        body = msgspec.json.encode(Stamped(bucket=TRUST_BUCKET, key="group.a", number=1, body={}))
        header = OwnSignatory(key, lambda: NOW_MS).document(TRUST_BUCKET, name, body) if key else {}
        signature = header.get(SIGNATURE_HEADER, "")
        entry = KeyValueEntry(key="group.a", value=body, revision=1, created=NOW, signature=signature)
        return VerifiedReader(newest, clock, is_demanded=True).document(TRUST_BUCKET, entry).reason

    unsigned = msgspec.structs.replace(signers, allow_unsigned_until=NOW_MS + 1)
    assert judge(admin) == ""
    assert judge(other) == "otto signed it, but may not write there"
    assert judge(admin, "group.b") == f"the signature is for $KV.{TRUST_BUCKET}.group.b"
    assert judge(None) == "it is not signed"
    assert "is not in the signers list" in judge(admin, newest=None)
    assert judge(None, newest=unsigned) == ""
