"""Manifests and properties with errors are refused before anything is sent, by the code of `ccm lint`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ccm_agent.model.errors import InputError
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.python_client import FleetClient
from tests.support.controller import Desk, FakeNode, event, fleet_on

WRONG = """\
ccm:
  resources:
    - file:
        - /etc/motd:
            ensure: present
            contents: hello
            owner: root
            group: root
            mode: "0644"
"""
NEWER = "ccm:\n  resources:\n    - hologram:\n        - ann: {color: blue}\n"
EXCERPT = """\
  6 |             contents: hello
    |             ^^^^^^^^
"""

UNCHECKED = "Use --unchecked to send it anyway, such as for a property that only newer agents have.\n"

SENDING = [
    pytest.param(["apply"], ["--all", "--yes"], id="apply"),
    pytest.param(["assign", "web"], ["--all", "--yes"], id="assign"),
    pytest.param(["schedule", "add", "nightly"], ["--all", "--yes", "--every", "1h"], id="schedule"),
]


def fleet() -> Desk:
    return Desk(FakeNode("web1", {}, [event("/etc/motd", 2)]))


def untouched(desk: Desk) -> bool:
    """Nothing was published to nodes, and no assignment or bundle was stored."""
    return desk.nodes[0].heard == [] and not any(".request." in one.subject for one in desk.broker.sent)


@pytest.mark.parametrize(("before", "after"), SENDING)
def test_errors_are_shown_with_their_lines_and_nothing_is_sent(
    before: list[str], after: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "motd.yaml"
    path.write_text(WRONG)
    desk = fleet()

    said = desk.ccmctl(*before, str(path), *after)

    assert (said.code, said.out, said.err) == (
        1,
        "",
        f"ccmctl: {path}: 1 error; nothing was sent\n"
        f"{path}:6:13: error: file#/etc/motd: unknown key `contents`, did you mean `content`? [unknown-property]\n"
        f"{EXCERPT}"
        "Use --force to send it anyway, such as for a type that only newer agents have.\n",
    )
    assert untouched(desk)


def test_a_manifest_in_a_directory_is_checked(tmp_path: Path) -> None:
    (tmp_path / "web.yaml").write_text(WRONG)

    said = fleet().ccmctl("apply", str(tmp_path), "--manifest", "web.yaml", "--all", "--yes")

    assert said.err.startswith(f"ccmctl: {tmp_path}/web.yaml: 1 error; nothing was sent\n")


def test_force_sends_types_of_newer_agents(tmp_path: Path) -> None:
    path = tmp_path / "new.yaml"
    path.write_text(NEWER)
    desk = fleet()

    refused = desk.ccmctl("apply", str(path), "--all", "--yes")
    forced = desk.ccmctl("apply", str(path), "--all", "--yes", "--force")

    assert "unknown resource type `hologram`" in refused.err
    assert "unknown resource type `hologram`" in forced.err, "it is still shown"
    assert (refused.code, forced.code) == (1, 0)
    assert [one["manifest"] for one in desk.nodes[0].heard] == [NEWER]


def test_force_does_not_send_invalid_yaml(tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text("ccm: [\n")
    desk = fleet()

    said = desk.ccmctl("apply", str(path), "--all", "--yes", "--force")

    assert said.code == 1
    assert f"{path}:2:1: error: a value is expected here" in said.err
    assert "--force" not in said.err
    assert untouched(desk)


def test_warnings_are_shown_and_do_not_refuse(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text("xtra: 1\nccm:\n  resources:\n    - exec: [{'true': {}}]\n")

    said = fleet().ccmctl("apply", str(path), "--all", "--yes")

    assert said.code == 0
    assert f"{path}:1:1: warning: unknown key `xtra`" in said.err


def test_a_tinycm_manifest_is_refused_with_the_way_to_apply_it(tmp_path: Path) -> None:
    path = tmp_path / "site.cm.yml"
    path.write_text("package: {name: vim, ensure: installed}\n")

    said = fleet().ccmctl("apply", str(path), "--all", "--yes")

    assert (said.code, said.err) == (
        1,
        f"ccmctl: {path}: a TinyCM manifest, which agents do not accept; apply it on the host with `ccm apply`\n",
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(
            ["package", "jq"],
            "package#jq: 1 error; nothing was sent\n"
            "`ensure` is missing: write `present`, `absent`, `latest`, or a version\n",
            id="no state",
        ),
        pytest.param(
            ["file", "/x", "presnt", "owner=root", "group=root", "mode=0644"],
            "file#/x: 1 error; nothing was sent\n`ensure` is `presnt`, did you mean `present`?\n",
            id="misspelled state",
        ),
        pytest.param(
            ["file", "/x", "present", "mode=abc", "require=nginx"],
            "file#/x: 4 errors; nothing was sent\n"
            "`nginx` is not a valid reference; write `type#name`, such as `package#nginx`\n"
            'mode `abc` is not an octal number: write three or four digits from 0 to 7, such as "0644"\n'
            "`owner` cannot be empty: every file needs an explicit owner\n"
            "`group` cannot be empty: every file needs an explicit group\n",
            id="all errors",
        ),
        pytest.param(
            ["file", "/x", "absent", "owner={{ Fcts.owner }}"],
            "file#/x: 1 error; nothing was sent\n"
            "unknown name Fcts; did you mean Facts? (at character 1 of `Fcts.owner`)\n",
            id="expression",
        ),
    ],
)
def test_properties_with_errors_are_refused(words: list[str], said: str) -> None:
    desk = fleet()

    answer = desk.ccmctl("ensure", *words, "--all", "--yes")

    assert (answer.code, answer.err) == (1, f"ccmctl: {said}{UNCHECKED}")
    assert untouched(desk)


def test_the_check_loads_nothing_that_can_change_a_host() -> None:
    program = """
