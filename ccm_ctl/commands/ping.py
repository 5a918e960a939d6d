"""`ccmctl ping`: who answers, and how fast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ccm_agent.model.exits import Exit
from ccm_agent.model.wire import NODE_PING
from ccm_ctl.commands.targets import target_options, wish_of
from ccm_ctl.commands.tree import verb
from ccm_ctl.render import records

if TYPE_CHECKING:
    from ccm_ctl.app import Application
    from ccm_ctl.fleet.gather import Reply
    from ccm_ctl.fleet.ports import Fleet


@verb(
    "ping",
    examples=["ccmctl ping", "ccmctl ping --targets role=web"],
    options=target_options(everybody=False),
)
def ping(application: Application, **options: Any) -> Exit:
    """
    Ask nodes whether their agent answers; without --targets all of them.

    Exit code: 0 all answered, 3 a node that is expected did not.
    """

    async def work(fleet: Fleet) -> Exit:
        from ccm_ctl.fleet.discovery import resolve
        from ccm_ctl.fleet.gather import gather
        from ccm_ctl.render.table import Cell, Column, table
        from ccm_ctl.render.text import plural

        terminal = application.terminal

        def told(reply: Reply) -> None:
            terminal.record(
                records.REPLY,
                node=reply.node,
                seconds=round(reply.after_s, 4),
                state=reply.answer.state,
                reason=reply.answer.reason or None,
                machine=reply.answer.machine or None,
                started=reply.answer.started,
                body=reply.answer.body,
            )
            terminal.flush()

        _, resolved = await resolve(fleet, wish_of(options, otherwise_all=True))
        replies, silent = await gather(fleet, NODE_PING, resolved, told)
        rows: list[list[str | Cell]] = []
        for node in sorted({*resolved.nodes, *replies}):
            reply = replies.get(node)
            if reply is not None:
                refused = reply.answer.state == "refused"
                word = Cell("refused", "bad") if refused else Cell("answers", "good")
                version = str(reply.answer.body.get("version", ""))
                rows.append([node, word, f"{reply.after_s * 1000:.0f} ms", version, reply.answer.reason])
                continue
            word = Cell("silent", "gone") if node in silent else Cell("offline", "quiet")
            terminal.record(records.REPLY, node=node, state=word.text)
            rows.append([node, word, "", "", ""])
        columns = [Column("NODE"), Column("STATE"), Column("AFTER", right=True), Column("VERSION")]
        terminal.show(table([*columns, Column("WHY", fold=True)], rows, terminal.style))
        missing = len(rows) - len(replies)
        terminal.show(f"{len(replies)} of {plural(len(rows), 'node')} answered\n")
        return Exit.MISSING if missing else Exit.OK

    return application.run(work)
