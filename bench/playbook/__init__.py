"""
A playbook of thirty tasks and the equivalent manifest: the resulting states of two containers, and the time of each.

Ansible comes from PyPI, and is installed into `.cache/comparison`, as for `ansible`.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import time
from pathlib import Path

from bench.ansible import ENVIRONMENT, HOME, install
from bench.measure import BIN, TOP, Line
from bench.playbook.state import differences

sys.path.insert(0, str(TOP / "tests/testenv"))
import testenv

HERE = Path(__file__).parent
COMMANDS = {
    "ansible": [str(HOME / "ansible/bin/ansible-playbook"), "-i", "localhost,", "playbook.yaml"],
    "ccm": [str(BIN / "ccm"), "apply", "manifest.yaml"],
}
CHANGES_NOTHING = {"ansible": "changed=0 ", "ccm": " Changed Resources: 0\n"}
LIMIT_S = 600
SETUP = """\
set -e
echo 'deb [trusted=yes] file:/srv/debian ./' > /etc/apt/sources.list
apt-get update -q
apt-get install -y -q python3-apt cmtest-tool
systemd-run -q --unit=downloads python3 -m http.server 8000 --directory /root/downloads
"""
PROGRAMS = {"app": "#!/bin/sh\nexec sleep infinity\n", "setup": '#!/bin/sh\necho ready > "$1"\n'}


def lines(text: str) -> int:
    """Return the number of lines of a document that are neither empty nor comments."""
    return sum(1 for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))


def release() -> bytes:
    """Return the archive that both unpack."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in PROGRAMS.items():
            entry = tarfile.TarInfo(f"1.0/bin/{name}")
            entry.size, entry.mode = len(text), 0o755
            archive.addfile(entry, io.BytesIO(text.encode()))
    return packed.getvalue()


def machine(lab: testenv.Lab, name: str, packages: Path) -> testenv.Node:
    """Start a container with the prerequisites of both programs."""
    prefixes = {sys.prefix, sys.base_prefix} - {"/usr"}  # containers have their own Python there
    binds = {path: path for path in sorted(prefixes) if not path.startswith(f"{TOP}/")} | {str(TOP): str(TOP)}
    node = lab.create(name, {**binds, str(packages): "/srv/debian"})
    node.path("/etc/hosts").write_text("127.0.0.1 localhost\n")
    node.start()
    node.path("/root/downloads").mkdir()
    node.path("/root/downloads/app-1.0.tar.gz").write_bytes(release())
    node.run("sh", "-c", SETUP, timeout=LIMIT_S)
    return node


def run_twice(node: testenv.Node, program: str) -> list[float]:
    """Run a program's document twice, and return the seconds of each run. The second run must change nothing."""
    settings = [f"{name}={value}" for name, value in ENVIRONMENT.items()]
    command, took = ["env", "-C", str(HERE), *settings, *COMMANDS[program]], []
    for _ in range(2):
        began = time.perf_counter()
        done = node.run(*command, check=False, timeout=LIMIT_S)
        took.append(time.perf_counter() - began)
        if done.returncode:
            raise RuntimeError(
                f"{program} ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}"
            )
    if CHANGES_NOTHING[program] not in done.stdout:
        raise RuntimeError(f"the second run of {program} changed something: {done.stdout[-2000:]}")
    return took


def measure() -> list[Line]:
    """Compare both documents."""
    if why := testenv.missing():
        raise RuntimeError(f"machines cannot run here: {why}")
    install()
    base, took = testenv.ensure_base(), {}
    script = ["bash", str(TOP / "tests/testenv/packages/fetch-debs.sh"), str(base)]
    packages = Path(subprocess.run(script, check=True, capture_output=True, text=True).stdout.strip())
    with testenv.Lab(base) as lab:
        nodes = {program: machine(lab, f"playbook-{program}", packages) for program in COMMANDS}
        for program, node in nodes.items():
            took[program] = run_twice(node, program)
        compared, found = differences(nodes["ansible"], nodes["ccm"])
    for one in found:
        print(f"     {one}")
    ours, theirs = (lines((HERE / name).read_text()) for name in ("manifest.yaml", "playbook.yaml"))
    tasks = (HERE / "playbook.yaml").read_text().split("  handlers:")[0].count("\n    - name: ")
    return [
        Line(
            f"differences after {tasks} tasks and the manifest",
            len(found),
            "lines",
            0,
            f"{compared} changed paths",
        ),
        Line("lines of the manifest", ours / theirs, "times", 1, f"{ours} against {theirs} of the playbook"),
        *(
            Line(
                f"ccm apply of the manifest, {label}",
                mine / his,
                "times",
                1,
                f"{mine:.1f} s against {his:.1f} s",
            )
            for label, mine, his in zip(
                ("first run", "second run"), took["ccm"], took["ansible"], strict=True
            )
        ),
    ]
