"""Tables: columns that fit, and texts that a terminal does not obey."""

from __future__ import annotations

import random
from collections.abc import Sequence
from io import StringIO

import pytest
from rich import cells
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ccm_agent.clikit.table import (
    LONG,
    UNLIMITED,
    Amount,
    Cell,
    Column,
    Rows,
    Style,
    draw,
    paint,
    table,
)
from ccm_agent.clikit.table_layout import GAP, LEAST_WIDTH, cell_width, wrap

COLUMNS = [Column("NODE"), Column("STATE"), Column("NOTE", fold=True), Column("AGE", right=True)]
ROWS = [
    ["web1", Cell("present", "good"), "", "5s"],
    ["db\x1b[1m", "offline", "a note that is long", "12m"],
]


def test_a_table_has_the_columns_that_say_something() -> None:
    assert table(COLUMNS, ROWS, Style()) == (
        "NODE       STATE    NOTE                 AGE\n"
        "web1       present                        5s\n"
        "db\\x1b[1m  offline  a note that is long  12m\n"
    )
    assert table(COLUMNS, [["web1", "present", "", ""]], Style()) == "NODE  STATE\nweb1  present\n"


def test_a_long_text_is_folded_within_its_column() -> None:
    rows = [ROWS[0], ["db1", "offline", "a note that is so long that it takes more than one line", "12m"]]

    assert table(COLUMNS, rows, Style(width=60)) == (
        "NODE  STATE    NOTE                                      AGE\n"
        "web1  present                                             5s\n"
        "db1   offline  a note that is so long that it takes      12m\n"
        "               more than one line\n"
    )


def test_no_rows_print_no_table() -> None:
    assert table(COLUMNS, [], Style()) == ""


def test_wide_characters_take_their_room() -> None:
    assert (
        table([Column("A"), Column("B")], [["漢字", "x"], ["é", "y"]], Style())
        == "A     B\n漢字  x\né     y\n"
    )


def test_color_is_for_terminals_and_for_each_line() -> None:
    assert paint("a\nb", "bad", Style(color=True)) == "\x1b[31ma\x1b[0m\n\x1b[31mb\x1b[0m"
    assert paint("a", "bad", Style()) == "a"
    assert paint("a", "", Style(color=True)) == "a"


def test_spare_columns_are_dropped_before_others_get_too_narrow() -> None:
    columns = [Column("NAME"), Column("FOR", fold=True), Column("BY", spare=2), Column("SINCE", spare=1)]
    name = "the-name-of-an-assignment-of-some-length"
    rows = [[name, "role=web where x", "ann", "2m ago"]]

    assert table(columns, rows, Style(width=72)) == (
        f"{'NAME':<40}  FOR               BY   SINCE\n{name}  role=web where x  ann  2m ago\n"
    )
    assert table(columns, rows, Style(width=70)) == (
        f"{'NAME':<40}  FOR               SINCE\n{name}  role=web where x  2m ago\n"
    )
    assert table(columns, rows, Style(width=60)) == f"{'NAME':<40}  FOR\n{name}  role=web where x\n"


def test_a_narrow_terminal_gets_a_block_for_each_row_that_does_not_fit() -> None:
    assert table(COLUMNS, ROWS, Style(width=40)) == (
        "web1\n  STATE  present\n  AGE    5s\n"
        "\n"
        "db\\x1b[1m\n  STATE  offline\n  NOTE   a note that is long\n  AGE    12m\n\n"
    )
    assert table(COLUMNS, ROWS, Style(width=47)).startswith("NODE ")


def test_nothing_is_cut_off_however_narrow_it_is() -> None:
    columns = [Column("RUN"), Column("WHAT", fold=True)]
    rows = [["3MQMUbgbqe3MQMUbgbqe3M", "applies what-is-there-and-more"]]

    assert table(columns, rows, Style(width=20)) == (
        "3MQMUbgbqe3MQMUbgbqe\n3M\n  WHAT  applies\n        what-is-ther\n        e-and-more\n\n"
    )


