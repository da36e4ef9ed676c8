"""A planner that refuses every model, by a typed error."""


def apply(planner):
    def grouped(config, specs):
        raise ValueError("this planner refuses everything")

    planner.get_kv_cache_groups = grouped
