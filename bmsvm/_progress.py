"""Progress bars: shown in a terminal or a notebook once work takes longer than two seconds.

The environment variable ``TQDM_DISABLE=1`` turns them off.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tqdm.auto import tqdm

DELAY = 2.0
"""Seconds before a bar appears."""

TICK = 0.5
"""Seconds after which the time of a stage is shown anew."""


def progress(total: int, name: str, *, initial: int = 0, unit: str = "it") -> Any:
    """Return a progress bar, a context manager with ``update``; a silent one in a script."""
    notebook = "ipykernel" in sys.modules
    watched = notebook or (sys.stderr is not None and sys.stderr.isatty())
    # In a notebook tqdm itself does not look at the variable.
    off = os.environ.get("TQDM_DISABLE", "0") not in ("", "0")
    disable = off or not watched
    return tqdm(total=total, initial=initial, desc=name, unit=unit, delay=DELAY, disable=disable)


@contextlib.contextmanager
def stages(total: int, name: str) -> Iterator[Callable[[str], None]]:
    """Show which of some stages is under way: call what is returned with the name of each."""
    with progress(total, name) as bar:
        bar.miniters, bar.dynamic_miniters = 0, False  # updates by nothing show the time
        bar.bar_format = "{desc} (stage {n_fmt} of {total_fmt}), {elapsed}"
        over = threading.Event()

        def begin(stage: str) -> None:
            bar.set_description_str(f"{name}: {stage}", refresh=False)
            bar.update()

        def show() -> None:
            while not over.wait(TICK):
                bar.update(0)

        clock = threading.Thread(target=show, name="bmsvm: progress", daemon=True)
        try:
            if not bar.disable:
                clock.start()
            yield begin
        finally:
            over.set()
            if clock.is_alive():
                clock.join()
