"""A campaign: cases in, findings out, one typed event a step. Knows no report.

``events`` are what a run tells; ``batches`` name cases so that any lane draws the same ones; a *lane* (``lane``,
``process``, ``cluster``) is a pair of warm planners with their judge; ``frontier`` is what was reached and what is
worth mutating; ``ledger`` counts and keeps the smallest witness of each fault; ``journal`` is what survives a kill;
``engine`` runs it all.
"""

from fuzz.campaign.batches import BATCH
from fuzz.campaign.engine import Order, run
from fuzz.campaign.events import (
    CanaryCaught,
    Event,
    Finished,
    Found,
    LaneLost,
    Minimised,
    Minimising,
    Progressed,
    Report,
    Resumed,
    Started,
    Witness,
)

__all__ = [
    "BATCH",
    "CanaryCaught",
    "Event",
    "Finished",
    "Found",
    "LaneLost",
    "Minimised",
    "Minimising",
    "Order",
    "Progressed",
    "Report",
    "Resumed",
    "Started",
    "Witness",
    "run",
]
