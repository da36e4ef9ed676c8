"""A planner that claims half as many requests again as there are blocks for."""


def apply(planner):
    claim = planner.get_kv_cache_capacity

    def boasting(config, kv_cache_config):
        tokens, concurrency = claim(config, kv_cache_config)
        return tokens, concurrency * 1.5

    planner.get_kv_cache_capacity = boasting
