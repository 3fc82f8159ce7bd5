"""`flatout.toml`: what is written comes back, and what does not belong there is refused in words."""

import math
import re
import string
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flatout.engine import recipe as recipes
from flatout.engine.process.target import Target, parse_target, script_digest
from flatout.engine.provenance import Here, here, require_same_script, warnings
from flatout.engine.recipe import RECIPE_FILE, find_recipe, read_recipe, write_recipe
from flatout.errors import BadRecording, FlatoutError, UsageError
from flatout.fixes.core.catalog import find_fix
from flatout.fixes.core.fix import Fix
from flatout.schema.recipe import Kept, Proof, RankProof, Recipe
from flatout.schema.trial import Equivalence, Selection


def patch_workers(site, workers: int, factor: float = 2.0, mode: str | None = None, pin: bool = False): ...


def patch_anything(site, **settings): ...


def patch_nothing(site): ...


CATALOG = {
    fix.name: fix
    for fix in (
        Fix(name="loader-workers", equivalence=Equivalence.BITWISE, phases=(), patch=patch_workers),
        Fix(name="anything", equivalence=Equivalence.PRECISION, phases=(), patch=patch_nothing),
        Fix(name="any-settings", equivalence=Equivalence.ROUNDING, phases=(), patch=patch_anything),
    )
}


@pytest.fixture(autouse=True)
def catalog(monkeypatch):
    monkeypatch.setattr(recipes, "find_fix", CATALOG.get)
    monkeypatch.setattr(recipes, "fixes", lambda: tuple(CATALOG.values()))


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.just("\"quoted\"\n'''\t\x00 # [x]\u2603")
FACTOR = st.floats(0.01, 100).map(lambda value: round(value, 4)) | st.just(math.inf)
PLAIN = st.recursive(
    st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=4,
)
NAME = st.text(string.ascii_lowercase, min_size=1, max_size=5)
WORKERS = st.fixed_dictionaries(
    {"workers": st.integers(0, 99)}, optional={"factor": st.floats(0, 9), "mode": TEXT, "pin": st.booleans()}
)
SELECTIONS = (
    st.builds(Selection, st.just("loader-workers"), WORKERS)
    | st.builds(Selection, st.just("anything"))
    | st.builds(Selection, st.just("any-settings"), st.dictionaries(NAME, PLAIN, max_size=0))
)
KEPT = st.builds(
    Kept,
    selection=SELECTIONS,
    equivalence=st.sampled_from(Equivalence),
    speedup=FACTOR,
    low=FACTOR,
    high=FACTOR,
)
PROOFS = st.builds(
    Proof,
    date=TEXT,
    flatout=TEXT,
    python=TEXT,
    torch=TEXT,
    device=TEXT,
    num_cpus=st.integers(0, 999),
    script_digest=TEXT,
    world_size=st.integers(1, 99),
    speedup=FACTOR,
    low=FACTOR,
    high=FACTOR,
    num_pairs=st.integers(0, 99),
    baseline_ms=st.floats(0, 1e6),
    samples=st.dictionaries(TEXT, st.integers(0, 2**60), max_size=3),
)
RANKS = st.builds(
    RankProof,
    number=st.integers(2, 4096),
    equivalence=st.sampled_from(Equivalence),
    steps=st.integers(0, 999),
    speedup=FACTOR,
    low=FACTOR,
    high=FACTOR,
)
RECIPES = st.builds(
    Recipe, script=TEXT, fixes=st.lists(KEPT, max_size=3).map(tuple), proof=PROOFS, ranks=st.none() | RANKS
)
PROOF = Proof(date="2026-11-20", flatout="0.1.0", python="3.11.7", torch="2.13.0+cpu", device="Some CPU", num_cpus=2)
RECIPE = Recipe(
    script="train.py",
    fixes=(
        Kept(
            selection=Selection("loader-workers", {"workers": 2}),
            equivalence=Equivalence.BITWISE,
            speedup=1.42,
            low=1.35,
            high=1.491234,
        ),
        Kept(selection=Selection("anything"), equivalence=Equivalence.PRECISION),
    ),
    proof=replace(PROOF, speedup=1.6, low=1.5, high=1.7, samples={"Images of cats": 5000}),
)


