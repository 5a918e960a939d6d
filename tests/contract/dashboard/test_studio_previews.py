"""The files that a manifest gives a node, with templates rendered by the real render process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ccm_agent.system.render_process import RenderLimits, RenderProcess
from ccm_ctl.studio import template_environment
from ccm_ctl.studio.evaluation import evaluate
from ccm_ctl.studio.previews import FILE_CHARACTERS, PreviewedFile
from ccm_ctl.studio.template_files import TemplateFiles
from ccm_ctl.studio.workspace import Workspace

FACTS = {"role": "web"}
MIB = 1 << 20


@pytest.fixture
def worker() -> Iterator[RenderProcess]:
    """The render process, with the limits of the studio but for its CPU time."""
    made = RenderProcess(RenderLimits(cpu_s=1, grace_s=1, memory_bytes=128 * MIB), wall_s=8.0)
    yield made
    made.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that is open, with a file beside it that nothing may read."""
    (tmp_path / "outside.jet").write_text("hunter2")
    opened = tmp_path / "site"
    opened.mkdir()
    return opened


def files_of(
    worker: RenderProcess,
    folder: Path | None,
    text: str,
    data: dict[str, Any] | None = None,
    path: str = "site.yaml",
) -> list[PreviewedFile]:
    """The previews of a manifest."""
    beside = TemplateFiles(Workspace(folder) if folder else None, path)
    found = evaluate(FACTS, text, "", data=data, files=beside, worker=worker)
    assert found.error == ""
    return found.files


def file(properties: str) -> str:
    """A manifest with one file."""
    return f"ccm: {{resources: [{{file: [{{/etc/app: {{{properties}}}}}]}}]}}"


def scaffold(properties: str) -> str:
    """A manifest with one scaffold and data."""
    return f"data: {{port: 8080}}\nccm: {{resources: [{{scaffold: [{{/etc/app: {{source: t, {properties}}}}}]}}]}}"


def write(folder: Path, **files: str) -> None:
    """Templates of the scaffold `t`."""
    (folder / "t").mkdir()
    for name, content in files.items():
        (folder / "t" / name).write_text(content)


@pytest.mark.parametrize(
    ("engine", "template"),
    [
        ("jet", "[[ facts.role ]]:[[ data.port ]]"),
        ("go", "{{ .facts.role }}:{{ .data.port }}"),
        ("jinja", "{{ facts.role }}:{{ data.port }}"),
    ],
)
def test_a_scaffold_is_rendered_with_facts_and_data_by_each_engine(
    worker: RenderProcess, folder: Path, engine: str, template: str
) -> None:
    write(folder, conf=template)

    assert files_of(worker, folder, scaffold(f"engine: {engine}")) == [
        PreviewedFile(
            path=["ccm", "resources", 0, "scaffold", 0, "/etc/app"],
            name="/etc/app/conf",
            origin=f"t ({engine})",
            text="web:8080",
        )
    ]


def test_data_of_documents_go_over_those_of_the_manifest(worker: RenderProcess, folder: Path) -> None:
    write(folder, conf="[[ data.port ]]")

    (shown,) = files_of(worker, folder, scaffold("engine: jet"), data={"port": 443})
    (own,) = files_of(worker, folder, scaffold("engine: jet, data: {port: 1}"), data={"port": 443})

    assert (shown.text, own.text) == ("443", "1")


@pytest.mark.parametrize(
    ("engine", "template"),
    [
        ("jet", "one\n[[ missing.there ]]\n"),
        ("go", "one\n{{ index .data.port 1 }}\n"),
        ("jinja", "one\n{{ missing.there }}\n"),
    ],
)
def test_an_error_names_the_line_of_the_template(
    worker: RenderProcess, folder: Path, engine: str, template: str
) -> None:
    write(folder, conf=template)

    (shown,) = files_of(worker, folder, scaffold(f"engine: {engine}"))

    assert (shown.text, shown.error.partition(" ")[0].split(":")[:2]) == ("", ["conf", "2"])


