"""The shell blocks of the documentation that change a host run in order, as root on a machine; see tests/support/pages.py."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
import testenv

from tests.support import pages
from tests.support.pages import Block, Setting

pytestmark = [pytest.mark.host, pytest.mark.timeout(120)]

PAGES = pages.users_pages()
SETTINGS = pages.settings()
FOLDER = "/root/page"
STAND_IN = """\
stand_in() {  # installs a package of this name, with a unit of this name
  mkdir -p "$1/DEBIAN" "$1/usr/lib/systemd/system"
  printf 'Package: %s\\nVersion: 99\\nArchitecture: all\\nMaintainer: none\\nDescription: none\\n' "$1" > "$1/DEBIAN/control"
  printf '[Service]\\nExecStart=/bin/sleep infinity\\n[Install]\\nWantedBy=multi-user.target\\n' \\
    > "$1/usr/lib/systemd/system/$1.service"
  dpkg-deb --root-owner-group -Znone --build "$1" "$1.deb" && dpkg -i "$1.deb" && systemctl daemon-reload
}
"""


def typed_on_a_machine(page: str) -> list[Block]:
    is_whole_page = SETTINGS.get(page, Setting()).fleet == "machine"
    return [
        one
        for one in PAGES[page]
        if one.is_typed and (one.words == "machine" or (is_whole_page and not one.kind))
    ]


@pytest.mark.parametrize("page", [page for page in PAGES if typed_on_a_machine(page)])
def test_blocks_of_a_page_run_in_order(page: str, only: Callable[[str], testenv.Node], program: str) -> None:
    machine = only("apt")
    setting = SETTINGS.get(page, Setting())
    machine.run("sh", "-c", f"rm -rf {FOLDER} /etc/motd; mkdir {FOLDER}")
    for name, text in pages.files(PAGES[page]).items():
        path = machine.path(name if name.startswith("/") else f"{FOLDER}/{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    typed = [
        pages.Command(line=0, text=f"{STAND_IN}{setting.machine}\n"),
        *pages.commands(typed_on_a_machine(page), setting),
    ]
    machine.path(f"{FOLDER}/page.sh").write_text(pages.script(typed))
    environ = {
        "PATH": f"{Path(program).parent}:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "TERM": "dumb",
        "STATUSES": pages.statuses(setting),
    }
    words = " ".join(f"{name}={shlex.quote(value)}" for name, value in environ.items())
    command = machine.argv("sh", "-c", f"cd {FOLDER} && exec env -i {words} bash page.sh")

    pages.check(typed, pages.in_terminal(command, {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}))
