"""What `ccm lint` finds, and what it leaves alone."""

from __future__ import annotations

from typing import Annotated

import pytest

from ccm_agent.manifest.document import make_document
from ccm_agent.manifest.lint import lint
from ccm_agent.model.formats.field_rules import ExtensionValues
from ccm_agent.resources.apply import TYPE as APPLY
from tests.support.engine import Board, NoteProperties, Types, note_type


def findings(text: str, *, strict_ccm: bool = False) -> list[str]:
    document = make_document(text.encode(), "m.yaml", "/work")
    return [str(one) for one in lint(document, Types(note_type(Board()), APPLY), strict_ccm=strict_ccm)]


def paths_of(text: str) -> list[str]:
    """The same with the ways to the values instead of their lines."""
    document = make_document(text.encode(), "m.yaml", "/work")
    found = lint(document, Types(note_type(Board()), APPLY))
    return [f"{one.place.path}: {one.level}: {one.message}" for one in found]


def resources(*entries: str, top: str = "") -> str:
    return f"{top}\nccm:\n  resources:\n" + "\n".join(f"    - {one}" for one in entries) + "\n"


def test_a_manifest_that_is_right_has_no_findings_whatever_its_data() -> None:
    text = resources(
        'note: {name: "{{ Data.n }}", text: "${ lookup(\'data.x\') }", later: "{{ file(\'x\') }}"}',
        "note: {name: b, control: {if: \"Facts.os == 'linux'\"}}",
        "note: {name: c, require: [note#b], subscribe: [note#b]}",
        top="data: {a: \"{{ lookup('facts.os') }}\"}",
    )

    assert findings(text) == []


def test_unclosed_expression_and_second_resource_of_a_name_are_found() -> None:
    text = resources(
        "note: {name: a, text: '{{ Facts.x'}", "note: {name: b, text: '${ 1'}", "note: {name: a}"
    )
    control = resources("note: {name: a, text: '{{ 1 }} }}'}", "note: {name: b, text: '$5 {'}")

    assert findings(text) == [
        "m.yaml:4:23: warning: `{{` has no `}}`, so it is text and not an expression: close it",
        "m.yaml:5:23: warning: `${` has no `}`, so it is text and not an expression: close it",
        "m.yaml:6:7: warning: note#a: declared twice, first on line 4",
    ]
    assert findings(control) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param(
            "", "m.yaml: error: the manifest is empty: it needs a `ccm` section with `resources`", id="empty"
        ),
        pytest.param("a: [1", "m.yaml:1:4: error: the list that opens with", id="syntax"),
        pytest.param(
            "ccm: {}",
            "m.yaml:1:1: error: the manifest has no resources",
            id="no resources",
        ),
        pytest.param(
            resources("note: {name: a}", top="xtra: 1"),
            "m.yaml:1:1: warning: unknown key `xtra`",
            id="top key",
        ),
        pytest.param(
            resources("note: {name: a, txet: b}"),
            "note.txet: error: note#a: unknown key `txet`, did you mean `text`?",
            id="typo",
        ),
        pytest.param(
            resources('note: {name: a, mode: "{{ 1 }}", bold: 3}'),
            "note.bold: error: note#a: expected true or false",
            id="a value of another type, beside a template",
        ),
        pytest.param(
            resources('note: {name: a, text: "{{ 1 + }}"}'),
            "note.text: error: unexpected end of expression",
            id="template",
        ),
        pytest.param(
            resources('note: {name: a, later: "{{ 1 + }}"}'),
            "note.later: error: unexpected end of expression",
            id="deferred",
        ),
        pytest.param(
            resources('note: {name: a, control: {if: "1"}}'),
            "control.if: error: a condition must return a boolean",
            id="control",
        ),
        pytest.param(
            resources("note: {name: a}", top='data: {x: "{{ readFile(1) }}"}'),
            "$.data.x: error: ",
            id="no files for data",
        ),
        pytest.param(
            resources("note: {name: a, require: [note#b]}"),
            "note#a: `note#b` in `require` is not declared",
            id="declared nowhere",
        ),
        pytest.param(
            resources("note: {name: a, subscribe: [note#b]}", "note: {name: b}"),
            "in `subscribe` is declared later",
            id="declared later",
        ),
        pytest.param(
            resources('note: {name: a, require: ["note#{{ Data.b }}"]}', 'note: {name: "{{ Data.b }}"}'),
            "in `require` is declared later",
            id="the same template declared later",
        ),
        pytest.param(
            resources(
                "note: {name: a}",
                top='hierarchy: {merge: deep, order: ["r:${ Facts.r }", all]}\n'
                "overrides: {'r:web': {port: 80}, all: {port: 8080}}",
            ),
            "$.hierarchy.order[1]: warning: with `merge: deep` the last entry of `order` wins, so `all` replaces `port`",
            id="order",
        ),
        pytest.param(
            resources("note: {name: a, control: {if: \"Facts.host.info.Os == 'linux'\"}}"),
            "warning: the gathered fact host.InfoStat has no field `Os`, did you mean `OS`? (unless a custom fact adds it)",
            id="gathered fact",
        ),
        pytest.param(resources("note: {name: a, mode: 0644}"), "`mode` must be quoted", id="unquoted mode"),
        pytest.param(
            resources("note: {name: a, ensure: 1.10}"),
            "warning: unquoted `ensure` is a number and is read as 1.1",
            id="unquoted version",
        ),
        pytest.param(
            resources("nite: {name: a}"),
            "error: unknown resource type `nite`, did you mean `note`?",
            id="type",
        ),
        pytest.param(
            "# x\ndata:\n  # @requre\n  a: 1\n" + resources("note: {name: a}"), "@requre", id="annotation"
        ),
    ],
)
def test_each_kind_of_mistake_is_found(text: str, found: str) -> None:
    said = findings(text) + paths_of(text)

    assert any(found in one for one in said), said


