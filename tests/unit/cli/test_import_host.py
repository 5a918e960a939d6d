"""`ccm import`: a manifest of what is there, which changes nothing where it was made."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from blockbuster import BlockBuster

from ccm_agent.app import App, ApplyOptions
from ccm_agent.app_import import find_host_resources
from ccm_agent.cli import main
from ccm_agent.cli.manifests.import_host import ImportedResources, _add
from ccm_agent.cli.manifests.import_site import HostSiteWriter
from ccm_agent.engine.run import LocalEngine
from ccm_agent.model.ports import TreeEntry
from ccm_agent.model.records.host_import import HostResources
from ccm_agent.resources.existing import ExistingResource


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blockbuster: BlockBuster) -> Path:
    blockbuster.deactivate()  # a real plan reads the working directory
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def tree(home: Path) -> Path:
    tree = home / "app"
    (tree / "conf.d").mkdir(parents=True)
    for folder in (tree, tree / "conf.d"):
        folder.chmod(0o755)
    for name, content in {
        "app.conf": "listen 80\n",
        "conf.d/a.conf": "{{ not a template }}\n",
        "key": "",
    }.items():
        (tree / name).write_text(content)
        (tree / name).chmod(0o644)
    (tree / "key").write_text("password = hunter2\n")
    return tree


def test_a_tree_is_written_and_changes_nothing(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["import", f"file:{tree}", "--out", "made/site"]) == 0

    told = capsys.readouterr().out
    assert told.startswith("made/site/manifest.yaml: 4 resources (4 files)\nleft out:\n")
    assert f"  file {tree}/key: contains what looks like a password or token\n" in told
    manifest = yaml.safe_load(Path("made/site/manifest.yaml").read_text())
    (files,) = (one["file"] for one in manifest["ccm"]["resources"])
    names = [str(tree), *(f"{tree}/{name}" for name in ("app.conf", "conf.d", "conf.d/a.conf"))]
    assert [next(iter(one)) for one in files] == names
    assert "hunter2" not in "".join(path.read_text() for path in Path("made").rglob("*") if path.is_file())
    assert main.run(["apply", "made/site/manifest.yaml", "--noop", "--json"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["event"]["changed"] for one in records if one["record"] == "event"] == [False] * 4


def test_symlinks_are_written_and_restored(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "conf.d/b.conf").symlink_to("a.conf")

    assert main.run(["import", f"file:{tree}", "--out", "site"]) == 0
    (tree / "conf.d/b.conf").unlink()
    assert main.run(["apply", "site/manifest.yaml"]) == 0

    assert "5 resources (4 files, 1 symlink)\n" in capsys.readouterr().out
    assert os.readlink(tree / "conf.d/b.conf") == "a.conf"


def test_the_site_restores_what_was_removed(tree: Path) -> None:
    assert main.run(["import", f"file:{tree}", "--out", "site"]) == 0
    (tree / "conf.d/a.conf").unlink()

    assert main.run(["apply", "site/manifest.yaml"]) == 0

    assert (tree / "conf.d/a.conf").read_text() == "{{ not a template }}\n"


def test_a_directory_is_one_resource_and_restored(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "run").write_text("#!/bin/sh\n")
    (tree / "run").chmod(0o755)
    (tree / "empty").mkdir()
    (tree / "empty").chmod(0o755)

    assert main.run(["import", f"directory:{tree}", "--out", "site"]) == 0
    assert capsys.readouterr().out.startswith("site/manifest.yaml: 1 resource (1 directory)\nleft out:\n")
    shutil.rmtree(tree)
    assert main.run(["apply", "site/manifest.yaml"]) == 0

    restored = {
        str(path.relative_to(tree)): (path.is_file() and path.read_text(), f"{path.stat().st_mode & 0o777:o}")
        for path in tree.rglob("*")
    }
    assert restored == {
        "app.conf": ("listen 80\n", "644"),
        "conf.d": (False, "755"),
        "conf.d/a.conf": ("{{ not a template }}\n", "644"),
        "empty": (False, "755"),
        "run": ("#!/bin/sh\n", "755"),
    }


CONFIGS = {
    "app.ini": (
        "; of the app\ndebug = no\n\n[db]\nhost = db1\npassword = hunter2\nskip-lock\nmax.size : 5\n",
        {"db.host": "db1", 'db."max.size"': "5", "db.skip-lock": None, "debug": "no"},
        ("db1", "db2"),
    ),
    "app.json": (
        '{"debug": false, "db": {"host": "db1", "password": "hunter2", "ports": [1, 2.5], "opts": {}, "none": null}}\n',
        {"db.host": "db1", "db.none": None, "db.opts": {}, "db.ports": [1, 2.5], "debug": False},
        ('"db1"', '"db2"'),
    ),
    "app.toml": (
        '# of the app\ndebug = false\nat = 2026-01-01\n[db]\nhost = "db1"\npassword = "hunter2"\n"max.size" = 5\n'
        '[[user]]\nname = "a"\n',
        {"db.host": "db1", 'db."max.size"': 5, "debug": False, "user": [{"name": "a"}]},
        ('"db1"', '"db2"'),
    ),
    "app.yaml": (
        "# of the app\ndebug: no\nat: 2026-01-01\ndb: # here\n  host: db1\n  password: hunter2\n  ports: [1, 2.5]\n"
        "base: &base\n  a: 1\nother:\n  <<: *base\n  b: 0x1f\n8080: x\ntext: |\n  two\n  lines\nsum: !Sum [1]\n",
        {
            "base": {"a": 1},
            "db.host": "db1",
            "db.ports": [1, 2.5],
            "debug": "no",
            "other.a": 1,
            "other.b": 31,
            "text": "two\nlines\n",
        },
        ("db1", "db2"),
    ),
}


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_keys_of_a_file_are_one_resource_that_is_stable_and_restored(
    home: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    content, values, (old, new) = CONFIGS[name]
    path = home / name
    path.write_text(content)
    path.chmod(0o644)

    assert main.run(["import", f"config:{path}", "--out", "site"]) == 0

    reported = capsys.readouterr().out
    assert (
        f"  config {path}: its key `db.password` contains what looks like a password or token\n" in reported
    )
    manifest = Path("site/manifest.yaml").read_text()
    assert "hunter2" not in manifest
    assert yaml.safe_load(manifest)["ccm"]["resources"] == [{"config": [{str(path): {"values": values}}]}]
    path.write_text(content.replace(old, new))
    assert main.run(["apply", "site/manifest.yaml"]) == 0
    assert path.read_text() == content
    capsys.readouterr()
    assert main.run(["apply", "site/manifest.yaml", "--json"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["event"]["changed"] for one in records if one["record"] == "event"] == [False]


def test_keys_that_a_manifest_cannot_have_are_named(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = home / "app.yaml"
    path.write_text(CONFIGS["app.yaml"][0])
    (home / "more.json").write_text(
        '{"": 1, "a\\"b": 1, "c\\u001bd": 1, "list": [{"b": 1, "a": 2}], "big": 1e999, "t": "${ x }", "lone": "\\ud800",'
        ' "deep": {"api-key": 12345}, "random": "Zm9vYmFyQmF6MTIzNDU2Nzg5", "url": "https://a:hunter2@b.example", "ok": 1}'
    )
    (home / "twice.ini").write_text("a = 1\na = 2\nlong = 1\n  more\nok = 1\n")

    words = [f"config:{home / name}" for name in ("app.yaml", "more.json", "twice.ini")]
    assert main.run(["import", *words, "--out", "site", "--json"]) == 0

    told = json.loads(capsys.readouterr().out)
    value = "has a value that a manifest does not keep, such as a date or mappings whose keys are not sorted"
    assert [(Path(one["name"]).name, one["reason"]) for one in told["left_out"]] == [
        ("app.yaml", f"its key `at` {value}"),
        ("app.yaml", "its key `db.password` contains what looks like a password or token"),
        ("app.yaml", "its key `8080` has a name that is not text"),
        ("app.yaml", "its key `sum` has a YAML tag"),
        ("more.json", "its key `` has a name that a manifest cannot have"),
        ("more.json", 'its key `a"b` has a name that a manifest cannot have'),
        ("more.json", "its key `c\ufffdd` has a name that a manifest cannot have"),
        ("more.json", f"its key `list` {value}"),
        ("more.json", f"its key `big` {value}"),
        ("more.json", "its key `t` has text that would be read as a template"),
        ("more.json", f"its key `lone` {value}"),
        ("more.json", "its key `deep.api-key` contains what looks like a password or token"),
        ("more.json", "its key `random` contains what looks like a key"),
        ("more.json", "its key `url` contains what looks like a URL with a password"),
        ("twice.ini", "its key `a` cannot be managed: the key `a` occurs more than once (lines 1 and 2)"),
        (
            "twice.ini",
            "its key `long` cannot be managed: the value of `long` (line 3) has several lines; "
            "only single-line values can be changed",
        ),
    ]
    manifest = yaml.safe_load(Path("site/manifest.yaml").read_text())
    (configs,) = (one["config"] for one in manifest["ccm"]["resources"])
    assert [
        one[str(home / name)] for one, name in zip(configs[1:], ("more.json", "twice.ini"), strict=True)
    ] == [
        {"values": {"ok": 1}},
        {"values": {"ok": "1"}},
    ]


def test_an_edit_is_a_block_that_markers_delimit(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = home / "hosts"
    content = (
        "127.0.0.1 localhost\n# BEGIN ccm: db hosts\n192.0.2.7 db1\n\n192.0.2.8 db2\n# END ccm: db hosts\n"
        "# BEGIN ccm\n# END ccm\n"
        "# BEGIN ccm: key\npassword = hunter2\n# END ccm: key\n# BEGIN ccm: open\n"
    )
    path.write_text(content)
    path.chmod(0o644)

    assert main.run(["import", f"edit:{path}", "--out", "site"]) == 0

    reported = capsys.readouterr().out
    assert f"  edit {path}: its block `key` contains what looks like a password or token\n" in reported
    assert f"  edit {path}: its block `open` cannot be managed: line 12 is the `begin` line" in reported
    manifest = Path("site/manifest.yaml").read_text()
    assert "hunter2" not in manifest
    assert yaml.safe_load(manifest)["ccm"]["resources"] == [
        {
            "edit": [
                {"db hosts": {"path": str(path), "block": "192.0.2.7 db1\n\n192.0.2.8 db2\n"}},
                {str(path): {"block": ""}},
            ]
        }
    ]
    path.write_text(content.replace("db2", "db3"))
    assert main.run(["apply", "site/manifest.yaml"]) == 0
    assert path.read_text() == content


def test_a_file_without_blocks_is_refused_as_an_edit(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "hosts").write_text("127.0.0.1 localhost\n# BEGIN ccmd\n")

    assert main.run(["import", f"edit:{home}/hosts", "--out", "site"]) == 1

    assert f"write file:{home}/hosts for the whole file, or config:{home}/hosts for its keys" in (
        " ".join(capsys.readouterr().err.split())
    )
    assert not Path("site").exists()


@pytest.mark.parametrize("kind", ["config", "edit"])
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("fifo.json", "is a FIFO, socket or device"),
        ("link.json", "is a symlink; name its target"),
        ("folder.json", "is a directory"),
        ("private.json", "is private (mode 0640)"),
        ("huge.json", "is larger than"),
        ("new\nline.json", "its name is not printable text"),
    ],
)
def test_a_hostile_file_is_named_and_not_imported(
    home: Path, capsys: pytest.CaptureFixture[str], kind: str, name: str, reason: str
) -> None:
    block = "# BEGIN ccm\nx\n# END ccm\n"
    path = home / name
    if name == "fifo.json":
        os.mkfifo(path)
    elif name == "folder.json":
        path.mkdir()
    elif name == "link.json":
        (home / "target.json").write_text('{"a": 1}\n' if kind == "config" else block)
        path.symlink_to("target.json")
    else:
        path.write_text(
            ('{"a": 1}\n' if kind == "config" else block) + " " * ((2 << 20) * (name == "huge.json"))
        )
        path.chmod(0o640 if name == "private.json" else 0o644)

    assert main.run(["import", f"{kind}:{path}", "--out", "site"]) == 1

    told = capsys.readouterr().err
    assert f": {reason}" in told
    assert len(told.splitlines()) == 3
    assert not Path("site").exists()


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.json", b"\x7fELF\0", "it contains NUL bytes, so it is not text"),
        ("a.yaml", b"\xff: 1\n", "it is not UTF-8"),
        ("a.yaml", b"a: &a [*a]\n", "it has an alias inside its own anchor"),
        ("a.yaml", b"---\nok: &b 1\nb: *b\na: &a\n  b: [{c: *a}]\n", "it has an alias inside its own anchor"),
        ("a.yaml", b"a: " + b"[" * 5000, "it is"),
        ("a.yaml", b"a: 1\n---\nb: 1\n", "it has several documents"),
        (
            "a.yaml",
            b"a: &a {" + b"".join(b"k%d, " % n for n in range(9000)) + b"}\n"
            + b"".join(b"x%d: {<<: *a}\n" % n for n in range(9000)),
            "it has too many merge keys",
        ),
        ("a.yaml", b"- a\n", "its values have no keys"),
        ("a.json", b"[" * 5000, "it is nested more than"),
        ("a.json", b'{"a": 1, "a": 2}', "line 1\n"),
        ("a.json", b'{"\x1b[31m": 1', "it is not JSON"),
        ("a.toml", b"a = ", "it is not TOML"),
        ("nginx.conf", b"user www-data;\nhttp {\n}\n", "line 1 is neither a section nor `key = value`"),
        ("a.ini", b"".join(b"k%d = 1\n" % n for n in range(501)), "has more than 500 keys"),
        ("a.ini", b"".join(b"k%d = 1\n" % n for n in range(500)) + b";\n" * 4000, "has too many keys and lines"),
        ("a.ini", b"s = 1\n[s]\nk = 1\n", "`s` contains another of the keys"),
        ("a.ini", b"# nothing\n", "has no keys to import"),
        ("a.yaml", b"a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\n"
         b"d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\n", "the value has more than"),
        ("a.yaml", b"a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\n"
         + b"".join(b"k%d: [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\n" % n for n in range(9)), "the value has more than"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_of_its_format_is_named(
    home: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes, reason: str
) -> None:
    (home / name).write_bytes(content)
    (home / name).chmod(0o644)

    assert main.run(["import", f"config:{home / name}", "--out", "site"]) == 1

    assert f"  config {home / name}: {reason}" in capsys.readouterr().err


def test_a_file_of_an_unknown_format_is_a_wrong_command_line(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "app.txt").write_text("a = 1\n")

    assert main.run(["import", f"config:{home}/app.txt", "--out", "site"]) == 1

    assert "its extension is none of .cfg, .cnf" in capsys.readouterr().err


def test_only_its_owner_can_read_what_was_written(tree: Path) -> None:
    assert main.run(["import", f"file:{tree},directory:{tree}", "--out", "site"]) == 0

    written = [Path("site"), *(path for path in Path("site").rglob("*") if path.is_file())]
    assert len(written) == 6
    assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in written} == {0}


def test_json_names_what_was_written_and_left_out(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["import", f"file:{tree}/app.conf,file:{tree}/key", "--out", "site", "--json"]) == 0

    assert json.loads(capsys.readouterr().out) == {
        "out": "site",
        "resources": [{"type": "file", "name": f"{tree}/app.conf"}],
        "left_out": [
            {
                "type": "file",
                "name": f"{tree}/key",
                "reason": "contains what looks like a password or token",
            }
        ],
    }


def test_a_file_of_two_arguments_is_left_out_once(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["import", f"directory:{tree}", f"file:{tree}", "--out", "site"]) == 0

    reported = capsys.readouterr().out
    assert reported.count(f"  file {tree}/key: contains what looks like a password or token\n") == 1


@pytest.mark.parametrize("content", [b"x", None])
def test_what_resources_of_any_type_need_is_stored(home: Path, content: bytes | None) -> None:
    tree = () if content else (TreeEntry(path="a", content=b"x"),)
    resource = ExistingResource(name="/one", properties={}, content=content, tree=tree)

    with HostSiteWriter("site", "") as writer:
        writer.write({("extension", "/one"): resource, ("file", "/two"): resource})
        writer.write({("extension", "/one"): resource})
        writer.finish()

    (extension,) = yaml.safe_load(Path("site/manifest.yaml").read_text())["ccm"]["resources"]
    source = extension["extension"][0]["/one"]["source"]
    stored = home / "site" / source / ("" if content else "a")
    assert stored.read_bytes() == b"x"
    assert [
        path for path in (home / "site").rglob("*") if path.is_file() and path.name != "manifest.yaml"
    ] == [stored]


def test_what_a_symlink_names_is_not_evaluated(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tree / "plain").symlink_to("$HOME")
    for name, target in (("a", '${ readFile("/etc/hostname") }'), ("b", "{{ 1 + 1 }}")):
        (tree / name).symlink_to(target)

    assert main.run(["import", f"file:{tree}", "--out", "site"]) == 0

    reported = capsys.readouterr().out
    for name in ("a", "b"):
        assert f"symlink {tree}/{name}: has text that would be read as a template" in reported
    manifest = Path("site/manifest.yaml").read_text()
    assert "$HOME" in manifest
    assert "readFile" not in manifest


def test_what_a_user_wrote_does_not_become_a_template() -> None:
    line = 'ssh-ed25519 AAAA {{ readFile("/etc/shadow") }}'
    imported = ImportedResources()

    for name, properties in (
        ("mallory", {"authorized_keys": [line]}),
        ("trudy", {"authorized_keys": ['ssh-ed25519 AAAA ${ readFile("/etc/shadow") }']}),
        ("{{ x }}", {}),
        ("${ x }", {}),
        ("job", {"environment": ["A={% x %}"]}),
        ("deep", {"a": {"b": ["{# x"]}}),
        ("plain", {"authorized_keys": ["ssh-ed25519 AAAA a{b}$c"]}),
    ):
        _add(imported, "user", ExistingResource(name=name, properties=properties))

    assert list(imported.resources) == [("user", "plain")]
    assert {one.reason for one in imported.left_out} == {"has text that would be read as a template"}


def test_a_path_with_a_line_break_does_not_end_the_comment(tree: Path) -> None:
    named = tree.with_name("x\nccm: {fail_on_error: true}\n#")
    tree.rename(named)
    named.with_name("plain").write_text("x\n")

    assert main.run(["import", f"file:{named}", f"file:{named.with_name('plain')}", "--out", "site"]) == 0

    first, second, *_ = Path("site/manifest.yaml").read_text().splitlines()
    assert first.startswith("# Written by `ccm import file:")
    assert "\ufffdccm: {fail_on_error: true}\ufffd#" in first
    assert second == "ccm:"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["file:/none/such", "--out", "site"], "/none/such: does not exist"),
        (["file", "--out", "site"], "name an absolute path"),
        (["exec", "--out", "site"], "`exec` resources cannot be imported"),
        (
            ["archive", "--out", "site"],
            "types that can be imported: config, container, cron, directory, edit, file, group, host, kernel_module, mount, "
            "package, repository, service, sysctl, system, systemd_unit, user",
        ),
        (["fil:/etc", "--out", "site"], "fil"),
        (["file:/etc/hostname", "--out", "full"], "--out full: exists and is not an empty folder"),
        (["file:/etc/hostname", "--out", "plain"], "--out plain: exists and is not an empty folder"),
        (["file:/etc/hostname", "--out", "link"], "--out link: exists and is not an empty folder"),
    ],
)
def test_a_wrong_command_line_writes_nothing(
    home: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    (home / "full").mkdir()
    (home / "full/mine").touch()
    (home / "plain").touch()
    (home / "link").symlink_to("elsewhere")
    before = sorted(os.listdir(home))

    assert main.run(["import", *arguments]) == 1

    assert sentence in capsys.readouterr().err
    assert sorted(set(os.listdir(home)) - {"state", "home"}) == sorted(set(before) - {"state", "home"})


def test_an_interrupted_import_leaves_no_folder(
    tree: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ccm_agent.cli.manifests import import_site

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(import_site, "write_private", fail)
    assert main.run(["import", f"file:{tree}", "--out", "site"]) == 1
    assert [name for name in os.listdir(home) if "site" in name] == []


def test_a_plan_that_breaks_off_proves_nothing(
    tree: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def break_off(*_: object) -> SimpleNamespace:
        return SimpleNamespace(reason="the disk is full")

    monkeypatch.setattr(LocalEngine, "apply", break_off)
    assert main.run(["import", f"file:{tree}", "--out", "site"]) == 1
    assert "the plan of the manifest stopped: the disk is full" in capsys.readouterr().err
    assert [name for name in os.listdir(home) if "site" in name] == []


def test_nothing_to_import_is_an_error(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["import", f"file:{tree}/key", "--out", "site"]) == 1

    told = capsys.readouterr().err
    assert "nothing to import, so nothing was written\nleft out:\n" in told
    assert f"  file {tree}/key: contains what looks like a password or token" in told
    assert not Path("site").exists()


def test_an_agent_reads_no_directory_that_is_too_large_for_its_memory(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def find() -> HostResources:
        app = App(os.environ)
        try:
            return await find_host_resources(app, [f"file:{tree}"], ApplyOptions(environ={}))
        finally:
            await app.close()

    found = asyncio.run(find())
    monkeypatch.setattr("ccm_agent.app_import.READ_BYTES", 9)
    refused = asyncio.run(find())

    assert [one.name for one in found.resources if one.contents] == [
        f"{tree}/app.conf",
        f"{tree}/conf.d/a.conf",
    ]
    assert refused.resources == []
    [left_out] = refused.left_out
    assert (left_out.type, left_out.name) == ("file", str(tree))
    assert "larger than" in left_out.reason


@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param(
            "pip.conf", "[global]\nextra-index-url =\n    https://user:pw12345@host1/simple\n", id="a URL that is split"
        ),
        pytest.param("a.yaml", f"port: 1\nclients: {{ghp_{'pw12345' * 5}a: bob}}\n", id="a key that is a token"),
        pytest.param("a.yaml", "port: 1\ntokens: {pw12345: bob}\n", id="a key below tokens"),
        pytest.param("a.yaml", "port: 1\nwords: [{name: DB_PASSWORD, value: pw12345}]\n", id="a name and a value"),
        pytest.param("a.yaml", "port: 1\nargs: [--password, pw12345]\n", id="an option and a value"),
        pytest.param("a.yaml", "port: 1\nbindpw: pw12345\n", id="bindpw"),
        pytest.param("a.yaml", "password: *pw12345\n", id="YAML that is not valid"),
        pytest.param("a.ini", f"port = 1\nghp_{'pw12345' * 5}a\n", id="a name without a value"),
    ],
)  # fmt: skip
def test_a_secret_leaves_neither_as_key_nor_value_nor_in_a_reason(
    home: Path, capsys: pytest.CaptureFixture[str], name: str, content: str
) -> None:
    (home / name).write_text(content)
    (home / name).chmod(0o644)

    main.run(["import", f"config:{home / name}", "--out", "site"])

    told = "".join(capsys.readouterr())
    assert "left out:" in told
    written = Path("site/manifest.yaml")
    assert "pw12345" not in told + (written.read_text() if written.exists() else "")
