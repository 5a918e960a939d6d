"""The command line of `ccm`: what errors look like, and which status they end with."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from ccm_agent.cli.program import invoke
from ccm_agent.cli.terminal import complain
from ccm_agent.model.errors import CcmError
from ccm_agent.model.exits import Exit


def run(arguments: Sequence[str]) -> int:
    """
    Run a command line.

    Returns:
        The process's exit status: 0 fine, 1 could not run, 2 a resource failed.
    """
    try:
        code = invoke(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt:
        complain("interrupted")
        return Exit.COULD_NOT_RUN
    except BrokenPipeError:
        # whoever read our output has gone; python would complain once more at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.COULD_NOT_RUN
    except CcmError as err:
        if "--debug" in arguments:
            raise
        complain(str(err))
        return Exit.COULD_NOT_RUN
    except Exception as err:  # the last place that can say something sensible
        if "--debug" in arguments:
            raise
        complain(
            f"internal error: {type(err).__name__}: {err}; run it again with --debug and report what it says"
        )
        return Exit.COULD_NOT_RUN
    return code
