"""`make mutants` finds the checks of the verifying code, and notices each one that no test needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.__main__ import (
    BROKER_TESTS,
    TOP,
    Result,
    Tree,
    choose,
    find_faults,
    find_tests,
    summarize,
    try_checks,
)
from tests.mutants.allowed import ALLOWED
from tests.mutants.checks import SUBJECTS, Check

NAMED = (
    "ccm_agent/bus/signatures/trust.py:_require_root:claims.key != root:False",
    "ccm_agent/bus/signatures/signing.py:verify_content:check_content(claims, kind, subject, body):False",
    "ccm_agent/bus/signatures/verified.py:Verifier._judge:signer is None:False",
    "ccm_agent/bus/signatures/signatory.py:Signatory._sign:not base:False",
    "ccm_agent/agent/trust/authentication.py:Authenticator.request:not is_allowed:False",
    "ccm_agent/agent/requests/request_handler.py:RequestTargets.is_meant:incoming.scope in scopes_of(self._node, facts):True",
    "ccm_ctl/fleet/rollout/starter.py:RolloutStarter._store_rollout:await check_handover(self._fleet, claimed, recorded, "
    "build_request(self._fleet, recorded)):False",
)
"""Verifications that the list must hold, each by its name."""

SEED = 21

pytestmark = pytest.mark.timeout(300)  # sessions of pytest within a test

CODE = '''\
"""A module that verifies."""

from __future__ import annotations


class SignatureError(Exception):
    """It is not signed."""


def check_name(name: str) -> None:
    if not name:
        raise SignatureError("unsigned")


def read(name: str, age: int) -> str:
    check_name(name)
    if name == "mallory" or age > 9:
        raise SignatureError("refused")
    return name


def may_write(name: str) -> bool:
    return name == "anna"
'''

TESTS = """\
import pytest
from small.code import SignatureError, may_write, read

def test_mallory_and_the_unsigned_are_refused():
    for name in ("", "mallory"):
        with pytest.raises(SignatureError):
            read(name, 0)
    assert read("anna", 0) == "anna"

def test_anna_may_write():
    assert may_write("anna")
