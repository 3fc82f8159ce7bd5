"""docs/recipe.md describes the file and the verdicts that there are."""

import re
from pathlib import Path

from flatout.engine.recipe import read_recipe, write_recipe
from flatout.schema.trial import Equivalence, Verdict

PAGE = (Path(__file__).parents[3] / "docs" / "recipe.md").read_text(encoding="utf-8")


def test_the_recipe_on_the_page_is_one_that_can_be_read_and_has_every_key(tmp_path: Path) -> None:
    shown = re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert shown is not None
    (tmp_path / "shown.toml").write_text(shown[1])
    recipe = read_recipe(tmp_path / "shown.toml")
    write_recipe(recipe, tmp_path / "written.toml")
    keys = re.compile(r"^(\[+[\w.]+\]+|\w+ =)", re.MULTILINE)
    assert sorted(keys.findall(shown[1])) == sorted(keys.findall((tmp_path / "written.toml").read_text()))


def test_the_table_of_ranks_on_the_page_can_be_read_and_has_every_key(tmp_path: Path) -> None:
    whole, ranks = re.findall(r"```toml\n(schema.*?|\[ranks\].*?)```", PAGE, re.DOTALL)
    (tmp_path / "shown.toml").write_text(f"{whole}\n{ranks}")
    recipe = read_recipe(tmp_path / "shown.toml")
    assert recipe.ranks is not None
    write_recipe(recipe, tmp_path / "written.toml")
    written = re.search(r"\[ranks\]\n(.*?)\n\n", (tmp_path / "written.toml").read_text(), re.DOTALL)
    keys = re.compile(r"^\w+ =", re.MULTILINE)
    assert written is not None and keys.findall(written[1]) == keys.findall(ranks)


def test_every_class_and_every_verdict_is_explained() -> None:
    assert all(f"\n| {each.value} |" in PAGE for each in Equivalence)
    named = {word for row in re.findall(r"^\| ([A-Z_, ]+) \|", PAGE, re.MULTILINE) for word in row.split(", ")}
    assert {each.value for each in Verdict} <= named
