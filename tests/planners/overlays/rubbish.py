"""A planner that returns what is no plan."""


def apply(planner):
    original = planner.get_kv_cache_groups

    def grouped(config, specs):
        return ["group of", 42] if any("doomed" in name for name in specs) else original(config, specs)

    planner.get_kv_cache_groups = grouped
