"""A fix is one file: its name is the fix's, its docstring is its page, and it is registered nowhere else."""

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flatout.fixes.core.catalog import fixes
from flatout.fixes.core.fix import Fix
from flatout.rules import catalog
from flatout.schema.trial import Equivalence
from tests.architecture.source import REPO, Module, modules, none_of

HEADINGS = ["## What it does", "## Why it helps", "## How equal", "## When it is wrong"]
NOT_MEASURED = {"cudnn-search-off", "device-prefetch", "pinned-copy", "tf32"}  # by themselves, on a GPU
NOT_MEASURED |= {"kept-activations", "kept-copies", "kept-outputs"}  # a busy machine left trials undecided
NOT_MEASURED |= {"bf16-exchange", "exchange-once"}  # over a network
ORDINARY = (Equivalence.BITWISE, Equivalence.ROUNDING, Equivalence.PRECISION)
every_fix = pytest.mark.parametrize("fix", fixes(), ids=lambda fix: fix.name)


def fix_files() -> list[Module]:
    """Return the files of `flatout.fixes` that define `FIX`."""
    found = [m for m in modules().values() if m.layer == "fixes" and any(_defines_fix(node) for node in m.tree.body)]
    return found or pytest.skip("no fix exists yet")


def _defines_fix(node: ast.stmt) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return any(isinstance(target, ast.Name) and target.id == "FIX" for target in targets)


@pytest.mark.slow
def test_every_fix_file_is_found_and_named_by_its_fix():
    names = sorted(module.path.stem.replace("_", "-") for module in fix_files())
    assert [fix.name for fix in fixes()] == names


def test_every_name_is_used_once_and_is_no_rule_s():
    names = [fix.name for fix in fixes()]
    assert len(names) == len(set(names))
    assert not {*names} & {rule.name for rule in catalog()}


def test_every_fix_has_the_four_headings_in_order_and_text_under_each():
    found = []
    for module in fix_files():
        page = ast.get_docstring(module.tree) or ""
        if re.findall(r"^## .*$", page, re.MULTILINE) != HEADINGS:
            found.append(module.at(1, f"headings are not {', '.join(HEADINGS)}"))
        elif not all(part.strip() for part in re.split(r"^## .*$", page, flags=re.MULTILINE)):
            found.append(module.at(1, "a heading has nothing under it"))
    none_of(found)


@every_fix
def test_the_page_is_that_of_the_file_and_begins_with_one_sentence(fix: Fix):
    assert fix.summary.endswith(".")
    assert fix.page.splitlines()[1:2] == [""]
    assert Path(inspect.getfile(fix.patch)).stem == fix.name.replace("-", "_")


@every_fix
def test_the_page_speaks_of_the_class_that_the_fix_claims(fix: Fix):
    equal = fix.page.partition("## How equal")[2].partition("## ")[0]
    assert fix.equivalence.value in equal


@every_fix
def test_the_page_holds_a_measured_gain_and_its_n_or_says_that_there_is_none(fix: Fix):
    words = " ".join(fix.page.split())
    measured = re.search(r"\b\d[\d.]*(x\b| times as fast)", words) and re.search(r"\bn=\d", words)
    assert measured or fix.name in NOT_MEASURED
    assert ("gain is not measured yet" in words) == (fix.name in NOT_MEASURED)


@every_fix
def test_what_changes_the_training_itself_is_tried_only_on_request(fix: Fix):
    assert fix.on_request or fix.equivalence in ORDINARY


@every_fix
def test_the_rules_that_a_fix_addresses_exist(fix: Fix):
    assert set(fix.addresses) <= {rule.code for rule in catalog()}


def test_the_fixes_that_rules_name_exist_or_are_announced():
    """Findings name fixes as text; those that are still to come are listed here, and nowhere else."""
    to_come: set[str] = set()
    known = {fix.name for fix in fixes()}
    unknown = {}
    for rule in catalog():
        for example in rule.fires_on:
            finding = rule.check(example.run, example.breakdown, example.headroom)
            names = set(finding.fixes) - known - to_come if finding else set()
            if names:
                unknown[rule.code] = sorted(names)
    assert not unknown


@pytest.mark.slow
def test_the_pages_in_docs_are_those_of_the_fixes():
    done = subprocess.run(
        [sys.executable, REPO / "scripts" / "docs", "--check"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (REPO / "docs" / "fixes" / "README.md").is_file()
