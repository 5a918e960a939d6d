"""
Local applies: 1,000 and 10,000 unchanged files, writing 1,000 files, 200 guarded commands, compared with CFEngine's cf-agent.
"""

from __future__ import annotations

import getpass
import grp
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.measure import BIN, Line, ratio, seconds, side_by_side

ROUNDS = 7
IN_MEMORY = Path("/dev/shm")
"""A file system on which fsync takes no time, because `ccm` syncs each file and its directory, and cf-agent syncs nothing."""
FILES, MANY_FILES, EXECS = 1000, 10_000, 200
FLOOR = """
import hashlib, os, sys
for name in os.listdir(sys.argv[1]):
    path = os.path.join(sys.argv[1], name)
    os.stat(path)
    with open(path, "rb") as file:
        hashlib.sha256(file.read()).hexdigest()
"""


def content(i: int) -> str:
    """Return 64 to 256 bytes, which differ for each file."""
    return (f"setting_{i} = value {i}\n" * 12)[: 63 + i % 193] + "\n"


def lay_files(folder: Path, count: int) -> tuple[Path, Path]:
    """Write files in the desired state, and the corresponding manifest and CFEngine policy."""
    files = folder / f"files{count}"
    files.mkdir()
    user, group = getpass.getuser(), grp.getgrgid(os.getgid()).gr_name
    manifest = ["ccm:", "  resources:", "    - file:"]
    policy = ["body common control { bundlesequence => { main }; }", "bundle agent main {", "  files:"]
    for i in range(count):
        path = files / str(i)
        path.write_text(content(i))
        path.chmod(0o644)
        text = content(i).replace("\n", "\\n")
        manifest.append(
            f'        - {path}: {{ensure: present, owner: {user}, group: {group}, mode: "0644", content: "{text}"}}'
        )
        lines = content(i).removesuffix("\n")
        policy.append(
            f'    "{path}" create => "true", perms => own, edit_defaults => whole, edit_line => insert("{lines}");'
        )
    policy += [
        "}",
        f'body perms own {{ owners => {{ "{user}" }}; groups => {{ "{group}" }}; mode => "0644"; rxdirs => "false"; }}',
        'body edit_defaults whole { empty_file_before_editing => "true"; edit_backup => "false"; }',
        'bundle edit_line insert(text) { insert_lines: "$(text)" insert_type => "preserve_block"; }',
    ]
    return write(folder / f"files{count}.yaml", manifest), write(folder / f"files{count}.cf", policy)


def lay_execs(folder: Path, count: int) -> tuple[Path, Path]:
    """Write commands whose guard skips them."""
    manifest = ["ccm:", "  resources:", "    - exec:"]
    policy = ["body common control { bundlesequence => { main }; }", "bundle agent main {", "  commands:"]
    for i in range(count):
        manifest.append(f"        - run {i}: {{command: /bin/true {i}, creates: {folder}/done}}")
        policy.append(f'    "/bin/true {i}" if => not(fileexists("{folder}/done"));')
    (folder / "done").touch()
    return write(folder / f"execs{count}.yaml", manifest), write(folder / f"execs{count}.cf", [*policy, "}"])


def write(path: Path, lines: list[str]) -> Path:
    """Write a file that only its owner can read, as cf-agent requires for its policy."""
    path.write_text("\n".join(lines) + "\n")
    path.chmod(0o600)
    return path


def cfengine(home: Path) -> Callable[[Path], float]:
    """Return a function that times cf-agent on a policy, with its own state directory."""
    env = {"CFENGINE_TEST_OVERRIDE_WORKDIR": str(home)}
    home.mkdir(mode=0o700)
    for part in ("inputs", "outputs", "state", "ppkeys", "bin"):
        (home / part).mkdir(mode=0o700)
    for program in ("cf-promises", "cf-agent", "cf-key"):
        (home / "bin" / program).symlink_to(shutil.which(program) or program)
    seconds(["cf-key"], env=env)
    return lambda policy: seconds(["cf-agent", "-KIf", str(policy)], env=env)


def prove(run: Callable[[], object], file: Path) -> None:
    """Check that a program does the work: it must repair a changed file."""
    right = file.read_text()
    file.write_text("wrong\n")
    run()
    if file.read_text() != right:
        raise RuntimeError(f"{file} was not repaired, so there is nothing to compare")


def without_files(folder: Path, run: Callable[[], float]) -> float:
    """Time a run that must write all files of a folder."""
    for file in folder.iterdir():
        file.unlink()
    return run()


def measure_writing(cf: Callable[[Path], float]) -> Line:
    """Measure writing files with the same durability for both programs: none."""
    ccm = str(BIN / "ccm")
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as name:
        manifest, policy = lay_files(Path(name), FILES)
        files = Path(name) / f"files{FILES}"
        ours, theirs = side_by_side(
            ROUNDS,
            lambda: without_files(files, lambda: seconds([ccm, "apply", str(manifest)])),
            lambda: without_files(files, lambda: cf(policy)),
        )
    return ratio(f"ccm apply that writes {FILES} files in memory", ours, theirs, 1.0, "cf-agent -KIf")


def measure() -> list[Line]:
    """Measure the budgets of local applies."""
    if not shutil.which("cf-agent"):
        raise RuntimeError("no cf-agent to compare with; on Debian: apt-get install cfengine3")
    ccm = str(BIN / "ccm")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cf = cfengine(folder / "cfengine")
        manifest, policy = lay_files(folder, FILES)
        many, _ = lay_files(folder, MANY_FILES)
        wrong = folder / f"files{FILES}" / "5"
        prove(lambda: cf(policy), wrong)
        prove(lambda: seconds([ccm, "apply", str(manifest)]), wrong)
        ours, theirs, floor, ten = side_by_side(
            ROUNDS,
            lambda: seconds([ccm, "apply", str(manifest)]),
            lambda: cf(policy),
            lambda: seconds([sys.executable, "-c", FLOOR, str(folder / f"files{FILES}")]),
            lambda: seconds([ccm, "apply", str(many)]),
        )
        one, some = lay_execs(folder, 1), lay_execs(folder, EXECS)
        our_one, our_some, their_one, their_some = side_by_side(
            ROUNDS,
            lambda: seconds([ccm, "apply", str(one[0])]),
            lambda: seconds([ccm, "apply", str(some[0])]),
            lambda: cf(one[1]),
            lambda: cf(some[1]),
        )
        writing = measure_writing(cf)
    # the difference of two noisy times may be zero or negative
    difference = max(their_some - their_one, 0.001)
    return [
        ratio(f"ccm apply of {FILES} right files", ours, theirs, 1.0, "cf-agent -KIf"),
        ratio("the same", ours, floor, None, "Python that stats, reads and hashes them"),
        ratio(f"{MANY_FILES} files", ten, ours, 10.5, f"ccm apply of {FILES}"),
        writing,
        ratio(f"{EXECS} guarded execs less one", our_some - our_one, difference, 2.5, "the same of cf-agent"),
    ]