"""


@pytest.fixture
def small(tmp_path: Path) -> Tree:
    """A tree with one module, whose age limit and whose right are not tested."""
    for path, text in {
        "small/__init__.py": "",
        "small/code.py": CODE,
        "tests/test_code.py": TESTS,
        "pytest.ini": "[pytest]\n",
    }.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    return Tree(top=tmp_path, packages=("small",), subjects=("small/code.py",), tests=("tests",))


@pytest.fixture(scope="module")
def checks() -> list[Check]:
    return Tree().checks()


def test_list_of_checks_is_read_from_the_code(checks: list[Check]) -> None:
    names = {one.name for one in checks}

    assert len(checks) > 300
    assert [name for name in NAMED if name not in names] == []
    assert {path.partition("::")[0] for path in SUBJECTS} <= {one.path for one in checks}


def test_the_tests_of_what_is_signed_are_found(checks: list[Check]) -> None:
    found = find_tests(TOP, checks)

    assert "tests/unit/agent/test_authentication.py" in found
    assert "tests/unit/ccm_ctl/commands/test_signing_matrix.py" in found
    assert "tests/unit/ccm_ctl/fleet/rollout/test_state.py" in found
    assert "tests/unit/test_mutants.py" not in found


def test_each_reason_to_allow_a_survivor_is_of_a_check(checks: list[Check]) -> None:
    assert find_faults([], checks, ALLOWED) == []
    assert [name for name, reason in ALLOWED.items() if len(reason) < 20] == []


def test_checks_that_a_test_needs_are_killed_and_others_survive(small: Tree) -> None:
    results = {
        f"{one.check.kind} {one.check.text} {one.check.becomes}": one.result
        for one in try_checks(small, small.checks(), workers=1)
    }

    assert results == {
        "guard not name False": "killed",
        "call check_name(name) False": "killed",
        'guard name == "mallory" or age > 9 False': "killed",
        'guard name == "mallory" False': "killed",
        "guard age > 9 False": "survived",
        'predicate name == "anna" True': "survived",
        'predicate name == "anna" False': "killed",
    }


def test_check_that_no_test_comes_to_is_named(small: Tree) -> None:
    (small.top / "tests/test_code.py").write_text("def test_nothing():\n    pass\n")

    assert {one.result for one in try_checks(small, small.checks(), workers=1)} == {"no test comes to it"}


def test_check_that_a_test_comes_to_in_another_process_is_killed(small: Tree) -> None:
    program = "from small.code import may_write; raise SystemExit(not may_write('anna'))"
    (small.top / "tests/test_code.py").write_text(
        "import subprocess, sys\n\ndef test_anna():\n"
        f'    assert subprocess.run([sys.executable, "-c", {program!r}]).returncode == 0\n'
    )
    predicates = [one for one in small.checks() if one.kind == "predicate"]

    results = {one.check.becomes: one.result for one in try_checks(small, predicates, workers=1)}

    assert results == {True: "survived", False: "killed"}


def test_tests_that_fail_with_all_checks_in_place_kill_nothing(small: Tree) -> None:
    tests = small.top / "tests/test_code.py"
    tests.write_text(tests.read_text().replace("assert may_write", "assert not may_write"))
    predicates = [one for one in small.checks() if one.kind == "predicate"]

    assert {one.result for one in try_checks(small, predicates, workers=1)} == {"no test comes to it"}


def test_survivor_without_a_reason_is_a_fault_and_so_is_a_reason_without_a_check(small: Tree) -> None:
    first, second, *_ = checks = small.checks()
    survived = Result(check=first, result="survived")
    killed = Result(check=second, result="killed")

    assert find_faults([survived, killed], checks, {}) == [str(survived)]
    assert find_faults([survived, killed], checks, {first.name: "no test can show it"}) == []
    assert find_faults([survived, killed], checks, {"small/code.py:check_name:": "no test can show it"}) == []
    assert len(find_faults([survived, killed], checks, {first.name: "a reason", "gone": "a reason"})) == 1


def test_summary_counts_each_tier(small: Tree) -> None:
    first, second, third, fourth, *_ = small.checks()
    results = [
        Result(check=first, result="killed", test="tests/unit/test_code.py::test_one"),
        Result(check=second, result="timed out", test=f"{BROKER_TESTS[0]}::test_two[nats]"),
        Result(check=third, result="survived"),
        Result(check=fourth, result="no test comes to it"),
    ]

    assert summarize(results, {third.name: "no test can show it"}) == (
        "4 checks: 1 killed by unit tests, 1 killed by tests with a broker, 1 allowed, 1 unexplained"
    )


def test_the_tests_with_a_broker_are_there() -> None:
    assert [path for path in BROKER_TESTS if not (TOP / path).is_file()] == []


def test_sample_is_the_same_for_the_same_seed(checks: list[Check]) -> None:
    assert choose(checks, [], 5, 7) == choose(checks, [], 5, 7)
    assert len(choose(checks, ["bus/signatures/trust.py"], 5, 7)) == 5
    assert {one.path for one in choose(checks, ["bus/signatures/trust.py"], 0, 7)} == {
        "ccm_agent/bus/signatures/trust.py"
    }


def test_sample_of_the_checks_is_killed() -> None:
    tree = Tree(
        tests=(
            "tests/unit/bus/test_join.py",
            "tests/unit/bus/test_node_state.py",
            "tests/unit/bus/test_signing.py",
            "tests/unit/bus/test_trust.py",
        )
    )
    chosen = choose(
        tree.checks(),
        ["bus/signatures/signing.py:", "bus/signatures/trust.py:", "bus/signatures/node_state.py:"],
        6,
        SEED,
    )

    results = try_checks(tree, chosen, workers=1)

    assert len(results) == 6
    assert find_faults(results, tree.checks(), ALLOWED) == []
