"""A planner that claims three times the requests that there are blocks for."""


def apply(planner):
    claim = planner.get_kv_cache_capacity

    def boasting(config, kv_cache_config):
        tokens, concurrency = claim(config, kv_cache_config)
        return tokens, concurrency * 3

    planner.get_kv_cache_capacity = boasting
