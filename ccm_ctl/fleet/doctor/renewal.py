"""Command lines that give an operator new credentials with the same role."""

from __future__ import annotations

from shlex import quote

import msgspec

from ccm_agent.bus.signatures.trust import EVERYWHERE, Signer, SignersList, Trust
from ccm_agent.bus.subjects import format_scope

VALID = "90d"
"""The validity in a suggested command line."""


def renew_command(signer: Signer, option: str) -> str:
    """
    Return the command that issues new, expiring credentials with the same role to an operator.

    Args:
        signer: The operator's entry in the signers list.
        option: The option for the folder with the keys, with a leading space.
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
    """Return a similar command that also invalidates the operator's current credentials."""
    return f"ccmctl operator revoke {quote(signer.name)}{option} && {renew_command(signer, option)}"


def find_signer_entry(key: str, trust: Trust | None) -> Signer | None:
    """Return the entry of a public key in the list within the credentials. It is not verified and only used for a suggestion."""
    if trust is None or trust.signers is None:
        return None
    try:
        listed = msgspec.json.decode(trust.signers.body, type=SignersList)
    except msgspec.MsgspecError:
        return None
    return next((one for one in listed.signers if one.key == key), None)


def _scope(scope: str) -> str:
    """Format a scope as an argument of `operator add`."""
    return quote("all" if scope == EVERYWHERE else format_scope(scope))