# ------------------------------------------------------------------------------------------------------- there and back
@given(RECIPES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@pytest.mark.slow
def test_every_recipe_comes_back_as_it_was(tmp_path, recipe):
    write_recipe(recipe, tmp_path / RECIPE_FILE)
    assert read_recipe(tmp_path / RECIPE_FILE) == recipe


def test_a_recipe_reads_as_a_person_would_write_it(tmp_path):
    write_recipe(RECIPE, tmp_path / RECIPE_FILE)
    text = (tmp_path / RECIPE_FILE).read_text()
    assert text.startswith("# What `flatout tune` kept for train.py: ")
    assert "flatout run" in text.partition("schema")[0]
    assert '[[fix]]\nname = "loader-workers"\nequivalence = "BITWISE"\nspeedup = 1.42\n' in text
    assert "interval = [1.35, 1.4912]\n\n[fix.settings]\nworkers = 2\n" in text
    assert len(text.splitlines()) < 60


def test_a_recipe_is_never_half_a_file(tmp_path):
    path = tmp_path / RECIPE_FILE
    write_recipe(RECIPE, path)
    write_recipe(replace(RECIPE, fixes=()), path)
    assert [each.name for each in tmp_path.iterdir()] == [RECIPE_FILE]
    assert read_recipe(path).fixes == ()


def test_a_script_s_name_ends_no_comment_and_no_string(tmp_path):
    name = "a\nb\udc80\"'.py"
    write_recipe(replace(RECIPE, script=name), tmp_path / RECIPE_FILE)
    assert read_recipe(tmp_path / RECIPE_FILE).script == name.replace("\udc80", "?")


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(UsageError, match="cannot be written"):
        write_recipe(RECIPE, tmp_path / "absent" / RECIPE_FILE)


def test_what_is_left_out_by_hand_has_its_default(tmp_path):
    path = tmp_path / RECIPE_FILE
    path.write_text(
        'schema = 1\nscript = "train.py"\n[[fix]]\nname = "anything"\nequivalence = "BITWISE"\n'
        '[proven]\ndate = ""\nflatout = ""\npython = ""\ntorch = ""\ndevice = ""\nspeedup = 2\n'
    )
    recipe = read_recipe(path)
    assert recipe.selections == (Selection("anything"),)
    assert (recipe.proof.speedup, recipe.proof.low) == (2.0, 1.0)


# -------------------------------------------------------------------------------------------------------------- refused
def edited(tmp_path, *changes):
    path = tmp_path / RECIPE_FILE
    write_recipe(RECIPE, path)
    text = path.read_text()
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    path.write_text(text)
    return path


def refusal(path, kind=FlatoutError):
    with pytest.raises(kind) as caught:
        read_recipe(path)
    assert str(path) in caught.value.fact
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_a_file_that_is_no_toml_is_refused_with_its_line(tmp_path):
    assert "line 5" in refusal(edited(tmp_path, ("schema = 1", "schema =")), BadRecording)


def test_a_binary_file_is_refused(tmp_path):
    (tmp_path / "x").write_bytes(b"\xff\xfe\x00")
    assert "not a TOML file" in refusal(tmp_path / "x", BadRecording)


def test_a_folder_in_place_of_a_recipe_is_refused(tmp_path):
    assert "cannot be read" in refusal(tmp_path, UsageError)


def test_another_schema_is_named(tmp_path):
    told = refusal(edited(tmp_path, ("schema = 1", "schema = 2")), BadRecording)
    assert "schema 2" in told
    assert "schema 1" in told


def test_toml_of_another_program_is_refused(tmp_path):
    (tmp_path / "x").write_text('[project]\nname = "y"\n')
    assert "has no schema" in refusal(tmp_path / "x", BadRecording)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (('script = "train.py"', ""), "'?script'? is missing"),
        (('equivalence = "BITWISE"', 'equivalence = "SAME"'), "SAME"),
        (('equivalence = "BITWISE"', ""), "'?equivalence'? is missing"),
        (("speedup = 1.42", 'speedup = "fast"'), "speedup"),
        (("interval = [1.35, 1.4912]", "interval = [1.35]"), "expected 2 values"),
        (("interval = [1.35, 1.4912]", "interval = [nan, 1.4]"), "no numbers"),
        (("interval = [1.35, 1.4912]", "interval = [-2.0, 1.4]"), "`low` is -2.0"),
        (("speedup = 1.42", "speedup = nan"), "`speedup` is nan"),
        (("num_cpus = 2", "num_cpus = -2"), "`num_cpus` is -2"),
        (("[fix.settings]\nworkers = 2", "settings = 3"), "settings"),
        (("[proven]", "[unproven]"), "date"),
        (('name = "anything"', "name = 7"), "fix"),
    ],
)
def test_what_has_not_the_form_of_a_recipe_is_refused_with_what_is_wrong(tmp_path, change, told):
    assert re.search(told, refusal(edited(tmp_path, change), BadRecording))


