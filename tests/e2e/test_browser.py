"""The HTML report in a real browser: it draws its charts, says nothing on the console, and fits every screen.

Debian's chromium is installed where the tests may do so; else they are skipped with the reason. Screenshots are kept
in the folder that FLATOUT_SCREENSHOTS names, to be looked at.
"""

import html
import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from flatout.analysis.difference import Gate
from flatout.report.html.difference import difference_page
from flatout.report.html.page import page
from flatout.report.tune_summary import HandoverStair
from tests.unit.report import specimens
from tests.unit.report.test_headroom import EVERY_PLACE
from tests.unit.report.test_html import recorded
from tests.unit.report.test_html_difference import HOSTILE_DIFFERENCE, difference
from tests.unit.report.test_html_results import compared

SCREENSHOTS = os.environ.get("FLATOUT_SCREENSHOTS", "")  # read now: each test has an environment of its own

PAGES = {
    "diagnosis": lambda: page(specimens.ordinary(), preview={"IN001"}, price_h=3.5),
    "headroom": lambda: page(replace(specimens.ordinary(), headroom=EVERY_PLACE)),
    "tune": lambda: page(specimens.tuned(), handover=HandoverStair("flatout.toml", ("flatout", "run", "train.py"))),
    "healthy": lambda: page(specimens.healthy()),
    "timeline": lambda: page(specimens.drawn(workers=4)),
    "empty": lambda: page(specimens.empty()),
    "hostile": lambda: page(specimens.hostile()),
    "ten-steps": lambda: page(recorded(10)),
    "many-steps": lambda: page(recorded(100_000)),
    "results": lambda: page(compared()),
    "comparison": lambda: difference_page(difference(), limit=0.05, gate=Gate(False, "20% slower, beyond noise")),
    "hostile-comparison": lambda: difference_page(HOSTILE_DIFFERENCE),
}


@pytest.fixture
def browse(chromium, tmp_path):
    """Return a function that opens a page and returns its elements as they became, and what the console said."""

    def open_page(text, *, width=1100, height=1600, dark=False, picture=""):
        file = tmp_path / "report.html"
        file.write_text(text, encoding="utf-8")
        words = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr"]
        words += [f"--window-size={width},{height}", f"--user-data-dir={tmp_path / 'profile'}"]
        words += ["--virtual-time-budget=3000", "--force-color-profile=srgb"]
        words += ["--blink-settings=preferredColorScheme=0"] if dark else []
        if SCREENSHOTS and picture:
            subprocess.run(
                [chromium, *words, f"--screenshot={Path(SCREENSHOTS) / picture}.png", file.as_uri()],
                capture_output=True, timeout=60, cwd=tmp_path,
            )  # fmt: skip
        done = subprocess.run(
            [chromium, *words, "--dump-dom", file.as_uri()], capture_output=True, text=True, timeout=60, cwd=tmp_path
        )
        console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
        return done.stdout, console

    return open_page


PROBE = """<script>addEventListener("load", () => setTimeout(() => {
  const wide = [...document.querySelectorAll("body *")].filter(one => !one.closest(".scroll, .code, .unseen, .uplot")
    && one.getBoundingClientRect().right > innerWidth + 1).map(one => one.tagName + "." + one.className);
  const paint = performance.getEntriesByName("first-contentful-paint")[0];
  const told = { width: document.documentElement.scrollWidth, window: innerWidth, wide,
    dark: matchMedia("(prefers-color-scheme: dark)").matches,
    charts: document.querySelectorAll(".uplot canvas").length, paint_ms: paint ? paint.startTime : null };
  const place = document.createElement("pre"); place.id = "probe"; place.textContent = JSON.stringify(told);
  document.body.append(place);
}, 300));</script></body>"""


def watched(text, scripts):
    """Return a page with scripts of the test in it; a page that runs none forbids itself even these."""
    ours = "default-src 'none'; script-src 'unsafe-inline';"
    allowed = text if "script-src" in text else text.replace("default-src 'none';", ours)
    return allowed.replace("</body>", scripts)


