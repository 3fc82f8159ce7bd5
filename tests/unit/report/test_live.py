"""The panel of a live view, as text: nothing in it depends on the moment or on the machine."""

from dataclasses import replace

import pytest
from tests.unit.report.specimens import HOSTILE

from flatout.report.layout import Look
from flatout.report.live import last_words, live_lines, waits_for
from flatout.schema.live import GpuNow, LiveNow, MachineNow, RankNow

GIB = 1 << 30

RANK = RankNow(
    steps=1234,
    step_s={"input": 12.0, "forward": 4.0, "backward": 3.0, "optimizer": 1.0},
    recent_steps=250,
    span_s=6.0,
    step_ms=20.0,
    phases_ms={"input": 12.4, "forward": 3.0, "backward": 3.6, "optimizer": 0.6, "host": 0.395, "sync": 0.005},
    outside_s={"validation": 1.0},
    samples_per_step=64.0,
    epoch=3,
    batches=120,
    epoch_batches=391,
    ready=1,
    most_ready=4,
)
MACHINE = MachineNow(
    main_cpu=1.02,
    worker_cpu=1.85,
    foreign_cpu=0.1,
    cores=(1.0, 0.93, 0.5, 0.07),
    memory_bytes=3 * GIB,
    available_bytes=12 * GIB,
    shm_used_share=0.031,
    disk_read_s=12.5 * (1 << 20),
    net_out_s=812.0,
)
NOW = LiveNow(script="train.py", wall_s=125.0, ranks=(RANK,), machine=MACHINE)

AT_80 = """\
── train.py, 2 min 05 s, step 1,234 ────────────────────────────────────────────
Each step takes 20.0 ms (41.7 steps/s), 2,667 samples/s
Training waits: 62% of each step is spent loading data.
  input        12.4 ms   62%  ███████████████████████████████
  backward     3.60 ms   18%  █████████
  forward      3.00 ms   15%  ███████▌
  optimizer    0.60 ms  3.0%  █▌
  host         0.40 ms  2.0%  █
Outside the steps: validation 1.00 s (17%).
  epoch 3      120/391   31%  ███████████▍                           5.42 s left
  ready         1 of 4   25%  ██████████▎                                batches
  cores      2.5 of 4  100% 93% 50% 7%
  CPU        main 1.02, workers 1.85, others 0.10
  memory     3.0 GiB, 12.0 GiB free, /dev/shm 3.1% full
  disk       read 12.5 MiB/s, write 0 B/s
  network    in 0 B/s, out 812 B/s"""

AT_50 = """\
-- train.py, 2 min 05 s, step 1,234 --------------
Each step takes 20.0 ms (41.7 steps/s),
2,667 samples/s
Training waits: 62% of each step is spent
  loading data.
  input        12.4 ms   62%  ############
  backward     3.60 ms   18%  ####
  forward      3.00 ms   15%  ###
  optimizer    0.60 ms  3.0%  #
  host         0.40 ms  2.0%  #
Outside the steps: validation 1.00 s (17%).
  epoch 3      120/391   31%  ##       5.42 s left
  ready         1 of 4   25%  ###          batches
  cores      2.5 of 4  100% 93% 50% 7%
  CPU        main 1.02, workers 1.85, others 0.10
  memory     3.0 GiB, 12.0 GiB free, /dev/shm 3...
  disk       read 12.5 MiB/s, write 0 B/s
  network    in 0 B/s, out 812 B/s"""


def panel(now, look):
    return [line.plain for line in live_lines(now, look)]


def test_a_panel_at_80_columns():
    assert "\n".join(panel(NOW, Look(width=80, blocks=True))) == AT_80


def test_a_panel_at_50_columns_of_plain_characters():
    assert "\n".join(panel(NOW, Look(width=50, ascii_only=True))) == AT_50


def ranks(number):
    return tuple(replace(RANK, rank=each, world_size=number, step_ms=20.0 + each) for each in range(number))


GPU = GpuNow(busy=0.87, memory_bytes=11 * GIB, total_bytes=80 * GIB, power_w=312.4)
MANY = MachineNow(cores=tuple(each / 128 for each in range(128)), gpus=(GPU,) * 7 + (replace(GPU, busy=0.2),))
MOMENTS = {
    "nothing yet": LiveNow(script="train.py"),
    "ordinary": NOW,
    "several ranks": replace(NOW, ranks=ranks(4)),
    "many of all": replace(NOW, ranks=ranks(64), machine=MANY),
    "hostile": replace(NOW, script=HOSTILE * 3, ranks=(replace(RANK, note=HOSTILE * 3, phases_ms={HOSTILE: 20.0}),)),
    "throttled": replace(NOW, machine=replace(MACHINE, gpus=(replace(GPU, throttled="power cap"),))),
}


