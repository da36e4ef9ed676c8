"""Replays requests: vLLM's own cache manager serves a random workload on a plan, and is checked after every step.

``draw_workload`` makes a workload, ``question`` asks a planner to serve it, ``breaches_of`` says what was broken.
"""

from fuzz.replay.requests.asking import (
    RequestReplay,
    question,
    replay_requests,
    workload_for,
    workload_seconds,
)
from fuzz.replay.requests.checks import CHECKS, breaches_of, severity_of, untold
from fuzz.replay.requests.drawing import draw_workload

__all__ = [
    "CHECKS",
    "RequestReplay",
    "breaches_of",
    "draw_workload",
    "question",
    "replay_requests",
    "severity_of",
    "untold",
    "workload_for",
    "workload_seconds",
]
