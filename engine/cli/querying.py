"""`sessiondb sql`: any question that SQL can ask, read-only."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Iterator, Sequence
from threading import Thread
from typing import Any, Final

import click

from sessiondb.cli.failures import INTERRUPTED
from sessiondb.cli.options import TEXT, Settings, reading, reads, takes_ndjson
from sessiondb.cli.output import BOLD, on_terminal, put, put_json, say, styled
from sessiondb.cli.printable import columns_of, pad, printable
from sessiondb.cli.table import Column, fits, table
from sessiondb.query import Result
from sessiondb.schema.views import VIEWS
from sessiondb.store import Store

Row = dict[str, Any]

EXACT: Final = 2**53
"""Beyond it JSON readers round integers."""

LEAST_COLUMN: Final = 8


@click.command("sql", short_help="Ask the database with SQL, read-only.")
@click.argument("query", type=TEXT, required=False)
@click.argument("params", nargs=-1, type=TEXT, metavar="[PARAM]...")
@click.option("--schema", is_flag=True, help="Print the documented views and their columns.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV with a head line.")
@takes_ndjson
@reads
@click.pass_obj
def command(
    settings: Settings, query: str | None, params: tuple[str, ...], schema: bool, as_csv: bool, ndjson: bool,
    fresh: bool,
) -> None:  # fmt: skip
    """Run one SQL query that only reads, and print its rows; with --json a list of objects.

    Each PARAM stands for a ? of the query, in order; one that looks like a number is a number. Put -- before a PARAM
    that starts with a dash. In JSON and CSV, bytes that are no UTF-8 are written x'…' in hex; in JSON, integers beyond
    2^53 are strings.
    """
    if as_csv and (settings.json or ndjson):
        raise click.UsageError("--csv goes neither with --json nor with --ndjson")
    if schema:
        if query is not None:
            raise click.UsageError("--schema takes no query")
        _print_schema(as_json=settings.json)
        return
    if query is None:
        raise click.UsageError("give a query, or --schema")
    with reading(settings, fresh=fresh) as store:
        result = _run(store, query, [_number_or_text(param) for param in params])
    _print_result(result, as_json=settings.json, as_csv=as_csv, ndjson=ndjson)


def _run(store: Store, query: str, params: Sequence[Any]) -> Result:
    """Run the query beside the main thread: inside SQLite, Python would not hear of Ctrl-C."""
    outcome: list[Result | BaseException] = []

    def work() -> None:
        try:
            outcome.append(store.query(query, params))
        except BaseException as error:  # noqa: BLE001 - raised again below, in the thread that waits
            outcome.append(error)

    thread = Thread(target=work, daemon=True)
    try:
        thread.start()
        thread.join()
    except KeyboardInterrupt:
        say("interrupted")
        os._exit(INTERRUPTED)  # the thread cannot be stopped, and a query has nothing to lose
    result = outcome[0]
    if isinstance(result, BaseException):
        raise result
    return result


def _number_or_text(param: str) -> int | float | str:
    for kind in (int, float):
        try:
            if str(number := kind(param)) == param:  # 007 is no number, nor is nan to be one
                return number if abs(number) < 1 << 63 else param
        except (ValueError, OverflowError):
            continue
    return param


def _print_result(result: Result, *, as_json: bool, as_csv: bool, ndjson: bool) -> None:
    if ndjson:
        for row in result.to_dicts():
            put_json(_for_json(row))
    elif as_json:
        put_json([_for_json(row) for row in result.to_dicts()])
    elif as_csv:
        _print_csv(result)
    elif result.rows:
        put(_table(result))
    else:
        say("no rows")


def _for_json(row: Row) -> Row:
    return {name: _json_value(value) for name, value in row.items()}


def _json_value(value: Any) -> Any:
    if isinstance(value, int) and abs(value) > EXACT:
        return str(value)
    return _text_of_bytes(value) if isinstance(value, bytes) else value


def _text_of_bytes(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"x'{value.hex()}'"


def _print_csv(result: Result) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(result.columns)
    writer.writerows(map(_csv_value, row) for row in result.rows)


def _csv_value(value: Any) -> Any:
    text = _text_of_bytes(value) if isinstance(value, bytes) else value
    return printable(text) if on_terminal() and isinstance(text, str) else text


def _table(result: Result) -> Iterator[str]:
    cells = [[_cell(value) for value in row] for row in result.rows]
    columns = [
        Column(
            printable(name),
            right=all(isinstance(row[i], int | float | None) for row in result.rows),
            least=min(LEAST_COLUMN, max(columns_of(printable(name)), *(columns_of(line[i]) for line in cells))),
        )
        for i, name in enumerate(result.columns)
    ]
    return table(columns, cells) if fits(columns) else _one_below_the_other(columns, cells)


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    return printable(_text_of_bytes(value) if isinstance(value, bytes) else str(value))


def _one_below_the_other(columns: list[Column], cells: list[list[str]]) -> Iterator[str]:
    """For rows with more columns than the terminal has room for."""
    size = max(columns_of(column.title) for column in columns)
    for number, line in enumerate(cells, start=1):
        yield styled(f"row {number:,}", BOLD)
        for column, cell in zip(columns, line, strict=True):
            yield f"  {pad(column.title, size)}  {cell}"


def _print_schema(*, as_json: bool) -> None:
    views = {name: _columns_of(create) for name, create in VIEWS.items()}
    if as_json:
        put_json(views)
    else:
        put(f"{name}({', '.join(columns)})" for name, columns in views.items())


def _columns_of(create: str) -> list[str]:
    selected = create.partition("SELECT")[2].partition("\nFROM")[0]
    return [column.rpartition(" AS ")[2].strip() for column in selected.split(",")]
