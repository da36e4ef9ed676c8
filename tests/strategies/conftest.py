"""Property tests over cases run under the profiles ``dev``, ``ci`` and ``nightly``."""

from __future__ import annotations

from fuzz.strategies import profiles

profiles.register()
