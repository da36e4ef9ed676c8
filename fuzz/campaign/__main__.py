"""The process of one lane (see ``fuzz.campaign.process``); not a command for people."""

from __future__ import annotations

import os
import sys
from typing import BinaryIO

import msgspec

from fuzz.campaign.lane import Lane, Ready, Setup, or_failed
from fuzz.campaign.process import Message, receive
from fuzz.planners.parent import end_with_parent
from fuzz.planners.protocol import pack

_MESSAGES = msgspec.msgpack.Decoder(Message)


def serve(messages: BinaryIO, replies: BinaryIO) -> None:
    """Serves one lane until the messages end; the first of them is its setup."""
    lane: Lane | None = None

    def begin(setup: Setup) -> Ready:
        nonlocal lane
        lane = Lane(setup)
        return lane.start()

    try:
        while True:
            message = _MESSAGES.decode(receive(messages))
            if isinstance(message, Setup):
                replies.write(pack(or_failed(begin, message)))
            else:
                assert lane is not None
                replies.write(pack(or_failed(lane.do, message)))
            replies.flush()
    except EOFError:
        return
    finally:
        if lane is not None:
            lane.close()


def main() -> None:
    """Serves on the standard streams; anything printed goes to standard error instead."""
    end_with_parent()
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, replies)


if __name__ == "__main__":
    main()
