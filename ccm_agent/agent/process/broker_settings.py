"""
From the agent's configuration to the settings of its connection.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ccm_agent.agent.process.config import BrokerSettings, read_secret
from ccm_agent.bus.settings import BusSettings, settings_for, settings_from_context
from ccm_agent.bus.trust import Trust, trust_in_credentials
from ccm_agent.model.errors import FileError, NotFoundError


def bus_settings(broker: BrokerSettings, node: str, *, first_spread_s: float) -> BusSettings | None:
    """
    How to reach the broker; None when nobody configured one. Blocking: it reads small files.

    Args:
        broker: From the configuration.
        node: The node's identity.
        first_spread_s: The first attempt waits up to so long.

    Raises:
        CcmError: The context or a file of a secret cannot be read.
    """
    others: dict[str, Any] = {
        "identity": node,
        "program": f"ccm agent {node}",
        "first_spread_s": first_spread_s,
    }
    for field in ("creds", "nkey", "user"):
        if value := getattr(broker, field):
            others[field] = value
    if broker.password_file:
        others["password"] = read_secret(broker.password_file)
    if broker.token_file:
        others["token"] = read_secret(broker.token_file)
    if broker.tls is not None:
        tls = {"ca": broker.tls.ca, "cert": broker.tls.cert, "key": broker.tls.key}
        others |= {name: value for name, value in tls.items() if value}
    if broker.insecure:
        others["insecure"] = True
    if broker.servers:
        return settings_for(list(broker.servers), **others)
    try:
        return settings_from_context(broker.context, **others)
    except NotFoundError:
        if broker.is_default_context:
            return None
        raise


def read_trust(creds: str, root: str) -> Trust | None:
    """
    What a node's credentials say about trust; None when neither they nor the configuration say anything. Blocking.

    Args:
        creds: The credentials file; "" when there is none.
        root: The root key that the configuration names; it counts more than that of the credentials.

    Raises:
        FileError: The file cannot be read.
        InputError: Its trust block is damaged.
    """
    trust = None
    if creds:
        try:
            trust = trust_in_credentials(Path(creds).read_text(encoding="utf-8"), creds)
        except (OSError, UnicodeDecodeError) as err:
            raise FileError(f"{creds}: the credentials cannot be read: {err}") from err
    if root and (trust is None or trust.root != root):
        return Trust(root=root)
    return trust
