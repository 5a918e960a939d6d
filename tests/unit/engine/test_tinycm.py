"""TinyCM's manifests: constants, definitions, merging, order, and the resources that come of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from ccm_agent.engine.request import ManifestSource
from ccm_agent.engine.tinycm.content import interpolate
from ccm_agent.engine.tinycm.module_path import TemplateDirectory
from ccm_agent.manifest.document import make_document
from ccm_agent.manifest.lint import lint
from ccm_agent.manifest.tinycm.definitions import read_definitions
from ccm_agent.manifest.tinycm.detect import is_tinycm
from ccm_agent.model.errors import CcmError, ManifestError, TemplateError
from ccm_agent.resources.catalog import Catalog
from ccm_agent.resources.file import TYPE as FILE
from ccm_agent.resources.package import TYPE as PACKAGE
from ccm_agent.testing.download import FakeDownload
from ccm_agent.testing.files import FakeFiles
from tests.support.engine import Bench, bench

HEADER = """\
global:
  foo: bar
  nameservers: [8.8.8.8, 8.8.4.4]
  dns: {domain: example.com}
"""
KEPT = {"owner": "*", "group": "*", "mode": "xxx", "ensure": "present"}


class Site:
    """An engine with the real file type, and a web server."""

    def __init__(self) -> None:
        files = FakeFiles()
        self.download = FakeDownload(write=files.put)
        self.bench: Bench = bench(
            FILE,
            PACKAGE,
            files=files,
            port={"download": self.download}.__getitem__,
            gather_facts=lambda more: {"host": {"info": {"hostname": "web1.office.example.com"}}, **more},
        )
        self.bench.files = files
        files.put_directory("/srv")

    async def resources(self, *definitions: str, header: str = HEADER, **options: Any) -> list[Any]:
        """What definitions come to: type and properties of each resource."""
        text = "---\n".join([header, *(one.strip() + "\n" for one in definitions)])
        self.bench.files.put("/work/site.cm.yml", text)
        plan = await self.bench.engine.load(ManifestSource(path="site.cm.yml"), self.bench.options(**options))
        return [(one.kind.name, msgspec.to_builtins(one.wanted)) for one in plan.loaded.resources]

    async def refusal(self, *definitions: str, header: str = HEADER) -> str:
        with pytest.raises(CcmError) as caught:
            await self.resources(*definitions, header=header)
        return str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "tiny"),
    [
        pytest.param("site.cm.yml", "", True, id="by its name"),
        pytest.param("/etc/site.cm.yaml", "ccm: {}", True, id="by the other ending, whatever is in it"),
        pytest.param("site.yaml", "global: {a: 1}\n---\nfile: {name: /x}\n", True, id="by its shape"),
        pytest.param("site.yaml", "hosts: []\nglobal: {}\n---\nfile: {}\n", True, id="by its shape, hosts first"),
        pytest.param("site.yaml", "ccm: {}\n---\nglobal: {}\n", False, id="a ccm section is ours"),
        pytest.param("site.yaml", "global: {}\n", False, id="one document is ours"),
        pytest.param("cm.yml", "", False, id="an ending needs a name"),
        pytest.param("https://site/m.cm.yml?v=1", "", True, id="by its name in a URL"),
        pytest.param("site.yaml", "# x\n\nname: /x\nensure: removed\n", True, id="a file at the top"),
        pytest.param("site.yaml", "a: b\n---\nname: /x\npermission-mask: 644\n", True, id="a file behind constants"),
        pytest.param("site.yaml", "file:\n  name: /x\n  contents: a\n", True, id="a file without a header"),
        pytest.param("site.yaml", "name: x\nowner: y\n", False, id="any mapping with a name is ours"),
        pytest.param("site.yaml", "name: /x\nensure: present\nccm: {}\n", False, id="a ccm section behind it"),
        pytest.param("site.yaml", "- file:\n    - /x:\n        name: x\n        ensure: y\n", False, id="a list is ours"),
        pytest.param("site.yaml", "resources:\n  - file:\n      name: x\n      ensure: y\n", False, id="below a key is ours"),
    ],
)  # fmt: skip
def test_a_manifest_is_tinycms_by_its_name_or_its_shape(name: str, text: str, tiny: bool) -> None:
    assert is_tinycm(name, text) is tiny


@pytest.mark.parametrize(
    ("definition", "properties"),
    [
        pytest.param(
            """
