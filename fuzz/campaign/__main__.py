"""The process of one lane (see ``fuzz.campaign.process``); not a command for people."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from typing import BinaryIO

import msgspec

from fuzz.campaign.batches import Batch, Recheck, Result
from fuzz.campaign.lane import Lane, Setup
from fuzz.campaign.process import Failed, Finish, Message, Reply, receive
from fuzz.planners.process import PlannerError
from fuzz.planners.protocol import pack
from fuzz.replay.memory.check import Disagreement

ORPHAN_SECONDS = 2.0
"""How often a lane looks whether the engine still lives."""

_MESSAGES = msgspec.msgpack.Decoder(Message)


def answer_with(lane: Lane, task: Batch | Recheck | Finish) -> Result:
    """Does one task in this process. Raises PlannerError."""
    if isinstance(task, Batch):
        return lane.work(task)
    return lane.recheck(task) if isinstance(task, Recheck) else lane.finish()


def serve(messages: BinaryIO, replies: BinaryIO) -> None:
    """Serves one lane until the messages end."""

    def send(reply: Reply) -> None:
        replies.write(pack(reply))
        replies.flush()

    lane: Lane | None = None
    try:
        while True:
            try:
                message = _MESSAGES.decode(receive(messages))
            except EOFError:
                return
            try:
                if isinstance(message, Setup):
                    lane = Lane(message)
                    send(lane.start())
                elif lane is not None:
                    send(answer_with(lane, message))
            except PlannerError as error:
                send(Failed(error=str(error)))
            except Disagreement as error:
                send(Failed(error=f"kvfuzz itself is wrong, please report it: {error}"))
            except Exception as error:
                # A judge that fails would fail on the same batch wherever it is asked again.
                traceback.print_exc()
                at = f" on batch {message.number}" if isinstance(message, Batch) else ""
                send(Failed(error=f"kvfuzz itself failed{at}, please report it: {type(error).__name__}: {error}"))
    finally:
        if lane is not None:
            lane.close()


def end_with_parent() -> None:
    """Ends this process soon after the engine died, also in the middle of a batch; its planners end with it."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(ORPHAN_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """Serves on the standard streams; anything printed goes to standard error instead."""
    end_with_parent()
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, replies)


if __name__ == "__main__":
    main()
