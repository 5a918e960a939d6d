"""Services: 200 unchanged services, compared with one systemctl show for them and with an empty apply, in a container."""

from __future__ import annotations

import compileall
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.measure import BIN, TOP, Line, ratio, seconds, side_by_side

SERVICES, ROUNDS = 200, 11
PROPERTIES = "Id,LoadState,ActiveState,SubState,UnitFileState,NeedDaemonReload"
UNIT = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"


def measure() -> list[Line]:
    """Measure the budget of services."""
    ours, shown, empty = json.loads(in_machine("bench.services"))
    what = "one systemctl show and an apply of nothing"
    return [ratio(f"ccm apply of {SERVICES} services that are right", ours, shown + empty, 1.5, what)]


def in_machine(module: str, *arguments: str, settings: Sequence[str] = (), limit_s: float = 600) -> str:
    """Run a module in its own container, and return its output. Starting the container is not part of the measurement."""
    sys.path.insert(0, str(TOP / "tests/testenv"))
    import testenv

    if why := testenv.missing():
        raise RuntimeError(f"machines cannot run here: {why}")
    # a container cannot write here, so it would compile our modules again at each start
    compileall.compile_dir(TOP / "ccm_agent", quiet=1)
    prefixes = {sys.prefix, sys.base_prefix, str(TOP)}
    binds = {path: path for path in prefixes if not any(path.startswith(f"{other}/") for other in prefixes)}
    command = ["env", f"PYTHONPATH={TOP}", *settings, sys.executable, "-m", module, *arguments]
    with testenv.Lab(testenv.ensure_base()) as lab:
        (node,) = lab.nodes("bench", binds=binds)
        done = node.run(*command, timeout=limit_s)
    return str(done.stdout)


def inside() -> list[float]:
    """Return medians, measured in a container in which units are created: the services, one systemctl show, an empty apply."""
    names = [f"bench-{number}" for number in range(SERVICES)]
    for name in names:
        Path(f"/etc/systemd/system/{name}.service").write_text(UNIT)
    for verb in (["daemon-reload"], ["enable", "--quiet", *names], ["start", *names]):
        subprocess.run(["systemctl", *verb], check=True)
    with tempfile.TemporaryDirectory() as folder:
        manifest, nothing = Path(folder, "services.yaml"), Path(folder, "nothing.yaml")
        rows = "".join(f"        - {name}: {{ensure: running, enable: true}}\n" for name in names)
        manifest.write_text(f"ccm:\n  resources:\n    - service:\n{rows}")
        nothing.write_text("ccm:\n  resources:\n    - exec: [{/bin/true: {refreshonly: true}}]\n")
        return side_by_side(
            ROUNDS,
            lambda: seconds([str(BIN / "ccm"), "apply", str(manifest)]),
            lambda: seconds(["systemctl", "show", f"--property={PROPERTIES}", "--", *names]),
            lambda: seconds([str(BIN / "ccm"), "apply", str(nothing)]),
        )


if __name__ == "__main__":
    print(json.dumps(inside()))
