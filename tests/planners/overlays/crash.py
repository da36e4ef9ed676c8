"""A planner that ends its process with a signal."""

import os
import signal


def apply(planner):
    original = planner.get_kv_cache_groups

    def grouped(config, specs):
        if any("doomed" in name for name in specs):
            os.kill(os.getpid(), signal.SIGSEGV)
        return original(config, specs)

    planner.get_kv_cache_groups = grouped
