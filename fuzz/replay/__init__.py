"""Replays plans with real allocation: ``memory`` paints pages, ``requests`` serves workloads.

``device`` is one file that also runs alone, on a machine with torch and nothing of ours.
"""
