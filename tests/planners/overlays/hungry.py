"""A planner that eats memory until it gets no more."""


def apply(planner):
    original = planner.get_kv_cache_groups

    def grouped(config, specs):
        eaten = []
        while any("doomed" in name for name in specs):
            eaten.append(bytearray(64 << 20))
        return original(config, specs)

    planner.get_kv_cache_groups = grouped
