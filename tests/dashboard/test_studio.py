"""The studio without a broker, in a real browser: forms and YAML are one text, and only what was edited changes."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from ccm_agent.model.codec import decode_document
from tests.dashboard.conftest import context_of, looks_well_everywhere
from tests.support.fleet import TOP, Controller
from tests.support.pages import users_pages

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

COMMENTED = """\
# the web servers
ccm:
  resources:
    # from the distribution
    - package:
        - nginx: {ensure: present}   # not the vendor's

    - file:
        - /etc/motd:
            ensure: present
            content: |  # shown at login
              Welcome

              to this host
            owner: root
            group: 'root'
            mode: "0644"  # quoted
# end
"""
HOSTILE = "<img src=x onerror=alert(1)>"


class Studio:
    """`ccmctl studio` on a folder, without a broker."""

    def __init__(self, directory: Path) -> None:
        self.folder = directory / "site"
        self.folder.mkdir(parents=True)
        environ = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(directory),
            "XDG_STATE_HOME": str(directory / "state"),
            "USER": "tester",
            "NATS_URL": "nats://127.0.0.1:1",
        }
        self.process = Controller(directory, ["studio", str(self.folder), "--port", "0"], environ, TOP)

    def wait(self) -> str:
        """The address that was printed, which opens once."""
        deadline = time.monotonic() + 60
        while not (printed := self.process.so_far.out.strip()):
            assert time.monotonic() < deadline, self.process.so_far.err
            time.sleep(0.05)
        return printed

    def empty(self) -> None:
        """Leave one file in the folder."""
        for path in self.folder.iterdir():
            path.unlink()
        (self.folder / "commented.yaml").write_text(COMMENTED)

    def text(self, name: str) -> str:
        """A file as it is on disk."""
        return (self.folder / name).read_bytes().decode()


@pytest.fixture(scope="module")
def served(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Studio, str, Any]]:
    """The studio of all tests, its address, and the cookies of a browser that has signed in."""
    made = Studio(tmp_path_factory.mktemp("studio"))
    try:
        printed = made.wait()
        with context_of(browser) as context:
            page = context.new_page()
            page.goto(printed)
            page.wait_for_selector("nav")
            cookies = context.storage_state()
        yield made, printed.partition("#")[0], cookies
    finally:
        made.process.kill()


@pytest.fixture
def studio(served: tuple[Studio, str, Any]) -> Studio:
    """The same with its folder as each test begins with it."""
    served[0].empty()
    return served[0]


@pytest.fixture
def page(browser: Browser, studio: Studio, served: tuple[Studio, str, Any]) -> Iterator[Page]:
    """The Studio page."""
    with context_of(browser, storage_state=served[2]) as context:
        opened = context.new_page()
        opened.goto(served[1])
        expect(opened.get_by_role("heading", name="Add a resource")).to_be_visible()
        yield opened


def yaml_of(page: Page) -> str:
    """The text in the YAML pane."""
    return page.locator(".cm-content").evaluate(
        "element => [...element.querySelectorAll('.cm-line')].map(line => line.textContent).join('\\n')"
    )


def choose_file(page: Page, name: str) -> None:
    page.get_by_label("File", exact=True).select_option(name)
    expect(page.locator(".title .sub")).to_have_text(name)


def add(page: Page, kind: str, name: str) -> None:
    """A resource from the palette; its form is open then."""
    page.locator(".palette").get_by_role("button", name=kind, exact=True).click()
    page.get_by_label(f"Name of the {kind}").fill(name)
    page.get_by_role("button", name=f"Add {kind}").click()
    expect(page.locator(".resource").filter(has_text=f"{kind}#{name}")).to_have_attribute("open", "")


def readme_example() -> str:
    """The manifest of nginx in the README."""
    text = (TOP / "README.md").read_text()
    return next(one for one in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if "nginx" in one)


def test_the_example_of_the_readme_is_written_with_forms_alone(page: Page, studio: Studio) -> None:
    add(page, "file", "/etc/motd")
    form = page.locator(".resource").filter(has_text="file#/etc/motd")
    form.get_by_label("ensure").select_option("present")
    form.get_by_label("content", exact=True).fill("{{ lookup('data.greeting') }}\n")
    for name, value in (("owner", "root"), ("group", "root"), ("mode", "0644")):
        form.get_by_label(name, exact=True).fill(value)
    add(page, "package", "nginx")
    page.locator(".resource").filter(has_text="package#nginx").get_by_label("ensure").fill("present")
    add(page, "service", "nginx")
    form = page.locator(".resource").filter(has_text="service#nginx")
    form.get_by_label("ensure").select_option("running")
    form.get_by_label("enable", exact=True).select_option("true")
    form.locator("summary").filter(has_text=re.compile(r"^subscribe")).click()
    form.get_by_label("New entry of subscribe").fill("file#/etc/motd")
    form.get_by_role("button", name="Add to subscribe").click()
    page.locator(".fold summary").filter(has_text=re.compile(r"^data")).click()
    page.get_by_label("Name of a new key of data").fill("greeting")
    page.get_by_label("Value of the new key of data").fill("Welcome to {{ Facts.host.info.hostname }}")
    page.get_by_role("button", name="Add to data").click()

    expect(page.locator(".findings")).to_contain_text("lint finds nothing")
    page.get_by_label("Save as").fill("site")
    page.get_by_role("button", name="Save as new file").click()
    expect(page.get_by_role("status").filter(has_text="site.yaml is saved")).to_be_visible()

    assert decode_document(studio.text("site.yaml")) == decode_document(readme_example())


def examples() -> dict[str, str]:
    """Every manifest in the documentation that can be read, by a name for its file."""
    found = {"readme.yaml": readme_example()}
    for page in users_pages():
        text = (TOP / page).read_text()
        for number, block in enumerate(re.findall(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)):
            if re.search(r"^ccm:", block, re.MULTILINE):
                found[f"{page.replace('/', '-').removesuffix('.md')}-{number}.yaml"] = block
    return found


SET_IN_EACH = """async text => {
    const edits = await import('/static/studio_text.js');
    const found = edits.read(text);
    if (found.problem) return [[], found.problem];
    const results = [];
    const walk = (value, path) => {
        if (Array.isArray(value)) value.forEach((one, place) => walk(one, [...path, place]));
        else if (value.pairs) value.pairs.forEach(([key, one]) => walk(one, [...path, key]));
        else if (!value.alias) {
            const same = typeof value === 'string' ? value : { plain: value.plain };
            const attempt = (name, act) => {
                try { results.push([name, path, act()]); } catch (err) {
                    if (!(err instanceof edits.EditError)) throw err;
                    results.push([name, path, null]);
                }
            };
            attempt('same', () => edits.setIn(text, path, same));
            attempt('other', () => edits.setIn(text, path, 'edited'));
        }
    };
    walk(found.value, []);
    return [results, ''];
}"""


def test_every_value_of_every_example_is_edited_without_another_change(page: Page) -> None:
    looked_at = 0
    for name, text in examples().items():
        results, problem = page.evaluate(SET_IN_EACH, text)
        assert (name, problem) == (name, "")
        for kind, path, after in results:
            assert after is not None, (name, path)
            lines, new = text.splitlines(), after.splitlines()
            looked_at += 1
            if kind == "same" and "\n" not in str(after != text):
                assert decode_document(after) == decode_document(text), (name, path)
            kept = [one for one in comments(lines) if one not in comments(new)]
            assert kept == [], (name, path)
            if len(lines) == len(new):
                assert sum(one != two for one, two in zip(lines, new, strict=True)) <= 1, (name, path)

    assert looked_at > 200


def comments(lines: list[str]) -> list[str]:
    """Lines that are comments, and comments behind values."""
    return [one[one.index("# ") :] for one in lines if "# " in one and "'" not in one and '"' not in one]


def test_every_example_is_opened_and_saved_as_it_is(page: Page, studio: Studio) -> None:
    texts = examples() | {"windows.yaml": COMMENTED.replace("\n", "\r\n"), "mark.yaml": f"\ufeff{COMMENTED}"}
    for name, text in texts.items():
        (studio.folder / name).write_bytes(text.encode())
    page.reload()
    for name, text in texts.items():
        choose_file(page, name)
        page.locator(".cm-content").focus()
        page.keyboard.press("Control+End")
        page.keyboard.type("x")
        page.keyboard.press("Backspace")
        expect(page.get_by_role("button", name="Save", exact=True)).to_be_disabled()
        page.keyboard.insert_text("# edited")  # one event: the page draws its forms once
        page.keyboard.press("Control+s")
        expect(page.get_by_role("status").filter(has_text=f"{name} is saved")).to_be_visible()

        assert (name, studio.text(name)) == (name, f"{text}# edited")


READ_WHEN_NAMED = """() => new MutationObserver(() => {
  window.shown = document.querySelector('.editor').shadowRoot.querySelector('.cm-content').textContent;
}).observe(document.querySelector('.title .sub'), { characterData: true, childList: true, subtree: true })"""


def test_a_key_that_is_typed_when_a_file_opens_changes_that_file(page: Page, studio: Studio) -> None:
    (studio.folder / "other.yaml").write_text("other: text\n")
    page.reload()
    choose_file(page, "commented.yaml")
    page.evaluate(READ_WHEN_NAMED)

    choose_file(page, "other.yaml")

    assert page.evaluate("window.shown") == "other: text"


def test_a_value_is_edited_on_either_side_and_comments_stay(page: Page, studio: Studio) -> None:
    choose_file(page, "commented.yaml")
    page.locator(".resource summary").filter(has_text="file#/etc/motd").click()
    form = page.locator(".resource").filter(has_text="file#/etc/motd")
    form.get_by_label("owner", exact=True).fill("www")
    form.get_by_label("content", exact=True).fill("Hello\nthere\n")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="commented.yaml is saved")).to_be_visible()

    wanted = COMMENTED.replace("owner: root", "owner: www").replace(
        "              Welcome\n\n              to this host\n", "              Hello\n              there\n"
    )
    assert studio.text("commented.yaml") == wanted

    page.locator(".cm-line").filter(has_text="owner: www").click()
    page.keyboard.press("End")
    page.keyboard.type("-data")

    expect(form.get_by_label("owner", exact=True)).to_have_value("www-data")


def test_what_lint_finds_is_shown_at_the_field_and_in_the_yaml(page: Page) -> None:
    choose_file(page, "commented.yaml")
    page.locator(".resource summary").filter(has_text="file#/etc/motd").click()
    form = page.locator(".resource").filter(has_text="file#/etc/motd")
    form.get_by_label("mode", exact=True).fill("9999")

    expect(form.locator(".field").filter(has_text="mode").locator(".found")).to_contain_text("mode")
    expect(form.get_by_label("mode", exact=True)).to_have_attribute("aria-invalid", "true")
    expect(form.locator("summary").first).to_contain_text("1 error")
    expect(page.locator(".findings")).to_contain_text("1 finding")
    expect(page.locator(".cm-lintRange-error")).to_have_count(1)


def test_a_resource_is_added_before_a_second_document(page: Page, studio: Studio) -> None:
    (studio.folder / "two.yaml").write_text("ccm:\n  resources: []\n---\ndata: {port: 80}\n")
    page.reload()
    choose_file(page, "two.yaml")

    note = page.get_by_role("note")
    expect(note).to_have_text(
        "This file has 2 YAML documents. The forms edit the first and leave the others unchanged."
    )
    add(page, "exec", "x")
    expect(page.get_by_text("lint finds nothing")).to_be_visible()
    page.get_by_role("button", name="Save", exact=True).click()

    expect(page.locator(".title .sub")).to_have_text("two.yaml")
    expect(note).to_be_visible()
    assert studio.text("two.yaml") == "ccm:\n  resources: [{exec: [{x: }]}]\n---\ndata: {port: 80}\n"


@pytest.mark.parametrize(
    ("text", "documents"),
    [
        pytest.param("", 1, id="empty"),
        pytest.param("# about\n---\nccm: {}\n", 1, id="a marker before the only one"),
        pytest.param('ccm: {}\ndata: {rule: "---", text: "a --- b"}\n', 1, id="dashes in values"),
        pytest.param("data:\n  text: |\n    ---\n", 1, id="dashes in a block"),
        pytest.param("---\nccm: {}\n--- # second\na: 1\n---\nb: 2\n", 3, id="three"),
    ],
)
def test_documents_of_a_file_are_counted(page: Page, studio: Studio, text: str, documents: int) -> None:
    found = page.evaluate(
        "async (text) => (await import('/static/studio_text.js')).read(text).documents", text
    )

    assert found == documents


def test_yaml_with_an_error_locks_the_forms_and_loses_nothing(page: Page) -> None:
    choose_file(page, "commented.yaml")
    page.locator(".cm-content").focus()
    page.keyboard.press("Control+Home")
    page.keyboard.type("a: [")

    expect(page.get_by_role("alert").filter(has_text="The forms require valid YAML")).to_be_visible()
    expect(page.locator(".resource")).to_have_count(0)
    page.keyboard.press("Control+z")
    expect(page.locator(".resource")).to_have_count(2)


def test_a_file_that_changed_on_disk_is_kept(page: Page, studio: Studio) -> None:
    choose_file(page, "commented.yaml")
    (studio.folder / "commented.yaml").write_text("by: another editor\n")
    page.locator(".cm-content").focus()
    page.keyboard.type("# mine ")
    page.get_by_role("button", name="Save", exact=True).click()

    expect(page.get_by_role("alert").filter(has_text="changed on disk since it was opened")).to_be_visible()
    assert studio.text("commented.yaml") == "by: another editor\n"


def test_changes_are_kept_or_discarded_before_another_file_is_opened(page: Page, studio: Studio) -> None:
    (studio.folder / "other.yaml").write_text("data: {a: 1}\n")
    page.reload()
    choose_file(page, "commented.yaml")
    page.locator(".cm-content").focus()
    page.keyboard.type("# mine ")
    files = page.get_by_label("File", exact=True)

    files.select_option("other.yaml")
    page.get_by_role("button", name="Keep editing").press("Enter")
    expect(files).to_be_focused()
    assert yaml_of(page).startswith("# mine ")
    files.select_option("other.yaml")
    page.get_by_role("button", name="Discard them").press("Enter")

    expect(files).to_be_focused()
    expect(page.locator(".title .sub")).to_have_text("other.yaml")
    assert studio.text("commented.yaml") == COMMENTED


def test_a_path_outside_is_refused(page: Page, studio: Studio) -> None:
    page.get_by_label("Save as").fill("../outside")
    page.get_by_role("button", name="Save as new file").click()

    expect(page.get_by_role("alert").filter(has_text="not a path below the folder")).to_be_visible()
    assert not (studio.folder.parent / "outside.yaml").exists()


def test_hostile_names_and_contents_are_text(page: Page, studio: Studio) -> None:
    name = f"{HOSTILE.replace('/', '')}.yaml"
    text = COMMENTED.replace("/etc/motd", f'"/etc/{HOSTILE}"').replace(
        "ensure: present\n", f'ensures: "{HOSTILE}"\n'
    )
    (studio.folder / name).write_text(text)
    page.reload()
    choose_file(page, name)

    page.locator(".resource summary").filter(has_text="/etc/<img").click()
    expect(page.locator(".findings")).to_contain_text("ensures")
    assert page.locator("img:not([alt=''])").count() == 0
    assert page.title() == "Studio · CCM fleet"


def test_a_manifest_is_written_with_the_keyboard_alone(page: Page, studio: Studio) -> None:
    page.locator(".palette").get_by_role("button", name="package", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.locator("#studio-resource")).to_be_focused()
    page.keyboard.type("zsh")
    page.keyboard.press("Enter")
    form = page.locator(".resource").filter(has_text="package#zsh")
    expect(form.get_by_label("name")).to_be_focused()
    page.keyboard.press("Tab")
    expect(form.get_by_label("ensure")).to_be_focused()
    page.keyboard.type("latest")
    page.get_by_label("Save as").focus()
    page.keyboard.type("shell")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").filter(has_text="shell.yaml is saved")).to_be_visible()

    assert decode_document(studio.text("shell.yaml")) == {
        "ccm": {"resources": [{"package": [{"zsh": {"ensure": "latest"}}]}]}
    }


def test_axe_finds_nothing_serious(page: Page) -> None:
    choose_file(page, "commented.yaml")
    for one in page.locator(".resource > summary").all():
        one.click()
    expect(page.locator(".findings")).to_contain_text("lint finds nothing")

    looks_well_everywhere(page)


def test_a_kernel_module_is_written_with_its_form(page: Page) -> None:
    for width in (1280, 375):
        page.set_viewport_size({"width": width, "height": 800})
        buttons = page.locator(".palette button")
        too_narrow = "all => all.filter(one => one.scrollWidth > one.clientWidth).map(one => one.textContent)"
        assert buttons.evaluate_all(too_narrow) == []
    add(page, "kernel_module", "kvm_intel")
    form = page.locator(".resource").filter(has_text="kernel_module#kvm_intel")
    expect(form.get_by_label("apply", exact=True).locator("option").first).to_have_text("not set (true)")
    form.locator("summary").filter(has_text=re.compile(r"^options")).click()
    # its options have no other values than texts
    expect(form.get_by_label("Kind of the new key of options")).to_have_count(0)
    form.get_by_label("Name of a new key of options").fill("nested")
    form.get_by_label("Value of the new key of options").fill("1")
    form.get_by_role("button", name="Add to options").click()
    form.get_by_label("persistent", exact=True).select_option("false")
    expect(page.locator(".findings")).to_contain_text("lint finds nothing")

    document: Any = decode_document(yaml_of(page).encode())
    module = {"kvm_intel": {"options": {"nested": "1"}, "persistent": False}}
    assert document["ccm"]["resources"][-1] == {"kernel_module": [module]}
    looks_well_everywhere(page)


def test_a_new_type_appears_from_its_schema_alone(page: Page) -> None:
    def add_type(route: Route) -> None:
        schema = route.fetch().json()
        properties = {
            **schema["$defs"]["package_properties"]["properties"],
            "engine": {"description": "Which `engine`.", "type": "string", "enum": ["small", "large"]},
            "replicas": {"type": "integer"},
        }
        schema["$defs"]["database_properties"] = {"type": "object", "properties": properties}
        schema["$defs"]["resource"]["properties"]["database"] = {"description": "Databases of the site."}
        route.fulfill(json=schema)

    page.route("**/api/studio/schema", add_type)
    page.reload()
    expect(page.locator(".palette")).to_contain_text("Databases of the site.")
    add(page, "database", "shop")
    form = page.locator(".resource").filter(has_text="database#shop")
    form.get_by_label("engine").select_option("large")
    form.get_by_label("replicas").fill("3")

    expect(page.locator(".cm-content")).to_contain_text("replicas: 3")
    assert "engine: large" in yaml_of(page)


def test_without_a_broker_only_the_studio_is_there(page: Page) -> None:
    expect(page.get_by_role("navigation").get_by_role("link")).to_have_text(["Studio"])
    expect(page.locator(".connection")).to_have_text("● no fleet")
