"""A manifest on a node: expressions see facts and data, and nothing of the host on which the studio runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from ccm_ctl.studio.evaluation import RENDERED, Evaluation, RenderedValue, evaluate
from ccm_ctl.studio.previews import PreviewedFile

FACTS = {"role": "web", "cpus": 4}
MANIFEST = """\
data: {port: 80}
hierarchy: {order: ["role:{{ lookup('facts.role') }}"]}
overrides:
  role:web: {port: 443}
ccm:
  resources:
    - file:
        - /etc/{{ Facts.role }}:
            content: "port {{ lookup('data.port') }}\\n"
            control: {if: Facts.cpus > 2}
            owner: root
"""
NAMED = ["ccm", "resources", 0, "file", 0, "/etc/{{ Facts.role }}"]


def test_all_texts_with_expressions_are_those_of_the_node() -> None:
    assert evaluate(FACTS, MANIFEST, "Facts.cpus * 2") == Evaluation(
        result=RenderedValue(value="8"),
        rendered=[
            RenderedValue(path=NAMED, value="/etc/web"),
            RenderedValue(path=[*NAMED, "control", "if"], value="true"),
        ],
        files=[PreviewedFile(path=NAMED, name="/etc/web", origin="content", text="port 443\n")],
    )


@pytest.mark.parametrize(
    "call", ["readFile('{path}')", "file('{path}')", "template('{path}.templ')", "jet('{path}.jet')"]
)
def test_no_expression_reads_this_host(tmp_path: Path, call: str) -> None:
    secret = tmp_path / "secret.txt"
    for suffix in ("", ".templ", ".jet"):
        secret.with_name(f"{secret.name}{suffix}").write_text("hunter2")

    found = evaluate(FACTS, "", call.format(path=secret)).result

    assert found is not None
    assert (found.value, "evaluated there only" in found.error) == ("", True)


@pytest.mark.parametrize("call", ["kvGet('b', 'k')", "registrations('prod', 'http', 'web', '*')"])
def test_no_expression_asks_the_broker(call: str) -> None:
    found = evaluate(FACTS, "", call).result

    assert found is not None
    assert (found.value, "on the node only" in found.error) == ("", True)


def test_without_a_render_process_no_template_is_rendered() -> None:
    found = evaluate(FACTS, "", "jet('[[ 1 ]]')").result

    assert found is not None
    assert (found.value, "templates are not rendered here" in found.error) == ("", True)


def test_the_environment_of_this_process_is_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "hunter2")

    assert evaluate(FACTS, "", "lookup('environ.SECRET', 'none')").result == RenderedValue(value='"none"')


def test_an_expression_that_takes_too_much_is_ended() -> None:
    found = evaluate(FACTS, "", "len(filter(1..100000000, # > 1))").result

    assert found is not None
    assert found.error


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[1]", "must be a mapping"),
        ("a: [", "expected"),
        ("hierarchy: 5", "hierarchy"),
    ],
)
def test_a_manifest_that_cannot_be_read_is_an_error(text: str, error: str) -> None:
    assert error in evaluate(FACTS, text, "").error


def test_an_error_in_one_text_leaves_the_others() -> None:
    text = "ccm: {resources: [{exec: [{ls: {command: '{{ nope( }}', cwd: '{{ Facts.role }}'}}]}]}"

    command, folder = evaluate(FACTS, text, "").rendered

    assert command.error
    assert folder.value == "web"


def test_long_manifests_and_values_are_cut() -> None:
    texts = "".join(f"    - exec: [{{'{{{{ {number} }}}}': {{}}}}]\n" for number in range(RENDERED + 5))
    found = evaluate(FACTS, f"ccm:\n  resources:\n{texts}", "repeat('x', 20000)")

    assert (len(found.rendered), found.left_out) == (RENDERED, 5)
    assert found.result is not None
    assert found.result.value.endswith("x …")


def test_text_that_is_not_utf8_is_shown() -> None:
    assert evaluate({"a": "\udcff"}, "", "Facts.a").result == RenderedValue(value='"?"')
