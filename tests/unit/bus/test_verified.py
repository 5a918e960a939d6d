"""What can be the base of a signature."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from ccm_agent.bus.signatures.signatory import Signatory
from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER, SignatureKind
from ccm_agent.bus.signatures.trust import Signer, SignersList
from ccm_agent.bus.signatures.verified import Authored, Unverified, Verified, Verifier
from tests.support.signing import new_key

NOW = 1_700_000_000_000
SUBJECT = "$KV.CCM_FACTS.web1"
OWN = [Authored.from_arguments()]
KEY, OTHER = new_key(), new_key()
BOB = Signer(name="bob", key=KEY.public_key, facts=True, expires=NOW // 1000 + 60)
LIST = SignersList(number=1, issued=0, signers=(BOB,))


def judge(
    signers: SignersList | None = LIST,
    *,
    body: bytes = b"x",
    subject: str = SUBJECT,
    now: int = NOW,
    **others: object,
) -> Verified[str] | Unverified[str]:
    key = others.pop("key", KEY)
    signed = Signatory(key, lambda: NOW).document("CCM_FACTS", "web1", b"x", OWN)[SIGNATURE_HEADER]  # type: ignore[arg-type]
    verifier = Verifier(signers, lambda: now, is_demanded=bool(others.pop("is_demanded", True)))
    kind = others.pop("kind", SignatureKind.DOCUMENT)
    header = others.pop("header", signed)
    refusal = str(others.pop("refusal", ""))
    return verifier.read("value", kind, subject, body, header, lambda *_: refusal)  # type: ignore[arg-type]


def test_what_a_listed_signer_signed_is_verified() -> None:
    assert judge() == Verified(value="value", signer="bob", key=KEY.public_key, issued_ms=NOW)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param({"header": ""}, "it is not signed", id="unsigned"),
        pytest.param({"header": "v1.x.y"}, "cannot be decoded", id="broken"),
        pytest.param({"key": OTHER}, "not in the signers list", id="a stranger"),
        pytest.param({"signers": None}, "not in the signers list", id="no list"),
        pytest.param({"now": NOW + 61_000}, "not in the signers list", id="an expired signer"),
        pytest.param({"now": NOW - 400_000}, "signed in the future", id="signed in the future"),
        pytest.param({"body": b"y"}, "content was changed", id="another body"),
        pytest.param({"subject": "$KV.CCM_FACTS.web2"}, "the signature is for", id="another key"),
        pytest.param(
            {"kind": SignatureKind.DELETION}, "for a document, not for a deletion", id="another kind"
        ),
        pytest.param({"refusal": "bob may not"}, "bob may not", id="no right"),
    ],
)
def test_everything_else_is_not_and_counts_only_where_unsigned_values_do(
    change: dict[str, object], reason: str
) -> None:
    found = judge(**change)  # type: ignore[arg-type]
    unsigned = msgspec.structs.replace(LIST, allow_unsigned_until=1 << 50)

    assert isinstance(found, Unverified)
    assert reason in found.reason
    assert judge(**change | {"is_demanded": False}) == Verified(value="value")  # type: ignore[arg-type]
    if change.get("signers", LIST):
        assert judge(**change | {"signers": unsigned}) == Verified(value="value")  # type: ignore[arg-type]


def test_a_signature_needs_a_base() -> None:
    signatory = Signatory(KEY, lambda: NOW)

    for base in (
        [],
        [Unverified(value=1, reason="unsigned")],
        [*OWN, Unverified(value=1, reason="unsigned")],
    ):
        with pytest.raises(TypeError, match="only verified data"):
            signatory.document("CCM_FACTS", "web1", b"x", base)  # type: ignore[arg-type]

    assert signatory.document("CCM_FACTS", "web1", b"x", [Verified(value=1), *OWN])


def test_types_refuse_an_unverified_base(tmp_path: Path) -> None:
    program = """
from ccm_agent.bus.signatures.signatory import Signatory
from ccm_agent.bus.signatures.verified import Authored, Unverified, Verified

def write(signatory: Signatory, good: Verified[int], bad: Unverified[int], own: Authored) -> None:
    signatory.document("b", "k", b"x", [good, own])
    signatory.document("b", "k", b"x", [bad])
"""
    (tmp_path / "program.py").write_text(program)
    top = Path(__file__).resolve().parents[3]

    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--follow-imports=silent", "--cache-dir", str(tmp_path), "program.py"],
        cwd=tmp_path,
        env={"MYPYPATH": str(top), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip

    assert [line.split(": ", 1)[0] for line in checked.stdout.splitlines() if ": error" in line] == [
        "program.py:7"
    ]
    assert 'has incompatible type "Unverified[int]"' in checked.stdout
