"""A Report as one self-contained HTML file: it opens from disk, loads nothing, and shows what the terminal shows.

What a script controls (names, paths, messages, its own lines) is made visible first, as on the terminal, and escaped by
the template; the page forbids itself every request. Charts are drawn by uPlot (MIT, 50 KB, in this folder); without
JavaScript the page has everything but them.
"""

import json
from collections.abc import Collection

from flatout.report.html.assets import asset, template
from flatout.report.html.charts import charts
from flatout.report.html.sections import sections
from flatout.report.tune_summary import HandoverStair
from flatout.report.written_changes import NO_CHANGES, ReportedChanges
from flatout.schema.report import Report
from flatout.schema.secrets import masked_plain

__all__ = ["REPORT_PAGE", "page"]

REPORT_PAGE = "report.html"


def page(
    report: Report,
    *,
    preview: Collection[str] = (),
    handover: HandoverStair | None = None,
    price_h: float = 0.0,
    changes: ReportedChanges = NO_CHANGES,
) -> str:
    """Return the whole page.

    Args:
        report: what to show.
        preview: codes of rules that no real recording has confirmed yet; their findings are marked.
        handover: what a tune hands over; its presence makes this the page of a tune, whatever was tried.
        price_h: what an hour of the machine costs; more than 0 asks for the price of an epoch.
        changes: findings and recipe as changes of the user's source.
    """
    return template("page.html").render(
        **sections(report, preview=preview, handover=handover, price_h=price_h, changes=changes),
        charts=_script_json(charts(report)),
        style=asset("uPlot.min.css") + asset("page.css"),
        script=asset("uPlot.iife.min.js") + "\n" + asset("page.js"),
    )


def _script_json(value: object) -> str:
    """Return `value` as JSON that no text in it can end the element around it."""
    text = json.dumps(masked_plain(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
