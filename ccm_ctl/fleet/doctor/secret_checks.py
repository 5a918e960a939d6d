"""
Checks of `ccmctl doctor` for secrets: nodes that may still have the value of a secret without access to it, and nodes that lack a
secret.
"""

from __future__ import annotations

from collections.abc import Sequence

from ccm_agent.bus.connection.broker_errors import NoRespondersError
from ccm_agent.model.errors import BusSetupError
from ccm_ctl.fleet.doctor.results import Check, CheckResult, DoctorContext, MissingError, ok, warning
from ccm_ctl.fleet.keys.secret_rotation import SecretRotation

STALE = "secrets.stale"
SEALED = "secrets.sealed"
ROTATED = "secrets.rotated"


async def check_secrets(context: DoctorContext) -> Sequence[CheckResult]:
    """
    Check whether nodes may still have values of secrets to which they no longer have access, or lack secrets. Returns nothing if
    the fleet has no secrets.
    """
    if context.fleet is None:
        raise MissingError("there is no connection to the broker")
    try:
        secrets = SecretRotation(context.fleet)
        stored = await secrets.read_all()
    except (BusSetupError, NoRespondersError):
        return []  # there are no credentials, or the broker lacks the bucket, which another check reports
    if not stored:
        return []
    stale = {one.head.name: one.stale for one in stored if one.stale}
    missing = {one.head.name: found for one in stored if (found := await secrets.missing(one))}
    rotating = {one.head.name: list((await secrets.waiting(one))[0]) for one in stored if one.head.older}
    sealed = _sealed({name: [one.node for one in nodes] for name, nodes in missing.items()})
    return [_stale(stale), sealed, _rotated(rotating)]


def _stale(stale: dict[str, list[str]]) -> CheckResult:
    if not stale:
        return ok(STALE, "No node knows a secret that it may no longer use.")
    name, nodes = next(iter(stale.items()))
    sentence = (
        f"Secrets to replace: {len(stale)}, such as {name}, which {nodes[0]} knows but may no longer use."
    )
    return warning(STALE, sentence, f"ccmctl secret rotate {name}", _nodes(stale))


def _sealed(missing: dict[str, list[str]]) -> CheckResult:
    if not missing:
        return ok(SEALED, "Each secret is sealed to all of its nodes.")
    name, nodes = next(iter(missing.items()))
    sentence = f"Secrets that are not sealed to all of their nodes: {len(missing)}, such as {name} (not sealed to {nodes[0]})."
    return warning(SEALED, sentence, "ccmctl secret sync", _nodes(missing))


def _rotated(rotating: dict[str, list[str]]) -> CheckResult:
    if not rotating:
        return ok(ROTATED, "No rotation of a secret is incomplete.")
    name, nodes = next(iter(rotating.items()))
    who = f"for {nodes[0]}" if nodes else "though no node uses it"
    sentence = f"Secrets whose old value is still stored: {len(rotating)}, such as {name}, {who}."
    return warning(ROTATED, sentence, f"ccmctl secret rotate {name} --resume", _nodes(rotating))


def _nodes(found: dict[str, list[str]]) -> list[str]:
    return sorted({node for nodes in found.values() for node in nodes})


def secret_checks() -> list[Check]:
    """Return the checks for secrets."""
    return [Check(ids=(STALE, SEALED, ROTATED), look=check_secrets)]
