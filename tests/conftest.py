"""Fixtures of all tests."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator

import hypothesis
import pytest

# What `ccm` keeps between runs goes into no folder of the host.
if "XDG_STATE_HOME" not in os.environ:
    os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="ccm-tests-state-")
    atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)

# A busy machine holds up a single example for longer than hypothesis allows; each test has a limit of its own.
hypothesis.settings.register_profile("ccm", deadline=None)
hypothesis.settings.load_profile("ccm")


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """A program that runs within a test sets up logging: the tests behind it would see more of the log, or nothing of it."""
    root, loggers = logging.getLogger(), [logging.getLogger(), logging.getLogger("ccm_agent")]
    levels, handlers = [each.level for each in loggers], root.handlers[:]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
    for handler in root.handlers[:]:
        if (
            type(handler) is logging.StreamHandler and handler not in handlers
        ):  # pytest's own are of other classes
            root.removeHandler(handler)
