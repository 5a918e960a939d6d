#!/usr/bin/env python3
"""
Make a release: sdist, wheel, and a .deb and an .rpm of the programs and all that they need besides Python, with the bill of
materials of each.

    build.py [--out dist]               all, as far as this machine has dpkg-deb and rpmbuild
    build.py --machine aarch64          packages for another processor; repeat it for several
    build.py tree DIR [--version V]     only what goes into packages
    build.py reversion DIR --version V  call that another version
    build.py deb|rpm DIR OUT            one of them, of such a tree; the standard library is enough for this

A package is for the minor version of Python that builds it: compiled modules are. It asks for exactly that interpreter, by its
own name (`python3.11`), and for the C library that the wheels were built for. The same sources give the same bytes.
"""

from __future__ import annotations

import argparse
import compileall
import gzip
import json
import os
import platform
import py_compile
import re
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
NAME = "ccm-agent"
REVISION = "1"
LIBRARY = f"usr/lib/{NAME}"
BILL = f"usr/share/doc/{NAME}/sbom.cdx.json"
CONFIG = "etc/choria/ccm/config.yaml"
RPM_LICENSES = "usr/share/licenses"
DEB_DOCUMENTS = {
    "copyright": f"usr/share/doc/{NAME}/copyright",
    "changelog": f"usr/share/doc/{NAME}/changelog.Debian.gz",
    "lintian-overrides": f"usr/share/lintian/overrides/{NAME}",
}
PROGRAMS = {"ccm": "ccm_agent", "ccmctl": "ccm_ctl"}
COMPLETIONS = {
    "usr/share/bash-completion/completions/{}": "bash",
    "usr/share/zsh/vendor-completions/_{}": "zsh",  # where zsh of Debian looks
    "usr/share/zsh/site-functions/_{}": "zsh",  # where zsh of Fedora looks
    "usr/share/fish/vendor_completions.d/{}.fish": "fish",
}
DEB_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
TOOLS = {"deb": ("dpkg-deb", "dpkg"), "rpm": ("rpmbuild", "rpm")}


