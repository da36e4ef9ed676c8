"""What is asked of a harvesting process, and what it answers."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from fuzz.harvest.config_files import ConfigError

Grade = Literal["exact", "simulated", "approximate", "estimated"]
"""How far a case can be trusted, best first.

``exact``: vLLM's classes on a platform that is there. ``simulated``: on a faked device, or
without the compiled operations. ``approximate``: values of
tensors were read while building, and answered with zeros. ``estimated``: read off the configuration by kvfuzz.
"""

GRADES: tuple[Grade, ...] = ("exact", "simulated", "approximate", "estimated")

PLATFORM = re.compile(r"cpu|sm(8|9|10|12)\d")

Size = Annotated[int, Meta(ge=1, le=64)]


class Draft(Struct, frozen=True, kw_only=True):
    """A draft for speculative decoding: its method as vLLM names it, its tokens a step, its own configuration.

    ``method`` None leaves the choice to vLLM; ``config`` None is a draft that comes with the model (``mtp``).
    """

    method: str | None = None
    tokens: Size = 1
    config: dict[str, Any] | None = None


class Request(Struct, frozen=True, kw_only=True):
    """A model and how it is served. Block size and length in tokens; None is vLLM's own choice.

    ``engine_args`` are further arguments of vLLM's engine by their Python names.
    """

    name: str
    config: dict[str, Any]
    platform: str = "cpu"
    tp: Size = 1
    pp: Size = 1
    dcp: Size = 1
    block_size: int | None = None
    kv_cache_dtype: str | None = None
    max_model_len: int | None = None
    draft: Draft | None = None
    engine_args: dict[str, Any] = {}


class Refusal(Struct, frozen=True, kw_only=True):
    """vLLM's classes raised: at which step, what, and the key of the configuration that is missing, if that is it."""

    stage: Literal["config", "build", "specs"]
    type: str
    message: str
    frames: tuple[str, ...] = ()
    missing: str | None = None

    def sentence(self) -> str:
        """One sentence for a person."""
        if self.missing is not None:
            return f"the configuration lacks {self.missing!r}, which its model class reads"
        reason = re.sub(r"\s*\[type=.*", "", self.message, flags=re.DOTALL)
        lines = [line.strip() for line in reason.splitlines() if line.strip()]
        told = (
            [line for line in lines if not re.match(r"\d+ validation errors? for", line)] or lines or ["(no message)"]
        )
        sentence = told[0].removeprefix("Value error, ").partition(" Supported architectures:")[0]
        return f"vLLM refuses it ({self.type}): {sentence[:400]}"


class Reply(Struct, frozen=True, kw_only=True):
    """The answer to one request: a harvest, a refusal of vLLM's, or why there is neither."""

    outcome: Literal["harvested", "refused", "failed"]
    seconds: float
    peak_bytes: int
    harvest: dict[str, Any] | None = None
    refusal: Refusal | None = None
    reason: str = ""


def check_request(request: Request) -> None:
    """Raises ConfigError when the sizes cannot go together or the platform is not known."""
    if PLATFORM.fullmatch(request.platform) is None:
        raise ConfigError(f"--platform {request.platform!r}: is not known; use cpu, sm80, sm90, sm100 or sm120")
    if request.tp % request.dcp:
        raise ConfigError(f"--dcp {request.dcp}: the ranks of DCP are ranks of TP; make --tp a multiple of it")
    if request.tp * request.pp > 64:
        raise ConfigError(f"--tp {request.tp} --pp {request.pp}: more than 64 ranks; a case holds no more")


def grade_of(harvest: dict[str, Any]) -> Grade:
    """How far a harvest can be trusted."""
    if harvest["reads"]:
        return "approximate"
    if harvest["request"]["platform"] != "cpu":
        return "simulated"
    # A tree of Python files alone lacks its compiled operations, which then are stood in for.
    return "simulated" if any(note.startswith("custom operations") for note in harvest["faked"]) else "exact"
