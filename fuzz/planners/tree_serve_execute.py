"""Runs scheduled steps on the shadow: what the worker writes and reads, in the worker's order.

Copies of blocks go first, then every request's recurrent state is moved, then all writes, then all reads: requests
of one step may read what another writes in it, as attention does, but not a recurrent state.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fuzz.planners.trace import Recorder, Spot
from fuzz.planners.tree_serve_live import Live, Scheduled, Step
from fuzz.planners.tree_serve_shadow import GARBAGE, UNWRITTEN, Shadow, StateView, View
from fuzz.planners.workload import Violation

ENCODER_TEXT = -(2**40)
"""Identities of encoder tokens are below every other."""


class Executor:
    """One worker's steps on one pool."""

    def __init__(
        self, shadow: Shadow, views: Sequence[View], states: Sequence[StateView], rings: Sequence[int], *,
        lookahead: int, encoder_tokens: int, model_len: int, record: Recorder,
    ) -> None:  # fmt: skip
        self.record = record
        self.shadow, self.views, self.states, self.rings = shadow, views, states, rings
        self.lookahead, self.encoder_tokens, self.model_len = lookahead, encoder_tokens, model_len
        self.found: list[Violation] = []

    def run(self, step: Step) -> None:
        """Executes one step."""
        self.record("copy")
        for source, target in step.copies:
            self.shadow.copy(source, target)
        spoilt = {id(part) for part in step.parts if not self.read_states(part)}
        for part in step.parts:
            self.write(part)
            self.write_states(part)
        for part in step.parts:
            if part.hit > 0 and not self.read_hit(part):
                spoilt.add(id(part))
            if id(part) not in spoilt:
                self.read(part)
        for part in step.parts:
            self.draft_ahead(part)

    def note(self, check: str, path: str, part: Scheduled, group: int, message: str, spot: Spot) -> None:
        """Records a violation."""
        self.found.append(Violation(
            check=check, path=path, turn=part.turn, group=group, message=message, spot=spot,
            at=len(self.record.events),
        ))  # fmt: skip

    def identities(self, view: View, live: Live) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """What a layer of this view caches for each token of a request."""
        if view.rule == "encoder":
            return ENCODER_TEXT - live.uid * 2**20 - np.arange(self.encoder_tokens, dtype=np.int64)
        return live.shifted if view.shifted else live.identities

    def write(self, part: Scheduled) -> None:
        """Writes the keys of all tokens of the step; rejected drafts are garbage."""
        self.record("write", part.live.uid, part.settled)
        for store, view in {view.store: view for view in self.views}.items():
            table = part.tables[view.group]
            if view.rule == "encoder":
                if part.hit >= 0:
                    self.record("encode", part.live.uid, view.group, view.span, self.encoder_tokens)
                    self.shadow.write(store, table, 0, self.identities(view, part.live))
                continue
            end = part.start + part.count
            values = np.full(part.count, GARBAGE, dtype=np.int64)
            right = self.identities(view, part.live)[part.start : min(part.settled, end)]
            values[: len(right)] = right
            self.shadow.write(store, table, part.start, values)
        for group in self.rings:
            table = part.tables[group]
            if table:
                held = self.shadow.state(group, table[0])
                if part.hit < 0 and held != part.live.uid:
                    words = f"the ring in block {table[0]} holds another's tokens"
                    self.note("Q6", "content.ring", part, group, words, Spot("ring", (part.live.uid, group)))
                self.record("ring", part.live.uid, group)
                self.shadow.put_state(group, table[0], part.live.uid)

    def draft_ahead(self, part: Scheduled) -> None:
        """A drafter writes beyond what is settled; those slots hold nothing to be relied on."""
        if not self.lookahead:
            return
        for view in self.views:
            if view.draft and view.rule != "encoder":
                count = min(self.lookahead, self.model_len - part.settled)
                if count > 0:
                    self.record("ahead", part.live.uid, *view.store, part.settled, count)
                    ahead = np.full(count, GARBAGE, dtype=np.int64)
                    self.shadow.write(view.store, part.tables[view.group], part.settled, ahead)

    def read_hit(self, part: Scheduled) -> bool:
        """Whether what was found in the cache is the prefix of this request."""
        good = True
        for view in self.views:
            if view.rule == "encoder":
                continue
            for start, end in view.visible(part.hit, part.live.prompt):
                wanted = self.identities(view, part.live)
                at = self.shadow.holds(view, part.tables[view.group], start, end, wanted)
                if at >= 0:
                    good = False
                    path = "hit.draft" if view.shifted else f"hit.{view.rule}"
                    instead = self.describe(view, part, at)
                    self.note(
                        "Q7", path, part, view.group,
                        f"a hit of {part.hit} tokens gives token {at} a block that holds {instead}",
                        content_spot(view, part, start, end),
                    )  # fmt: skip
        return good

    def read(self, part: Scheduled) -> None:
        """Every token that the step's queries attend to is in its slot."""
        for view in self.views:
            if view.rule == "encoder":
                ranges = [(0, self.encoder_tokens)]
            else:
                ranges = view.visible(part.start, part.live.prompt)
                ranges[-1] = (min(ranges[-1][0], part.start), part.settled)
            for start, end in ranges:
                wanted = self.identities(view, part.live)
                at = self.shadow.holds(view, part.tables[view.group], start, end, wanted)
                if at >= 0:
                    path = "content.draft" if view.shifted else f"content.{view.rule}"
                    instead = self.describe(view, part, at)
                    self.note(
                        "Q6", path, part, view.group,
                        f"token {at} of a request at {part.start} is gone; its slot holds {instead}",
                        content_spot(view, part, start, end),
                    )  # fmt: skip

    def describe(self, view: View, part: Scheduled, token: int) -> str:
        """What stands where a token should."""
        table = part.tables[view.group]
        column = token // view.span
        if column >= len(table):
            return "nothing: the table ends before it"
        block = table[column]
        owner = int(self.shadow.owner[block])
        if owner != view.group:
            return f"bytes of group {owner} in block {block}" if owner >= 0 else f"nothing in block {block}"
        value = int(self.shadow.slots[view.store][block, token % view.span])
        if value == UNWRITTEN:
            return f"nothing in block {block}"
        if value == GARBAGE:
            return f"a rejected draft in block {block}"
        return f"token {value % 2**32} of text {value // 2**32} in block {block}"

    def read_states(self, part: Scheduled) -> bool:
        """Whether each recurrent state that the step starts from is the one after the tokens before it."""
        live, good = part.live, True
        if part.hit >= 0:
            live.columns, live.bias = {}, 0
        for view in self.states:
            if part.start == 0:
                continue
            if view.mode == "all" and view.spare:
                continue  # where drafts leave their states in this mode is the kernel's own business
            table = part.tables[view.group]
            column = self.column_before(view, part)
            if column >= len(table):
                good = False
                spot = Spot("blocks", (live.uid, view.group, column, column + 1, 0))
                self.note("Q5", "backed.state", part, view.group, f"the table ends before state column {column}", spot)
                continue
            held = self.shadow.state(view.group, table[column])
            wanted = int(live.identities[part.start - 1])
            if held != wanted:
                good = False
                check, path = ("Q7", "hit.state") if part.hit > 0 else ("Q6", "content.state")
                after = f"after {held % 2**32 + 1} tokens of text {held // 2**32}" if held >= 0 else "of nobody"
                self.note(
                    check, path, part, view.group,
                    f"the state before token {part.start}, in block {table[column]}, is one {after}",
                    Spot("state", (live.uid, view.group, column, part.start, view.block)),
                )  # fmt: skip
        return good

    def column_before(self, view: StateView, part: Scheduled) -> int:
        """The column of the state that the step starts from."""
        if view.mode == "none":
            return part.live.bias
        column = part.live.columns.get(view.group, (part.start - 1) // view.block)
        return column + (part.live.bias if view.mode == "align" else 0)

    def write_states(self, part: Scheduled) -> None:
        """Writes the states that the step leaves: the running one, one per draft, and those it is to keep."""
        live = part.live
        base = part.start + part.count - part.drafts  # tokens that are no drafts end here
        bias = part.accepted
        for view in self.states:
            first = 0 if view.mode == "none" else (part.start + part.count - 1) // view.block
            if view.mode == "all":
                for end in range((part.start // view.block + 1) * view.block, base + 1, view.block):
                    self.put(part, view.group, end // view.block - 1, end)
                self.put(part, view.group, (base - 1) // view.block, base)
                live.columns[view.group] = (part.settled - 1) // view.block
                continue
            for draft in range(part.drafts + 1):
                right = draft <= part.accepted
                self.put(part, view.group, first + draft, base + draft if right else 0)
            if view.mode == "align":
                live.columns[view.group] = first
                boundary = part.settled // view.block * view.block
                if boundary >= base and boundary > part.start:
                    # The worker keeps the state of a block border that accepted drafts crossed.
                    column = boundary // view.block - 1
                    if column != first + (boundary - base):
                        self.put(part, view.group, column, boundary)
                    if column == first:
                        bias = 0  # it lies where the running state begins
        for group, block, tokens in part.exports:
            self.put(part, group, part.tables[group].index(block), tokens)
        live.bias = bias

    def put(self, part: Scheduled, group: int, column: int, tokens: int) -> None:
        """Writes the state after so many tokens (0: after a draft that is rejected) at a column; one that is missing
        or null is reported when it is scheduled.
        """
        self.record("state", part.live.uid, group, column, tokens)
        table = part.tables[group]
        if column < len(table) and table[column]:
            value = int(part.live.identities[tokens - 1]) if tokens else GARBAGE
            self.shadow.put_state(group, table[column], value)


def content_spot(view: View, part: Scheduled, start: int, end: int) -> Spot:
    """Where a check looked at what layers of ``view`` read of the tokens from ``start`` to ``end``."""
    flags = int(view.shifted), int(view.rule == "encoder")
    return Spot("content", (part.live.uid, view.group, view.span, start, end, *flags))
