"""
The examples of TinyCM's page about files (pythonhosted.org/tinycm/definition/file.html) are applied as they are printed.

Only the path of the file and the owner are those of the test.
"""

from __future__ import annotations

import getpass
import hashlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.warm_ccm import warm_ccm
from tests.support.web import Web

PLAIN = """\
    name: /tmp/example
    ensure: contents
    type: constant
    contents: |
        This is now the contents of the file
        I can even put multiple lines here
    owner: root
"""
CONSTANTS = """\
    foo: bar
    name: /tmp/example
    ensure: contents
    type: constant
    contents: |
        The value of the foo constant is {foo}

        nameserver {nameservers[0]}
        nameserver {nameservers[1]}
        search {dns['domain']}
"""
HEADER = "foo: bar\nnameservers:\n    - 8.8.8.8\n    - 8.8.4.4\ndns:\n    domain: example.com\n---\n"
TEMPLATE = """\
    name: /tmp/example
    ensure: contents
    type: template
    contents: template.conf
"""
TEMPLATE_CONF = """\
The value of the foo constant is {{foo}}

{% for ns in nameservers %}
nameserver {{ns}}
{% endfor %}

search {{dns.domain}}
"""
RESULT = (
    "The value of the foo constant is bar\n\nnameserver 8.8.8.8\nnameserver 8.8.4.4\nsearch example.com\n"
)


@pytest.fixture(scope="module")
def ccm() -> Iterator[Path]:
    with warm_ccm() as program:
        yield program


class Page:
    """A folder in which an example is applied, and the file that it is about."""

    def __init__(self, ccm: Path, folder: Path) -> None:
        self.ccm = ccm
        self.folder = folder
        self.file = folder / "example"

    def as_here(self, example: str) -> str:
        return example.replace("/tmp/example", str(self.file)).replace(
            "owner: root", f"owner: {getpass.getuser()}"
        )

    def apply(self, example: str, *arguments: str) -> str:
        (self.folder / "resolv.yaml").write_text(self.as_here(example))
        return self.run("resolv.yaml", *arguments)

    def run(self, *arguments: str, fails: bool = False) -> str:
        done = subprocess.run(
            [self.ccm, "apply", *arguments], cwd=self.folder, capture_output=True, text=True
        )
        assert (done.returncode != 0) is fails, done.stderr
        return done.stderr

    def content(self) -> str:
        return self.file.read_text()


@pytest.fixture
def page(ccm: Path, tmp_path: Path) -> Page:
    return Page(ccm, tmp_path)


def rendered(text: str) -> list[str]:
    """The lines that are not blank: loops of Jinja leave blank ones."""
    return [line for line in text.splitlines() if line]


def test_the_constant_example(page: Page) -> None:
    page.apply(PLAIN)

    assert page.content() == "This is now the contents of the file\nI can even put multiple lines here\n"


def test_the_example_with_constants_is_literal_until_interpolate_is_set(page: Page) -> None:
    page.apply(CONSTANTS)
    literal = page.content()
    page.apply(HEADER + CONSTANTS.replace("    foo: bar\n", "") + "    interpolate: true\n")

    assert literal == RESULT.replace("bar", "{foo}").replace("8.8.8.8", "{nameservers[0]}").replace(
        "8.8.4.4", "{nameservers[1]}"
    ).replace("example.com", "{dns['domain']}")
    assert page.content() == RESULT


def test_constants_may_stand_above_the_file_in_its_document(page: Page) -> None:
    page.apply(
        "foo: bar\ndns: {domain: example.com}\nname: /tmp/example\ninterpolate: true\n"
        "contents: '{foo} {dns[domain]}'\n"
    )

    assert page.content() == "bar example.com"


def test_the_template_example_beside_a_local_manifest(page: Page) -> None:
    (page.folder / "template.conf").write_text(TEMPLATE_CONF)

    page.apply(TEMPLATE)
    literal = page.content()
    page.apply(f"{HEADER}{TEMPLATE}    interpolate: true\n")

    assert literal == TEMPLATE_CONF
    assert rendered(page.content()) == rendered(RESULT)


def test_the_template_example_in_another_module_path(page: Page) -> None:
    (page.folder / "modules").mkdir()
    (page.folder / "modules/template.conf").write_text(TEMPLATE_CONF)

    page.apply(f"{HEADER}{TEMPLATE}    interpolate: true\n", "--module-path", "modules")

    assert rendered(page.content()) == rendered(RESULT)


