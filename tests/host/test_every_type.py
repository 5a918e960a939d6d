"""
Every resource type on a machine with apt and on one with dnf: a second run is stable, drift is repaired, an undo restores, and
an import applies as stable. The table is every_type.yaml; containers have their own machines, see test_containers.py.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import testenv

from ccm_agent.model.codec import decode_yaml
from ccm_agent.resources.catalog import Catalog
from tests.host import test_kernel_modules as kernel_modules
from tests.support.machine import check_phases, run_phases

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]

FAMILIES = {"apt": "debian", "dnf": "fedora"}
ELSEWHERE = {"container"}


class Row(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """
    A type on one kind of machine.

    Attributes:
        resources: Resources of the type.
        before, observe, drift: Shell commands that prepare the machine, print the state that the resources change, and change it.
        seen: Parts of what `observe` prints after the apply.
        imports: The argument of `ccm import`; "" if the type cannot be imported.
        imported: Resources that it finds, as `type#name` or, if they are of this type, by name.
    """

    resources: list[dict[str, Any]] = []
    before: str = ""
    observe: str = ""
    drift: str = ""
    seen: list[str] = []
    imports: str = ""
    imported: list[str] = []


def _tar() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        entry = tarfile.TarInfo("app/run")
        entry.size, entry.mode = 3, 0o755
        archive.addfile(entry, io.BytesIO(b"run"))
    return made.getvalue()


TAR = _tar()
FILES = {
    "archive": {"/srv/web/app.tar": TAR},
    "kernel_module": {"/root/module.ko": kernel_modules.empty_module()},
}
WORDS = {
    "SHA256_OF_TAR": hashlib.sha256(TAR).hexdigest(),
    "HASH": "Hh./" * 21 + "ab",
    "KEY": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + "A" * 42 + "B",
}


def _table() -> dict[str, dict[str, Any]]:
    text = Path(__file__).with_name("every_type.yaml").read_text()
    for word, value in WORDS.items():
        text = text.replace(word, value)
    table: dict[str, dict[str, Any]] = decode_yaml(text.encode())
    table["kernel_module"] |= {"before": kernel_modules.MODULES, "observe": kernel_modules.OBSERVE}
    return table


TABLE = _table()


def row_of(name: str, kind: str) -> Row:
    """Return the row of a type for a machine with apt or dnf."""
    shared, own = dict(TABLE[name]), TABLE[name].get(kind, {})
    for one in FAMILIES:
        shared.pop(one, None)
    for field, value in own.items():
        before = shared.get(field)
        shared[field] = (
            value if before is None else f"{before}\n{value}" if isinstance(value, str) else before + value
        )
    return msgspec.convert(shared, Row)


def test_every_type_has_a_row() -> None:
    catalog = Catalog()

    assert sorted(TABLE.keys() | ELSEWHERE) == catalog.names()
    for name in TABLE:
        is_imported = name == "symlink" or any(one.find_existing for one in catalog.find(name).providers)
        for row in (row_of(name, kind) for kind in FAMILIES):
            assert (bool(row.imports), bool(row.imported)) == (is_imported, is_imported), name
            assert row.resources, name
            assert row.seen, name


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_machine_is_of_its_family(only: Callable[[str], testenv.Node], program: str, kind: str) -> None:
    told = only(kind).run(program, "facts", "host.info.platformFamily").stdout

    assert told.strip().strip('"') == FAMILIES[kind]


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("name", TABLE)
def test_a_type_is_stable_repaired_undone_and_imported(
    only: Callable[[str], testenv.Node], program: str, name: str, kind: str
) -> None:
    machine, row, type_ = only(kind), row_of(name, kind), Catalog().find(name)
    for path, content in FILES.get(name, {}).items():
        machine.path(path).parent.mkdir(parents=True, exist_ok=True)
        machine.path(path).write_bytes(content)
    machine.run("sh", "-ec", row.before)

    phases = run_phases(machine, [{name: row.resources}], observe=row.observe, drift=row.drift)

    check_phases(phases, has_undo=bool(type_.undo) or type_.contains_manifest)
    for part in row.seen:
        assert part in phases.applied.seen
    if row.imports:
        found = apply_import(machine, program, row.imports, f"/root/site-{name}")
        assert {one if "#" in one else f"{name}#{one}" for one in row.imported} <= found.keys()
        assert set(found.values()) == {"stable"}
        assert machine.run("sh", "-c", row.observe, check=False).stdout == phases.applied.seen


def apply_import(machine: testenv.Node, program: str, words: str, site: str) -> dict[str, str]:
    """Import resources and apply the manifest that was written; the outcome of each resource, as `type#name`."""
    told = machine.run(program, "import", words, "-o", site).stdout
    print(told)  # names what was left out, if the test fails
    done = machine.run(program, "apply", f"{site}/manifest.yaml", "--json", check=False, timeout=120)
    events = [
        line["event"] for line in map(json.loads, done.stdout.splitlines()) if line["record"] == "event"
    ]
    return {
        f"{one['type']}#{one['name']}": "; ".join(one["error"]) or ("changed" if one["changed"] else "stable")
        for one in events
    }