def test_a_recipe_on_one_rank_is_refused(tmp_path):
    ranks = RankProof(number=2, equivalence=Equivalence.ROUNDING, steps=64, speedup=1.5, low=1.2, high=1.8)
    write_recipe(replace(RECIPE, ranks=ranks), tmp_path / "x")
    assert "efficiency = 0.75" in (tmp_path / "x").read_text()
    (tmp_path / "x").write_text((tmp_path / "x").read_text().replace("number = 2", "number = 1"))
    assert "holds 1 ranks" in refusal(tmp_path / "x", BadRecording)


def test_a_fix_that_does_not_exist_is_named_with_those_like_it(tmp_path):
    told = refusal(edited(tmp_path, ('"loader-workers"', '"loader-worker"')), UsageError)
    assert "'loader-worker'" in told
    assert "Did you mean loader-workers?" in told


def test_a_fix_that_is_like_no_other_can_only_be_deleted(tmp_path):
    assert "Delete its [[fix]] table" in refusal(edited(tmp_path, ('"anything"', '"os.system"')), UsageError)


def test_a_batch_that_is_held_is_no_fix_of_a_recipe(tmp_path, monkeypatch):
    monkeypatch.setattr(recipes, "find_fix", find_fix)
    told = refusal(edited(tmp_path, ('"anything"', '"held-batch"')), UsageError)
    assert "names the fix 'held-batch', which does not exist" in told


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('workers = "2"', "workers = '2' as int"),
        ("workers = true", "workers = True as int"),
        ("workers = 2.0", "workers = 2.0 as int"),
        ("workers = 2\nfactor = true", "factor = True as float"),
        ("workers = 2\nmode = 1", "mode = 1 as"),
        ("workers = 2\npin = 1", "pin = 1 as bool"),
        ("threads = 2", "no setting 'threads'"),
        ("factor = 2", "needs the setting 'workers'"),
        ("workers = 2\nsite = 1", "no setting 'site'"),
    ],
)
def test_settings_that_a_fix_does_not_take_are_refused(tmp_path, line, told):
    assert told in refusal(edited(tmp_path, ("workers = 2", line)), UsageError)


@pytest.mark.parametrize("line", ["workers = 2\nfactor = 3", "workers = 2\nmode = 'fork'", "workers = 0\npin = true"])
def test_settings_that_it_takes_are_taken(tmp_path, line):
    path = edited(tmp_path, ("workers = 2", line))
    assert read_recipe(path).fixes[0].selection.settings == tomllib.loads(line)


# --------------------------------------------------------------------------------------------------------- which recipe
@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "train.py").write_text("pass\n")
    return tmp_path


