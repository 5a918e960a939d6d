"""Plugin files: where they are found, and what is refused in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ccm_agent.model.errors import CcmError, UsageError
from ccm_agent.plugins.definition import PluginReader, plugin_files


def test_the_users_file_replaces_the_systems(tmp_path: Path) -> None:
    system, user = tmp_path / "system", tmp_path / "home/.config/choria/ccm/plugins"
    for folder, names in (
        (system, ("b-plugin.yaml", "a-plugin.yaml", "other.yaml")),
        (user, ("b-plugin.yaml",)),
    ):
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).touch()

    found = plugin_files({"HOME": str(tmp_path / "home")}, str(system))

    assert list(found.items()) == [("a", f"{system}/a-plugin.yaml"), ("b", f"{user}/b-plugin.yaml")]
    assert plugin_files({"HOME": "/nonexistent"}, "/nonexistent") == {}


def test_a_definition_includes_another_one(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(
        "name: base\ndescription: Base\nauthor: x\nversion: 1.0.0\n"
        "commands: [{name: run, type: exec, command: 'true'}]\n"
    )
    (tmp_path / "own-plugin.yaml").write_text("name: own\ninclude_file: base.yaml\n")
    (tmp_path / "part-plugin.yaml").write_text(
        "commands: [{name: part, type: parent, include_file: base.yaml}]"
    )
    reader = PluginReader()

    whole = reader.read(str(tmp_path / "own-plugin.yaml"))
    [part] = reader.read(str(tmp_path / "part-plugin.yaml")).commands

    assert (whole.name, whole.description, [one.spec.name for one in whole.commands]) == (
        "own",
        "Base",
        ["run"],
    )
    assert (part.spec.name, part.spec.description) == ("part", "Base")
    assert [one.spec.name for one in part.below] == ["run"]


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("[]", "a plugin must be a mapping with `commands`"),
        ("name: x", "`commands` must be a list of commands"),
        ("commands: []", "`commands` must be a list of commands"),
        ("commands: [x]", "a command must be a mapping"),
        ("commands: [{name: x}]", "`type` is missing"),
        ("commands: [{name: x, type: parent}]", "`commands` must be a list of commands"),
        ("commands: [{name: x, type: exec}]", "an exec needs either `command` or `script`"),
        (
            "commands: [{name: x, type: exec, command: a, script: b}]",
            "an exec needs either `command` or `script`",
        ),
        ("commands: [{name: ../x, type: exec, command: a}]", "its name and aliases may contain letters"),
        ("commands: [{name: x, type: exec, command: a, flags: [{name: ''}]}]", "`` is not a valid name"),
        (
            "commands: [{name: x, type: exec, command: a, flags: [{name: a, short: ab}]}]",
            "must be one character",
        ),
        (
            "commands: [{name: x, type: exec, command: a, flags: [{name: a, default: 3}]}]",
            "expected true or false or text",
        ),
        ("a: &a [*a]", ""),
        ("\0", ""),
    ],
)
def test_what_is_no_plugin_is_refused(tmp_path: Path, written: str, why: str) -> None:
    path = tmp_path / "x-plugin.yaml"
    path.write_text(written)

    with pytest.raises(CcmError) as caught:
        PluginReader().read(str(path))

    assert str(path) in str(caught.value)
    assert why in str(caught.value)


def test_a_huge_file_and_one_that_is_not_trusted_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x-plugin.yaml"
    path.write_bytes(b"#" * ((1 << 20) + 1))

    with pytest.raises(UsageError, match="larger than 1 MiB"):
        PluginReader().read(str(path))
    with pytest.raises(UsageError, match="root does not run this plugin: it belongs to eve"):
        PluginReader(lambda _: "it belongs to eve").read(str(path))