def test_nodes_that_read_alike_share_a_row_on_a_terminal() -> None:
    columns = [Column("NODE", names=True), Column("STATE"), Column("LAST RUN")]
    rows = [
        [name, Cell(state, "good"), Cell(last, "change", Amount(f"{minutes}m ago", minutes))]
        for name, state, last, minutes in (
            ("web1", "present", "changed", 5),
            ("db1", "present", "stable", 2),
            ("web2", "present", "changed", 12),
            ("web10", "present", "changed", 3),
        )
    ]

    assert table(columns, rows, Style(merges=True)) == (
        "NODE         STATE    LAST RUN\n"
        "web[1-2,10]  present  changed 3m ago … 12m ago\n"
        "db1          present  stable 2m ago\n"
    )
    assert len(table(columns, rows, Style()).splitlines()) == 5


def test_nodes_whose_texts_differ_in_meaning_alone_keep_their_rows() -> None:
    columns = [Column("NODE", names=True), Column("STATE")]
    rows = [["web1", Cell("stable", "good")], ["web2", Cell("stable", "quiet")]]

    assert len(table(columns, rows, Style(merges=True)).splitlines()) == 3


@pytest.mark.parametrize("seed", range(60))
def test_rows_look_as_rich_lays_them_out(seed: int) -> None:
    drawn = random.Random(seed)
    words = [
        "",
        "a",
        "web1",
        "desired state",
        "ein größeres Wort",
        "日本",
        "e\u0301",
        "x" * 30,
        "1.5",
        "🚀",
        "日本" * 9,
    ]
    columns = [
        Column(drawn.choice(["N", "STATE", "größe"]), right=drawn.random() < 0.3, fold=drawn.random() < 0.5)
        for _ in range(drawn.randint(1, 5))
    ]
    rows = [
        [Cell(drawn.choice(words), drawn.choice(["", "good", "bad"])) for _ in columns]
        for _ in range(drawn.randint(1, 8))
    ]
    style = Style(width=drawn.choice([64, 70, 80, 200, UNLIMITED]))

    ours, by_rich = table(columns, rows, style), _by_rich(columns, rows, style.width)

    if max(map(cell_len, table(columns, rows, Style()).splitlines())) <= style.width:
        assert ours == by_rich
    else:  # columns of one width differ in which of them is a character narrower
        assert sorted("".join(ours.split())) == sorted("".join(by_rich.split()))
        assert max(map(cell_len, ours.splitlines())) <= style.width


@pytest.mark.parametrize(
    "text", ["x" * 95, "日" * 95, "é" * 95, "a" + "日e\u0301" * 40, "\u0301" * 3 + "日" * 9]
)
@pytest.mark.parametrize("width", [1, 2, 7, 8])
def test_a_word_that_is_wider_than_its_column_is_broken_and_not_lost(text: str, width: int) -> None:
    lines = wrap(f"in {text} out", width)

    assert "".join("".join(lines).split()) == f"in{text}out"
    assert max(map(cell_width, lines)) <= max(width, 2)


def test_a_long_word_is_broken_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = list[int]()
    measure = cells.chop_cells

    def note(text: str, width: int) -> list[str]:
        measured.append(len(text))
        return measure(text, width)

    monkeypatch.setattr(cells, "chop_cells", note)

    assert len(wrap("日" * 1_000, 40)) == 50
    assert measured == [1_000]


LONG_COLUMNS = [Column("NODE", names=True), Column("STATE"), Column("NOTE", fold=True)]
LONG_ROWS = [[f"node{number:05}", Cell("offline", "gone"), ""] for number in range(2_500)]


