"""The command lines that give an operator new credentials of the same role."""

from __future__ import annotations

from shlex import quote

import msgspec

from ccm_agent.bus.signatures.trust import EVERYWHERE, Signer, SignersList, Trust
from ccm_agent.bus.subjects import format_scope

VALID = "90d"
"""What a suggested command line asks for."""


def renew_command(signer: Signer, option: str) -> str:
    """
    New credentials of an operator, of the same role, that expire.

    Args:
        signer: The operator's entry in the signers list.
        option: What names the folder with the keys, with a leading space.
    """
    name = quote(signer.name)
    role = "".join(
        [
            *(f" --plan {_scope(scope)}" for scope in signer.plan),
            *(f" --apply {_scope(scope)}" for scope in signer.apply),
            *(f" --exec {_scope(scope)}" for scope in signer.exec),
            *(f" --maintain {_scope(scope)}" for scope in signer.maintain),
            *(f" --{word}" for word in ("data", "facts", "schedules", "admin") if getattr(signer, word)),
        ]
    )
    return f"ccmctl operator add {name}{role} --expires {VALID}{option} > {name}.creds"


def replace_command(signer: Signer, option: str) -> str:
    """The same, where the credentials that the operator has must end."""
    return f"ccmctl operator revoke {quote(signer.name)}{option} && {renew_command(signer, option)}"


def find_signer_entry(key: str, trust: Trust | None) -> Signer | None:
    """The entry of a public key in the list that credentials carry. It is not verified: it is for a suggestion only."""
    if trust is None or trust.signers is None:
        return None
    try:
        listed = msgspec.json.decode(trust.signers.body, type=SignersList)
    except msgspec.MsgspecError:
        return None
    return next((one for one in listed.signers if one.key == key), None)


def _scope(scope: str) -> str:
    """A scope as `operator add` takes it."""
    return quote("all" if scope == EVERYWHERE else format_scope(scope))
