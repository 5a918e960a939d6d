"""Kernel parameters in memory, and below a directory of this host."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec import Struct

from ccm_agent.model.errors import FileError
from ccm_agent.model.ports import Kernel, KernelValue
from ccm_agent.system.kernel import SystemKernel
from ccm_agent.testing.kernel import FakeKernel


class Place(Struct):
    """A kernel with one parameter, `vm/swappiness`; `root` is the directory of its parameters."""

    kernel: Kernel
    root: str


@pytest.fixture(params=["fake", "host"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "fake":
        return Place(kernel=FakeKernel({"/proc/sys/vm/swappiness": "60"}), root="/proc/sys")
    (tmp_path / "vm").mkdir()
    (tmp_path / "vm/swappiness").write_text("60\n")
    return Place(kernel=SystemKernel(str(tmp_path)), root=str(tmp_path))


async def test_values_are_read_in_order_and_missing_ones_do_not_exist(place: Place) -> None:
    paths = [f"{place.root}/vm/nosuch", f"{place.root}/vm/swappiness", f"{place.root}/vm/swappiness/x"]

    assert await place.kernel.read(paths) == [
        KernelValue(path=paths[0]),
        KernelValue(path=paths[1], value="60", exists=True),
        KernelValue(path=paths[2]),
    ]


async def test_a_value_is_set(place: Place) -> None:
    path = f"{place.root}/vm/swappiness"

    await place.kernel.set(path, "10")

    assert (await place.kernel.read([path]))[0].value == "10"


async def test_a_missing_parameter_cannot_be_set(place: Place) -> None:
    with pytest.raises(FileError, match="the kernel has no such parameter"):
        await place.kernel.set(f"{place.root}/vm/nosuch", "10")


async def test_a_group_a_symlink_and_a_path_outside_are_no_parameters(tmp_path: Path) -> None:
    (tmp_path / "sys/vm").mkdir(parents=True)
    (tmp_path / "secret").write_text("hidden")
    (tmp_path / "sys/link").symlink_to(tmp_path / "secret")
    kernel = SystemKernel(str(tmp_path / "sys"))

    group, link = await kernel.read([f"{tmp_path}/sys/vm", f"{tmp_path}/sys/link"])

    assert (group.exists, group.error) == (True, "it is a group of parameters, not a parameter")
    assert (link.value, link.error != "") == ("", True)
    for path in (f"{tmp_path}/sys/../secret", f"{tmp_path}/secret", f"{tmp_path}/sys/link"):
        with pytest.raises(FileError):
            await kernel.set(path, "x")
    assert (tmp_path / "secret").read_text() == "hidden"


async def test_a_fifo_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")

    (found,) = await SystemKernel(str(tmp_path)).read([f"{tmp_path}/fifo"])

    assert found.error == "it is a group of parameters, not a parameter"


async def test_the_parameters_of_this_kernel_are_read() -> None:
    (found,) = await SystemKernel().read(["/proc/sys/kernel/ostype"])

    assert (found.value, found.exists, found.error) == ("Linux", True, "")