import json, sys
from ccm_agent.manifest.document import make_document
from ccm_agent.manifest.lint import lint
from ccm_agent.resources.catalog import Catalog
resources = "".join(f"    - {name}: [{{x: {{ensure: present}}}}]\\n" for name in Catalog().names())
found = lint(make_document(b"ccm:\\n  resources:\\n" + resources.encode(), "m.yaml", "/"))
rooms = [name for name in sys.modules if name.startswith("ccm_agent.")]
print(json.dumps([len(found) > 3, rooms]))
"""

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    has_checked, loaded = json.loads(done.stdout)
    hands = ("ccm_agent.system", "ccm_agent.engine", "ccm_agent.agent", "ccm_agent.app")
    assert has_checked
    assert [one for one in loaded if one.startswith(hands) or ".providers" in one] == []


@pytest.mark.parametrize(
    ("entry", "is_refused"),
    [
        pytest.param("- apply: [{parts/web.yaml: {}}]", True, id="in a list"),
        pytest.param("- apply: {name: parts/web.yaml}", True, id="by name"),
        pytest.param("- apply: [{parts/other.yaml: {}}]", True, id="through another child"),
        pytest.param(
            "- apply: [{'parts/{{ Facts.role }}.yaml': {}}]", False, id="a name that only a node knows"
        ),
        pytest.param("- apply: [{../outside.yaml: {}}]", False, id="outside of the directory"),
    ],
)
def test_child_manifests_of_a_directory_are_checked_too(tmp_path: Path, entry: str, is_refused: bool) -> None:
    site = tmp_path / "site"
    (site / "parts").mkdir(parents=True)
    (site / "manifest.yaml").write_text(f"ccm:\n  resources:\n    {entry}\n")
    (site / "parts/web.yaml").write_text(WRONG)
    (site / "parts/other.yaml").write_text("ccm:\n  resources:\n    - apply: [{web.yaml: {}}]\n")
    (tmp_path / "outside.yaml").write_text(WRONG)
    desk = fleet()

    said = desk.ccmctl("apply", str(site), "--all", "--yes")

    assert (said.code, untouched(desk)) == ((1, True) if is_refused else (0, False))
    assert said.err.startswith(f"ccmctl: {site}/parts/web.yaml: 1 error; nothing was sent\n") is is_refused


async def test_the_python_client_checks_child_manifests_too(tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "parts").mkdir(parents=True)
    (site / "manifest.yaml").write_text("ccm:\n  resources:\n    - apply: [{parts/web.yaml: {}}]\n")
    (site / "parts/web.yaml").write_text(WRONG)
    client = FleetClient(fleet_on(MemoryBus(MemoryBroker(), "op")))

    with pytest.raises(InputError, match=r"parts/web\.yaml: 1 error; nothing was sent"):
        await client.apply(site, all_nodes=True).wait()
