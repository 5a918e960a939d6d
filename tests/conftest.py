"""Fixtures of all tests."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator

import hypothesis
import pytest

# What `ccm` keeps between runs goes into no folder of the host.
if "XDG_STATE_HOME" not in os.environ:
    os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="ccm-tests-state-")
    atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)

# A shell ignores SIGINT for what it starts in the background, and the programs under test would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine holds up a single example for longer than hypothesis allows; each test has a limit of its own.
hypothesis.settings.register_profile("ccm", deadline=None)
hypothesis.settings.load_profile("ccm")


_LEVELS = {name: logging.getLogger(name).level for name in ("", "ccm_agent")}


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """
    Give each test the logging of a new process.

    A program that runs within a test sets up logging, and so do fixtures of modules, which run before this one.
    """
    root = logging.getLogger()
    for name, level in _LEVELS.items():
        logging.getLogger(name).setLevel(level)
    handlers = root.handlers[:]
    yield
    for handler in root.handlers[:]:
        # pytest's own are of other classes
        if type(handler) is logging.StreamHandler and handler not in handlers:
            root.removeHandler(handler)