def told(dom, name):
    """Return what a script put into the page as JSON."""
    return json.loads(html.unescape(re.search(rf'<pre id="{name}">(.*?)</pre>', dom, re.DOTALL)[1]))


@pytest.mark.parametrize("name", list(PAGES))
@pytest.mark.parametrize("width", [1100, 500])
@pytest.mark.few(1)
def test_a_page_is_drawn_without_a_word_on_the_console(browse, name, width):
    text = PAGES[name]()
    dom, console = browse(watched(text, PROBE), width=width, picture=f"{name}-{width}")
    assert console == []
    found = told(dom, "probe")
    assert found["wide"] == []
    assert found["width"] <= found["window"] + 1
    given = re.search(r'id="charts">(.*?)</script>', text, re.DOTALL)
    assert found["charts"] == (len(json.loads(given[1])) if given else 0)


def test_a_page_is_drawn_in_the_dark(browse):
    dom, console = browse(watched(PAGES["tune"](), PROBE), dark=True, picture="tune-dark")
    assert console == []
    found = told(dom, "probe")
    assert found["dark"]
    assert found["wide"] == []


ZOOM = """<script>addEventListener("load", () => setTimeout(() => {
  const region = document.getElementById("timeline"), lanes = region.querySelector(".lanes");
  const size = () => Math.round(10 * lanes.clientWidth / region.clientWidth) / 10;
  const button = factor => document.querySelector(`.zoom button[data-zoom="${factor}"]`);
  const sizes = [size()];
  button("2").click(); button("2").click(); sizes.push(size());
  const moved = region.scrollLeft > 0;
  button("0.5").click(); sizes.push(size());
  region.dispatchEvent(new WheelEvent("wheel", {deltaY: -1, ctrlKey: true, cancelable: true})); sizes.push(size());
  button("0").click(); sizes.push(size());
  region.dispatchEvent(new WheelEvent("wheel", {deltaY: -1, cancelable: true})); sizes.push(size());
  const place = document.createElement("pre"); place.id = "zoomed";
  place.textContent = JSON.stringify({sizes, moved, hidden: document.querySelector(".zoom").hidden});
  document.body.append(place);
}, 300));</script></body>"""


def test_the_steps_as_they_ran_can_be_zoomed(browse):
    dom, console = browse(watched(PAGES["timeline"](), ZOOM))
    assert console == []
    assert told(dom, "zoomed") == {"sizes": [1, 4, 2, 2.5, 1, 1], "moved": True, "hidden": False}


@pytest.fixture(scope="session")
def axe(tmp_path_factory):
    """Return the source of axe-core, the audit of accessibility, from the npm registry."""
    folder = tmp_path_factory.mktemp("axe")
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed, so axe-core cannot be had")
    done = subprocess.run(
        ["npm", "pack", "--silent", "axe-core@4.10.3"], cwd=folder, capture_output=True, text=True, timeout=120
    )
    if done.returncode:
        pytest.skip(f"axe-core could not be had from the npm registry: {done.stderr.strip()[-200:]}")
    subprocess.run(["tar", "xzf", done.stdout.split()[-1]], cwd=folder, check=True)
    return (folder / "package" / "axe.min.js").read_text(encoding="utf-8").replace("</script", "<\\/script")


AUDIT = """<script>addEventListener("load", () => axe.run().then(found => {
  const place = document.createElement("pre"); place.id = "audit";
  const rows = found.violations.map(one => [one.impact, one.id, one.nodes.map(node => node.html)]);
  place.textContent = JSON.stringify(rows);
  document.body.append(place);
}));</script></body>"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["diagnosis", "tune", "many-steps", "comparison"])
@pytest.mark.few(1)
def test_an_audit_of_accessibility_finds_nothing_serious(browse, axe, name, dark):
    text = watched(PAGES[name](), f"<script>{axe}</script>{AUDIT}")
    dom, _ = browse(text, dark=dark)
    serious = [one for one in told(dom, "audit") if one[0] in ("serious", "critical")]
    assert serious == []
