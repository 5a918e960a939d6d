"""Checks that may survive, each with the reason: by `Check.name`, or by its beginning, such as a function."""

from __future__ import annotations

ALLOWED: dict[str, str] = {
    "ccm_agent/agent/trust/revision_guard.py:RevisionGuard.prepare:name not in self.numbers:": (
        "the snapshot is asked for more numbers then, and the higher one of both is the lowest that is allowed"
    ),
    "ccm_agent/agent/trust/revision_guard.py:SnapshotReader.lowest:": (
        "a shortcut: without names or timestamps, the rest of the function finds no numbers either"
    ),
    "ccm_agent/bus/objects.py:NatsObjects.put:await patience.pause():": (
        "whether an upload is tried again; what is stored does not depend on it"
    ),
    "ccm_agent/bus/signatures/signatory.py:schedule_details:value:": (
        "empty details are signed and compared then; writer and reader share the function"
    ),
    "ccm_agent/bus/signatures/signing.py:public_key_bytes:len(raw) != _KEY_BYTES:": (
        "the pattern of a key before it leaves no other length"
    ),
    "ccm_agent/engine/tinycm/load.py:load_tinycm:await _check_content(": (
        "another check with the name of one that verifies; it is about the content of modules"
    ),
    "ccm_ctl/commands/runs/run_orders.py:continue_rollout:check_can_hand_over(": (
        "an early refusal: `hand_over` refuses the same before anything is stored"
    ),
    "ccm_ctl/fleet/trust/audit_trail.py:_read_nodes:not authors.certified(name):": (
        "certificates that are known are asked for again then; the verdict is the same"
    ),
    "ccm_ctl/fleet/trust/audit_trail.py:describe_subject:": "the words of a subject for people",
    "ccm_ctl/fleet/trust/authors.py:find_certificates:": (
        "certificates that are known are asked for again then; the verdict is the same"
    ),
    "ccm_ctl/fleet/trust/newest_signers.py:_lacks_trust:fleet.signatory is None:": (
        "without a key no list is read, so the other half of the condition holds"
    ),
    "ccm_ctl/fleet/trust/node_state.py:format_left_out:": "the words of a warning for people",
    "ccm_ctl/fleet/rollout/orders.py:Orders._wait:": (
        "how long a command waits for a driver; the order is stored and judged without it"
    ),
    "ccm_ctl/fleet/rollout/orders.py:_is_taken_up:": "as for Orders._wait, which alone calls it",
    "ccm_ctl/python_client.py:": "another check with the name of one that verifies; it is about files of the caller",
}
