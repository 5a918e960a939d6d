"""The site of deploy/examples with containers, on Debian 13 with podman: its plan, applied, in use, stable and repaired."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import testenv

from tests.host.test_example_sites import SITES, Run, check_applied, check_readme

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]

START = "import runpy, signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit())\nrunpy.run_path('/counter.py')\n"
SITE = "app-in-containers"
DATABASE = ("redis-server", "redis-tools", "libatomic1", "libjemalloc2", "liblzf1")


def make_image(base: Path, debian_packages: Path, folder: Path) -> None:
    """Write the files of an image with Redis and the application, from Debian's packages."""
    for package in DATABASE:
        (deb,) = debian_packages.glob(f"{package}_*.deb")
        subprocess.run(["dpkg-deb", "-x", deb, folder], check=True)
    for library in ("python3.11", "x86_64-linux-gnu"):
        ignored = shutil.ignore_patterns("test", "__pycache__", "perl*", "gconv", "systemd", "security")
        target = folder / "usr/lib" / library
        shutil.copytree(base / "usr/lib" / library, target, symlinks=True, ignore=ignored, dirs_exist_ok=True)
    shutil.copy(base / "usr/bin/python3.11", folder / "usr/bin/python3.11")
    shutil.copytree(base / "usr/lib64", folder / "usr/lib64", symlinks=True, dirs_exist_ok=True)
    for name in ("lib", "lib64"):
        if (folder / name).is_dir():
            shutil.copytree(folder / name, folder / "usr" / name, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(folder / name)
        (folder / name).symlink_to(f"usr/{name}")
    shutil.copy(SITES / "app-and-database/counter.py", folder / "counter.py")


@pytest.fixture(scope="module")
def shell(
    podman_machine: testenv.Node,
    program: str,
    base: Path,
    debian_packages: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Run:
    """Runs a command line in a copy of the site, whose images are the machine's own."""
    folder = tmp_path_factory.mktemp("image")
    make_image(base, debian_packages, folder)
    # the first process of a container ignores signals that it does not handle, so a stop would take 10 s
    (folder / "start.py").write_text(START)
    subprocess.run(["tar", "-C", folder, "-cf", podman_machine.path("/root/image.tar"), "."], check=True)
    shutil.rmtree(folder)
    run_it = 'CMD ["/usr/bin/python3.11", "/start.py"]'
    digests = {}
    for name in ("counter", "redis"):
        image = f"registry.example.net/{name}"
        podman_machine.run(
            "podman", "import", "-q", "-c", run_it, "/root/image.tar", f"{image}:1", timeout=120
        )
        shown = podman_machine.run("podman", "image", "inspect", "--format", "{{.Digest}}", f"{image}:1")
        digests[image] = shown.stdout.strip()
    text = (SITES / SITE / "manifest.yaml").read_text()
    text = re.sub(r"(\S+)@sha256:\w+", lambda found: f"{found[1]}@{digests[found[1]]}", text)
    podman_machine.run("mkdir", f"/root/{SITE}")
    podman_machine.path(f"/root/{SITE}/manifest.yaml").write_text(text)

    def run(site: str, line: str) -> str:
        path = f"{Path(program).parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        command = ["env", "-C", f"/root/{site}", f"PATH={path}", "sh", "-c", f"exec 2>&1; {line}"]
        return str(podman_machine.run(*command, check=False, timeout=200).stdout)

    return run


@pytest.mark.parametrize("podman_machine", ["apt", "dnf"], indirect=True)
def test_the_application_counts_in_the_database_of_another_container(shell: Run) -> None:
    conf, quadlet = "/srv/counter/redis.conf", "/etc/containers/systemd/counter.container"
    drift = f"sed -i 's/64mb/1mb/' {conf}; sed -i 's/^PublishPort=.*/PublishPort=80:80/' {quadlet}"
    repaired = {f"file#{conf}", "container#counter-database", "container#counter"}

    check_applied(shell, SITE, drift, repaired)

    visits = [shell(SITE, "curl -sS http://localhost:8080/") for _ in range(2)]
    assert visits == ["1\n", "2\n"]
    assert (
        shell(SITE, "systemctl restart counter-database; podman wait --condition=healthy counter-database")
        == "-1\n"
    )
    assert shell(SITE, "curl -sS --retry 5 --retry-all-errors http://localhost:8080/") == "3\n"
    assert shell(SITE, "podman inspect --format '{{.HostConfig.NetworkMode}}' counter-database") == "none\n"
    assert shell(SITE, "stat -c '%a %U' /srv/counter/socket") == "700 counter\n"
    check_readme(shell, SITE, "apt" if shell(SITE, "command -v apt-get") else "dnf")
