"""`ccmctl`: a list of commands and nothing more."""

from __future__ import annotations

import sys

VERBS = {
    "init": "Make the streams and buckets on the broker.",
    "nodes": "List nodes, present and expected; remove one.",
    "node": "Show, certify, reset and remove one node.",
    "why": "Say why a node is as it is, and what to do.",
    "operator": "Give operators credentials, and take them back.",
    "signers": "Show and publish whose signatures nodes obey.",
    "ping": "Ask nodes whether their agent answers.",
    "facts": "Show facts; assign them to nodes.",
    "data": "Put, get and list hiera data.",
    "hiera": "Say where a node's data comes from.",
    "apply": "Apply a manifest to nodes.",
    "ensure": "Ensure one resource on nodes.",
    "assign": "Assign a manifest to nodes, those that are off too.",
    "assignments": "List what is assigned.",
    "assignment": "Show who has converged on an assignment, and its revisions.",
    "unassign": "End an assignment; nodes stay as they are.",
    "rollback": "Assign again what was assigned before.",
    "schedule": "Have the broker send manifests on time.",
    "run": "List, show, watch and stop runs.",
    "events": "Follow what agents say.",
    "completion": "Print the completion script of a shell.",
}


def main(argv: list[str] | None = None) -> int:
    """Run the command line; its exit code. The version is answered before anything is imported."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments == ["--version"]:
        from ccm_agent.version import VERSION

        print(f"ccmctl {VERSION}")  # noqa: T201 -- the terminal takes three times as long to import
        return 0
    from ccm_ctl.app import main as run

    return run(arguments, VERBS)


if __name__ == "__main__":
    sys.exit(main())
