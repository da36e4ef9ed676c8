"""A process that ends with the one that started it. Loaded by workers, so it needs the standard library only."""

from __future__ import annotations

import os
import threading
import time

ORPHAN_SECONDS = 2.0
"""How often a process looks whether its parent still lives."""


def end_with_parent() -> None:
    """Ends this process soon after its parent died, whatever it is doing: a planner that hangs would otherwise stay
    for ever, and a lane would go on with its batch.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(ORPHAN_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
