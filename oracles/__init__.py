"""The judges: what a case is, what a plan is, and which properties every correct plan has.

This package imports the standard library, msgspec and numpy only: no vLLM, no torch, no Hypothesis, no
disk, no terminal. It can therefore be used inside a planner's own process, under any interpreter.
"""
