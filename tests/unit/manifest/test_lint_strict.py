"""Everything that works here and not in Choria CCM is named by `ccm lint --strict-ccm`, in every type of ours."""

from __future__ import annotations

import msgspec
import pytest

from ccm_agent.manifest.document import make_document
from ccm_agent.manifest.lint import lint
from ccm_agent.resources.catalog import Catalog
from tests.support.engine import Board, Types, note_type

COMMON = {
    "name",
    "alias",
    "ensure",
    "provider",
    "health_checks",
    "require",
    "control",
    "register_when_stable",
}
# Properties of each type of Choria CCM: its manifest schema, version 1, at choria-io/ccm bd56277
THEIRS = {
    "apply": {"noop", "health_check_only", "allow_apply", "data"},
    "archive": {
        "url", "headers", "username", "password", "checksum", "extract_parent", "cleanup", "creates", "owner", "group",
    },
    "exec": {
        "command", "cwd", "environment", "path", "returns", "timeout", "creates", "onlyif", "unless", "refreshonly",
        "subscribe", "logoutput",
    },
    "file": {"content", "source", "owner", "group", "mode", "force"},
    "package": set(),
    "scaffold": {"source", "engine", "skip_empty", "left_delimiter", "right_delimiter", "purge", "data", "post"},
    "service": {"enable", "subscribe"},
}  # fmt: skip


def strict(resource: str) -> list[str]:
    """What is said of one resource, without its place."""
    text = f"ccm:\n  resources:\n    - {resource}\n".encode()
    found = lint(make_document(text, "m.yaml", "/site"), Catalog(), strict_ccm=True)
    assert all(one.rule == "strict-ccm" for one in found), found
    return [one.message.removesuffix("; only ccm-fleet supports it") for one in found]


def test_each_type_names_exactly_the_properties_that_choria_ccm_does_not_have() -> None:
    kinds = [kind for name in Catalog().names() if not (kind := Catalog().find(name)).is_extension]

    extensions = {kind.name: set(kind.rules.extensions) for kind in kinds}

    assert extensions == {
        kind.name: {
            field.encode_name for field in msgspec.structs.fields(kind.properties)
        } - COMMON - THEIRS[kind.name]
        for kind in kinds
    }  # fmt: skip


OWNED = "owner: root, group: root"


@pytest.mark.parametrize(
    ("resource", "said"),
    [
        (
            f'file: {{name: /a, ensure: present, {OWNED}, mode: "7xx"}}',
            "Choria CCM's `file` does not support `x` in a `mode`",
        ),
        (
            f'file: {{name: /a, ensure: present, {OWNED}, mode: "0o644"}}',
            "Choria CCM's `file` does not accept `mode: 0o644`, write only the digits",
        ),
        (
            f'file: {{name: /a, ensure: present, {OWNED}, mode: "644"}}',
            "Choria CCM's `file` never accepts a file's mode for `mode: 644`, write `0644`",
        ),
        (
            f'file: {{name: /a, ensure: present, {OWNED}, mode: "0644", source: "https://example.net/a"}}',
            "Choria CCM's `file` does not fetch its `source` from the web",
        ),
        (
            f'file: {{name: /a, ensure: present, {OWNED}, mode: "0644", content: a, replace: false}}',
            "Choria CCM's `file` has no `replace`",
        ),
        (
            f'file: {{name: /a, ensure: present, {OWNED}, mode: "0644", source: a, checksum: "{"0" * 64}"}}',
            "Choria CCM's `file` has no `checksum`",
        ),
        (
            'file: {name: /a, ensure: present, owner: "*", group: root, mode: "0644"}',
            "Choria CCM's `file` does not support `owner: *`",
        ),
        (
            'file: {name: /a, ensure: present, owner: root, group: "*", mode: "0644"}',
            "Choria CCM's `file` does not support `group: *`",
        ),
        (
            'exec: {name: make, require: ["file#{{ Data.conf }}"]}',
            "Choria CCM does not render expressions in `require`",
        ),
        ("exec: {name: make, refresh_only: true}", "Choria CCM calls `refresh_only` `refreshonly`"),
        (
            f'archive: {{name: /a.tgz, ensure: present, url: "https://example.net/a.tgz", {OWNED}, timeout: 5m}}',
            "Choria CCM's `archive` has no `timeout`",
        ),
        (
            f'archive: {{name: /a.tgz, ensure: present, url: "https://example.net/a.tgz", {OWNED}, drop_special_bits: true}}',
            "Choria CCM's `archive` has no `drop_special_bits`",
        ),
        (
            "scaffold: {name: /a, ensure: present, source: s}",
            "Choria CCM's `scaffold` requires an `engine`",
        ),
        (
            "scaffold: {name: /a, ensure: present, source: s, engine: jinja}",
            "Choria CCM's `scaffold` does not support `engine: jinja`",
        ),
        (
            "scaffold: {name: /a, ensure: present, source: s, engine: jet, timeout: 5m}",
            "Choria CCM's `scaffold` has no `timeout`",
        ),
    ],
)
def test_our_extensions_are_named(resource: str, said: str) -> None:
    assert strict(resource) == [said]


@pytest.mark.parametrize(
    "resource",
    [
        f'file: {{name: /a, ensure: present, {OWNED}, mode: "0644", source: a/b}}',
        f'file: {{name: /a, ensure: directory, {OWNED}, mode: "755"}}',
        "file: {name: /a, ensure: absent, force: true}",
        "package: {name: zsh, ensure: latest}",
        'package: [{zsh: {ensure: "5.9-8+b18"}}]',
        "service: {name: cron, enable: true, subscribe: []}",
        "exec: {name: make, refreshonly: true, timeout: 1d}",
        "scaffold: {name: /a, ensure: present, source: s, engine: go, purge: true, post: [{a: b}]}",
        f'archive: {{name: /a.tgz, ensure: present, url: "https://example.net/a.tgz", {OWNED}, headers: {{a: b}}}}',
        "apply: {name: child.yaml, noop: true, data: {a: 1}}",
    ],
)
def test_features_of_choria_ccm_are_not_reported(resource: str) -> None:
    assert strict(resource) == []


def test_a_type_that_choria_ccm_does_not_have_is_named_once_for_each_resource() -> None:
    kind = note_type(Board(), is_extension=True)
    document = make_document(b"ccm: {resources: [note: {name: a, bold: true}]}", "m.yaml", "/site")

    found = lint(document, Types(kind), strict_ccm=True)

    assert [one.message for one in found] == ["Choria CCM has no type `note`; only ccm-fleet supports it"]