def test_the_recipe_of_the_working_folder_comes_before_that_beside_the_script(project):
    target = parse_target(["sub/train.py"])
    with pytest.raises(UsageError, match=r"flatout tune sub/train\.py"):
        find_recipe(target, None)
    (project / "sub" / RECIPE_FILE).touch()
    assert find_recipe(target, None) == Path("sub") / RECIPE_FILE
    (project / RECIPE_FILE).touch()
    assert find_recipe(target, None) == Path(RECIPE_FILE)


def test_a_recipe_that_was_named_is_not_looked_for_elsewhere(project):
    (project / RECIPE_FILE).touch()
    with pytest.raises(UsageError, match=r"other\.toml"):
        find_recipe(parse_target(["sub/train.py"]), Path("other.toml"))


# ------------------------------------------------------------------------------------------------------------ elsewhere
TARGET = Target(name="train.py", command=("python", "train.py"))


@pytest.mark.parametrize(
    ("proof", "facts", "told"),
    [
        ({"script_digest": "a"}, {"digest": "b"}, "train.py has changed"),
        ({"python": "3.11.7"}, {"python": "3.13.0"}, "Python 3.11.7, this is 3.13.0"),
        ({"torch": "2.13.0+cpu"}, {"torch": "2.14.0"}, "torch 2.13.0, this is 2.14.0"),
        ({"device": "NVIDIA H200"}, {"devices": ("Some CPU", "Tesla T4")}, "NVIDIA H200, this is Tesla T4"),
        ({"num_cpus": 16}, {"num_cpus": 2}, "16 CPU cores, here are 2"),
        ({"world_size": 1}, {"world_size": 8}, "1 processes, here are 8"),
        ({"samples": {"Cats": 50}}, {"samples": {"Cats": [70, 60]}}, "50 samples in Cats, here are 70"),
    ],
)
def test_each_difference_from_where_it_was_proven_is_one_sentence(proof, facts, told):
    blank = {"python": "", "torch": "", "device": "", "num_cpus": 0}
    recipe = replace(RECIPE, proof=replace(PROOF, **blank | proof))
    (sentence,) = warnings(recipe, TARGET, Here(**facts))
    assert told in sentence


def test_what_is_not_known_warns_of_nothing():
    assert warnings(RECIPE, TARGET, Here()) == []
    unknown = replace(RECIPE, proof=Proof(date="", flatout="", python="", torch="", device=""))
    facts = Here(digest="a", python="3", torch="2", devices=("x",), num_cpus=3, world_size=1, samples={"Cats": [1]})
    assert warnings(unknown, TARGET, facts) == []


def test_another_build_of_the_same_torch_is_the_same_torch():
    assert warnings(RECIPE, TARGET, Here(torch="2.13.0")) == []


def test_a_script_on_any_cpu_is_where_a_cpu_was_meant():
    recipe = replace(RECIPE, proof=replace(PROOF, device="cpu"))
    assert warnings(recipe, TARGET, Here(devices=("Some CPU",))) == []


def test_this_place_is_known_without_torch(project):
    found = here(parse_target(["sub/train.py"]))
    assert found.num_cpus > 0
    assert found.devices
    assert len(found.digest) == 16
    assert found.python.count(".") == 2
    assert found.torch


def test_the_software_of_another_environment_is_not_guessed(project):
    assert here(Target(name="sh", command=("/bin/sh",))).torch == ""


def test_a_recipe_of_another_script_is_refused(project):
    target = parse_target(["sub/train.py"])
    require_same_script(RECIPE, Path(RECIPE_FILE), target)
    other = replace(RECIPE, script="other.py")
    with pytest.raises(UsageError, match=r"proven for other.py, not for sub/train.py"):
        require_same_script(other, Path(RECIPE_FILE), target)


def test_a_renamed_script_is_the_same_script(project):
    target = parse_target(["sub/train.py"])
    renamed = replace(RECIPE, script="old.py", proof=replace(PROOF, script_digest=script_digest(target)))
    require_same_script(renamed, Path(RECIPE_FILE), target)
    with pytest.raises(UsageError):  # by its digest alone
        require_same_script(replace(renamed, proof=PROOF), Path(RECIPE_FILE), target)
