"""Checks of the manager's books, through its own public answers: ids, conservation, ownership, backing, refusals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from fuzz.planners.trace import Recorder, Spot
from fuzz.planners.tree_serve_live import Live, Scheduled
from fuzz.planners.tree_serve_shadow import StateView, View
from fuzz.planners.workload import Violation

WALK_BLOCKS = 600
"""Pools up to this size have their free list walked in every turn, larger ones at the end only."""

Tables = dict[int, tuple[tuple[int, ...], ...]]

ALL_BOOKS = Spot("books")


class Need(Struct, frozen=True, kw_only=True):
    """Columns ``first:last`` of a group's block table that a step uses, what for, and whether a cache hit gave them.

    ``led``: the group's manager follows another layer, so that what it forgets has that cause.
    """

    what: str
    group: int
    first: int
    last: int
    found: bool = False
    led: bool = False


def needs_of(
    part: Scheduled, views: Sequence[View], states: Sequence[StateView], *, lookahead: int, model_len: int,
    encoder_tokens: int,
) -> Iterator[Need]:  # fmt: skip
    """What a step writes and reads, by each layer's own spec."""
    end = part.start + part.count
    for view in views:
        if view.rule == "encoder":
            ranges = [(0, encoder_tokens, False)]
        else:
            ahead = max(0, min(lookahead, model_len - end)) if view.draft else 0
            before = view.visible(part.start, part.live.prompt)
            ranges = [*((low, high, part.hit > 0) for low, high in before), (part.start, end + ahead, False)]
        for low, high, found in ranges:
            if low < high:
                yield Need(
                    what=view.rule, group=view.group, first=low // view.span, last=(high - 1) // view.span + 1,
                    found=found, led=view.led,
                )  # fmt: skip
    for state in states:
        first = 0 if state.mode == "none" else (end - 1) // state.block
        yield Need(what="state", group=state.group, first=first, last=first + 1 + part.drafts)