file:
  name: /srv/x
  ensure: contents
  type: constant
  contents: |
    {foo} {{ Data.foo }} ${foo}
  owner: 0
  group: adm
  permission-mask: 644
""",
            {
                "ensure": "present",
                "content": "{foo} {{ Data.foo }} ${foo}\n",
                "owner": "0",
                "group": "adm",
                "mode": "644",
            },
            id="contents as written, no template of ours",
        ),
        pytest.param(
            """
file:
  name: /srv/x
  interpolate: true
  contents: |
    {foo} {nameservers[1]} {dns['domain']} {dns[domain]} {{x}} {foo:>5}
""",
            {**KEPT, "content": "bar 8.8.4.4 example.com example.com {x}   bar\n"},
            id="constants put in",
        ),
        pytest.param(
            "file: {name: /srv/x, ensure: exists, contents: once, permission-mask: 7xx}",
            {**KEPT, "mode": "7xx", "content": "once", "replace": False},
            id="exists writes once",
        ),
        pytest.param(
            "file: {name: /srv/x, ensure: exists, owner: web}",
            {**KEPT, "owner": "web"},
            id="exists without contents",
        ),
        pytest.param("file: {name: /srv/x, ensure: removed}", {"ensure": "absent"}, id="removed"),
        pytest.param("file: {name: /srv/x, ensure: deleted}", {"ensure": "absent"}, id="deleted is removed"),
        pytest.param(
            "file: {name: /srv/x, type: http, contents: 'https://site/x'}",
            {**KEPT, "source": "https://site/x"},
            id="http is a source",
        ),
        pytest.param(
            "file: {name: /srv/x, type: template, contents: files/x}",
            {**KEPT, "source": "files/x"},
            id="a template without constants is a source beside the manifest",
        ),
        pytest.param(
            "file: {name: /srv/x, contents: 5, permission_mask: 'X40'}",
            {**KEPT, "content": "5", "mode": "x40"},
            id="a number as contents, a mask in capitals",
        ),
        pytest.param(
            "file: {name: /srv/x, contents: a, permission-mask: 0640}",
            {**KEPT, "content": "a", "mode": "640"},
            id="a mask that YAML takes for an octal number",
        ),
    ],
)
async def test_a_file_definition_becomes_a_file_resource(definition: str, properties: dict[str, Any]) -> None:
    assert await Site().resources(definition) == [("file", {"name": "/srv/x", **properties})]


async def test_fetched_manifests_with_constants_are_rendered_with_jinja() -> None:
    site = Site()
    site.bench.files.put(
        "/work/t.conf", "{{foo}}\n{% for ns in nameservers %}{{ns}} {% endfor %}{{dns.domain}}\n"
    )
    site.download.serve("https://site/t", "caf\xe9 {{foo}}".encode("latin-1"))

    found = await site.resources(
        "file: {name: /srv/a, type: template, interpolate: true, contents: t.conf}",
        "file: {name: /srv/b, type: http, interpolate: true, encoding: latin-1, contents: 'https://site/t'}",
        "file: {name: /srv/c, type: http, encoding: iso8859-1, contents: 'https://site/t'}",
    )

    assert [one["content"] for _, one in found] == [
        "bar\n8.8.8.8 8.8.4.4 example.com\n",
        "café bar",
        "café {{foo}}",
    ]


async def test_packages_map_and_a_list_of_names_is_one_definition_each() -> None:
    assert await Site().resources(
        "package: {name: [vim, htop], ensure: installed}",
        "package: {name: nano, ensure: removed, packagemanager: apt}",
    ) == [
        ("package", {"name": "vim", "ensure": "present"}),
        ("package", {"name": "htop", "ensure": "present"}),
        ("package", {"name": "nano", "ensure": "absent", "provider": "apt"}),
    ]


# ---- constants ----

FILTERS = """\
global: {ns: 1.1.1.1, other: x}
%s:
  - {filter: '.*\\.example\\.com', constants: {ns: 2.2.2.2}}
  - {filter: 'web\\d\\.office\\.', constants: {ns: 3.3.3.3}}
  - {filter: 'office', constants: {ns: 4.4.4.4}}
