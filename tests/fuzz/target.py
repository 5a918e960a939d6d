"""What is fuzzed."""

from __future__ import annotations

from collections.abc import Callable

from ccm_agent.model.errors import CcmError

Read = Callable[[bytes], object]
"""Reads an input. It may raise CcmError, or what its documentation says."""


class Target:
    """
    What is fuzzed.

    Attributes:
        name: Of a function `module:function`, which it then covers.
        read: Reads one input.
        samples: Inputs to begin from.
        raises: What it may raise besides CcmError.
    """

    def __init__(
        self, name: str, read: Read, samples: list[bytes], raises: tuple[type[Exception], ...] = ()
    ) -> None:
        self.name = name
        self.read = read
        self.samples = samples
        self.raises = (CcmError, *raises)
