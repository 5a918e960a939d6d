"""All that is wrong with a manifest is reported at once, and nothing that follows from another mistake."""

from __future__ import annotations

import pytest

from ccm_agent.manifest.document import make_document
from ccm_agent.manifest.findings import Finding
from ccm_agent.manifest.lint import lint, lint_request


def found(text: str) -> list[tuple[int, str, str]]:
    """Line, code and message of each finding."""
    return [
        (one.place.line, one.rule, one.message) for one in lint(make_document(text.encode(), "m.yaml", "/"))
    ]


def test_every_mistake_of_a_resource_is_reported() -> None:
    text = """\
ccm:
  resources:
    - file:
        - /etc/motd:
            ensure: presnt
            contents: "{{ uper(Fcts.os) }}"
            owner: [root]
            mode: 0644
            forse: true
            require: [nginx]
            health_checks:
              - comand: "true"
                tries: many
"""

    assert found(text) == [
        (
            4,
            "property",
            "file#/etc/motd: `group` cannot be empty: every file needs an explicit group",
        ),
        (5, "ensure", "file#/etc/motd: `ensure` is `presnt`, did you mean `present`?"),
        (6, "expression", "unknown name uper; did you mean upper? (at character 1 of `uper(Fcts.os)`)"),
        (6, "unknown-property", "file#/etc/motd: unknown key `contents`, did you mean `content`?"),
        (7, "value", "file#/etc/motd: expected text, got a list"),
        (
            8,
            "unquoted",
            'file#/etc/motd: `mode` must be quoted, as in mode: "0644"; unquoted it is the number 420',
        ),
        (9, "unknown-property", "file#/etc/motd: unknown key `forse`, did you mean `force`?"),
        (
            9,
            "property",
            "file#/etc/motd: `force: true` is only valid with `ensure: absent`, not with `ensure: present`",
        ),
        (
            10,
            "property",
            "file#/etc/motd: `nginx` is not a valid reference; write `type#name`, such as `package#nginx`",
        ),
        (12, "unknown-property", "file#/etc/motd: unknown key `comand`, did you mean `command`?"),
        (13, "value", "file#/etc/motd: expected a whole number, got text"),
    ]


def test_consequences_of_another_mistake_are_not_reported() -> None:
    """The misspelled `owner` is not missing, `absnt` needs no mode, and the list with a wrong item is not empty."""
    text = """\
ccm:
  resources:
    - file:
        - /a: {ensure: present, onwer: root, group: root, mode: 0644}
        - /b: {ensure: absnt}
        - [/c]
"""

    assert [one[:2] for one in found(text)] == [
        (4, "unknown-property"),
        (4, "unquoted"),
        (5, "ensure"),
        (6, "form"),
    ]


def test_a_mistake_in_defaults_is_reported_once_where_it_is() -> None:
    text = """\
ccm:
  resources:
    - file:
        - defaults: {ensure: absent, onwer: root, control: {if: "Fcts.a"}}
        - /a: {}
        - /b: {}
"""

    assert found(text) == [
        (4, "unknown-property", "defaults of file: unknown key `onwer`, did you mean `owner`?"),
        (4, "expression", "unknown name Fcts; did you mean Facts? (at character 1 of `Fcts.a`)"),
    ]


def test_values_beside_a_template_are_checked_as_far_as_they_stand_alone() -> None:
    text = """\
ccm:
  resources:
    - file:
        - /a: {ensure: presnt, owner: "{{ Data.owner }}", group: root, mode: "{{ Data.mode }}", require: [x]}
        - "{{ Data.name }}": {ensure: "{{ Data.state }}", force: true}
"""

    assert [one[:2] for one in found(text)] == [(4, "ensure"), (4, "property")]


