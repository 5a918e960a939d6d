"""The demo: a broker, three agents, a manifest for the web nodes, an undo, and the dashboard."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from ccm_agent.testing.nats_server import NatsServer
from ccm_ctl.demo import processes

BROKER_VARIABLES = ("CCM_SERVER", "CCM_CONTEXT", "NATS_CONTEXT", "CCM_CREDS", "NATS_CREDS")
"""Variables that the demo ignores, because it uses its own broker."""

NODES = {"web1": "web", "web2": "web", "db1": "db"}
"""The nodes with their roles."""

MANIFEST = """\
# All three nodes are on one machine here: each has a folder of its own.
ccm:
  resources:
    - file:
        - "{{ lookup('facts.demo') }}/motd":
            ensure: present
            content: "{{ lookup('facts.name') }} has role={{ lookup('facts.role') }}\\n"
            owner: OWNER
            group: GROUP
            mode: "0644"
"""


class DemoOptions(Struct, frozen=True, kw_only=True):
    """
    Options of the demo.

    Attributes:
        is_secure: Whether each node and the operator have credentials.
        keep: Whether to leave everything running at the end.
        wait: Called while everything is running, before it is stopped. None stops it immediately.
    """

    is_secure: bool = False
    keep: bool = False
    wait: Callable[[], None] | None = None


class Demo:
    """
    A demo in a new folder below the system's temporary folder.

    Args:
        options: The options.
        write: Prints text for the user.
    """

    def __init__(self, options: DemoOptions, write: Callable[[str], None]) -> None:
        self._options = options
        self._write = write
        self._directory = Path(tempfile.mkdtemp(prefix="ccm-demo-"))
        self._variables = {name: text for name, text in os.environ.items() if name not in BROKER_VARIABLES}
        self._server: NatsServer | None = None
        self._agents: dict[str, subprocess.Popen[bytes]] = {}
        self._dashboard: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Run the whole demo. Started processes are stopped at the end, unless `keep` is set."""
        is_kept = False
        try:
            self._start()
            self._show_runs()
            self._show_undo()
            self._show_dashboard()
            is_kept = self._options.keep
            if not is_kept and self._options.wait:
                self._options.wait()
        finally:
            if not is_kept:
                self._stop()

    def _start(self) -> None:
        keys = self._directory / "keys"
        self._variables["CCM_KEYS"] = str(keys)
        security = ["--security"] if self._options.is_secure else []
        extra = ""
        if security:
            self._variables["CCM_OPERATOR"] = "demo"
            self._say("creating keys")
            self._ccmctl("init", *security)
            extra = (keys / "nats-security.conf").read_text()
            self._variables["CCM_CREDS"] = str(keys / "demo.creds")
        self._say("starting a broker: nats-server with JetStream")
        program, is_new = processes.server_program()
        if is_new:
            self._write(f"downloaded nats-server to {program}\n")
        self._server = processes.broker(self._directory, program, extra)
        self._variables["NATS_URL"] = self._server.url
        self._say("creating streams and buckets")
        self._ccmctl("init", *security)
        self._say(f"starting {len(NODES)} agents: {', '.join(NODES)}")
        for name in NODES:
            self._agents[name] = processes.start_agent(self._directory, name, self._connection(name))
        processes.wait_present(self._directory, self._variables, self._agents)
        for role in dict.fromkeys(NODES.values()):
            self._ccmctl(
                "facts", "set", *(name for name, one in NODES.items() if one == role), f"role={role}"
            )
        self._ccmctl("node", "list")

    def _connection(self, name: str) -> dict[str, str]:
        """Return the `nats` section of a node's configuration. With security, this also creates the node's credentials."""
        assert self._server is not None
        if not self._options.is_secure:
            return {"url": self._server.url}
        path = self._directory / f"{name}.creds"
        self._write(f"$ ccmctl node add {name} > {name}.creds\n")
        path.touch(0o600)
        path.write_text(processes.run_ccmctl(self._variables, "node", "add", name))
        return {"url": self._server.url, "creds": str(path)}

    def _show_runs(self) -> None:
        manifest = self._directory / "motd.yaml"
        manifest.write_text(
            MANIFEST.replace("OWNER", f'"{os.getuid()}"').replace("GROUP", f'"{os.getgid()}"')
        )
        self._say("one manifest, to the web nodes")
        self._write(f"{manifest.read_text()}\n")
        self._ccmctl("apply", str(manifest), "--targets", "role=web", "--noop")
        self._ccmctl("apply", str(manifest), "--targets", "role=web", "--yes")
        self._say("the same again: nothing is left to do")
        self._ccmctl("apply", str(manifest), "--targets", "role=web", "--yes")
        self._show_files()

    def _show_undo(self) -> None:
        self._say("the same on db1, and an undo of that run")
        self._ccmctl("apply", str(self._directory / "motd.yaml"), "--targets", "role=db", "--yes")
        self._ccmctl("undo", "last", "--yes")
        self._show_files()
        if self._options.is_secure:
            self._say("is the fleet secure and healthy?")
            self._ccmctl("doctor")

    def _show_files(self) -> None:
        self._say("the files on the nodes")
        for name in NODES:
            motd = self._directory / name / "files" / "motd"
            self._write(f"  {name}: {motd.read_text().strip() if motd.exists() else '(no file)'}\n")

    def _show_dashboard(self) -> None:
        self._dashboard, address = processes.start_dashboard(self._directory, self._variables)
        self._say("the fleet in a browser, with a one-time URL")
        self._write(
            f"  {address or 'the dashboard did not start: ' + str(self._directory / 'dashboard.err')}\n"
        )
        if self._options.keep or self._options.wait:
            self._say("more to try, in another terminal")
            self._write(self._next_steps())

    def _next_steps(self) -> str:
        names = ("CCM_KEYS", "CCM_CREDS", "NATS_URL")
        exports = " ".join(f"{name}={self._variables[name]}" for name in names if name in self._variables)
        program = Path(sys.executable).with_name("ccmctl")
        lines = [
            f"export {exports}",
            f"alias ccmctl={shlex.quote(str(program)) if program.exists() else f'{sys.executable} -m ccm_ctl'!r}",
            f"ccmctl apply {self._directory}/motd.yaml --targets role=db --diff",
            "ccmctl events",
        ]
        if self._options.keep:
            assert self._server is not None
            started = [self._server.pid, *(agent.pid for agent in self._agents.values())]
            started += [self._dashboard.pid] if self._dashboard else []
            lines.append(f"kill {' '.join(map(str, started))}; rm -r {self._directory}    # end the demo")
        return "".join(f"  {line}\n" for line in lines)

    def _say(self, text: str) -> None:
        self._write(f"== {text}\n")

    def _ccmctl(self, *words: str) -> None:
        """Run a command, and show it as if the user had typed it."""
        self._write(f"$ ccmctl {shlex.join(words)}\n")
        processes.show_ccmctl(self._variables, *words)
        self._write("\n")

    def _stop(self) -> None:
        """Stop the processes that this demo started, and no others."""
        if self._server is not None:
            self._say("stopping the demo")
        processes.end(*([self._dashboard] if self._dashboard else []), *self._agents.values())
        if self._server is not None:
            self._server.stop()
        shutil.rmtree(self._directory, ignore_errors=True)
