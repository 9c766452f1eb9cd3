"""The bar that shows how far an import is. rich is imported only when a bar is drawn."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from sessiondb.report import OnProgress, Progress


@contextmanager
def progress_bar() -> Iterator[OnProgress | None]:
    """What to call with each Progress: it draws files, MB/s and time left on stderr. None when that is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich import progress
    from rich.console import Console

    bar = progress.Progress(
        progress.TextColumn("{task.fields[files]}"),
        progress.BarColumn(bar_width=None),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(compact=True),
        console=Console(stderr=True),
        transient=True,
        expand=True,
    )
    with bar:
        task = bar.add_task("", total=None, files="looking for files")

        def show(now: Progress) -> None:
            files = f"{now.files:,}/{now.files_total:,} files"
            bar.update(task, completed=now.bytes, total=now.bytes_total, files=files)

        yield show