def test_a_long_table_in_a_pipe_has_all_rows_and_all_columns_and_loses_nothing_of_a_late_one() -> None:
    late = ["a-node-with-a-longer-name", "present", "one\ntwo\x1b[2J"]

    pieces = list(draw(LONG_COLUMNS, [*LONG_ROWS, late], Style(color=True)))

    lines = "".join(pieces).splitlines()
    assert lines[:2] == [
        "\x1b[1mNODE\x1b[0m       \x1b[1mSTATE\x1b[0m    \x1b[1mNOTE\x1b[0m",
        "node00000  \x1b[35moffline\x1b[0m",
    ]
    assert len(lines) == 1 + 2_500 + 2
    assert lines[-2:] == [
        "a-node-with-a-longer-name  present  one",
        f"{' ' * 20}two\\x1b[2J",
    ]
    assert len(pieces) > 5


def test_rows_of_a_long_table_are_made_when_they_are_written() -> None:
    made: list[int] = []

    def make(number: int) -> list[str]:
        made.append(number)
        return [f"node{number}", "present", ""]

    pieces = draw(LONG_COLUMNS, Rows(range(5_000), make), Style())
    next(pieces)
    first = len(made)
    rest = "".join(pieces)

    assert (first, rest.count("\n"), len(made)) == (LONG, 5_000, 5_000)


def test_a_terminal_shows_the_beginning_of_a_long_table_and_makes_no_other_rows() -> None:
    made: list[int] = []

    def make(number: int) -> list[str]:
        made.append(number)
        return [
            f"node{number}",
            "present",
            f"a note of a node that differs: {number}" if number else "long " * 30,
        ]

    rows = Rows(range(100_003), make)
    text = "".join(draw(LONG_COLUMNS, rows, Style(width=80, height=20), unit="nodes", narrow="-t"))

    lines = text.splitlines()
    assert lines[0].split() == ["NODE", "STATE", "NOTE"]
    assert lines[1].startswith("node0 ")
    assert lines[-2] == "node12  present  a note of a node that differs: 12"
    assert lines[-1] == "the first 13 of 100,003 nodes; narrow with -t, or show all with `| less`"
    assert len(lines) == 1 + 15 + 1
    assert len(made) <= 20


def test_a_terminal_shows_the_end_of_a_long_table_whose_last_rows_are_the_worst() -> None:
    text = "".join(draw(LONG_COLUMNS, LONG_ROWS, Style(width=80, height=6), is_worst_last=True))

    lines = text.splitlines()
    assert lines[1] == "node02490  offline"
    assert lines[-2:] == ["node02499  offline", "the last 10 of 2,500 rows; show all with `| less`"]


def test_a_terminal_shows_all_of_a_long_table_if_nodes_that_read_alike_share_few_rows() -> None:
    late = ["db1", Cell("failed", "bad"), ""]

    text = "".join(draw(LONG_COLUMNS, [*LONG_ROWS, late], Style(width=80, height=20, merges=True)))

    assert text == f"{'NODE':<19}STATE\nnode[00000-02499]  offline\n{'db1':<19}failed\n"


def _by_rich(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int) -> str:
    """The table as rich draws it, with the same rules for columns that may not be folded."""
    kept = [place for place in range(len(columns)) if any(row[place].text for row in rows)]
    widest = {
        place: max(cell_len(text) for text in (columns[place].title, *(row[place].text for row in rows)))
        for place in kept
    }
    least = {
        place: min(widest[place], LEAST_WIDTH) if columns[place].fold else widest[place] for place in kept
    }
    fits = sum(least.values()) + GAP * (len(kept) - 1) <= width
    grid = Table(box=None, pad_edge=False, show_edge=False)
    for place in kept:
        column = columns[place]
        grid.add_column(
            Text(column.title),
            justify="right" if column.right else "left",
            no_wrap=fits and not column.fold,
            overflow="fold",
            min_width=least[place] if fits and column.fold else None,
        )
    for row in rows:
        grid.add_row(*(Text(row[place].text) for place in kept))
    out = StringIO()
    Console(file=out, width=width, color_system=None, legacy_windows=False, _environ={}).print(grid)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())
