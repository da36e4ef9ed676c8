"""A planner that writes into every pipe it can find, the answer pipe among them."""

import os


def apply(planner):
    original = planner.get_kv_cache_groups

    def grouped(config, specs):
        if any("doomed" in name for name in specs):
            for fd in range(3, 256):
                try:
                    os.write(fd, b"\xff" * 64)
                except OSError:
                    continue
        return original(config, specs)

    planner.get_kv_cache_groups = grouped
