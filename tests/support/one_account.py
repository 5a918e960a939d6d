"""A fleet as it was secured when nodes and operators lived in the account that holds the streams: keys, credentials, streams."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import nkeys

from ccm_agent.bus.access.accounts import Account
from ccm_agent.bus.access.credentials import public_key, user_credentials
from ccm_agent.bus.access.permissions import Permissions
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.streams import call
from ccm_agent.model.secret import Secret
from tests.support.nats_keys import a_seed, account_jwt, operator_jwt

RECORDED = Path(__file__).resolve().parents[1] / "nats" / "data" / "one_account_9071190.json"
KINDS = {"web1": "node", "lb1": "node", "bob": "operator", "tester": "operator"}


def recorded() -> dict[str, Any]:
    """What `ccmctl` wrote at that time: permissions of users, and streams."""
    found: dict[str, Any] = json.loads(RECORDED.read_text())
    return found


def old_permissions(name: str) -> Permissions:
    """What a user was allowed."""
    lists = recorded()["users"][name]
    return Permissions(
        account=Account.CTL, publish=tuple(lists["publish"]), subscribe=tuple(lists["subscribe"])
    )


class OneAccount:
    """The folder with the keys, as it was left by `ccmctl init --security`, `node add` and `operator add`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, mode=0o700)
        prefixes = {
            "operator": nkeys.PREFIX_BYTE_OPERATOR,
            "account": nkeys.PREFIX_BYTE_ACCOUNT,
            "system": nkeys.PREFIX_BYTE_ACCOUNT,
        }
        self.seeds = {name: a_seed(prefix) for name, prefix in prefixes.items()}
        for name, seed in self.seeds.items():
            self._private(f"{name}.seed", seed + "\n")
        account, system = (public_key(Secret(self.seeds[name])) for name in ("account", "system"))
        operator = self.seeds["operator"]
        (folder / "nats-security.conf").write_text(
            f"operator: {operator_jwt(operator)}\n"
            f"system_account: {system}\n"
            "max_control_line: 65536\n"
            "resolver: MEMORY\n"
            f"resolver_preload: {{\n  {account}: {account_jwt(operator, account, 'ccm', stores=True)}\n"
            f"  {system}: {account_jwt(operator, system, 'system')}\n}}\n"
        )

    def give(self, name: str) -> Path:
        """Credentials of a user; the file."""
        made = user_credentials(Secret(self.seeds["account"]), name, old_permissions(name))
        line = {
            "kind": KINDS[name],
            "name": name,
            "public_key": made.public_key,
            "time": int(time.time()),
            "revoked": False,
        }
        with (self.folder / "users.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
        return self._private(f"{name}.creds", made.text.reveal())

    def _private(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_text(text)
        return path


async def make_old_streams(connection: Connection) -> None:
    """The streams of that time."""
    for config in recorded()["streams"]:
        await call(connection, f"STREAM.CREATE.{config['name']}", config)