def main() -> int:
    """The exit status: 0 when a package was built."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=["tree", "reversion", "deb", "rpm"])
    parser.add_argument("tree", nargs="?", type=Path)
    parser.add_argument("into", nargs="?", type=Path)
    parser.add_argument("--out", type=Path, default=PROJECT / "dist")
    parser.add_argument("--version", default="", help="the version of the packages; default: the source's")
    parser.add_argument(
        "--machine",
        action="append",
        choices=sorted(DEB_ARCHITECTURES),
        help="build for this processor; may be repeated",
    )
    parser.add_argument("--fast", action="store_true", help="compress less: faster to build, but larger")
    args = parser.parse_args()
    if args.what == "tree":
        make_tree(args.tree, args.version)
        return 0
    if args.what == "reversion":
        set_version(args.tree, args.version)
        return 0
    if args.what:
        say(MAKERS[args.what](args.tree, args.into, args.fast))
        return 0
    return build_all(args.out, args.version, args.fast, args.machine or [platform.machine()])


def build_all(out: Path, version: str, fast: bool, machines: list[str]) -> int:
    """What this machine can build."""
    import vendor

    for machine in machines:
        vendor.strip_program(machine)
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", out.resolve()],
        cwd=PROJECT,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    say(f"{out}: sdist and wheel")
    built = 0
    for machine in machines:
        with tempfile.TemporaryDirectory() as folder:
            tree = Path(folder)
            make_tree(tree, version, machine)
            for kind, make in MAKERS.items():
                program, package = TOOLS[kind]
                if shutil.which(program):
                    say(make(tree, out, fast))
                    built += 1
                else:
                    say(f"no .{kind}: {program} is not installed; on Debian, apt-get install {package}")
            told, values = _told(tree)
            path = out / f"{NAME}-{values['version']}-{values['release']}.{told['machine']}.cdx.json"
            say(shutil.copyfile(tree / "root" / BILL, path))
    return 0 if built else 1


def say(what: object) -> None:
    """A line for who builds."""
    sys.stdout.write(f"{what}\n")


# ---- what goes in


def make_tree(folder: Path, version: str = "", machine: str = platform.machine()) -> None:
    """`root/`, the files as they are installed, and `package.json`, what the package managers are told."""
    import sbom
    import vendor

    root = folder / "root"
    library = root / LIBRARY
    library.mkdir(parents=True)
    native = distributions = vendor.needed(PROJECT)
    with tempfile.TemporaryDirectory() as fetched:
        if machine != platform.machine():
            distributions = vendor.for_machine(native, PROJECT, machine, Path(fetched))
        vendor.copy_needed(distributions, library)
        c_library = vendor.c_library(distributions)
    vendor.strip(library, machine)
    vendor.copy_ours(PROJECT, library)
    if commit := _git("rev-parse", "HEAD"):
        (library / "ccm_agent" / "commit.txt").write_text(f"{commit}\n")
    if machine == platform.machine():
        vendor.check(library)
    else:
        vendor.check_compiled(native, library)
    minor = f"{sys.version_info.major}.{sys.version_info.minor}"
    told = {
        "version": _version_of_sources(),
        "python": minor,
        "machine": machine,
        "c_library": c_library,
        "made_at": _made_at(),
    }
    (folder / "package.json").write_text(json.dumps(told, indent=2) + "\n")
    _add_programs(root, minor)
    _add_manual(root, told["made_at"])
    _add_files(root)
    (root / BILL).write_text(sbom.bill(PROJECT, native, told, told["made_at"]))
    _compile(library)
    if version:
        set_version(folder, version)
    _settle(root, told["made_at"])


def _version_of_sources() -> str:
    text = (PROJECT / "ccm_agent" / "version.py").read_text()
    found = re.search(r'^VERSION = "(.+)"$', text, re.MULTILINE)
    assert found is not None
    return found[1]


def set_version(folder: Path, version: str) -> None:
    """Have a tree say that it is another version, for who tries upgrades."""
    told = folder / "package.json"
    told.write_text(json.dumps(json.loads(told.read_text()) | {"version": version}, indent=2) + "\n")
    path = folder / "root" / LIBRARY / "ccm_agent" / "version.py"
    path.write_text(
        re.sub(r'^VERSION = ".+"$', f'VERSION = "{version}"', path.read_text(), flags=re.MULTILINE)
    )
    _compile(path.parent, f"/{LIBRARY}/ccm_agent", levels=0, again=True)


def _made_at() -> int:
    """The time of every file in seconds since 1970: that of the last commit, unless SOURCE_DATE_EPOCH is set."""
    if told := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(told)
    return int(_git("log", "-1", "--format=%ct") or 0)


def _git(*words: str) -> str:
    """What git prints about the sources; "" outside of a repository."""
    done = subprocess.run(["git", *words], cwd=PROJECT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def _add_programs(root: Path, minor: str) -> None:
    """`/usr/bin/ccm` and `/usr/bin/ccmctl`, with their completion for three shells."""
    text = (HERE / "program.in").read_text()
    for program, package in PROGRAMS.items():
        path = root / "usr/bin" / program
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            _filled(text, python=f"/usr/bin/python{minor}", package=package, library=f"/{LIBRARY}")
        )
        path.chmod(0o755)
        for place, shell in COMPLETIONS.items():
            script = root / place.format(program)
            script.parent.mkdir(parents=True, exist_ok=True)
            script.write_text(_completion(program, package, shell))


def _completion(program: str, package: str, shell: str) -> str:
    """What a shell sources to complete a program's commands."""
    argv = [program, "completion", shell]
    script = f"import sys; sys.argv = {argv!r}; from {package}.__main__ import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=PROJECT,
        env={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def _add_manual(root: Path, made_at: int) -> None:
    """A man page for each command."""
    import manual

    folder = root / "usr/share/man/man1"
    folder.mkdir(parents=True)
    for name, text in manual.manual(made_at).items():
        # no name and no time within, so the same page gives the same bytes
        (folder / f"{name}.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def _add_files(root: Path) -> None:
    """The unit, the configuration, the documents."""
    for source, target in {
        "deploy/systemd/ccm-agent.service": "usr/lib/systemd/system/ccm-agent.service",
        "deploy/packages/config.yaml": CONFIG,
        "deploy/examples/agent.yaml": f"usr/share/doc/{NAME}/examples/agent.yaml",
        "deploy/examples/policy.yaml": f"usr/share/doc/{NAME}/examples/policy.yaml",
        "LICENSE": f"{RPM_LICENSES}/{NAME}/LICENSE",
    }.items():
        (root / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(PROJECT / source, root / target)


def _compile(folder: Path, shown: str = f"/{LIBRARY}", *, levels: int = 50, again: bool = False) -> None:
    """Byte code beside every module, good whatever the time of the file: nothing is written there later."""
    fine = compileall.compile_dir(
        folder,
        maxlevels=levels,
        force=again,
        stripdir=folder,
        prependdir=shown,
        quiet=1,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    if not fine:
        raise SystemExit("a module does not compile")


def _settle(root: Path, made_at: int) -> None:
    """The same modes and times wherever and whenever it is built."""
    for path in [root, *root.rglob("*")]:
        is_program = path.is_dir() or path.parent == root / "usr/bin"
        # a source of manifests may have a password in its URL
        path.chmod(0o755 if is_program else 0o640 if path == root / CONFIG else 0o644)
        os.utime(path, (made_at, made_at))


def _filled(text: str, **values: str) -> str:
    for name, value in values.items():
        text = text.replace(f"@{name.upper()}@", value)
    return text


# ---- what comes out


def make_deb(tree: Path, out: Path, fast: bool = False) -> Path:
    """A package for Debian and what comes of it."""
    told, values = _told(tree)
    architecture = DEB_ARCHITECTURES.get(told["machine"], told["machine"])
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{NAME}_{values['version']}-{values['release']}_{architecture}.deb"
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        # a .deb contains no byte code: postinst writes it, and prerm removes it
        left_out = shutil.ignore_patterns("__pycache__", Path(RPM_LICENSES).name)
        shutil.copytree(tree / "root", root, symlinks=True, ignore=left_out)
        _add_deb_documents(root, values, told["made_at"])
        control = root / "DEBIAN"
        control.mkdir()
        size = sum(file.stat().st_size for file in root.rglob("*") if file.is_file()) // 1024
        for source in sorted((HERE / "debian").iterdir()):
            text = _filled(source.read_text(), **values, architecture=architecture, size=str(size))
            (control / source.name).write_text(text)
            (control / source.name).chmod(0o755 if text.startswith("#!") else 0o644)
        (control / "conffiles").write_text(f"/{CONFIG}\n")
        packing = ["-Zgzip", "-z1"] if fast else ["-Zxz"]
        _run("dpkg-deb", "--root-owner-group", *packing, "--build", root, path, made_at=told["made_at"])
    return path


def _add_deb_documents(root: Path, values: dict[str, str], made_at: int) -> None:
    """What Debian's policy wants of every package."""
    date = format_datetime(datetime.fromtimestamp(made_at, UTC))
    for name, target in DEB_DOCUMENTS.items():
        content = _filled((HERE / "debian-docs" / name).read_text(), **values, date=date).encode()
        path = root / target
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    _settle(root, made_at)


def make_rpm(tree: Path, out: Path, fast: bool = False) -> Path:
    """A package for Fedora, RHEL and what comes of them."""
    told, values = _told(tree)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder) / f"{NAME}.spec"
        text = (HERE / "rpm" / f"{NAME}.spec").read_text()
        spec.write_text(_filled(text, **values, tree=str((tree / "root").resolve())))
        defines = {
            "_topdir": folder,
            "_rpmdir": folder,
            "_build_name_fmt": "%{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm",
            "_buildhost": "localhost",
            "use_source_date_epoch_as_buildtime": "1",
            "clamp_mtime_to_source_date_epoch": "1",
            "_binary_payload": "w1.gzdio" if fast else "w7.xzdio",
        }
        given = [word for name, value in defines.items() for word in ("--define", f"{name} {value}")]
        _run("rpmbuild", "-bb", "--quiet", "--target", told["machine"], *given, spec, made_at=told["made_at"])
        (built,) = Path(folder).glob("*.rpm")
        return Path(shutil.move(built, out / built.name))


MAKERS = {"deb": make_deb, "rpm": make_rpm}


def _told(tree: Path) -> tuple[dict[str, str], dict[str, str]]:
    """What `package.json` says, and the words of the templates."""
    told = json.loads((tree / "package.json").read_text())
    # a pre-release is older than its release: 1.0rc1 is written 1.0~rc1
    version = re.sub(r"[.-]?(a|b|rc|dev)(?=\d)", r"~\1", told["version"])
    release = f"{REVISION}.py{told['python'].replace('.', '')}"
    values = {
        "version": version,
        "release": release,
        "minor": told["python"],
        "c_library": told["c_library"] or "2.17",
        "library": f"/{LIBRARY}",
    }
    return told, values


def _run(*words: object, made_at: int) -> None:
    environ = os.environ | {"SOURCE_DATE_EPOCH": str(made_at), "LC_ALL": "C"}
    done = subprocess.run(
        [str(word) for word in words], env=environ, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{words[0]} ended with {done.returncode}:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    sys.exit(main())