class Books:
    """What the checks compare between turns."""

    def __init__(self, manager: Any, num_blocks: int, record: Recorder) -> None:
        self.manager, self.num_blocks, self.record = manager, num_blocks, record
        self.pool: Any = manager.block_pool
        self.found: list[Violation] = []
        self.turn = -1

    def note(self, check: str, path: str, message: str, group: int = -1, spot: Spot = ALL_BOOKS) -> None:
        """Records a violation."""
        self.found.append(Violation(
            check=check, path=path, turn=self.turn, group=group, message=message, spot=spot,
            at=len(self.record.events),
        ))  # fmt: skip

    def tables(self, live: Iterable[Live]) -> Tables:
        """The manager's block tables of these requests, by request number."""
        return {
            one.uid: tuple(tuple(ids) for ids in self.manager.get_block_ids(one.request.request_id)) for one in live
        }

    def counts(self) -> list[int]:
        """Reference counts of all blocks."""
        return [block.ref_cnt for block in self.pool.blocks]

    def check(self, tables: Tables, *, walk: bool) -> None:
        """Ids, conservation and ownership, between two turns."""
        counts = self.counts()
        holders: dict[int, list[tuple[int, int, int]]] = {}
        for uid, groups in tables.items():
            for group, ids in enumerate(groups):
                for column, block in enumerate(ids):
                    if not 0 <= block < self.num_blocks:
                        self.note("Q2", "ids.range", f"block {block} of a pool of {self.num_blocks}", group)
                    elif block:
                        holders.setdefault(block, []).append((group, uid, column))
        for block, held in holders.items():
            if len(held) > 1:
                self.check_shared(block, held)
        if self.found:
            return  # counts that are wrong besides are a consequence
        for block, held in holders.items():
            if counts[block] != len(held):
                path = "conservation.lent" if counts[block] < len(held) else "conservation.leak"
                self.note("Q3", path, f"block {block} is counted {counts[block]} times, held {len(held)}", held[0][0])
        leaked = [b for b in range(1, self.num_blocks) if counts[b] and b not in holders]
        if leaked:
            self.note(
                "Q3", "conservation.leak", f"{len(leaked)} blocks are counted but held by no request: {leaked[:4]}"
            )
        free = self.pool.get_num_free_blocks()
        used = sum(1 for block in range(1, self.num_blocks) if counts[block])
        if free + used + 1 != self.num_blocks:
            self.note("Q3", "conservation.sum", f"{free} free + {used} held + 1 null of {self.num_blocks} blocks")
        if walk or self.num_blocks <= WALK_BLOCKS:
            self.walk(holders)

    def check_shared(self, block: int, held: Sequence[tuple[int, int, int]]) -> None:
        """A block with several holders is one group's, at one place of several requests."""
        groups = {group for group, _, _ in held}
        if len(groups) > 1:
            self.note("Q4", "owner.groups", f"block {block} is held by groups {sorted(groups)} at once")
        elif len({uid for _, uid, _ in held}) < len(held):
            self.note("Q4", "owner.twice", f"block {block} stands twice in one request's table", held[0][0])
        elif len({column for _, _, column in held}) > 1:
            self.note("Q4", "owner.place", f"block {block} stands at several places of requests", held[0][0])

    def walk(self, holders: dict[int, list[tuple[int, int, int]]]) -> None:
        """The free list itself: each free block once, none of them held, the null block never."""
        free = [block.block_id for block in self.pool.free_block_queue.get_all_free_blocks()]
        if len(free) != self.pool.get_num_free_blocks() or len(set(free)) != len(free) or 0 in free:
            self.note("Q3", "conservation.free_list", f"the free list has {len(free)} entries, {len(set(free))} ids")
        both = [block for block in free if block in holders]
        if both:
            self.note("Q3", "conservation.lent", f"blocks {both[:4]} are free and held", holders[both[0]][0][0])

    def check_backing(self, part: Scheduled, tables: Tables, needs: Iterable[Need]) -> None:
        """Each token that a step writes or reads has a block, which the manager still holds for it."""
        own = tables.get(part.live.uid)
        if own is not None:
            for need in needs:
                self.check_columns(part, part.tables[need.group], own[need.group], need)

    def check_columns(self, part: Scheduled, table: Sequence[int], own: Sequence[int], need: Need) -> None:
        """The columns needed are real blocks in the worker's table, and the ones that the manager holds there."""
        where = f"tokens {part.start} to {part.start + part.count} of a request"
        wanted = tuple(table[need.first : need.last])
        spot = Spot("blocks", (part.live.uid, need.group, need.first, need.last, -1))
        if len(table) < need.last:
            message = f"{where} need column {need.last - 1}; the table has {len(table)}"
            self.note("Q5", f"backed.{need.what}", message, need.group, spot)
        elif 0 in wanted:
            message = f"{where} get the null block in column {need.first + wanted.index(0)}"
            if need.found:
                self.note("Q7", f"hit.{need.what}", f"after a hit of {part.hit} tokens, {message}", need.group, spot)
            else:
                self.note("Q2", "ids.null", message, need.group, spot)
        elif tuple(own[need.first : need.last]) != wanted:
            column = next(c for c in range(need.first, need.last) if c >= len(own) or own[c] != table[c])
            now = own[column] if column < len(own) else "none"
            message = f"{where} use block {table[column]} in column {column}, where the manager holds {now}"
            self.note("Q5", "backed.led" if need.led else f"backed.{need.what}", message, need.group, spot)

    def check_refusal(self, live: Live, before: Tables, counts: list[int], cached: int, others: Iterable[Live]) -> None:
        """A refused allocation changes nothing, but that blocks out of sight of the request may be given back."""
        after = self.tables(others)
        spot = Spot("refusal")
        lost: dict[int, int] = {}
        for uid, groups in before.items():
            for group, ids in enumerate(groups):
                now = after[uid][group] if uid in after else ()
                if uid != live.uid and now != ids:
                    words = "a refused allocation altered another request's blocks"
                    self.note("Q8", "refused.others", words, group, spot)
                    continue
                for column, block in enumerate(ids):
                    if column < len(now) and now[column] == 0 and block:
                        lost[block] = lost.get(block, 0) + 1
                    elif column >= len(now) or now[column] != block:
                        words = "a refused allocation altered the request's blocks"
                        self.note("Q8", "refused.table", words, group, spot)
                        break
                if len(now) > len(ids):
                    self.note("Q8", "refused.table", "a refused allocation left blocks with the request", group, spot)
        counted = self.counts()
        wrong = [b for b in range(1, self.num_blocks) if counted[b] != counts[b] - lost.get(b, 0)]
        if wrong:
            words = f"a refused allocation altered the counts of {len(wrong)} blocks"
            self.note("Q8", "refused.counts", words, spot=spot)
        if self.cached() != cached:
            self.note("Q8", "refused.cache", "a refused allocation altered the prefix cache", spot=spot)

    def cached(self) -> int:
        """Entries of the prefix cache."""
        return len(self.pool.cached_block_hash_to_block)

    def check_end(self) -> None:
        """With all requests gone, every block but the null block is free."""
        free = self.pool.get_num_free_blocks()
        held = [block.block_id for block in self.pool.blocks[1:] if block.ref_cnt]
        if free != self.num_blocks - 1 or held:
            self.note("Q9", "end.free", f"{self.num_blocks - 1 - free} blocks are not free at the end: {held[:4]}")
        self.walk({})
