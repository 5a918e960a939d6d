"""`ccm`: the program of a managed host."""

from __future__ import annotations

import gc
import os
import signal
import sys


def main() -> None:
    """Run the command line, and end the process with its status."""
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        # before click is imported, which takes four times as long as all of this
        from ccm_agent.version import version_line

        sys.stdout.write(f"{version_line('ccm')}\n")
        return
    if (
        "_CCM_COMPLETE" in os.environ
    ):  # Ctrl-C while a shell completes a word ends this process, without a word
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # what is imported and loaded now stays until the end, so nothing is gained by looking for garbage in it;
    # `ccm apply` switches the collection on again when its manifest is loaded, other verbs when they are found
    gc.disable()
    from ccm_agent.cli.main import run

    sys.exit(run(arguments))


if __name__ == "__main__":
    main()
