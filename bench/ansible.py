"""
Users, sysctls, edits, services and units compared with Ansible and Salt, in a container: a first run, and a run without changes.

Both come from PyPI, and are installed into `.cache/comparison`. Ansible runs with its best options: a local connection,
pipelining, no facts, no discovery of Python, one loop instead of a task for each item, and no output for unchanged items. It
needs minutes for a thousand items, so it is measured with two smaller numbers, and the rest is computed from the slope. Salt
uses cached grains and plain YAML without Jinja, and prints nothing.

`BENCH_ROUNDS` sets the number of rounds [3], `BENCH_KINDS=users,edits` chooses kinds.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import yaml

from bench.ansible_kinds import KINDS, Kind
from bench.measure import BIN, TOP, Line
from bench.services import in_machine

HOME = TOP / ".cache/comparison"
ANSIBLE_CORE, COLLECTIONS, SALT = "ansible-core==2.19.14", "ansible==12.3.0", "salt==3008.4"
FEW, MORE = 10, 30
"""The numbers of items in Ansible's two runs."""

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
LIMIT_S = 3 * 60 * 60
FASTER_THAN_ANSIBLE = 20
ENVIRONMENT = {
    "ANSIBLE_COLLECTIONS_PATH": str(HOME / "collections"),
    "ANSIBLE_DISPLAY_OK_HOSTS": "false",
    "ANSIBLE_NO_TARGET_SYSLOG": "true",
    "ANSIBLE_PIPELINING": "true",
    "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
}


Spent = tuple[float, float]
"""Elapsed seconds, and CPU seconds including all child processes."""

Taken = dict[str, dict[str, list[Spent]]]
"""The times by program and phase."""


