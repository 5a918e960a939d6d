"""The terminal view. It shows one table at a time, and pages that are opened from its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import Struct
from rich.text import Text
from textual.app import App
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.coordinate import Coordinate
from textual.screen import ModalScreen
from textual.widgets import DataTable, Input, Static

from ccm_agent.clikit.table import COLORS
from ccm_agent.clikit.text import one_line, safe
from ccm_agent.model.errors import CcmError
from ccm_ctl.top.lines import counts_line, keys_line, status_line
from ccm_ctl.top.rows import COLUMNS, ROWS_SHOWN, VIEWS, rows_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from textual.app import ComposeResult

    from ccm_ctl.fleet.ports import Fleet
    from ccm_ctl.top.fleet_watch import FleetWatch
    from ccm_ctl.top.lines import Part
    from ccm_ctl.top.rows import TableRow

DRAW_S = 0.5
"""Seconds between two updates of the screen."""

PAGE_CHARACTERS = 100_000
"""The maximum number of displayed characters of a page."""

KEYS = """\
1 2 3 4, Tab   nodes, runs, events, failing resources
↑ ↓ PgUp PgDn  move in the table
Enter          open the state of a node, the results of a run,
               or the full text of an event
n, r           from a row or an open event: its node, its run
/              filter nodes, events and failures by a selector, such
               as role=web,env!=dev or node=web1; empty shows all
Esc            close a page or the filter
q, Ctrl-C      quit

