"""A planner whose group order follows a set: another hash seed, another plan."""


def apply(planner):
    original = planner.get_kv_cache_groups

    def grouped(config, specs):
        groups = original(config, specs)
        by_name = {group.layer_names[0]: group for group in groups}
        return [by_name[name] for name in set(by_name)]

    planner.get_kv_cache_groups = grouped