@pytest.mark.parametrize("interpolates", [True, False])
def test_a_manifest_on_the_web_has_its_templates_there(page: Page, interpolates: bool) -> None:
    with Web() as web:
        end = "    interpolate: true\n" if interpolates else ""
        manifest = page.as_here(f"{HEADER}{TEMPLATE}{end}").encode()
        web.pages = {"/site/resolv.yaml": manifest, "/site/template.conf": TEMPLATE_CONF.encode()}

        page.run(f"{web.url}/site/resolv.yaml#sha256={hashlib.sha256(manifest).hexdigest()}")
        wrong = page.run(f"{web.url}/site/resolv.yaml#sha256={'0' * 64}", fails=True)

    wanted = RESULT if interpolates else TEMPLATE_CONF
    assert rendered(page.content()) == rendered(wanted)
    assert "does not have this digest" in wrong


def test_a_manifest_on_the_web_reads_templates_of_a_local_module_path(page: Page) -> None:
    (page.folder / "template.conf").write_text(TEMPLATE_CONF)
    with Web() as web:
        web.pages = {"/resolv.yaml": page.as_here(f"{HEADER}{TEMPLATE}    interpolate: true\n").encode()}

        page.run(f"{web.url}/resolv.yaml", "--module-path", ".")

    assert rendered(page.content()) == rendered(RESULT)


@pytest.mark.parametrize(
    "contents", ["../secret", "/secret", "//127.0.0.1/secret", "http://127.0.0.1/secret"]
)
def test_a_manifest_on_the_web_reads_nothing_outside_its_folder(page: Page, contents: str) -> None:
    with Web() as web:
        manifest = page.as_here(TEMPLATE)
        web.pages = {
            "/site/good.yaml": manifest.encode(),
            "/site/bad.yaml": manifest.replace("template.conf", contents).encode(),
            "/site/template.conf": b"well",
            "/secret": b"secret",
        }

        refused = page.run(f"{web.url}/site/bad.yaml", fails=True)
        answers = len(web.answers)
        page.run(f"{web.url}/site/good.yaml")

    assert "is outside the module path" in refused
    assert (answers, page.content()) == (1, "well")


@pytest.mark.parametrize(
    ("existing", "masks", "result"),
    [
        pytest.param(0o644, ["x00"], 0o600, id="x leaves a digit alone"),
        pytest.param(0o644, ["7xx", "xx0"], 0o740, id="two definitions are merged"),
        pytest.param(0o644, ["77x", "x55"], None, id="a contradiction is an error"),
    ],
)
def test_permission_masks(page: Page, existing: int, masks: list[str], result: int | None) -> None:
    page.file.write_text("kept")
    page.file.chmod(existing)
    parts = [f"name: {page.file}\nensure: exists\npermission-mask: {mask}\n" for mask in masks]
    (page.folder / "masks.yaml").write_text("---\n".join(parts))

    said = page.run("masks.yaml", fails=result is None)

    assert page.file.stat().st_mode & 0o777 == (existing if result is None else result)
    assert ("is defined twice with different `permission-mask`" in said) is (result is None)


@pytest.mark.parametrize(
    ("ensure", "before", "after"),
    [
        pytest.param("contents", None, "new", id="contents makes the file"),
        pytest.param("contents", "old", "new", id="contents keeps it as defined"),
        pytest.param("exists", None, "new", id="exists makes the file"),
        pytest.param("exists", "old", "old", id="exists leaves the content alone"),
        pytest.param("removed", "old", None, id="removed deletes it"),
        pytest.param("removed", None, None, id="removed leaves nothing"),
    ],
)
def test_ensure(page: Page, ensure: str, before: str | None, after: Any) -> None:
    if before is not None:
        page.file.write_text(before)
    page.apply(f"name: /tmp/example\nensure: {ensure}\ntype: constant\ncontents: new\n")

    assert (page.content() if page.file.exists() else None) == after


def test_no_other_manifest_is_read_from_the_web_unpacked(page: Page) -> None:
    with Web() as web:
        web.pages = {"/manifest.yaml": b"ccm:\n  resources: []\n"}

        said = page.run(f"{web.url}/manifest.yaml", fails=True)

    assert "is neither a packed directory nor a TinyCM manifest" in said
