"""
A node's policy that forbids `exec` against everything in a manifest that can start a program, with real files and programs.

The canary is a file that the manifest's command creates. Each place creates it without the policy, and does not with it.
"""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ccm_agent.app import App
from ccm_agent.engine.request import ApplyOptions, ManifestSource
from ccm_agent.health.goss.kinds import KINDS
from ccm_agent.model.errors import CcmError
from ccm_agent.model.outcome import SessionSummary
from ccm_agent.policy.document import parse_policy
from ccm_agent.policy.grant import Grant
from ccm_agent.resources.catalog import Catalog

CANARY = "CANARY"
TOP = Path(__file__).parents[2]
FILE = {"ensure": "present", "owner": "*", "group": "*", "mode": "0644"}
SCAFFOLD = {"ensure": "present", "source": "templates"}

Manifest = dict[str, Any]


def resources(*listed: Mapping[str, Any], **sections: Any) -> Manifest:
    return {"ccm": {"resources": list(listed)}, **sections}


def one(kind: str, name: str, **properties: Any) -> dict[str, Any]:
    return {kind: [{name: properties}]}


def checked(check: dict[str, Any]) -> Manifest:
    """A file with a health check."""
    return resources(one("file", "@DIR@/made", **FILE, content="x", health_checks=[{"name": "up", **check}]))


PROPERTIES: dict[tuple[str, str], Manifest] = {
    ("exec", "command"): resources(one("exec", "go", command=f"touch {CANARY}")),
    ("exec", "onlyif"): resources(one("exec", "true", onlyif=f"touch {CANARY}")),
    ("exec", "unless"): resources(one("exec", "true", unless=f"touch {CANARY}")),
    ("edit", "validate"): resources(
        one("edit", "@DIR@/made", line="x", create=True, validate=f"touch {CANARY} %s")
    ),
    ("config", "validate"): resources(
        one("config", "@DIR@/made.json", key="a", value=1, create=True, validate=f"touch {CANARY} %s")
    ),
    ("scaffold", "post"): resources(
        one("scaffold", "@DIR@/tree", **SCAFFOLD, post=[{"*": f"touch {CANARY}"}])
    ),
}
"""A manifest for each property that can contain a command, by type and property."""

LATER = {
    ("cron", "command"),
    ("systemd_unit", "content"),
    ("systemd_unit", "source"),
    ("container", "image"),
    ("container", "command"),
    ("container", "health_command"),
}
"""Properties whose commands another program runs later."""

PLACES: dict[str, Manifest] = {
    **{" ".join(place): manifest for place, manifest in PROPERTIES.items()},
    "the name of exec": resources(one("exec", f"touch {CANARY}")),
    "a shell": resources(one("exec", "go", command=f"touch {CANARY}", provider="shell")),
    "a command that is refreshed": resources(
        one("file", "@DIR@/made", **FILE, content="x"),
        one("exec", f"touch {CANARY}", refreshonly=True, subscribe=["file#@DIR@/made"]),
    ),
    "a command from data": resources(
        one("exec", "go", command="{{ lookup('data.line') }}"), data={"line": f"touch {CANARY}"}
    ),
    "a health check": checked({"command": f"touch {CANARY}"}),
    "a goss command": checked({"goss_rules": {"command": {f"touch {CANARY}": {"exit-status": 0}}}}),
    "a goss command in exec": checked(
        {"goss_rules": {"command": {"up": {"exec": f"touch {CANARY}", "exit-status": 0}}}}
    ),
    "goss rules that are one text": checked(
        {"goss_rules": json.dumps({"command": {f"touch {CANARY}": {"exit-status": 0}}})}
    ),
    "goss rules from data": {
        **checked({"goss_rules": "{{ lookup('data.rules') }}"}),
        "data": {"rules": json.dumps({"command": {f"touch {CANARY}": {"exit-status": 0}}})},
    },
    "a health check of a scaffold": resources(
        one(
            "scaffold", "@DIR@/tree", **SCAFFOLD, health_checks=[{"name": "up", "command": f"touch {CANARY}"}]
        )
    ),
    "a child manifest": resources(one("apply", "child.json")),
    "a child of a child": resources(one("apply", "parent.json")),
    "a child that the manifest wrote": resources(
        one(
            "file",
            "@DIR@/late.json",
            **FILE,
            content=json.dumps(resources(one("exec", f"touch {CANARY}"))),
        ),
        one("apply", "late.json"),
    ),
    "a list that Jet prints": {"ccm": {"resources_jet_file": "list.jet"}},
}


