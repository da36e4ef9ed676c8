"""A planner that prints, to standard output and beyond what a pipe holds."""

import sys


def apply(planner):
    original = planner.get_kv_cache_groups

    def grouped(config, specs):
        print("hello from the planner\n" * 20_000)
        sys.stdout.flush()
        return original(config, specs)

    planner.get_kv_cache_groups = grouped
