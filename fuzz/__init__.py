"""The harness: strategies, planners, campaigns, reports.

Importing this package imports nothing else, so that a worker under another interpreter can load the two
modules it needs (``fuzz.planners.protocol`` and its siblings) without our dependencies.
"""