@pytest.mark.parametrize("width", [30, 50, 80, 110])
@pytest.mark.parametrize("moment", MOMENTS)
def test_no_line_is_wider_than_the_terminal_and_none_holds_what_cannot_be_seen(moment, width):
    for look in (Look(width=width, blocks=True), Look(width=width, ascii_only=True)):
        for line in live_lines(MOMENTS[moment], look):
            assert line.cell_len <= width
            assert line.plain.isprintable()


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_panel_at_80_columns_has_about_20_lines(moment):
    assert len(panel(MOMENTS[moment], Look(width=80))) <= 22


def test_of_several_ranks_the_slowest_is_shown_and_each_has_a_line():
    shown = panel(MOMENTS["several ranks"], Look())
    assert "rank 3, the slowest of 4" in shown[0]
    assert [line.split("  ")[1] for line in shown if line.startswith("  rank")] == [f"rank {n}" for n in range(4)]


def test_of_many_ranks_the_fastest_and_the_slowest_have_one():
    shown = panel(MOMENTS["many of all"], Look())
    assert [line.split()[1] for line in shown if line.startswith("  rank")] == ["0", "63"]


def test_gpus_have_a_line_each_and_one_together_where_they_are_many():
    shown = panel(replace(NOW, machine=replace(MACHINE, gpus=(GPU,))), Look(blocks=True))
    assert "  GPU 0          312 W   87%  " in "\n".join(shown)
    assert any(line.endswith("  11.0 GiB of 80.0 GiB") for line in shown)
    assert "  8 GPUs     busy 79%, least 20% (GPU 7), up to 11.0 GiB of 80.0 GiB" in panel(
        MOMENTS["many of all"], Look()
    )


def test_cores_that_have_no_room_are_shown_together():
    (line,) = (line for line in panel(MOMENTS["many of all"], Look(ascii_only=True)) if "cores" in line)
    assert line.startswith("  cores      63.5 of 128  00")
    assert line.endswith("99")


def test_the_sentence_says_what_is_waited_for():
    assert waits_for(None) == "No training step yet."
    assert waits_for(RANK) == "Training waits: 62% of each step is spent loading data."
    healthy = replace(RANK, phases_ms={"input": 2.0, "forward": 8.0, "backward": 10.0})
    assert waits_for(healthy) == "Training computes: 90% of each step is forward, backward and optimizer."
    held = replace(RANK, phases_ms={"input": 2.0, "forward": 8.0, "host": 10.0})
    assert waits_for(held) == "Training waits for Python: 50% of each step is the loop's own Python code."
    assert waits_for(replace(RANK, idle_s=12.0)) == "No step for 12.0 s."
    assert waits_for(replace(RANK, idle_s=12.0, doing="validation")) == "No step for 12.0 s: a validation runs."
    assert waits_for(replace(RANK, idle_s=12.0, step_ms=4000.0)).startswith("Training")
    assert waits_for(replace(RANK, note="a probe failed")) == "Nothing more is shown: a probe failed"


def test_an_epoch_of_unknown_length_has_no_bar_and_one_that_is_over_no_time_left():
    (line,) = (line for line in panel(replace(NOW, ranks=(replace(RANK, epoch_batches=0),)), Look()) if "epoch" in line)
    assert "total unknown" in line
    (line,) = (line for line in panel(replace(NOW, ranks=(replace(RANK, batches=391),)), Look()) if "epoch" in line)
    assert "100%" in line
    assert "left" not in line


def test_the_last_words_are_at_most_three_lines_on_the_whole_training():
    assert last_words(NOW) == [
        "train.py: 1,234 steps in 2 min 05 s, 16.2 ms each",
        "  all of them: input 60%, forward 20%, backward 15%, optimizer 5.0%",
    ]
    assert last_words(LiveNow(script="train.py", wall_s=3.0)) == ["train.py: no training step was seen in 3.00 s"]
    assert len(last_words(replace(NOW, ranks=(replace(RANK, note="x"),)))) == 3
    assert "(rank 3, the slowest of 4)" in last_words(MOMENTS["several ranks"])[0]
