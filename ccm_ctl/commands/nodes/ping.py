"""`ccmctl ping`: check which agents reply, and how fast."""

from __future__ import annotations

from ccm_agent.clikit.options import takes
from ccm_agent.clikit.table import Amount, Cell, Column
from ccm_agent.clikit.terminal import Terminal
from ccm_agent.clikit.text import plural
from ccm_agent.model.exits import Exit
from ccm_agent.model.wire import NODE_PING
from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import verb
from ccm_ctl.commands.runs.targets import TargetOptions, no_fold_option, target_options
from ccm_ctl.fleet.nodes.discovery import TargetSpec, resolve
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.runs.gather import Reply, gather
from ccm_ctl.render.record_types.nodes import ReplyLine


@verb(
    "ping",
    examples=["ccmctl ping", "ccmctl ping --targets role=web"],
    options=[*target_options(everybody=False), no_fold_option()],
)
@takes(TargetOptions)
def ping(application: Application, given: TargetOptions) -> Exit:
    """
    Check whether agents answer. Without --targets, all nodes are checked.

    Exit codes: 0 all expected nodes answered; 3 an expected node did not answer.
    """

    async def work(fleet: Fleet) -> Exit:
        terminal = application.terminal
        spec = given.spec()
        _, resolved = await resolve(fleet, TargetSpec(everybody=True) if spec.is_empty else spec)
        replies, silent = await gather(fleet, NODE_PING, resolved, lambda reply: _tell(terminal, reply))
        names = sorted({*resolved.nodes, *replies})
        for name in names:
            if name not in replies:
                terminal.record(ReplyLine, node=name, state="silent" if name in silent else "offline")
        columns = [
            Column("NODE", names=True),
            Column("STATE"),
            Column("AFTER", right=True),
            Column("VERSION"),
        ]
        rows = [_row(name, replies.get(name), is_silent=name in silent) for name in names]
        terminal.table([*columns, Column("WHY", fold=True)], rows)
        terminal.show(f"{len(replies)} of {plural(len(rows), 'node')} answered\n")
        return Exit.MISSING if len(names) > len(replies) else Exit.OK

    return application.run(work)


def _tell(terminal: Terminal, reply: Reply) -> None:
    """Print the record of a reply when it arrives."""
    answer = reply.answer
    terminal.record(
        ReplyLine,
        node=reply.node,
        seconds=round(reply.after_s, 4),
        state=answer.state,
        reason=answer.reason or None,
        machine=answer.machine or None,
        started=answer.started,
        body=answer.body,
    )
    terminal.flush()


def _row(name: str, reply: Reply | None, *, is_silent: bool) -> list[str | Cell]:
    if reply is None:
        return [name, Cell("silent", "gone") if is_silent else Cell("offline", "quiet"), "", "", ""]
    word = Cell("refused", "bad") if reply.answer.state == "refused" else Cell("answers", "good")
    version = str(reply.answer.body.get("version", ""))
    after = Cell("", amount=Amount(f"{reply.after_s * 1000:.0f}ms", reply.after_s))
    return [name, word, after, version, reply.answer.reason]
