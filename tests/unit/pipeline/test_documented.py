"""Sixty pipelines of public documentation: compiled they give what they gave, few are refused, and docs say which."""

import random
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.unit.pipeline import documented_data
from tests.unit.pipeline.documented import PAGES
from tests.unit.pipeline.programs import _copied, _spoil
from torch.utils.data import DataLoader, IterableDataset

from flatout.pipeline import compile_loader
from flatout.watch.dataset_state import random_states, same

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create 2 worker")  # said where there is one core

TABLE = Path(__file__).parents[3] / "docs" / "input.md"
HEADING = "| page | pipeline | what is done |"
PASSES = 3


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documented")
    documented_data.write(folder)
    return folder


def seed():
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)


def loader_of(page, root, workers=0):
    seed()
    dataset, options = page.build(root)
    return DataLoader(dataset, num_workers=workers, **options)


def seen(loader):
    """Return every batch and the random states after each pass."""
    seed()
    made = []
    for _ in range(PASSES):
        for batch in loader:
            made += [_copied(batch), torch.rand(2)]
            _spoil(batch)
        made.append([np.asarray(state[1] if isinstance(state, tuple) else state) for state in random_states()])
    return made


def agree(page, root, workers=0):
    plain, ours = loader_of(page, root, workers), compile_loader(loader_of(page, root, workers))
    for one, other in zip(seen(plain), seen(ours), strict=True):
        assert same(one, other)
    return ours.explain()


@pytest.mark.parametrize("page", [page for page in PAGES if page.fast], ids=lambda page: page.source)
@pytest.mark.slow
def test_a_documented_pipeline_gives_the_same_batches_compiled(page, root):
    assert agree(page, root)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if not page.fast], ids=lambda page: page.source)
@pytest.mark.few(6)
def test_each_documented_pipeline_gives_the_same_batches_compiled(page, root):
    assert agree(page, root)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if page.with_workers], ids=lambda page: page.source)
@pytest.mark.few(4)
def test_a_documented_pipeline_with_workers_gives_the_same_batches_compiled(page, root):
    assert agree(page, root, workers=2)


def verdict(page, root):
    """Return what becomes of a pipeline in two passes: the kind, and why it is refused."""
    loader = compile_loader(loader_of(page, root))
    for _ in range(2):
        for _ in loader:
            pass
    said = loader.explain()
    if isinstance(loader.dataset, IterableDataset) and re.search("a stream|handing it over", said):
        return "read ahead where a batch takes 1 ms or more", ""
    if said.startswith("left as it is: "):
        return "refused", said.removeprefix("left as it is: ")
    for sign, kind in (("made in batches", "made in batches"), ("before their random operations", "kept, then random")):
        if sign in said:
            return kind, ""
    return ("samples kept", "") if "collated" in said else ("batches kept", "")


def table(root):
    """Return the rows of the table in docs, and how many are refused."""
    verdicts = [verdict(page, root) for page in PAGES]
    rows = [
        f"| {page.source} | {page.what} | {kind}{': ' * bool(why)}{re.sub(r'[|]', '', why)} |"
        for page, (kind, why) in zip(PAGES, verdicts, strict=True)
    ]
    return rows, sum(kind == "refused" for kind, _ in verdicts)


@pytest.mark.alone
@pytest.mark.slow
def test_at_most_fifteen_percent_of_sixty_are_refused_and_docs_say_which(root):
    rows, refused = table(root)
    assert len({page.source for page in PAGES}) == len(rows) == 60
    assert refused <= 0.15 * len(rows)
    written = TABLE.read_text(encoding="utf-8").partition(HEADING)[2].splitlines()[2:]
    assert written == rows, "run: python -m tests.unit.pipeline.test_documented"
    assert f"Refused: {refused} of 60." in TABLE.read_text(encoding="utf-8")


def write(root):
    """Write the table in docs, which ends the page."""
    documented_data.write(root)
    rows, refused = table(root)
    page = TABLE.read_text(encoding="utf-8")
    head = page[: page.index(HEADING) if HEADING in page else len(page)].split("\nRefused: ")[0].rstrip()
    share = f"Refused: {refused} of {len(rows)}."
    TABLE.write_text("\n".join([head, "", share, "", HEADING, "|---|---|---|", *rows, ""]), encoding="utf-8")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
