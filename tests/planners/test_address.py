"""Addresses: the grammar, and the trees behind them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fuzz.planners import fetch
from fuzz.planners.address import AddressError, names_release, parse_address
from fuzz.planners.process import Planner, Question
from fuzz.planners.trees import Config, PlannerEntry, open_launch, read_config
from oracles.plan import Planned, Refused, Unsupported, plan_of
from tests.models import dense, split_by_draft

OVERLAYS = Path(__file__).parent / "overlays"

MARKING_DIFF = """\
--- a/vllm/v1/core/kv_cache_utils.py
+++ b/vllm/v1/core/kv_cache_utils.py
@@ -1,5 +1,6 @@
 # SPDX-License-Identifier: Apache-2.0
 # SPDX-FileCopyrightText: Copyright contributors to the vLLM project
 \"\"\"KV-Cache Utilities.\"\"\"
+KVFUZZ_TEST_MARK = "patched by a diff"
 \n import copy
"""


@pytest.mark.parametrize(
    ("text", "scheme", "place", "revision", "overlays"),
    [
        ("installed", "installed", "", "", ()),
        ("installed+isolate", "installed", "", "", ("isolate",)),
        ("pypi:0.33.0", "pypi", "0.33.0", "", ()),
        ("pypi:0.33.0+isolate", "pypi", "0.33.0", "", ("isolate",)),
        ("pypi:0.33.0+cu129", "pypi", "0.33.0+cu129", "", ()),
        ("my-branch", "name", "my-branch", "", ()),
        ("my-branch+isolate", "name", "my-branch", "", ("isolate",)),
    ],
)
def test_an_address_is_parsed(text: str, scheme: str, place: str, revision: str, overlays: tuple[str, ...]) -> None:
    address = parse_address(text)
    assert (address.scheme, address.place, address.revision, address.overlays) == (scheme, place, revision, overlays)


def test_a_git_address_takes_the_last_at_sign(tmp_path: Path) -> None:
    folder = tmp_path / "user@host"
    folder.mkdir()
    address = parse_address(f"git:{folder}@feature/x")
    assert (address.place, address.revision) == (str(folder), "feature/x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected installed"),
        ("pypi:", "is no version"),
        ("pypi:../../etc", "is no version"),
        ("path:/nowhere/at/all", "does not exist"),
        ("git:/tmp", "write git:DIR@REV"),
        ("git:/tmp@--upload-pack=x", "write git:DIR@REV"),
        ("installed+missing.py", "does not exist"),
        ("ftp:something", "expected installed"),
        ("installed\x00", "expected installed"),
    ],
)
def test_a_wrong_address_says_what_would_be_right(text: str, message: str) -> None:
    with pytest.raises(AddressError, match=message):
        parse_address(text)


def test_an_unknown_name_lists_the_known_ones() -> None:
    config = Config(planners={"mine": PlannerEntry(address="installed")})
    with pytest.raises(AddressError, match=r"'yours': not in kvfuzz.toml \(known: mine\)"):
        open_launch("yours", config)


def test_a_wrong_config_names_the_field(tmp_path: Path) -> None:
    (tmp_path / "kvfuzz.toml").write_text('[planners.mine]\naddress = "installed"\ncontract = "both"\n')
    with pytest.raises(AddressError, match=r"contract"):
        read_config(tmp_path)


def test_the_config_of_a_folder_above_is_found(tmp_path: Path) -> None:
    (tmp_path / "kvfuzz.toml").write_text('[planners.mine]\naddress = "installed+isolate"\n')
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert read_config(below).planners["mine"].address == "installed+isolate"


def test_a_named_planner_brings_its_contract_and_interpreter() -> None:
    config = Config(planners={"mine": PlannerEntry(address="installed", python=sys.executable, contract="isolate")})
    launch = open_launch("mine", config)
    assert (launch.python, launch.contract) == (sys.executable, "isolate")


def groups_of(address: str, config: Config | None = None) -> tuple[str, int]:
    """(the version, the number of groups of the split model, -1 where the tree cannot express it)."""
    with Planner(open_launch(address, config or Config())) as planner:
        mixed, plain = planner.ask([Question(split_by_draft()), Question(dense())])
        assert isinstance(plain.outcome, Planned)
        version = planner.hello().version
    if isinstance(mixed.outcome, Unsupported):
        return version, -1
    assert isinstance(mixed.outcome, Planned | Refused)
    plan = plan_of(mixed.outcome)
    assert plan is not None
    assert plan.groups is not None
    return version, len(plan.groups)


@pytest.mark.parametrize(
    ("address", "groups"),
    [
        ("installed", 3),
        ("installed+isolate", 2),
        ("pypi:0.28.0", -1),
        ("pypi:0.30.0", -1),
        ("pypi:0.33.0", 3),
        ("pypi:0.33.0+isolate", 2),
    ],
)
@pytest.mark.slow
def test_released_versions_plan(address: str, groups: int) -> None:
    version, found = groups_of(address)
    assert found == groups
    assert version == "0.32.0" if address.startswith("installed") else address.split("+")[0] == f"pypi:{version}"


@pytest.mark.slow
def test_a_folder_a_revision_and_a_branch_plan(tmp_path: Path) -> None:
    tree = fetch.wheel_tree("0.31.0")
    assert groups_of(f"path:{tree}") == ("0.31.0", 3)

    checkout = tmp_path / "checkout"
    fetch.link_package(tree / "vllm", checkout / "vllm")
    for link in checkout.rglob("*"):
        if link.is_symlink():
            content = link.read_bytes()
            link.unlink()
            link.write_bytes(content)
    git = ["git", "-C", str(checkout), "-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false"]
    subprocess.run([*git, "init", "-q", "-b", "main"], check=True)
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-qm", "as released"], check=True)
    subprocess.run([*git, "checkout", "-q", "-b", "refusing"], check=True)
    planner = checkout / "vllm/v1/core/kv_cache_utils.py"
    planner.write_text(planner.read_text() + "\n\ndef get_kv_cache_groups(vllm_config, kv_cache_spec):\n"
                       "    raise ValueError('refused on the branch')\n")  # fmt: skip
    subprocess.run([*git, "commit", "-qam", "refuse"], check=True)
    planner.write_text("this is no Python, and must not be read")  # the checkout is never used

    assert groups_of(f"git:{checkout}@main") == ("0.31.0", 3)
    with Planner(open_launch(f"git:{checkout}@refusing", Config())) as branch:
        (answer,) = branch.ask([Question(dense())])
    assert isinstance(answer.outcome, Refused)
    assert answer.outcome.first.message == "refused on the branch"
    assert planner.read_text() == "this is no Python, and must not be read"


def test_an_unknown_revision_is_named(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    with pytest.raises(fetch.FetchError, match="has no revision 'nothing'"):
        open_launch(f"git:{tmp_path}@nothing", Config())


def test_a_diff_and_a_python_overlay_change_the_planner(tmp_path: Path) -> None:
    diff = tmp_path / "mark.diff"
    diff.write_text(MARKING_DIFF)
    overlay = tmp_path / "look.py"
    overlay.write_text(
        "def apply(planner):\n"
        "    original = planner.get_kv_cache_groups\n"
        "    def grouped(config, specs):\n"
        "        raise ValueError(planner.KVFUZZ_TEST_MARK)\n"
        "    planner.get_kv_cache_groups = grouped\n"
    )
    with Planner(open_launch(f"installed+{diff}+{overlay}", Config())) as planner:
        (answer,) = planner.ask([Question(dense())])
    assert isinstance(answer.outcome, Refused)
    assert answer.outcome.first.message == "patched by a diff"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "not a diff"),
        (MARKING_DIFF.replace("Apache-2.0", "Apache-3.0"), "does not apply"),
        (MARKING_DIFF.replace("vllm/v1/core/kv_cache_utils.py", "../outside.py"), "outside|not a diff|does not apply"),
    ],
)
def test_a_diff_that_cannot_be_applied_says_why(tmp_path: Path, text: str, message: str) -> None:
    diff = tmp_path / "bad.diff"
    diff.write_text(text)
    with pytest.raises(fetch.FetchError, match=message):
        open_launch(f"installed+{diff}", Config())


def test_another_interpreter_runs_the_planner(tmp_path: Path) -> None:
    # A second interpreter of its own: an environment that borrows this one's packages.
    import venv

    place = tmp_path / "second"
    venv.create(place, with_pip=False, symlinks=True)
    site = next((place / "lib").glob("python*/site-packages"))
    (site / "borrowed.pth").write_text("\n".join(p for p in sys.path if p.endswith("site-packages")))
    config = Config(planners={"second": PlannerEntry(address="installed", python=str(place / "bin/python"))})
    assert groups_of("second", config) == ("0.32.0", 3)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.mkdir(), "Is a directory"),
        (os.mkfifo, "is no regular file"),
        (lambda path: path.symlink_to("nowhere"), "No such file"),
        (lambda path: path.symlink_to("/dev/zero"), "is no regular file"),
    ],
    ids=["folder", "pipe", "dangling", "device"],
)
def test_a_config_that_is_no_file_is_named(tmp_path: Path, make: Callable[[Path], None], words: str) -> None:
    make(tmp_path / "kvfuzz.toml")
    with pytest.raises(AddressError, match=f"kvfuzz.toml: cannot be read .{words}"):
        read_config(tmp_path)


@pytest.mark.parametrize("text", ["installed", "installed+isolate", "pypi:0.33.0", "pypi:0.33.0+isolate"])
def test_releases_are_told_from_trees_of_ones_own(text: str) -> None:
    assert names_release(text)


@pytest.mark.parametrize(
    "text",
    ["installed+mine.py", "installed+isolate+mine.diff", "git:~/vllm@main", "path:/v", "installed.one", "mine+isolate"],
)
def test_trees_of_ones_own_are_no_releases(text: str) -> None:
    assert not names_release(text)
