#!/usr/bin/env python3
"""
Write what is generated: schemas/v1 from the Structs, the property tables of docs/resources, and the parts of other pages that
reference.py makes.

    generate.py            write
    generate.py --check    write nothing; fail when what is committed is not what would be written
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from pathlib import Path
from typing import Any

import msgspec

TOP = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TOP), str(TOP / ".ci")]

import reference  # noqa: E402 -- beside this file
from ccm_json_page import documents  # noqa: E402 -- beside this file

BEGIN, END = "<!-- properties -->", "<!-- /properties -->"


def messages() -> dict[str, type[msgspec.Struct]]:
    """
    Return the types by file name (without extension): messages on the bus, documents that people write, records of `ccmctl
    --json`.
    """
    from ccm_agent.model import outcome, wire
    from ccm_agent.model.records import join, policy, rollout_records, run_records, stamped
    from ccm_ctl.fleet.doctor.results import CheckResult
    from ccm_ctl.fleet.runs.plan_file import PlanFile

    return {
        "transaction_event": outcome.TransactionEvent,
        "session_start": outcome.SessionStart,
        "session_summary": outcome.SessionSummary,
        "session_answer": wire.Answer,
        "session_progress": wire.Progress,
        "agent_event": wire.AgentEvent,
        "manifest_request": wire.ManifestRequest,
        "ensure_request": wire.EnsureRequest,
        "import_request": wire.ImportRequest,
        "exec_request": wire.ExecRequest,
        "stop_request": wire.StopRequest,
        "node_request": wire.Request,
        "node_record": wire.NodeRecord,
        "assignment": wire.Assignment,
        "facts_record": wire.FactsRecord,
        "presence": wire.Presence,
        "stamped": stamped.Stamped,
        "maintenance_request": wire.MaintenanceRequest,
        "join_request": join.JoinRequest,
        "join_answer": join.JoinAnswer,
        "run_record": run_records.RunRecord,
        "run_targets": run_records.RunTargets,
        "run_ends": run_records.RunEnds,
        "run_state": run_records.RunState,
        "rollout_state": rollout_records.RolloutState,
        "policy": policy.PolicyDocument,
        "check_result": CheckResult,
        "plan_file": PlanFile,
    }


def text(schema: dict[str, Any]) -> str:
    """Return a schema in the committed format."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def identified(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with its dialect and its `$id`."""
    from ccm_agent.resources.schema import DIALECT, ID_PREFIX

    return {"$schema": DIALECT, "$id": f"{ID_PREFIX}{name}.json", **schema}


def message_schemas() -> dict[Path, str]:
    """Return the schema of each message, by its file."""
    return {
        TOP / f"schemas/v1/{name}.json": text(identified(name, msgspec.json.schema(kind)))
        for name, kind in messages().items()
    }


def host_record_schemas() -> dict[Path, str]:
    """Return the schema of a line of `ccm apply --json`, `ccm ensure --json` and `ccm lint --json`."""
    from ccm_agent.cli.record_types import HOST_RECORDS

    head = {
        "title": "CcmRecord",
        "description": "A line of `ccm apply --json`, `ccm ensure --json` or `ccm lint --json`; `record` is its kind.",
    }
    return {
        TOP / "schemas/v1/ccm_record.json": text(
            identified("ccm_record", {**head, **msgspec.json.schema(HOST_RECORDS)})
        )
    }


def host_document_schemas() -> dict[Path, str]:
    """Return the schema of each JSON document of `ccm` that is not a record."""
    found = {}
    for name, (command, kind) in documents().items():
        head = {"description": f"The output of `{command} --json`."}
        found[TOP / f"schemas/v1/{name}.json"] = text(identified(name, {**head, **msgspec.json.schema(kind)}))
    return found


def record_schemas() -> dict[Path, str]:
    """Return the schema of a line of `ccmctl --json`."""
    from ccm_ctl.render.record_types.catalog import record_schema

    head = {
        "title": "CcmctlRecord",
        "description": "A line of `ccmctl --json`; `record` is its kind.",
    }
    return {
        TOP / "schemas/v1/ccmctl_record.json": text(identified("ccmctl_record", {**head, **record_schema()}))
    }


def type_schemas() -> dict[Path, str]:
    """Return the schemas of the manifest and of each resource type, by their files."""
    from ccm_agent.resources.catalog import Catalog
    from ccm_agent.resources.schema import manifest_schema, type_schema

    kinds = Catalog().all()
    schemas = {f"resource_{kind.name}": type_schema(kind) for kind in kinds}
    schemas["manifest"] = manifest_schema(kinds)
    return {TOP / f"schemas/v1/{name}.json": text(schema) for name, schema in schemas.items()}


def property_tables() -> dict[Path, str]:
    """Return the pages of the types, with the property tables between the marks replaced."""
    from ccm_agent.resources.catalog import Catalog
    from ccm_agent.resources.schema import type_schema

    pages = {}
    every = reference.common_properties()
    for kind in Catalog().all():
        path = TOP / f"docs/resources/{kind.name}.md"
        page = path.read_text() if path.exists() else ""
        if BEGIN not in page or END not in page:
            continue
        rows = ["| Property | Description |", "|---|---|"]
        for name, field in type_schema(kind)["properties"].items():
            if (name, field.get("description")) in every:
                continue
            ours = " *(not in Choria CCM)*" if name in kind.rules.extensions and not kind.is_extension else ""
            rows.append(f"| `{name}` | {field.get('description', '')}{ours} |")
        before, after = page.split(BEGIN)[0], page.split(END)[1]
        lead = "Also the [properties of every type](../concepts/resources.md#properties-of-every-type)."
        pages[path] = f"{before}{BEGIN}\n\n" + "\n".join(rows) + f"\n\n{lead}\n\n{END}{after}"
    return pages


def main() -> int:
    """Write or check, and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="fail when something would change")
    args = parser.parse_args()
    wanted = {
        **message_schemas(),
        **record_schemas(),
        **host_record_schemas(),
        **host_document_schemas(),
        **type_schemas(),
        **property_tables(),
        **reference.pages(TOP / "docs"),
    }
    folder = TOP / "schemas/v1"
    pages = TOP / "docs" / reference.COMMANDS
    stale = sorted({*folder.glob("*.json"), *pages.glob("*.md")} - set(wanted))
    wrong = 0
    for path, new in wanted.items():
        old = path.read_text() if path.exists() else ""
        if old == new:
            continue
        wrong += 1
        name = str(path.relative_to(TOP))
        if args.check:
            diff = difflib.unified_diff(
                old.splitlines(), new.splitlines(), name, "as generated", lineterm="", n=1
            )
            print("\n".join(list(diff)[:20]), file=sys.stderr)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(new)
            print(f"wrote {name}")
    for path in stale:
        wrong += 1
        print(f"{path.relative_to(TOP)}: nothing generates this file", file=sys.stderr)
        if not args.check:
            path.unlink()
    if wrong and args.check:
        print("run `make generate` and commit what it writes", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
