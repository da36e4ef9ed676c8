"""A planner that never comes back."""

import time


def apply(planner):
    original = planner.get_kv_cache_groups

    def grouped(config, specs):
        while any("doomed" in name for name in specs):
            time.sleep(3600)
        return original(config, specs)

    planner.get_kv_cache_groups = grouped
