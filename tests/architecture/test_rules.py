"""A rule is one file: its name is its code, its docstring is its page, and it is registered nowhere else."""

import ast
import re
import subprocess
import sys

import pytest

from flatout.rules import Rule, catalog
from tests.architecture.source import REPO, Module, modules, none_of

HEADINGS = ["## What it measures", "## Why it matters", "## What to do", "## When it is wrong"]
FAMILIES = "IN|TR|SY|HO|CO|ME|DI|EP|MS"


def rule_files() -> list[Module]:
    found = [m for m in modules().values() if re.match(rf"flatout\.rules\.({FAMILIES.lower()})\d", m.name)]
    return found or pytest.skip("no rule exists yet")


def rule_of(module: Module) -> ast.Call:
    """Return the one `RULE = Rule(...)` of a rule file."""
    values = [
        node.value
        for node in module.tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func) == "Rule"
    ]
    assert len(values) == 1, module.at(1, f"{len(values)} rules in one file")
    return values[0]


def literal(call: ast.Call, keyword: str):
    return next((ast.literal_eval(k.value) for k in call.keywords if k.arg == keyword), None)


def test_every_rule_file_is_named_by_its_code_and_its_name():
    found = []
    for module in rule_files():
        code, name = literal(rule_of(module), "code"), literal(rule_of(module), "name")
        if module.path.stem != f"{code.lower()}_{name.replace('-', '_')}":
            found.append(module.at(1, f"holds {code} {name}"))
    none_of(found)


def test_every_code_and_every_name_is_used_once():
    calls = [rule_of(module) for module in rule_files()]
    for key in ("code", "name"):
        values = [literal(call, key) for call in calls]
        assert sorted(values) == sorted(set(values))


def test_every_rule_has_the_four_headings_in_order_and_text_under_each():
    found = []
    for module in rule_files():
        page = ast.get_docstring(module.tree) or ""
        if re.findall(r"^## .*$", page, re.MULTILINE) != HEADINGS:
            found.append(module.at(1, f"headings are not {', '.join(HEADINGS)}"))
        elif not all(part.strip() for part in re.split(r"^## .*$", page, flags=re.MULTILINE)):
            found.append(module.at(1, "a heading has nothing under it"))
    none_of(found)


def test_every_rule_says_when_it_fires_and_when_it_stays_quiet():
    found = []
    for module in rule_files():
        given = {k.arg: k.value for k in rule_of(module).keywords}
        empty = [key for key in ("fires_on", "quiet_on") if not getattr(given.get(key), "elts", True)]
        missing = [key for key in ("fires_on", "quiet_on") if key not in given]
        if empty or missing:
            found.append(module.at(1, f"no {' and no '.join(empty + missing)} example"))
    none_of(found)


def test_every_rule_file_is_found_by_its_name():
    codes = sorted(literal(rule_of(module), "code") for module in rule_files())
    assert [rule.code for rule in catalog()] == codes


@pytest.mark.parametrize("rule", catalog(), ids=lambda rule: f"{rule.code}-{rule.name}")
@pytest.mark.slow
def test_a_rule_fires_on_its_examples_and_on_none_of_the_quiet_ones(rule: Rule):
    for example in rule.fires_on:
        finding = rule.check(example.run, example.breakdown, example.headroom)
        assert finding is not None
        assert (finding.code, finding.name) == (rule.code, rule.name)
    for example in rule.quiet_on:
        assert rule.check(example.run, example.breakdown, example.headroom) is None


@pytest.mark.slow
def test_the_pages_in_docs_are_those_of_the_rules():
    rule_files()
    done = subprocess.run(
        [sys.executable, REPO / "scripts" / "docs", "--check"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
