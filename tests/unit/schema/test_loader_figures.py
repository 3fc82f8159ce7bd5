"""What a measurement of a loader says, and which setting it names."""

from flatout.schema.facts import Frame
from flatout.schema.loader_figures import (
    Figure,
    FileRate,
    LoaderFigures,
    LoaderLine,
    LoaderPauses,
    LoaderStage,
    WorkerSetting,
)
from flatout.schema.plain import from_plain, to_plain


def setting(workers, median, low, high, own=False):
    return WorkerSetting(workers=workers, samples_s=Figure(median, low, high, 3), first_batch_s=None, own=own)


def figures(**changes):
    made = {
        "name": "Photos",
        "created_at": Frame("/home/me/train.py", 31, "main"),
        "batch_size": 64,
        "workers": 2,
        "batches": 200,
        "samples_s": Figure(1234.0, 1190.0, 1260.0, 8),
        "mb_s": Figure(46.2, 45.0, 47.0, 8),
        "first_batch_s": Figure(0.31, 0.30, 0.33, 3),
        "pauses": LoaderPauses(count=2, longest_s=0.41, share=0.03, n=198),
        "made_ms": Figure(51.9, 50.1, 53.0, 8),
        "waiting": 0.5,
        "stages": (LoaderStage(name="fetch", ms=Figure(44.0, 43.0, 45.0, 8), share=0.85),),
        "lines": (LoaderLine(place=Frame("/home/me/data.py", 12, "get"), code="image = open(path)", share=0.61),),
        "cores": 2,
        "cores_samples_s": Figure(2466.0, 2400.0, 2500.0, 8),
        "files": FileRate(
            files=64,
            num_bytes=1 << 20,
            disk_mb_s=Figure(812.0, 700.0, 900.0, 8),
            memory_mb_s=Figure(3200.0, 3000.0, 3300.0, 8),
            read_per_batch=2048.0,
        ),
        "settings": (setting(2, 1200, 1150, 1250, own=True), setting(0, 700, 650, 720)),
        "others": 0.12,
        "notes": ("measured on rank 0",),
    }
    return LoaderFigures(**{**made, **changes})


SHOWN = """\
Photos, batches of 64, 2 workers (train.py:31)
  speed         1,234 samples/s (1,190 to 1,260, n=8), 200 batches
                46.2 MB/s (45.0 to 47.0, n=8)
  first batch   310 ms (300 ms to 330 ms, n=3)
  pauses        2 in 198 batches, the longest 410 ms: 3.0% of the time
  a batch takes 51.9 ms (50.1 ms to 53.0 ms, n=8) in one process; 50% of it waiting
                 85% fetch    44.0 ms (43.0 ms to 45.0 ms, n=8)
  lines          61% data.py:12  image = open(path)
  cores         2 could give 2,466 samples/s (2,400 to 2,500, n=8), by the processor time of a batch
  disk          gives 812 MB/s (700 to 900, n=8) (64 files, 1.0 MiB)
                3,200 MB/s (3,000 to 3,300, n=8) of what the system still holds in memory
                a batch reads 2.0 KiB
  workers        2: 1,200 samples/s (1,150 to 1,250, n=3)  <- as it is
                 0: 700 samples/s (650 to 720, n=3)
  best          2 workers, as it is: no other number was clearly faster
  busy machine  other programs used 12% of all cores meanwhile
  note          measured on rank 0"""


def test_it_is_printed_with_n_and_spread_beside_each_figure():
    assert str(figures()) == SHOWN


def test_it_comes_back_from_json():
    assert from_plain(LoaderFigures, to_plain(figures())) == figures()


def test_another_setting_is_best_only_if_the_ranges_do_not_meet():
    own = setting(2, 1200, 1150, 1250, own=True)
    assert figures(settings=(own, setting(4, 1500, 1400, 1600))).best.workers == 4
    assert figures(settings=(own, setting(4, 1500, 1240, 1600))).best.workers == 2
    assert figures(settings=(own, setting(4, 1255, 1251, 1260))).best.workers == 2
    assert "4 workers: 1.25 times the speed of 2" in str(figures(settings=(own, setting(4, 1500, 1400, 1600))))


def test_a_setting_that_failed_is_never_best_and_says_why():
    failed = WorkerSetting(workers=2, samples_s=None, first_batch_s=None, own=True, trouble="failed: OSError: no room")
    shown = figures(settings=(failed, setting(0, 700, 650, 720)))
    assert shown.best.workers == 0
    assert "2: failed: OSError: no room  <- as it is" in str(shown)
    assert figures(settings=(failed,)).best is None


def test_what_was_not_measured_is_not_shown():
    bare = LoaderFigures(name="Rows", batches=2, samples_s=Figure(5.0, 5.0, 5.0, 1))
    assert str(bare) == "Rows, no workers\n  speed         5.00 samples/s (n=1), 2 batches"
