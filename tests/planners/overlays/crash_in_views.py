"""Crashes where the workers' tensors are made of a plan; plans are right."""

import os
import signal


def apply(planner):
    from vllm.v1 import kv_cache_interface

    def create_kv_cache_views(*_args, **_kwargs):
        os.kill(os.getpid(), signal.SIGSEGV)

    kv_cache_interface.create_kv_cache_views = create_kv_cache_views
