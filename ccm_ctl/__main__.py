"""Start `ccmctl`. This module contains only the list of its commands."""

from __future__ import annotations

import gc
import os
import signal
import sys

GARBAGE_THRESHOLD = (20_000, 20, 20)
"""See `gc.set_threshold`."""

VERBS = {
    "init": "Create the streams and buckets on the broker.",
    "node": "List, show, add, accept, reset, revoke and remove nodes.",
    "doctor": "Report security and health problems.",
    "why": "Explain the state of a node and what to do.",
    "operator": "Issue and revoke operators' credentials.",
    "signers": "Manage the list of trusted signers.",
    "token": "Create, list and revoke tokens for joining nodes.",
    "join": "Answer nodes that join with a token.",
    "ping": "Check whether agents answer.",
    "group": "Save selectors under a name, for --targets @NAME.",
    "facts": "Show facts and assign them to nodes.",
    "data": "Manage Hiera data, and explain where a value comes from.",
    "plan": "Show what a manifest would change on nodes.",
    "apply": "Apply a manifest to nodes.",
    "ensure": "Manage a single resource on nodes.",
    "exec": "Run a command on nodes.",
    "import": "Write a site with the resources of nodes.",
    "undo": "Undo what a run changed.",
    "assign": "Assign a manifest to nodes, including offline nodes.",
    "assignment": "List assignments, and show their status and revisions.",
    "unassign": "Remove an assignment.",
    "rollback": "Restore an earlier revision of an assignment.",
    "bundle": "List and extract bundles.",
    "schedule": "Schedule manifests.",
    "run-now": "Converge nodes now.",
    "disable": "Pause changes on nodes.",
    "enable": "Resume changes on disabled nodes.",
    "lock": "Pause changes to resources of a node.",
    "unlock": "Remove locks of a node.",
    "run": "List, show, watch and stop runs.",
    "rollout": "Drive rollouts in the background.",
    "notify": "Report failures, drift and stale nodes by webhook, command or mail.",
    "secret": "Store secrets that only selected nodes can read.",
    "slots": "Show which nodes hold slots, and which wait.",
    "events": "Show events of agents.",
    "audit": "Show signed actions of operators, and decisions of nodes.",
    "history": "Show the events of a node.",
    "state": "Show the current or past state of a node's resources.",
    "report": "Write a report of a run to a file.",
    "dashboard": "Serve the fleet as a web page.",
    "demo": "Show a fleet on this machine.",
    "studio": "Write manifests in a browser.",
    "top": "Show the fleet live on the terminal.",
    "completion": "Print the completion script of a shell.",
    "help": "Show the help of a command.",
}


def main(argv: list[str] | None = None) -> int:
    """Run the command line, and return its exit code. The version is printed before anything is imported."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments == ["--version"]:
        from ccm_agent.version import version_line

        print(version_line("ccmctl"))  # noqa: T201 -- the terminal takes three times as long to import
        return 0
    if "_CCMCTL_COMPLETE" in os.environ:  # Ctrl-C during completion must not print a traceback
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from ccm_ctl.main import main as run

    # fleet data stays in memory until the command ends; a collection after every 700 objects would take a third of the time of a
    # long list
    gc.set_threshold(*GARBAGE_THRESHOLD)
    return run(arguments, VERBS)


if __name__ == "__main__":
    sys.exit(main())
