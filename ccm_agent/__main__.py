"""`ccm`: the program of a managed host."""

from __future__ import annotations

import gc
import os
import signal
import sys


def main() -> None:
    """Run the command line, and exit with its status."""
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        # checked before importing click, because the import takes four times as long as everything else here
        from ccm_agent.version import version_line

        sys.stdout.write(f"{version_line('ccm')}\n")
        return
    if "_CCM_COMPLETE" in os.environ:  # Ctrl-C during completion must not print a traceback
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Imported modules and loaded data stay until the end, so garbage collection would find nothing in them. `ccm apply` enables
    # the collection after loading its manifest, and other commands enable it after they are resolved.
    gc.disable()
    from ccm_agent.cli.main import run

    sys.exit(run(arguments))


if __name__ == "__main__":
    main()
