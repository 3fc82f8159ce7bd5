"""Workers that a fix brings give what the plain loader gives, whatever becomes of the data set meanwhile."""

import pytest
import torch
from tests.unit.fixes import changing
from tests.unit.fixes.changing import BY_THEMSELVES, MOMENTS, STATES, train
from tests.unit.fixes.training import under
from torch.utils.data import DataLoader

from flatout.errors import ChangedTooLate
from flatout.watch.dataset_state import same

pytestmark = pytest.mark.slow

FIXES = [  # name, settings, workers of the script's own
    ("loader-workers", {"workers": 2}, 0),
    ("loader-workers", {"workers": 2, "persistent": True}, 0),
    ("loader-workers", {"workers": 3}, 2),
    ("loader-workers", {"workers": 3, "persistent": True}, 2),
    ("loader-workers", {"workers": 0}, 2),
    ("persistent-workers", {}, 2),
]
NAMES = [f"{name} {settings} on {own}" for name, settings, own in FIXES]


def compared(fix, kind, moment, folder):
    """Return how often the fix acted, and whether the training came out as plain; None where it was stopped."""
    name, settings, own = fix
    plain = train(kind, moment, folder / "plain", own)
    with under(name, **settings) as process:
        try:
            ours = train(kind, moment, folder / "ours", own)
        except ChangedTooLate:
            return 0, None
        assert not process.site.failure
        return process.site.hits.get("DataLoader", 0), same(ours, plain)


def is_a_race(fix, kind, moment):
    """Workers read files when they come to it: what they see of one that changes in a pass is chance in plain, too."""
    by_file = kind in (changing.OfFiles, changing.OfNamedFiles, changing.OfMap)
    return fix[2] > 0 and by_file and moment in MOMENTS[2:]


@pytest.mark.parametrize("kind", STATES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("fix", FIXES, ids=NAMES)
@pytest.mark.few(4)
def test_a_change_acts_as_it_does_under_plain_loaders(fix, kind, tmp_path):
    turn = STATES.index(kind) + FIXES.index(fix)
    for moment in MOMENTS if fix is FIXES[0] else ("never", MOMENTS[1 + turn % 4]):
        if not is_a_race(fix, kind, moment):
            (tmp_path / moment).mkdir()
            hits, equal = compared(fix, kind, moment, tmp_path / moment)
            loud = fix[1].get("workers") == 0 and moment in MOMENTS[2:]
            assert equal or (loud and equal is None), moment
            assert hits > 0 or moment != "never"


@pytest.mark.parametrize("kind", BY_THEMSELVES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("fix", FIXES, ids=NAMES)
@pytest.mark.few(1)
def test_a_data_set_that_changes_by_being_read_is_as_under_plain_loaders(fix, kind, tmp_path):
    for moment in MOMENTS[:2]:
        (tmp_path / moment).mkdir()
        _, equal = compared(fix, kind, moment, tmp_path / moment)
        late = fix[1].get("workers") == 0 and kind is changing.TurnsLate  # the only copy of it is another by then
        assert equal or (late and equal is None), moment


def settings_change(own, change):
    """Walk a loader three times; something is set in the second pass, after its fourth batch, and before the third."""
    torch.manual_seed(0)
    dataset = changing.Rooted()
    loader = DataLoader(dataset, changing.BATCH, num_workers=own, collate_fn=changing.Collate())
    seen = []
    try:
        for epoch in range(changing.PASSES):
            if epoch == 2:
                change(loader, 3)
            for number, batch in enumerate(loader):
                seen.append(batch)
                if epoch == 1 and number == 4 and not own:
                    change(loader, 2)
    finally:
        torch.set_default_dtype(torch.float32)
    return seen


def swap(loader, number):
    loader.collate_fn = changing.Collate()
    loader.collate_fn.shift = float(number)


def shift(loader, number):
    loader.collate_fn.shift = float(number)


def retype(loader, number):
    torch.set_default_dtype(torch.float64 if number == 2 else torch.float16)


@pytest.mark.parametrize("change", [swap, shift, retype])
@pytest.mark.parametrize("fix", FIXES, ids=NAMES)
@pytest.mark.few(2)
def test_functions_of_a_loader_and_settings_of_the_process_count(fix, change):
    name, settings, own = fix
    plain = settings_change(own, change)
    with under(name, **settings) as process:
        assert same(settings_change(own, change), plain)
        assert process.site.hits.get("DataLoader", 0) > 0