"""


@pytest.mark.parametrize("key", ["host", "hosts"])
@pytest.mark.parametrize(
    ("node", "content"),
    [
        pytest.param("", "3.3.3.3 x", id="the last that matches this host's name from its beginning"),
        pytest.param("db.example.com", "2.2.2.2 x", id="the agent's identity"),
        pytest.param("laptop", "1.1.1.1 x", id="none"),
    ],
)
async def test_filters_choose_constants_by_the_hosts_name(key: str, node: str, content: str) -> None:
    found = await Site().resources(
        "file: {name: /srv/x, interpolate: true, contents: '{ns} {other}'}", header=FILTERS % key, node=node
    )

    assert found[0][1]["content"] == content


async def test_a_fact_called_fqdn_is_the_hosts_name() -> None:
    found = await Site().resources(
        "file: {name: /srv/x, interpolate: true, contents: '{ns}'}",
        header=FILTERS % "hosts",
        more_facts={"fqdn": "db.example.com"},
    )

    assert found[0][1]["content"] == "2.2.2.2"


async def test_data_of_the_caller_overrides_constants() -> None:
    found = await Site().resources(
        "file: {name: /srv/x, interpolate: true, contents: '{foo}'}", data={"foo": "theirs"}
    )

    assert found[0][1]["content"] == "theirs"


async def test_a_manifest_needs_no_header() -> None:
    found = await Site().resources(
        "file: {name: /srv/y, contents: b}", header="file: {name: /srv/x, contents: a}\n"
    )

    assert [one["name"] for _, one in found] == ["/srv/x", "/srv/y"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("{nope}", "`{nope}`: there is no constant `nope`", id="unknown"),
        pytest.param("{names[7]}", "`{names[7]}`: there is no constant `7`", id="beyond a list's end"),
        pytest.param("{a.__class__}", "`{a.__class__}` is not the name of a constant", id="attributes lead nowhere"),
        pytest.param("{a[__class__]}", "`{a[__class__]}`: there is no constant `__class__`", id="nor do keys"),
        pytest.param("{a!r}", "`{a!r}` is not the name of a constant", id="conversions"),
        pytest.param("{}", "`{}` is not the name of a constant", id="no name"),
        pytest.param("{a:{b}}", "`{a:{b}}` is not the name of a constant", id="a format from a constant"),
        pytest.param("{a:9999999999}", "`{a:9999999999}` is not the name of a constant", id="a width that fills the memory"),
        pytest.param("{a", "the braces of `contents` are not balanced", id="a brace alone"),
        pytest.param("{a:d}", "`{a:d}` cannot be written", id="a format of another type"),
    ],
)  # fmt: skip
def test_braces_lead_to_constants_and_nowhere_else(text: str, message: str) -> None:
    with pytest.raises(TemplateError) as caught:
        interpolate(text, {"a": "x", "b": 5, "names": ["one"]})

    assert caught.value.message.startswith(message)


# ---- two of one thing, and order ----


async def test_definitions_of_one_file_are_merged_where_they_agree() -> None:
    assert await Site().resources(
        "file: {name: /srv/x, contents: a, permission-mask: 7xx, owner: web}",
        "file: {name: /srv/x, permission-mask: xx0, owner: web, group: adm}",
    ) == [
        (
            "file",
            {
                "name": "/srv/x",
                "ensure": "present",
                "content": "a",
                "owner": "web",
                "group": "adm",
                "mode": "7x0",
            },
        )
    ]


@pytest.mark.parametrize(
    ("first", "second", "what"),
    [
        pytest.param("contents: a", "contents: b", "`contents`", id="contents"),
        pytest.param("owner: root", "owner: web", "`owner`", id="owner"),
        pytest.param("ensure: removed", "ensure: exists", "`ensure`", id="ensure"),
        pytest.param(
            "permission-mask: 77x", "permission-mask: x55", "`permission-mask` for group", id="mask"
        ),
    ],
)
async def test_definitions_that_contradict_each_other_are_an_error_that_names_both(
    first: str, second: str, what: str
) -> None:
    assert await Site().refusal(f"file: {{name: /srv/x, {first}}}", f"file: {{name: /srv/x, {second}}}") == (
        f"site.cm.yml:8: file::/srv/x is defined twice with different {what}: here and on line 6; make them equal"
    )


async def test_resources_run_in_declared_order_but_after_their_requirements() -> None:
    found = await Site().resources(
        "file: {name: /srv/c, contents: c, after: [file::/srv/b, package::vim]}",
        "file: {name: /srv/b, contents: b}",
        "file: {name: /srv/a, contents: a, after: file::/srv/c}",
        "package: {name: vim, ensure: installed}",
    )

    assert [(kind, one["name"], one.get("require", [])) for kind, one in found] == [
        ("file", "/srv/b", []),
        ("package", "vim", []),
        ("file", "/srv/c", ["file#/srv/b", "package#vim"]),
        ("file", "/srv/a", ["file#/srv/c"]),
    ]


@pytest.mark.parametrize(
    ("definitions", "message"),
    [
        pytest.param(
            ["file: {name: /srv/a, contents: a, after: file::/srv/b}", "file: {name: /srv/b, contents: b, after: file::/srv/a}"],
            "site.cm.yml:6: dependency cycle: file::/srv/a, file::/srv/b",
            id="in circles",
        ),
        pytest.param(
            ["file: {name: /srv/a, contents: a, after: file::/srv/bb}", "file: {name: /srv/b, contents: b}"],
            "site.cm.yml:6: file::/srv/a comes after `file::/srv/bb`, which is not defined, did you mean `file::/srv/b`?",
            id="after nothing",
        ),
        pytest.param(
            ["user: {name: bob}"],
            "site.cm.yml:6:1: TinyCM's `user` definitions are not supported: create users with an `exec` in a CCM manifest",
            id="user",
        ),
        pytest.param(
            ["git: {name: /srv/x}"],
            "site.cm.yml:6:1: TinyCM's `git` definitions are not supported: fetch with an `archive` in a CCM manifest",
            id="git",
        ),
        pytest.param(
            ["link: {name: /srv/x}"],
            "site.cm.yml:6:1: TinyCM's `link` definitions are not supported: create links with an `exec` in a CCM manifest",
            id="link",
        ),
        pytest.param(
            ["fil: {name: /srv/x}"],
            "site.cm.yml:6:1: there is no definition `fil`, did you mean `file`?",
            id="unknown type",
        ),
        pytest.param(
            ["{name: /srv/x, contnts: a}"],
            "site.cm.yml:6:16: unknown key `contnts`, did you mean `contents`?",
            id="unknown key of a definition without its type",
        ),
        pytest.param(
            ["file: {name: /srv/x}\npackage: {name: vim}"],
            "site.cm.yml:6: a definition must be one type with its properties: write `file: {name: …}`",
            id="two types in one document",
        ),
        pytest.param(
            ["file: {name: /srv/x, type: template, contents: ../secret}"],
            "site.cm.yml:6: file::/srv/x: the template `../secret` is outside the module path /work; put it below the module "
            "path, or name another with --module-path",
            id="a template outside the module path",
        ),
        pytest.param(
            ["file: {name: /srv/x, type: template, contents: /etc/shadow}"],
            "site.cm.yml:6: file::/srv/x: the template `/etc/shadow` is outside the module path /work; put it below the module "
            "path, or name another with --module-path",
            id="a template with an absolute path",
        ),
        pytest.param(
            ["{type: package, name: vim}"],
            "site.cm.yml:6: a definition must be one type with its properties: write `package: {name: …}`",
            id="the type as a property",
        ),
        pytest.param(
            ["file: {name: /srv/x, contnts: a}"],
            "site.cm.yml:6:22: unknown key `contnts`, did you mean `contents`?",
            id="unknown key",
        ),
        pytest.param(
            ["file: {name: /srv/x, contents: a, permission-mask: 79x}"],
            "site.cm.yml:6:35: `permission-mask` is `79x`, but must be three digits from 0 to 7, with x "
            "for any digit, such as 7xx",
            id="a mask that is none",
        ),
        pytest.param(
            ["file: {name: /srv/x, ensure: absent}"],
            "site.cm.yml:6:22: `ensure` is `absent`, but must be one of contents, exists, removed, deleted",
            id="a word of ours",
        ),
        pytest.param(
            ["file: {name: srv/x, contents: a}"],
            "site.cm.yml:6: file#srv/x: the path of a file must be absolute, but `srv/x` does not begin with a slash",
            id="what the file type refuses",
        ),
        pytest.param(
            ["file: {name: /srv/x, interpolate: true, contents: '{bar}'}"],
            "site.cm.yml:6: file::/srv/x: `{bar}`: there is no constant `bar`",
            id="a constant that there is not",
        ),
        pytest.param(
            ["file: {name: /srv/x, type: template, interpolate: true, contents: none}"],
            "site.cm.yml:6: file::/srv/x: /work/none: cannot be read: No such file or directory",
            id="a template that is not there",
        ),
        pytest.param(
            ["file: {name: /srv/x, type: http, interpolate: true, contents: 'https://u:pw@site/none'}"],
            "site.cm.yml:6: file::/srv/x: https://***@site/none: the server answered 404",
            id="a URL that is not there, its password masked",
        ),
        pytest.param(
            ["file: {name: /srv/x, type: http, contents: /etc/passwd}"],
            "site.cm.yml:6: file::/srv/x: `contents` of `type: http` must be an http or https URL, not `/etc/passwd`",
            id="http without a URL",
        ),
        pytest.param(
            ["file: {name: /srv/x, ensure: contents}"],
            "site.cm.yml:6: file::/srv/x: `contents` is missing: add the file's content, or write `ensure: exists`",
            id="contents without contents",
        ),
        pytest.param(
            ["file: {name: /srv/x, if: foo}"],
            "site.cm.yml:6:22: `if` is not supported: use `control` in a CCM manifest",
            id="if",
        ),
        pytest.param(
            [],
            "site.cm.yml: the manifest has no definitions: add a document after the header",
            id="no definition",
        ),
    ],
)  # fmt: skip
async def test_an_invalid_value_is_refused_with_its_place(definitions: list[str], message: str) -> None:
    assert await Site().refusal(*definitions) == message


@pytest.mark.parametrize(
    ("header", "message"),
    [
        pytest.param(
            "glbal: {}\n",
            "site.cm.yml:1:1: unknown key `glbal` in the header, did you mean `global`?",
            id="unknown key",
        ),
        pytest.param(
            "plugins: [vim]\n",
            "site.cm.yml:1:1: TinyCM's plugins are not supported: remove `plugins`",
            id="plugins",
        ),
        pytest.param(
            "arguments: {a: 1}\n",
            "site.cm.yml:1:1: this is a TinyCM module, not a manifest",
            id="a module",
        ),
        pytest.param(
            "hosts:\n  - filter: '('\n    constants: {}\n",
            "site.cm.yml:2:5: the filter `(` is not a regular expression: ",
            id="a filter that does not parse",
        ),
        pytest.param(
            "hosts:\n  - filter: x\n",
            "site.cm.yml:2:5: each item of `hosts` must be a mapping with `filter` and `constants`",
            id="a filter without constants",
        ),
    ],
)
async def test_a_header_that_cannot_be_right_is_refused_with_its_place(header: str, message: str) -> None:
    found = await Site().refusal("file: {name: /srv/x, contents: a}", header=header)

    assert found[: len(message)] == message


# ---- looked at without being applied ----


@pytest.mark.parametrize(
    ("text", "strict", "found"),
    [
        pytest.param("global: {}\n---\nfile: {name: /srv/x, contents: a}\n", False, [], id="all well"),
        pytest.param(
            "global: {}\n---\nuser: {name: bob}\n",
            False,
            [
                "x.cm.yml:3:1: error: TinyCM's `user` definitions are not supported: create users with an `exec` in a "
                "CCM manifest"
            ],
            id="what is not supported",
        ),
        pytest.param(
            "file: {name: /srv/x, contents: a}\n",
            True,
            ["x.cm.yml:1: error: this is a TinyCM manifest, which Choria CCM cannot read"],
            id="Choria CCM reads none",
        ),
    ],
)
def test_lint_reads_them_too(text: str, strict: bool, found: list[str]) -> None:
    document = make_document(text.encode(), "x.cm.yml", "/work")

    assert [str(one) for one in lint(document, Catalog(), strict_ccm=strict)] == found


# ---- applied ----


async def test_a_manifest_is_applied_in_order_and_is_stable_the_second_time() -> None:
    site = Site()
    site.bench.files.put("/srv/mode", "a", mode=0o645, uid=33)
    site.download.serve("https://site/x", b"fetched")
    definitions = (
        "file: {name: /srv/second, ensure: exists, contents: once, after: file::/srv/first}",
        "file: {name: /srv/first, interpolate: true, contents: 'foo is {foo}', permission-mask: 600}",
        "file: {name: /srv/mode, contents: b, permission-mask: 7xx}",
        "file: {name: /srv/web, type: http, contents: 'https://site/x'}",
    )

    await site.resources(*definitions)
    for _ in range(2):
        await site.bench.engine.apply(ManifestSource(path="site.cm.yml"), site.bench.options())
        site.bench.files.nodes["/srv/second"].content = b"edited"

    nodes = site.bench.files.nodes
    assert [(one.name, one.outcome.value) for one in site.bench.events] == [
        *[(name, "changed") for name in ("/srv/first", "/srv/second", "/srv/mode", "/srv/web")],
        *[(name, "stable") for name in ("/srv/first", "/srv/second", "/srv/mode", "/srv/web")],
    ]
    assert (nodes["/srv/first"].content, nodes["/srv/first"].mode) == (b"foo is bar", 0o600)
    assert (nodes["/srv/mode"].content, nodes["/srv/mode"].mode, nodes["/srv/mode"].uid) == (b"b", 0o745, 33)
    assert (nodes["/srv/second"].content, nodes["/srv/web"].content) == (b"edited", b"fetched")


async def test_a_manifest_is_known_by_its_shape_too() -> None:
    site = Site()
    site.bench.files.put("/work/m.yaml", "global: {a: 1}\n---\nfile: {name: /srv/x, contents: hi}\n")

    await site.bench.engine.apply(ManifestSource(path="m.yaml"), site.bench.options())

    assert site.bench.files.nodes["/srv/x"].content == b"hi"


async def test_the_documented_example_has_the_documented_result() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/tinycm.md").read_text()
    header, *definitions = page.split("```yaml\n")[1].split("```")[0].split("---\n")

    found = await Site().resources(*definitions, header=header)

    assert found == [
        (
            "file",
            {
                "name": "/etc/resolv.conf",
                "ensure": "present",
                "content": "search example.com\nnameserver 10.0.0.1\n",
                "owner": "0",
                "group": "root",
                "mode": "644",
            },
        ),
        ("package", {"name": "vim", "ensure": "present"}),
        ("package", {"name": "htop", "ensure": "present"}),
        (
            "file",
            {
                **KEPT,
                "name": "/etc/vim/vimrc.local",
                "mode": "xx4",
                "source": "files/vimrc",
                "replace": False,
                "require": ["package#vim"],
            },
        ),
    ]


# ---- without `file:` ----


@pytest.mark.parametrize(
    ("text", "constants", "names"),
    [
        pytest.param("name: /srv/x\ncontents: a\n", {}, ["/srv/x"], id="one file"),
        pytest.param(
            "foo: bar\nname: /srv/x\ncontents: a\n---\nname: /srv/y\ncontents: b\n",
            {"foo": "bar"},
            ["/srv/x", "/srv/y"],
            id="constants above the first file in its document",
        ),
        pytest.param(
            "foo: bar\ndns: {domain: x.org}\n---\nname: /srv/x\ncontents: a\n",
            {"foo": "bar", "dns": {"domain": "x.org"}},
            ["/srv/x"],
            id="constants in a header",
        ),
        pytest.param(
            "global: {foo: bar}\n---\nname: /srv/x\ncontents: a\n---\nfile: {name: /srv/y, contents: b}\n",
            {"foo": "bar"},
            ["/srv/x", "/srv/y"],
            id="a header with global, and both forms",
        ),
        pytest.param("global: {foo: bar}\nname: /srv/x\ncontents: a\n", {"foo": "bar"}, ["/srv/x"], id="global in its document"),
        pytest.param("    name: /srv/x\n    contents: a\n", {}, ["/srv/x"], id="indented"),
    ],
)  # fmt: skip
def test_a_file_is_defined_at_the_top_of_its_document(
    text: str, constants: dict[str, Any], names: list[str]
) -> None:
    document = make_document(text.encode(), "site.yaml", "/work")

    found, definitions = read_definitions(document, lambda: "web1")

    assert is_tinycm("site.yaml", text)
    assert (found, [one.name for one in definitions]) == (constants, names)
    assert lint(document, Catalog()) == []


async def test_templates_are_in_the_module_path() -> None:
    site = Site()
    site.bench.files.put("/modules/sub/x", "foo is {{ foo }}")
    site.bench.files.put(
        "/work/m.yaml", "foo: bar\nname: /srv/x\ncontents: sub/x\ntype: template\ninterpolate: true\n"
    )

    await site.bench.engine.apply(ManifestSource(path="m.yaml", module_path="/modules"), site.bench.options())

    assert site.bench.files.nodes["/srv/x"].content == b"foo is bar"


@pytest.mark.parametrize(
    "written",
    [
        *("../x", "a/../../x", "/x", "//elsewhere/x", "https://elsewhere/x", "javascript:x", "a\\..\\x", ""),
    ],
)
def test_no_template_is_outside_of_a_module_path_on_the_web(written: str) -> None:
    modules = TemplateDirectory(base="https://me:pw@site/dir", directory="/work", resolve=str)

    assert modules.find("a/./x y%2e") == "https://me:pw@site/dir/a/x%20y%252e"
    with pytest.raises(ManifestError, match=r"is outside the module path https://[*]+@site/dir;"):
        modules.find(written)


def test_a_symlink_leads_out_of_no_module_path() -> None:
    links = {"/m/out": "/etc/shadow", "/m/in": "/real/x", "/m": "/real"}
    modules = TemplateDirectory(base="/m", directory="/work", resolve=lambda path: links.get(path, path))

    assert modules.find("in") == "/m/in"
    with pytest.raises(ManifestError, match="is outside the module path"):
        modules.find("out")


async def test_the_module_path_of_another_manifest_is_an_error() -> None:
    site = Site()
    site.bench.files.put("/work/m.yaml", "ccm: {resources: [{package: [{vim: {ensure: present}}]}]}")

    with pytest.raises(ManifestError, match="this is not a TinyCM manifest; --module-path is for those"):
        await site.bench.engine.load(
            ManifestSource(path="m.yaml", module_path="/modules"), site.bench.options()
        )
