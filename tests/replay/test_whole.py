"""The whole corpus and 2,000 drawn cases, painted and viewed on three releases, under resolved and forced layouts.

What is found is what a law of placement says too, or is listed in known.toml; painter and arithmetic agree on every
plan, for a difference raises.
"""

from __future__ import annotations

import datetime
from collections import Counter

import pytest

from fuzz.corpus import corpus_folder, load_corpus
from fuzz.known import read_known
from fuzz.planners.process import Planner, Question
from fuzz.planners.trees import Config, open_launch
from fuzz.replay.memory.check import replay_pools
from fuzz.replay.memory.select import drawn_cases
from fuzz.replay.memory.views import views_against
from fuzz.strategies import Shape, vocabulary_of
from oracles.law import Evidence
from oracles.laws import broken_laws
from oracles.plan import plan_of

DRAWN = 2_000
BATCH = 32
PLACEMENT = frozenset({"M1", "M2", "M3", "M4", "M5", "M6", "M7"})


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("address", ["pypi:0.30.0", "installed", "pypi:0.33.0"])
def test_every_plan_is_clean_or_shows_what_a_law_or_known_toml_tells(address: str) -> None:
    known = read_known(corpus_folder() / "known.toml", datetime.date(2026, 12, 1))
    seen: Counter[str] = Counter()
    with Planner(open_launch(address, Config())) as planner:
        shape = Shape(vocabulary=vocabulary_of(planner.hello()))
        cases = [*(entry.case for entry in load_corpus(corpus_folder())), *drawn_cases(0, DRAWN, shape)]
        for at in range(0, len(cases), BATCH):
            batch = cases[at : at + BATCH]
            for case, answer in zip(batch, planner.ask([Question(case, "views") for case in batch]), strict=True):
                plan = plan_of(answer.outcome)
                if plan is None or plan.placement is None:
                    continue
                pools = list(replay_pools(case, plan))  # raises Disagreement
                assert [pool.skipped for pool in pools if pool.skipped] == []
                laws = broken_laws(Evidence(case=case, contract="native", outcome=answer.outcome), PLACEMENT)
                if any(pool.found for pool in pools):
                    assert laws != []
                views = views_against(case, plan, answer.views)
                told = [breach.fingerprint("patched") for breach in views if not laws]
                assert [one for one in told if not known.covers(one, "unfixed")] == []
                seen[case.settings.layout_origin] += len(pools)
    assert seen["resolved"] > 2_000
    assert seen["forced"] > 30