def test_all_findings_are_reported_in_the_order_of_lines() -> None:
    text = resources(
        "note: {name: a, x: 1}", "note: {name: /b}", "nope: {}", 'note: {name: c, text: "{{ ( }}"}'
    )

    assert [one.split(":")[1] for one in findings(text)] == ["4", "5", "6", "7"]


def test_references_that_cannot_be_known_are_left_alone() -> None:
    text = resources("apply: {name: c.yaml}", "note: {name: a, require: [note#from-the-child]}")
    templated = resources('note: {name: "{{ Data.n }}"}', "note: {name: a, require: [note#perhaps]}")

    rendered = resources('note: {name: "{{ Data.n }}"}', 'note: {name: a, require: ["note#{{ Data.m }}"]}')

    assert (findings(text), findings(templated), findings(rendered)) == ([], [], [])


def test_strict_ccm_names_our_extensions() -> None:
    text = resources("note: {name: a, bold: true, txt: x}")

    assert findings(text) == []
    assert findings(text, strict_ccm=True) == [
        "m.yaml:4:23: error: Choria CCM's `note` has no `bold`; only ccm-fleet supports it",
        "m.yaml:4:35: error: Choria CCM calls `txt` `text`; only ccm-fleet supports it",
    ]


def test_strict_ccm_names_prune() -> None:
    text = "ccm:\n  prune: apply\n  max_prune: 3\n  resources:\n    - note: {name: a}\n"

    assert findings(text) == []
    assert findings(text, strict_ccm=True) == [
        "m.yaml:2:3: error: Choria CCM's `ccm` has no `prune`; only ccm-fleet supports it",
        "m.yaml:3:3: error: Choria CCM's `ccm` has no `max_prune`; only ccm-fleet supports it",
    ]


def test_strict_ccm_names_slots() -> None:
    text = resources("note: {name: a, control: {slots: pg/1}}")

    assert findings(text) == []
    assert findings(text, strict_ccm=True) == [
        "m.yaml:4:33: error: Choria CCM's `control` has no `slots`; only ccm-fleet supports it"
    ]


@pytest.mark.parametrize(
    ("control", "message"),
    [
        ("slots: pg", "`slots` is `pg`: write NAME/COUNT, such as pg-restart/1"),
        ("slots: pg/0", "`slots` is `pg/0`: write NAME/COUNT"),
        ("slots_wait: 1m", "`slots` is ``: write NAME/COUNT"),
        ("slots: pg/1, slots_wait: soon", "soon"),
    ],
)
def test_slot_that_no_node_could_take_is_found(control: str, message: str) -> None:
    [found] = findings(resources(f"note: {{name: a, control: {{{control}}}}}"))

    assert message in found


def test_strict_ccm_names_values_that_are_ours_alone() -> None:
    class Properties(NoteProperties, kw_only=True):
        text: Annotated[str, ExtensionValues("jinja")] = ""

    kind = note_type(Board(), properties=Properties)
    document = make_document(
        resources("note: {name: a, text: jinja}", "note: {name: b, text: jet}").encode(), "m.yaml", "/work"
    )

    found = [str(one) for one in lint(document, Types(kind), strict_ccm=True)]

    assert found == [
        "m.yaml:4:23: error: Choria CCM's `note` does not support `text: jinja`; only ccm-fleet supports it"
    ]
