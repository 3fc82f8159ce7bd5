"""The measurement of a script's loaders as text and JSON."""

import json

from flatout.report.loader_benchmark import loader_dumps, loader_text
from flatout.schema.facts import Frame
from flatout.schema.loader_figures import Figure, LoaderFigures, LoaderLine, WorkerSetting

FIGURES = LoaderFigures(
    name="Photos",
    batches=9,
    samples_s=Figure(5.0, 4.0, 6.0, 3),
    lines=(LoaderLine(place=Frame("/me/a\x1b[31m.py", 3, "get"), code="x = 1  # \x1b[2J", share=0.5),),
    settings=(WorkerSetting(workers=0, samples_s=Figure(5.0, 4.0, 6.0, 3), first_batch_s=None, own=True),),
)


def test_the_text_says_which_script_and_cannot_move_the_cursor():
    shown = loader_text("train.py", (FIGURES,), ("left \x1b[1m",))
    assert shown.startswith("train.py: 1 training loader, without training\n\nPhotos, no workers\n")
    assert "\x1b" not in shown
    assert shown.endswith("note: left \\x1b[1m\n")


def test_the_json_has_the_figures_and_the_setting_to_use():
    document = json.loads(loader_dumps("train.py", (FIGURES, FIGURES), ("a note",)))
    assert list(document) == ["schema", "script", "loaders", "notes"]
    assert document["schema"] == 1
    assert document["loaders"][1]["best"] == document["loaders"][1]["settings"][0]
    assert document["loaders"][0]["mb_s"] is None
