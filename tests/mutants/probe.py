"""What takes a check out while the program runs. It is copied into the tree that is tried, whose checks call it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

chosen = int(os.environ.get("CCM_MUTANT", "-1"))
"""The check that is taken out, in this process and in those that it starts; -1: none."""

met: set[int] = set()
"""The checks that this process has come to."""

log = os.environ.get("CCM_MUTANTS_MET", "")
"""A file to which a process that a test starts adds each check that it comes to; "": none."""


def check(number: int, becomes: bool, value: T) -> T | bool:
    """The value of a condition, or what it is replaced by."""
    met.add(number)
    if log:
        with Path(log).open("a") as file:
            file.write(f"{number}\n")
    return becomes if number == chosen else value


def choose(number: int) -> None:
    """Take a check out from now on."""
    global chosen
    chosen = number
    os.environ["CCM_MUTANT"] = str(number)