class Host:
    """A directory with a manifest, and the engine of `ccm` on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "templates").mkdir(parents=True)
        (folder / "templates" / "a").write_text("x")
        child = resources(one("exec", f"touch {CANARY}"))
        self._write("child.json", child)
        self._write("parent.json", resources(one("apply", "child.json")))
        (folder / "list.jet").write_text(self._text(child["ccm"]["resources"]))

    async def apply(self, manifest: Manifest, grant: Grant | None) -> SessionSummary:
        self._write("m.json", manifest)
        app = App(os.environ, directory=str(self.folder))
        try:
            source = ManifestSource(path=str(self.folder / "m.json"), directory=str(self.folder), name="m")
            return await app.engine().apply(source, ApplyOptions(grant=grant))
        finally:
            await app.close()

    @property
    def has_canary(self) -> bool:
        """Whether a command of the manifest has run."""
        return (self.folder / CANARY).exists()

    def _write(self, name: str, manifest: Manifest) -> None:
        (self.folder / name).write_text(self._text(manifest))

    def _text(self, value: Any) -> str:
        text = json.dumps(value).replace("@DIR@", str(self.folder))
        return text.replace(CANARY, str(self.folder / CANARY))


def no_commands() -> Grant:
    text = b"default: deny\nrules:\n  - name: one\n    allow: [all]\n    forbid: {types: [exec]}\n"
    (rule,) = parse_policy(text, "policy.yaml", Catalog().names()).rules
    return Grant(who="bob", layers=(rule.layer,))


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "host")


@pytest.mark.parametrize("place", PLACES)
async def test_no_place_of_a_manifest_runs_a_command_that_the_policy_forbids(
    tmp_path: Path, place: str
) -> None:
    limited, free = Host(tmp_path / "limited"), Host(tmp_path / "free")

    refused = await limited.apply(PLACES[place], no_commands())
    await free.apply(PLACES[place], None)

    assert (refused.state, limited.has_canary) == ("failed", False)
    assert free.has_canary, "without the policy the command does not run, so this test shows nothing"


def test_each_property_with_a_command_is_attacked() -> None:
    catalog = Catalog()
    declared = {(name, field) for name in catalog.names() for field in catalog.find(name).rules.commands}

    assert declared == set(PROPERTIES) | LATER


async def test_no_command_that_the_policy_forbids_gets_into_a_table_of_cron(host: Host) -> None:
    # the user does not exist, so that this writes nothing even if the policy is not asked
    job = one("cron", "go", schedule="@daily", command=f"touch {CANARY}", user="no-such-user")

    refused = await host.apply(resources(job), no_commands())

    assert refused.state == "failed"
    assert [one.code for one in refused.failed] == ["policy.command"]


@pytest.mark.parametrize("properties", [{"content": "[Service]\nFoo=1\n"}, {"source": "/nosuch/unit"}])
async def test_no_command_that_the_policy_forbids_gets_into_a_unit(
    host: Host, properties: dict[str, str]
) -> None:
    # systemd would not read it, so that this writes nothing even if the policy is not asked
    unit = one("systemd_unit", "no-such-unit.service", **properties)

    refused = await host.apply(resources(unit), no_commands())

    assert refused.state == "failed"
    assert [one.code for one in refused.failed] == ["policy.command"]


@pytest.mark.parametrize(
    ("properties", "code"),
    [
        ({"fstype": "fuse", "device": f"touch {CANARY}#"}, "policy.command"),
        ({"fstype": "fuse.sshfs", "device": "a:/"}, "policy.command"),
        ({"fstype": "ext4", "device": "/dev/no-such", "options": "uhelper=x"}, "policy.command"),
        ({"fstype": "ext4", "device": "/dev/no-such"}, "host.file"),
    ],
)
async def test_no_mount_runs_a_program_that_the_policy_forbids(
    host: Host, properties: dict[str, str], code: str
) -> None:
    # the mount point is a file, so that nothing is mounted or written even if the policy is not asked
    failed = await host.apply(resources(one("mount", "@DIR@/child.json", **properties)), no_commands())

    assert [one.code for one in failed.failed] == [code]
    assert not host.has_canary


@pytest.mark.parametrize("properties", [{}, {"command": ["sh"]}, {"health_command": ["true"]}])
async def test_no_command_that_the_policy_forbids_gets_into_a_container(
    host: Host, properties: dict[str, Any]
) -> None:
    # the host has no quadlet, so that this writes nothing even if the policy is not asked
    image = f"registry.invalid/x@sha256:{'0' * 64}"
    container = one("container", "no-such-container", image=image, ensure="present", **properties)

    refused = await host.apply(resources(container), no_commands())

    assert refused.state == "failed"
    assert [one.code for one in refused.failed] == ["policy.command"]


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if kind.reach != "command"])
async def test_no_other_goss_rule_runs_a_command_that_stands_in_it(host: Host, kind: str) -> None:
    touch = f"touch {CANARY}"
    for text in (f"$({touch})", f"x; {touch}", f"`{touch}`", f"-x\n{touch}", f"| {touch}"):
        for attribute in KINDS[kind].attributes:
            rules = {kind: {text: {KINDS[kind].attributes[0]: True, attribute: text}}}
            with suppress(CcmError):
                await host.apply(checked({"goss_rules": rules, "tries": 1}), None)
    was_there = host.has_canary

    await host.apply(PLACES["a goss command"], None)

    assert (was_there, host.has_canary) == (False, True)


STARTERS = {
    "resources/exec/providers/commands.py": "the type exec",
    "resources/scaffold/providers/post.py": "`post`, a property with commands",
    "health/nagios.py": "`command` of a health check",
    "health/goss/programs.py": "the goss kind command, and tools of the host",
    "health/goss/files.py": "tools of the host",
    "health/goss/network.py": "tools of the host",
    "health/goss/kernel.py": "tools of the host",
    "resources/package_tool.py": "tools of the host",
    "resources/container/providers/podman.py": "tools of the host",
    "resources/systemd_unit/providers/systemd.py": "tools of the host",
    "resources/systemd_unit/providers/verify.py": "tools of the host",
    "resources/service/providers/systemd.py": "tools of the host",
    "resources/service/providers/existing.py": "tools of the host",
    "resources/packaged.py": "tools of the host",
    "resources/file_editor.py": "`validate`, a property with commands",
    "resources/host_tools.py": "tools of the host",
    "engine/stoppable_runner.py": "passes on what another module starts",
    "cli/completion_values.py": "tools of the host, for the shell of the user",
}
"""Modules that start programs, and whose programs these are. What is a command of the manifest is in PLACES."""


def test_every_module_that_starts_programs_is_known() -> None:
    found = set()
    for path in (TOP / "ccm_agent").rglob("*.py"):
        name = str(path.relative_to(TOP / "ccm_agent"))
        if not name.startswith(("testing/", "system/")) and _starts_programs(ast.parse(path.read_text())):
            found.add(name)

    assert found == set(STARTERS)


def _starts_programs(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "run"
        and ast.unparse(node.func.value).endswith("runner")
        for node in ast.walk(tree)
    )
