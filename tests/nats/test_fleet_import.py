"""Import on a secured fleet: which operators may ask, what the node's policy leaves out, and whose answers are taken."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.secured import Secured, secured_fleet

pytestmark = [pytest.mark.nats, pytest.mark.timeout(180)]

POLICY = """\
default: deny
rules:
  - name: no plans
    signers: [dan]
    deny: [plan]
  - name: plans only
    signers: [pat]
    allow: [plan, check]
  - name: no accounts
    signers: [bob]
    allow: [all]
    forbid: {types: [group], services: ["*"]}
  - name: administrator
    signers: [tester]
    allow: [all]
"""
IMPORT = ("import", "-t", "role=web", "--types", "group,host", "--json", "--out")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """web1 with role=web; bob may apply there, pat and dan may plan there, lou looks, sam maintains, and eli runs commands."""
    with secured_fleet(tmp_path_factory.mktemp("secured")) as one:
        for name, *right in (
            ("pat", "--plan", "role=web"),
            ("dan", "--plan", "role=web"),
            ("lou",),
            ("sam", "--maintain", "role=web"),
            ("eli", "--exec", "role=web"),
            ("far", "--plan", "role=db"),
        ):
            one.give("operator", name, *right)
        one.fleet.wait_for(
            lambda: one.as_("eli", "exec", "-t", "role=web", "--yes", "--", "true").code == 0,
            "the node to know eli",
        )
        yield one


@pytest.mark.parametrize("who", ["bob", "pat", "tester"])
def test_operators_who_may_plan_import(secured: Secured, tmp_path: Path, who: str) -> None:
    done = secured.as_(who, *IMPORT, str(tmp_path / "site"))

    assert done.code == 0, done.out + done.err
    [record] = done.named("import")
    assert record["nodes"] == {"web1": "imported"}
    assert (tmp_path / "site" / "manifest.yaml").is_file()


@pytest.mark.parametrize("who", ["lou", "sam", "eli", "far", "web1"])
def test_others_do_not_import(secured: Secured, tmp_path: Path, who: str) -> None:
    """Operators who look, maintain, run commands or plan elsewhere, and the holder of a node's stolen key."""
    done = secured.as_(who, *IMPORT, str(tmp_path / "site"))

    assert done.code == 1, done.out
    assert "the broker does not allow" in done.err or "lacks the right" in done.err, done.err
    assert list(tmp_path.iterdir()) == []


def test_policy_refuses_operators_and_leaves_types_out(secured: Secured, tmp_path: Path) -> None:
    agent = secured.fleet.agents["web1"]
    policy = agent.directory / "policy.yaml"
    policy.write_text(POLICY)
    assert agent.process is not None
    agent.process.send_signal(1)
    secured.fleet.wait_for(lambda: "the policy was loaded" in agent.log, "the policy to be read")
    try:
        refused = secured.as_("pat", *IMPORT, str(tmp_path / "pat"))
        no_plan = secured.as_("dan", *IMPORT, str(tmp_path / "dan"))
        part = secured.as_("bob", *IMPORT, str(tmp_path / "bob"))
        whole = secured.as_("tester", *IMPORT, str(tmp_path / "tester"))
    finally:
        policy.unlink()
        agent.process.send_signal(1)
        secured.fleet.wait_for(lambda: "the policy file is gone" in agent.log, "the policy to be gone")

    assert refused.code == no_plan.code == 2
    assert "no rule of the node's policy allows pat to import resources now" in refused.err
    assert "the rule `no plans` (policy.yaml:3) of the node's policy denies dan to plan" in no_plan.err
    assert not {"pat", "dan"} & {one.name for one in tmp_path.iterdir()}
    assert part.code == 0, part.err
    [record] = part.named("import")
    reason = "the rule `no accounts` (policy.yaml:9) of the node's policy does not allow resources of the type group"
    assert {"type": "group", "name": "*", "reason": reason} in record["left_out"]["web1"]
    written = {path.name: path.read_text() for path in (tmp_path / "bob" / "layers").rglob("*.yaml")}
    assert written
    assert "group.yaml" not in written
    assert "group" not in "".join(written.values())
    assert whole.code == 0, whole.err
    left_out = whole.named("import")[0]["left_out"].get("web1", [])
    assert [one for one in left_out if one["name"] == "*"] == []


def test_request_of_the_wrong_type_is_refused_before_anything_is_sent(
    secured: Secured, tmp_path: Path
) -> None:
    done = secured.as_(
        "bob", "import", "-t", "role=web", "--types", "file:/etc", "--out", str(tmp_path / "x")
    )

    assert done.code == 1
    assert "use `ccm import file:/etc` on one host" in done.err
    assert json.dumps(list(tmp_path.iterdir())) == "[]"