def spent(command: list[str]) -> Spent:
    """Run a command, which must succeed, and return its times."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(command)} ended with {done.returncode}: {(done.stdout + done.stderr)[-800:]}"
        )
    return wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def commands(kind: Kind, folder: Path) -> dict[str, tuple[list[str], int]]:
    """Return each program's command, with the number of items that it manages."""
    manifest, play, states = folder / "m.yaml", folder / "play.yaml", folder / "states"
    manifest.write_text(yaml.safe_dump({"ccm": {"resources": kind.ours}}, sort_keys=False))
    found = {"ccm": ([str(BIN / "ccm"), "apply", str(manifest)], kind.count)}
    if (HOME / "salt/bin/salt-call").exists():
        states.mkdir()
        (states / "all.sls").write_text("#!yaml\n" + yaml.safe_dump(kind.salt, sort_keys=False))
        options = {
            "file_client": "local",
            "id": "bench",
            "root_dir": str(folder / "salt"),
            "grains_cache": True,
        }
        options |= {
            "enable_fqdns_grains": False,
            "enable_gpu_grains": False,
            "file_roots": {"base": [str(states)]},
        }
        (folder / "minion").write_text(yaml.safe_dump(options))
        call = [str(HOME / "salt/bin/salt-call"), "--local", "-c", str(folder), "-l", "quiet", "--out=quiet"]
        found["salt"] = ([*call, "--retcode-passthrough", "state.apply", "all"], kind.count)
    if kind.task:
        for count in (FEW, MORE):
            tasks = [{**kind.task, "loop": kind.items[:count], "loop_control": {"label": "item"}}]
            text = [{"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks}]
            book = play.with_suffix(f".{count}.yaml")
            book.write_text(yaml.safe_dump(text, sort_keys=False))
            call = [str(HOME / "ansible/bin/ansible-playbook"), "-i", "localhost,", str(book)]
            found[f"ansible {count}"] = (call, count)
    return found


def warm_ups(programs: dict[str, tuple[list[str], int]]) -> Iterator[list[str]]:
    """Return a command with little or no work for each program."""
    for program, (command, count) in programs.items():
        if program == "salt":
            yield [*command[:-2], "test.true"]
        elif count != MORE:
            yield [command[0], "--version"]


def inside(name: str) -> tuple[int, Taken]:
    """Return how many changes a kind has, and each program's times for first runs and for runs without changes."""
    os.environ.update(ENVIRONMENT)
    kind = KINDS[name]()
    taken: Taken = {}
    with tempfile.TemporaryDirectory() as folder:
        programs = commands(kind, Path(folder))
        for command in warm_ups(programs):  # reads and compiles files, and caches grains
            spent(command)
        for _ in range(ROUNDS):
            for program, (command, count) in programs.items():
                kind.reset()
                times = taken.setdefault(program, {"first": [], "again": []})
                for phase in ("first", "again"):
                    times[phase].append(spent(command))
                    if (right := kind.done()) != count:
                        raise RuntimeError(f"{program} corrected only {right} of {count} {name}")
    return kind.count, taken


def install() -> None:
    """Install both programs, each in its own environment. Salt may be missing, because it cannot be installed everywhere."""
    for name, what in (("ansible", ANSIBLE_CORE), ("salt", SALT)):
        folder = HOME / name
        if (folder / ".complete").exists():
            continue
        venv.create(folder, with_pip=True, clear=True)
        done = subprocess.run(
            [str(folder / "bin/pip"), "install", "--quiet", what], check=False, capture_output=True, text=True
        )
        if done.returncode and name == "ansible":
            raise RuntimeError(f"{what} could not be installed: {done.stderr.strip()[-500:]}")
        (folder / ".complete").touch()
    collection = "ansible_collections/ansible/posix/"
    if not (HOME / "collections" / collection).exists():
        with tempfile.TemporaryDirectory() as downloads:
            pip = [str(HOME / "ansible/bin/pip"), "download", "--quiet", "--no-deps"]
            subprocess.run([*pip, "--dest", downloads, COLLECTIONS], check=True)
            (wheel,) = Path(downloads).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                members = [member for member in archive.namelist() if member.startswith(collection)]
                archive.extractall(HOME / "collections", members)


def measure() -> list[Line]:
    """Measure the budgets in comparison with Ansible and Salt."""
    chosen = os.environ.get("BENCH_KINDS", ",".join(KINDS)).split(",")
    install()
    lines = []
    for name in chosen:
        settings = [f"BENCH_ROUNDS={ROUNDS}"]
        count, taken = json.loads(in_machine("bench.ansible", name, settings=settings, limit_s=LIMIT_S))
        lines += compared(name, count, taken)
    return lines


def medians(times: list[Spent]) -> Spent:
    """Return the median of the elapsed time and of the CPU time."""
    return statistics.median(wall for wall, _ in times), statistics.median(cpu for _, cpu in times)


def compared(name: str, count: int, taken: Taken) -> list[Line]:
    """Return a line for each phase and program."""
    lines = []
    for phase, label in (("first", "changed"), ("again", "that are right")):
        ours = medians(taken["ccm"][phase])
        theirs = {}
        if "salt" in taken:
            theirs["salt-call --local"] = (medians(taken["salt"][phase]), 1.0)
        if f"ansible {MORE}" in taken:
            few, more = (medians(taken[f"ansible {items}"][phase]) for items in (FEW, MORE))
            wall, cpu = (
                high + max(high - low, 0) / (MORE - FEW) * (count - MORE)
                for low, high in zip(few, more, strict=True)
            )
            what = f"Ansible ({FEW} take {few[0]:.1f} s, {MORE} take {more[0]:.1f} s)"
            theirs[what] = ((wall, cpu), 1 / FASTER_THAN_ANSIBLE)
        for what, ((wall, cpu), limit) in theirs.items():
            against = f"{ours[0]:.2f} s, {ours[1]:.2f} s of CPU, against {wall:.1f} s, {cpu:.1f} s of CPU, of {what}"
            title = f"ccm apply of {count} {name.replace('_', ' ')} {label}"
            lines.append(Line(title, ours[0] / wall, "times", limit, against))
    return lines


if __name__ == "__main__":
    print(json.dumps(inside(sys.argv[1])))
