"""A planner that alters the specs it is given and remembers what it was asked."""


def apply(planner):
    original = planner.get_kv_cache_groups
    asked = []

    def grouped(config, specs):
        asked.append(len(specs))
        for spec in specs.values():
            if hasattr(spec, "num_kv_heads"):
                object.__setattr__(spec, "num_kv_heads", spec.num_kv_heads + 1)
        return original(config, specs)

    planner.get_kv_cache_groups = grouped