def test_a_template_for_a_list_or_a_number_is_judged_by_the_node() -> None:
    text = """\
ccm:
  resources:
    - group:
        - a: {members: "{{ Data.people }}", gid: "{{ Data.gid }}", system: "${ Data.is_system }"}
        - b: {members: people, gid: none}
    - service:
        - c: {enable: "{{ Data.enable }}"}
"""

    assert found(text) == [
        (5, "value", "group#b: expected a list or nothing, got text"),
        (5, "value", "group#b: expected a whole number or nothing, got text"),
        (7, "value", "service#c: expected true or false or nothing, got text"),
    ]


def test_mistakes_of_all_sections_are_reported_together() -> None:
    text = """\
hierarchy: {order: [all], merge: depe, ordr: [x]}
overrides: {all: 3}
ccm:
  fail_on_eror: true
  pre_message: "{{ Fcts.x }}"
  resources:
    - fiel: {}
    - 7
    - exec:
        - 'true': {creats: x}
"""

    assert [one[:2] for one in found(text)] == [
        (1, "form"),
        (1, "unknown-key"),
        (2, "form"),
        (4, "unknown-key"),
        (5, "expression"),
        (7, "unknown-type"),
        (8, "form"),
        (10, "unknown-property"),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "resources:\n  - fiel: {}\n",
            [
                (1, "form", "`resources` belongs under `ccm:`: write `ccm:` above it and indent it"),
                (2, "unknown-type", "unknown resource type `fiel`, did you mean `file`?"),
            ],
            id="at the top level",
        ),
        pytest.param(
            "ccm:\n  resources:\n    fiel: {}\n    exec: [{'true': {}}]\n",
            [
                (2, "form", "`resources` must be a list: begin each resource with `- `"),
                (3, "unknown-type", "unknown resource type `fiel`, did you mean `file`?"),
            ],
            id="a mapping",
        ),
        pytest.param(
            "ccm: [{exec: {name: x}}]\n",
            [(1, "form", "`ccm` must be a mapping with `resources`")],
            id="the list is the section",
        ),
    ],
)
def test_resources_in_the_wrong_place_are_named_and_checked(
    text: str, expected: list[tuple[int, str, str]]
) -> None:
    assert found(text) == expected


def test_properties_of_a_request_are_checked_without_a_document() -> None:
    findings = lint_request("service", {"name": "nginx", "ensure": "runing", "enabel": True})

    assert [(one.rule, one.message, one.place.line) for one in findings] == [
        ("unknown-property", "service#nginx: unknown key `enabel`, did you mean `enable`?", 0),
        ("ensure", "service#nginx: `ensure` is `runing`, did you mean `running`?", 0),
    ]


def test_a_request_of_an_unknown_type_has_one_finding() -> None:
    (finding,) = lint_request("fiel", {"name": "/x"})

    assert finding == Finding(
        level="error", rule="unknown-type", message="unknown resource type `fiel`, did you mean `file`?"
    )


@pytest.mark.parametrize(
    ("comment", "left"),
    [
        pytest.param("- fiel: {}  # ccm-lint: ignore[unknown-type]", [], id="on the line"),
        pytest.param(
            "# ccm-lint: ignore[unknown-type]\n    # why\n\n    - fiel: {}", [], id="above the line"
        ),
        pytest.param("- fiel: {}\n    # ccm-lint: ignore-file[ form, unknown-type ]", [], id="for the file"),
        pytest.param("- fiel: {}  # ccm-lint: ignore[form]", ["unknown-type"], id="another rule"),
        pytest.param(
            "- fiel: {}  # ccm-lint: ignore[unknown-typ]",
            ["unknown-type", "silence"],
            id="a rule that does not exist",
        ),
    ],
)
def test_a_comment_silences_a_rule(comment: str, left: list[str]) -> None:
    text = f"ccm:\n  resources:\n    {comment}\n"

    assert sorted(one[1] for one in found(text)) == sorted(left)


def test_invalid_yaml_cannot_be_silenced() -> None:
    document = make_document(b"# ccm-lint: ignore-file[syntax]\nccm: [\n", "m.yaml", "/")

    assert [one.rule for one in lint(document, ignored={"syntax"})] == ["syntax"]
