"""The *score*: how many planted defects a run finds, how soon, and how much of that each part of kvfuzz is worth.

A *mutant* is the planner with one planted defect, an overlay of ``tests/mutants``. It is *reached* when a case calls
the defect, *triggered* when its answer differs from the sound planner's, *detected* when a run reports a finding.
"""