def test_content_uses_templates_and_files_beside_the_manifest(worker: RenderProcess, folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub/motd.jet").write_text("Hello [[ Facts.role ]]")
    (folder / "sub/plain.txt").write_bytes(b"as it is {{ }}\n")
    (folder / "sub/logo.png").write_bytes(b"\x89PNG\xff")

    (jet,) = files_of(worker, folder, file("content: \"{{ jet('motd.jet') }}\""), path="sub/site.yaml")
    (source,) = files_of(worker, folder, file("source: plain.txt"), path="sub/site.yaml")
    (binary,) = files_of(worker, folder, file("source: logo.png"), path="sub/site.yaml")
    (skipped,) = files_of(worker, folder, file("content: a, control: {if: \"Facts.role == 'db'\"}"))

    assert (jet.text, source.text, source.origin) == ("Hello web", "as it is {{ }}\n", "source plain.txt")
    assert (binary.text, binary.note) == ("", "Not text: 5 bytes.")
    assert skipped.note == "The node skips it because of `control.if`."


def test_a_list_of_resources_that_a_template_gives_is_shown_with_its_files(
    worker: RenderProcess, folder: Path
) -> None:
    template = "- file:\n  - /etc/[[ Facts.role ]]: {content: '{{ Facts.role }}!'}\n"
    (folder / "list.jet").write_text(template)

    found = files_of(worker, folder, "ccm: {resources_jet_file: list.jet}")

    assert [(one.name, one.text) for one in found] == [
        ("", "- file:\n  - /etc/web: {content: '{{ Facts.role }}!'}\n"),
        ("/etc/web", "web!"),
    ]


@pytest.mark.parametrize(
    "name", ["../outside.jet", "/etc/passwd", ".hidden.jet", "link.jet", "a/../../outside.jet"]
)
def test_no_template_leads_out_of_the_folder(worker: RenderProcess, folder: Path, name: str) -> None:
    (folder / ".hidden.jet").write_text("hunter2")
    (folder / "link.jet").symlink_to(folder.parent / "outside.jet")
    write(folder, conf=f"[[ readFile('{name}') ]]".replace("'", '"'))

    (source,) = files_of(worker, folder, file(f"source: {name}"))
    (content,) = files_of(worker, folder, file(f"content: \"{{{{ readFile('{name}') }}}}\""))
    (inner,) = files_of(worker, folder, scaffold("engine: jet"))

    assert [bool(one.error) for one in (source, content, inner)] == [True] * 3
    assert "hunter2" not in f"{source}{content}{inner}"


def test_links_in_a_scaffold_are_not_followed(worker: RenderProcess, folder: Path) -> None:
    write(folder)
    (folder / "t/conf").symlink_to(folder.parent / "outside.jet")

    (shown,) = files_of(worker, folder, scaffold("engine: jet"))

    assert (shown.text, "neither file nor directory" in shown.error) == ("", True)


def test_the_dashboard_renders_templates_but_reads_no_files(worker: RenderProcess) -> None:
    (text,) = files_of(worker, None, file("content: \"{{ jet('[[ Facts.role ]]') }}\""))
    (refused,) = files_of(worker, None, file("source: site.conf"))

    assert text.text == "web"
    assert "no folder is open here" in refused.error


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(99999999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 'x' * 999999999 }}",
    ],
    ids=["time", "memory"],
)
def test_a_template_that_takes_too_much_is_ended_and_the_next_one_is_rendered(
    worker: RenderProcess, folder: Path, template: str
) -> None:
    write(folder, conf=template)

    (ended,) = files_of(worker, folder, scaffold("engine: jinja"))
    (next_one,) = files_of(worker, folder, file("content: \"{{ jet('[[ 1 ]]') }}\""))

    assert (ended.text, ended.error != "") == ("", True)
    assert next_one.text == "1"


def test_templates_of_a_manifest_share_an_allowance_of_time_and_output(
    worker: RenderProcess, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, conf="[[ facts.role ]]" * 1000)

    monkeypatch.setattr(template_environment, "RENDERED_BYTES", 1000)
    (large,) = files_of(worker, folder, scaffold("engine: jet"))
    monkeypatch.setattr(template_environment, "RENDER_S", -1.0)
    (late,) = files_of(worker, folder, scaffold("engine: jet"))

    assert "produce more than" in large.error
    assert "take more than" in late.error


def test_a_large_source_is_refused_and_a_long_file_is_cut(worker: RenderProcess, folder: Path) -> None:
    write(folder, conf="x" * (5 * MIB))
    (folder / "long.txt").write_text("y" * (FILE_CHARACTERS + 7))

    (large,) = files_of(worker, folder, scaffold("engine: jet"))
    (cut,) = files_of(worker, folder, file("source: long.txt"))

    assert "more than 4 MiB" in large.error
    assert (len(cut.text), cut.note) == (FILE_CHARACTERS, "7 more characters are left out.")


def test_templates_see_no_environment_variables(
    worker: RenderProcess, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "CCM_TEST_SECRET", "hunter2")
    write(folder, conf="{{ environ }}")

    (shown,) = files_of(worker, folder, scaffold("engine: jinja"))

    assert shown.text == "{}"