A resource is failing if its newest event on a node is a failure. Only
the newest 2,000 events since one hour before the start are used.
"""


class TopPages(Struct, frozen=True):
    """Functions that return the pages of a node and of a run as plain text for a width in columns. They raise CcmError."""

    node: Callable[[str, int], Awaitable[str]]
    run: Callable[[str, int], Awaitable[str]]


class _PageScreen(ModalScreen[None]):
    """A scrollable text on top of the table."""

    BINDINGS: ClassVar[list[Any]] = [
        Binding("escape,q,enter", "app.pop_screen", "close"),
        Binding("n", "open('node')", "node"),
        Binding("r", "open('run')", "run"),
    ]

    def __init__(
        self, title: str, make: Callable[[int], Awaitable[str]], node: str = "", run: str = ""
    ) -> None:
        super().__init__()
        self._heading = title
        self._make = make
        self._node = node
        self._run = run

    def compose(self) -> ComposeResult:
        """Yield the heading and the text below it."""
        hint = "".join(
            f"  {key} {word}"
            for key, word, there in (("n", "node", self._node), ("r", "run", self._run))
            if there
        )
        yield Static(styled(f"{one_line(self._heading)}  (Esc closes{hint})", "strong"), id="heading")
        with VerticalScroll():
            yield Static(styled("reading …"), id="text")

    def on_mount(self) -> None:
        """Read the page in the background."""
        self.run_worker(self._read(), name="top:page")

    async def _read(self) -> None:
        try:
            text = await self._make(self.app.size.width - 2)
        except CcmError as err:
            text = err.message
        self.query_one("#text", Static).update(styled(safe(text[:PAGE_CHARACTERS])))

    def action_open(self, what: str) -> None:
        """Open the node or the run of the event."""
        app = self.app
        assert isinstance(app, TopApp)
        if self._node if what == "node" else self._run:
            app.pop_screen()
            app.open_page(what, self._node, self._run)


class TopApp(App[None]):
    """
    The view of a fleet.

    Args:
        fleet: The fleet.
        pages: Returns the pages that are opened from a row.
        watch: Reads the fleet. Data that it has already read are shown immediately.
    """

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen, ModalScreen { background: ansi_default; color: ansi_default; }
    #counts, #status, #keys, #heading { height: 1; }
    #filter { height: 1; border: none; padding: 0; display: none; background: ansi_default; color: ansi_default; }
    #filter:focus { border: none; }
    #filter.open { display: block; }
    DataTable { height: 1fr; background: ansi_default; color: ansi_default; scrollbar-size: 0 1; }
    DataTable > .datatable--header { background: ansi_default; color: ansi_default; text-style: bold underline; }
    DataTable > .datatable--cursor { background: ansi_default; color: ansi_default; text-style: reverse; }
    DataTable:focus > .datatable--cursor { background: ansi_default; color: ansi_default; text-style: reverse; }
    VerticalScroll { height: 1fr; background: ansi_default; scrollbar-size-vertical: 1; }
    """
    BINDINGS: ClassVar[list[Any]] = [
        *(Binding(str(place), f"view('{name}')", name) for place, name in enumerate(VIEWS, 1)),
        Binding("tab", "next_view", "next", priority=True),
        Binding("slash", "filter", "filter"),
        Binding("question_mark", "keys", "keys"),
        Binding("escape", "close_filter", "close"),
        Binding("n", "open('node')", "node"),
        Binding("r", "open('run')", "run"),
        Binding("q", "quit", "quit"),
        Binding("ctrl+c", "quit", "quit", priority=True),
    ]

    def __init__(self, fleet: Fleet, pages: TopPages, watch: FleetWatch) -> None:
        super().__init__(ansi_color=True)
        self.theme = "ansi-dark"
        self.watch_fleet = watch
        self._fleet = fleet
        self._pages = pages
        self._view = VIEWS[0]
        self._rows: list[TableRow] = []
        self._drawn: tuple[object, ...] = ()

    def compose(self) -> ComposeResult:
        """Yield the counts, the state of the filter and of the broker, a table, and the keys."""
        yield Static(id="counts")
        yield Static(id="status")
        yield DataTable[Text](cursor_type="row", zebra_stripes=False, cell_padding=1)
        yield Input(
            placeholder="selector, such as role=web; empty shows everything", id="filter", compact=True
        )
        yield Static(id="keys")

    def on_mount(self) -> None:
        """Start reading the fleet and drawing changes."""
        self.run_worker(self.watch_fleet.run(), name="top:watch")
        self.set_interval(DRAW_S, self.draw)
        self._show_view(VIEWS[0])
        self.query_one(DataTable).focus()

    def draw(self) -> None:
        """Draw the screen again if something has changed."""
        watch = self.watch_fleet
        now = self._fleet.clock.now()
        state = (watch.version, self._view, int(now.timestamp()) // 5, self.size)
        if state == self._drawn:
            return
        self._drawn = state
        self._line("#counts", assemble(counts_line(watch, now)))
        self._line("#status", assemble(status_line(watch, self._view)))
        self._fill(rows_of(self._view, watch, now))

    def _line(self, name: str, text: Text) -> None:
        self.screen_stack[0].query_one(name, Static).update(text)

    def _fill(self, rows: list[TableRow]) -> None:
        """Show rows. The cursor follows its row. If it is on the first line, it stays there."""
        if rows == self._rows:
            return
        table = self.screen_stack[0].query_one(DataTable)
        place, old = table.cursor_row, self._rows
        key = old[place].key if 0 < place < len(old) else ""
        self._rows = rows
        if [row.key for row in rows] == [row.key for row in old]:
            for line, (row, before) in enumerate(zip(rows, old, strict=True)):
                if row != before:
                    for column, cell in enumerate(_cells(row)):
                        table.update_cell_at(Coordinate(line, column), cell, update_width=True)
            return
        table.clear()
        for row in rows:
            table.add_row(*_cells(row))
        table.move_cursor(row=next((line for line, row in enumerate(rows) if row.key == key), 0))

    def _show_view(self, view: str) -> None:
        self._view, self._rows, self._drawn = view, [], ()
        table = self.screen_stack[0].query_one(DataTable)
        table.clear(columns=True)
        for title in COLUMNS[view]:
            table.add_column(title)
        self.watch_fleet.wants_runs = view == "runs"
        if view == "runs":
            self.watch_fleet.look_soon()
        self._line("#keys", assemble(keys_line(view)))
        self.draw()

    def action_view(self, view: str) -> None:
        """Show a table."""
        if len(self.screen_stack) == 1:
            self._show_view(view)

    def action_next_view(self) -> None:
        """Show the next table."""
        self.action_view(VIEWS[(VIEWS.index(self._view) + 1) % len(VIEWS)])

    def action_filter(self) -> None:
        """Open the field for a selector."""
        field = self.query_one("#filter", Input)
        field.value = self.watch_fleet.selector
        field.add_class("open")
        field.focus()

    def action_close_filter(self) -> None:
        """Close the field and keep the filter."""
        if len(self.screen_stack) == 1:
            self.query_one("#filter", Input).remove_class("open")
            self.query_one(DataTable).focus()

    def on_input_submitted(self, message: Input.Submitted) -> None:
        """Apply the filter."""
        try:
            self.watch_fleet.filter_nodes(message.value.strip())
        except CcmError as err:
            self._line("#status", styled(one_line(err.message), "bad"))
            return
        self.action_close_filter()
        self.draw()

    def on_data_table_row_selected(self, message: DataTable.RowSelected) -> None:
        """Open the page of the row's subject."""
        if message.cursor_row >= len(self._rows):
            return
        row = self._rows[message.cursor_row]
        if self._view in ("nodes", "runs"):
            self.open_page("node" if row.node else "run", row.node, row.run)
            return
        text = "\n\n".join(self._full_texts(row))

        async def make(_width: int) -> str:
            return text

        self.push_screen(_PageScreen(f"{row.node} {row.cells[0]}", make, row.node, row.run))

    def _full_texts(self, row: TableRow) -> list[str]:
        """Return the text of an event, or the newest failures of a resource."""
        events = [
            event
            for event in self.watch_fleet.events
            if (
                str(event.id) == row.key
                if self._view == "events"
                else event.resource == row.key and event.meaning == "bad"
            )
        ]
        return [
            f"{event.time:%Y-%m-%d %H:%M:%SZ}  {event.node}  run {event.run or 'none'}\n{event.text}"
            for event in events[: -ROWS_SHOWN - 1 : -1]
        ] or ["This event is no longer kept."]

    def action_open(self, what: str) -> None:
        """Open the node or the run of the row."""
        place = self.query_one(DataTable).cursor_row
        if len(self.screen_stack) == 1 and place < len(self._rows):
            row = self._rows[place]
            self.open_page(what, row.node, row.run)

    def open_page(self, what: str, node: str, run: str) -> None:
        """Open the page of a node or of a run. Does nothing if its name is ""."""
        if name := node if what == "node" else run:
            make = self._pages.node if what == "node" else self._pages.run
            self.push_screen(_PageScreen(f"{what} {name}", lambda width: make(name, width)))

    def action_keys(self) -> None:
        """Show the keys."""

        async def make(_width: int) -> str:
            return KEYS

        if len(self.screen_stack) == 1:
            self.push_screen(_PageScreen("Keys", make))


def styled(text: str, meaning: str = "") -> Text:
    """Return a text without markup, in the color of its meaning."""
    return Text(text, COLORS[meaning])


def assemble(parts: list[Part]) -> Text:
    """Return a line assembled from its parts."""
    return Text.assemble(*parts, no_wrap=True)


def _cells(row: TableRow) -> list[Text]:
    """Return the cells of a row in the color of its state. The state is also shown as a word."""
    return [Text(cell, COLORS[row.meaning], no_wrap=True) for cell in row.cells]
