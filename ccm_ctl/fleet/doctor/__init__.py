"""`ccmctl doctor`: checks for security and health problems of a fleet."""

from __future__ import annotations

from ccm_agent.bus.connection.messages import ServerInfo
from ccm_ctl.fleet.doctor.audit_checks import audit_checks
from ccm_ctl.fleet.doctor.broker_checks import broker_checks
from ccm_ctl.fleet.doctor.key_checks import key_checks
from ccm_ctl.fleet.doctor.node_checks import node_checks
from ccm_ctl.fleet.doctor.results import Check
from ccm_ctl.fleet.doctor.secret_checks import secret_checks
from ccm_ctl.fleet.doctor.signer_checks import signer_checks
from ccm_ctl.fleet.doctor.site_checks import site_checks
from ccm_ctl.fleet.doctor.stream_checks import stream_checks


def all_checks(server: ServerInfo | None) -> list[Check]:
    """Return every check that applies to this broker. Without a connection, checks that need the broker return `unknown`."""
    own = [*broker_checks(), *key_checks(), *signer_checks(), *audit_checks()]
    return [*own, *stream_checks(server), *site_checks(), *node_checks(), *secret_checks()]
