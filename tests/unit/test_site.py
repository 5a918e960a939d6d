"""What the documentation site requires of its pages: examples parse, links are rewritten, nothing is loaded from other hosts."""

from __future__ import annotations

import hashlib
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
import yaml

TOP = Path(__file__).resolve().parents[2]
SITE = TOP / ".ci/site"


@pytest.fixture(scope="module")
def checks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_checks", SITE / "checks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_example_that_does_not_parse_is_reported_with_its_line(checks: ModuleType) -> None:
    page = "# Title\n\n```yaml\na: [\n```\n\n```json\n{}\n```\n"

    assert checks.broken_examples(page) == ["the example in line 3 does not parse: while parsing a flow node"]


def test_example_marked_as_broken_is_accepted_once(checks: ModuleType) -> None:
    page = "<!-- broken on purpose -->\n```json\n{\n```\n\n```json\n{\n```\n"

    assert len(checks.broken_examples(page)) == 1


def test_example_inside_a_list_is_checked_without_its_indentation(checks: ModuleType) -> None:
    assert checks.broken_examples("- item\n\n    ```yaml\n    a: 1\n    b:\n      - 2\n    ```\n") == []


def test_links_lead_to_pages_of_the_site(checks: ModuleType) -> None:
    published = {"docs/a/x.md": "a/x.md", "CHANGELOG.md": "changelog.md"}
    page = "[x](docs/a/x.md#part) [y](https://h/z.md) [z](#here) [w](gone.md)\n```\n[x](docs/a/x.md)\n```\n"

    rewritten = checks.relink(page, "CHANGELOG.md", "changelog.md", published)

    assert rewritten == page.replace("[x](docs/a/x.md#part)", "[x](a/x.md#part)")


def test_link_out_of_the_docs_folder_leads_to_its_page(checks: ModuleType) -> None:
    rewritten = checks.relink(
        "[c](../../CHANGELOG.md)\n", "docs/a/x.md", "a/x.md", {"CHANGELOG.md": "changelog.md"}
    )

    assert rewritten == "[c](../changelog.md)\n"


def test_options_are_kept_on_one_line(checks: ModuleType) -> None:
    html = '<code>run --at x-y</code> <pre class="mermaid"><code>a --> b</code></pre>'

    assert checks.unbroken_options(html) == html.replace("--at", "<span>--at</span>")


@pytest.mark.parametrize(
    ("name", "text", "urls"),
    [
        pytest.param("a.html", '<script src="https://cdn/x.js"></script>', ["https://cdn/x.js"], id="script"),
        pytest.param("a.html", '<link rel="stylesheet" href="//cdn/x.css">', ["//cdn/x.css"], id="style"),
        pytest.param(
            "a.html", '<link rel="canonical" href="https://h/p.html">', [], id="address of the page"
        ),
        pytest.param("a.html", "<style>@import 'https://f/x.css'</style>", ["https://f/x.css"], id="import"),
        pytest.param(
            "a.html", '<p style="background: url(https://f/p.png)">', ["https://f/p.png"], id="picture"
        ),
        pytest.param("a.css", "@font-face{src:url('https://f/a.woff2')}", ["https://f/a.woff2"], id="font"),
        pytest.param("a.html", '<a href="https://nats.io">', [], id="a link is not loaded"),
        pytest.param("a.html", '<script src="assets/x.js"></script>', [], id="own script"),
        pytest.param("a.css", "a{background:url(data:image/svg+xml;base64,xx)}", [], id="inline picture"),
    ],
)
def test_resources_that_a_page_loads_from_other_hosts_are_found(
    checks: ModuleType, name: str, text: str, urls: list[str]
) -> None:
    assert checks.external_loads(name, text) == urls


def test_vendored_script_is_the_published_one() -> None:
    vendor = SITE / "overrides/assets/vendor"
    digest = hashlib.sha256((vendor / "mermaid.tiny.js").read_bytes()).hexdigest()

    assert f"sha256 {digest}" in (vendor / "SOURCE.txt").read_text()


def test_pre_commit_runs_the_same_checks_as_make_check() -> None:
    config = yaml.safe_load((TOP / ".pre-commit-config.yaml").read_text())
    hooks = [hook["entry"].split()[-1] for repo in config["repos"] for hook in repo["hooks"]]
    check = re.search(r"^check: \$\(STAMP\) (.*) ##", (TOP / "Makefile").read_text(), re.MULTILINE)

    assert check is not None
    assert hooks == check[1].split()
