"""
What is signed, and from what: no second way to sign, and no way around the verification of what the broker delivers.

mypy proves that a `Unverified` value is no base of a signature. These rules close what types cannot: who makes a `Verified`, who
says that the operator wrote something, and who signs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
PACKAGES = ("ccm_agent", "ccm_ctl")

SIGNING_MODULES = {
    "ccm_agent/bus/signatures/signatory.py": "an operator's signatures, each with its bases",
    "ccm_agent/bus/signatures/node_key.py": "a node's signatures of what it says",
    "ccm_agent/bus/signatures/trust.py": "the root's: the signers list and certificates of nodes",
    "ccm_agent/bus/signatures/join.py": "requests of nodes that join, and answers of the join service",
    "ccm_agent/bus/signatures/signing.py": "the key itself",
    "ccm_agent/bus/signatures/ed25519.py": "the primitive of the broker's accounts",
    "ccm_agent/bus/access/audit_entry.py": "the operator's key, which reports each signature to the audit",
    "ccm_agent/bus/access/audit_writer.py": "entries of the audit, which the operator's own program writes",
    "ccm_agent/bus/access/credentials.py": "JWTs of the broker's accounts, not signatures of this project",
    "ccm_ctl/fleet/keys/x509.py": "TLS certificates of brokers",
    "ccm_agent/agent/events/publisher.py": "asks the node's key",
}
"""Modules that call a method `sign` of a key, with the reason."""

AUTHORS = {
    "ccm_agent/testing/memory_bus.py": "tests store and send what they wrote",
    "ccm_agent/testing/memory_objects.py": "likewise",
    "ccm_ctl/commands/assignments/assign.py": "the bundle is made from files of the operator",
    "ccm_ctl/commands/data/data.py": "`data put` stores a file of the operator",
    "ccm_ctl/commands/runs/ensure.py": "type and properties are on the command line",
    "ccm_ctl/commands/runs/exec.py": "the command is on the command line",
    "ccm_ctl/commands/schedules/schedule.py": "`schedule add` stores a manifest of the operator",
    "ccm_ctl/commands/data/facts.py": "`facts set --replace` stores facts of the command line or of a file",
    "ccm_ctl/fleet/data/documents.py": "deletions, and documents of keys that hold nothing",
    "ccm_ctl/fleet/imports/answers.py": "questions: the words of the command",
    "ccm_ctl/fleet/runs/gather.py": "questions: the words of the command",
    "ccm_ctl/fleet/nodes/groups.py": "`group set` stores selectors of the command line",
    "ccm_ctl/fleet/nodes/node_commands.py": "disable, enable and converge: the words of the command",
    "ccm_ctl/fleet/data/node_data.py": "deletions",
    "ccm_ctl/fleet/keys/secrets.py": "values of the operator, and a key of the operator's folder",
    "ccm_ctl/fleet/keys/secret_rotation.py": "`secret rotate` stores a value of the operator",
    "ccm_ctl/fleet/keys/signers_timestamp.py": "the timestamp holds the time and the number of the list that the root signed",
    "ccm_ctl/fleet/runs/run_request.py": "runs of files of the operator, in commands, the studio and the Python client",
    "ccm_ctl/fleet/rollout/orders.py": "an order: its words are on the command line",
    "ccm_ctl/fleet/runs/undo.py": "the undo of a run that no operator started holds its id, which the operator named",
}
"""Modules that may say that nothing of something came from the broker, with the reason."""

VERIFIER = "ccm_agent/bus/signatures/verified.py"


def _calls() -> Iterator[tuple[str, str]]:
    """Each call as module and dotted name."""
    for package in PACKAGES:
        for path in sorted((TOP / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call):
                    yield str(path.relative_to(TOP)), ast.unparse(node.func)


CALLS = sorted(set(_calls()))


def test_only_the_verifier_makes_a_verified_value() -> None:
    makers = {
        module
        for module, name in CALLS
        if name.split("[")[0].rsplit(".", 1)[-1] == "Verified" and module != VERIFIER
    }
    replaced = {module for module, name in CALLS if name == "Verified.__new__" or name == "Authored"}

    assert (makers, replaced - {VERIFIER}) == (set(), set())


def test_only_listed_modules_say_that_the_operator_wrote_something() -> None:
    authors = {module for module, name in CALLS if name.startswith("Authored.")}

    assert authors == AUTHORS.keys()


def test_there_is_no_second_way_to_sign() -> None:
    signers = {module for module, name in CALLS if name.endswith(".sign")}

    assert signers == SIGNING_MODULES.keys()
