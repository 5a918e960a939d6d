"""The ports of `system/` on fakes and on this host."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Struct

from ccm_agent.model.ports import Files
from ccm_agent.system.files import SystemFiles
from ccm_agent.testing.files import FakeFiles


class Place(Struct):
    """
    Files under test, with an empty directory for them.

    Attributes:
        files: The port.
        path: The directory.
        symlink: Makes one: path, target.
        fifo: Makes one.
        names: What is in a directory, sorted.
    """

    files: Files
    path: str
    symlink: Callable[[str, str], None]
    fifo: Callable[[str], None]
    names: Callable[[str], list[str]]


@pytest.fixture(params=["fake", "host"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty directory, in memory and on this host."""
    if request.param == "host":
        return Place(
            files=SystemFiles(),
            path=str(tmp_path),
            symlink=lambda path, target: os.symlink(target, path),
            fifo=os.mkfifo,
            names=lambda path: sorted(os.listdir(path)),
        )
    fake = FakeFiles()
    fake.put_directory("/box")

    def names(path: str) -> list[str]:
        start = f"{path}/"
        return sorted(
            one.removeprefix(start)
            for one in fake.nodes
            if one.startswith(start) and "/" not in one[len(start) :]
        )

    return Place(files=fake, path="/box", symlink=fake.put_symlink, fifo=fake.put_fifo, names=names)
