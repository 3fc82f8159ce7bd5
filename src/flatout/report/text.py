"""A Report as text: one screen for a terminal, plain lines for a pipe. The caller prints it."""

from collections.abc import Collection

from rich.console import Console
from rich.text import Text

from flatout.report.account import account_lines, epoch_lines, outside_lines, rank_lines
from flatout.report.cards import cards
from flatout.report.headroom import headroom_lines, with_workers
from flatout.report.layout import Look, join
from flatout.report.tune_summary import HandoverStair, handover_lines, headline, is_tuned, staircase
from flatout.report.verdict import best_finding, doubts, ending, is_doubt, title, verdict
from flatout.report.yardsticks import leave_it, yardsticks
from flatout.schema.finding import Finding
from flatout.schema.report import Report
from flatout.schema.run import Run
from flatout.units import format_share

__all__ = ["MAX_CARDS", "show", "text"]

MAX_CARDS = 6


def show(
    report: Report,
    console: Console,
    *,
    preview: Collection[str] = (),
    verbose: bool = False,
    handover: HandoverStair | None = None,
    price_h: float = 0.0,
) -> None:
    """Write `report` to `console`; lines are already as long as they may be, so nothing is wrapped or cut again."""
    page = text(report, Look.of(console), preview=preview, verbose=verbose, handover=handover, price_h=price_h)
    console.print(page, soft_wrap=True)


def text(
    report: Report,
    look: Look,
    *,
    preview: Collection[str] = (),
    verbose: bool = False,
    handover: HandoverStair | None = None,
    price_h: float = 0.0,
) -> Text:
    """Return the whole page.

    Args:
        report: what to show.
        look: the width and the characters to show it with.
        preview: codes of rules that no real recording has confirmed yet; their findings are marked.
        verbose: all findings with the numbers behind them, in place of the first six.
        handover: what a tune hands over; its presence makes this the page of a tune, whatever was tried.
        price_h: what an hour of the machine costs; more than 0 asks for the price of an epoch.
    """
    findings = tuple(finding for finding in report.findings if not is_doubt(finding))
    tuned = handover is not None or is_tuned(report)
    found = (
        _findings(report, findings, look, preview, verbose) if verbose or not tuned else _names(report, findings, look)
    )
    middle = _tuned(report, look, verbose=verbose) if tuned else [_verdict(report, look)]
    sections = [
        _title(report.run, look),
        *middle,
        [*account_lines(report.breakdown, look), *(_usual(report, look) if verbose else [])],
        _around_the_account(report, look, price_h),
        found,
        _notes(report, look),
        [*_probes(report, look), *_folder(report.folder, look), *handover_lines(handover, look)],
    ]
    lines: list[Text] = []
    for section in filter(None, sections):
        lines += [Text(), *section] if lines else section
    return join(lines)


def _around_the_account(report: Report, look: Look, price_h: float) -> list[Text]:
    """Return what stands below the account: outside the steps, headroom, an epoch and its price, ranks."""
    return [
        *outside_lines(report.breakdown, look),
        *headroom_lines(report.headroom, report.breakdown, look, workers=with_workers(report.run)),
        *epoch_lines(report, price_h, look),
        *rank_lines(report.run.ranks, look),
    ]


def _usual(report: Report, look: Look) -> list[Text]:
    """Return for each phase what such a step usually has."""
    told = yardsticks(report.breakdown)
    lines = [look.line("What such a step usually has", style="bold")] if told else []
    for sentence in told:
        lines += look.paragraph(sentence, indent=2, hanging=2, style="dim")
    return lines


def _tuned(report: Report, look: Look, *, verbose: bool) -> list[list[Text]]:
    """Return what came of a tune, then the verdict on the script as it was."""
    style = "bold yellow" if report.recipe is None else "bold green"
    before = [look.line("The script as it is", style="bold"), *look.paragraph(verdict(report))]
    return [look.paragraph(headline(report), style=style), *staircase(report, look, verbose=verbose), before]


def _names(report: Report, findings: tuple[Finding, ...], look: Look) -> list[Text]:
    """Return the findings by name only: below a staircase, they are the reasons and no longer the news."""
    if not findings:
        return []
    names = ", ".join(f"{each.code} {each.name}" for each in findings)
    command = f"flatout report {report.folder or 'DIR'} --verbose"  # on a line of its own: people copy it
    return [*look.paragraph(f"Found: {names}. Each one:", hanging=2), *look.paragraph(command, indent=2, hanging=2)]


def _title(run: Run, look: Look) -> list[Text]:
    """Return which script, and what it ran on."""
    torch = f", torch {run.environment.torch}" if run.environment.torch else ""
    return look.paragraph(title(run) + torch, hanging=2, style="dim")


def _verdict(report: Report, look: Look) -> list[Text]:
    """Return the one sentence, and how the recording ended when that was no good end."""
    style = "bold green" if report.breakdown.measured and best_finding(report) is None else "bold yellow"
    lines = look.paragraph(verdict(report), style=style)
    ended, leave = ending(report.run), leave_it(report)
    lines += look.paragraph(leave) if leave else []
    return [*lines, *look.paragraph(ended, style="red")] if ended else lines


def _findings(
    report: Report, findings: tuple[Finding, ...], look: Look, preview: Collection[str], verbose: bool
) -> list[Text]:
    """Return the cards, at most six unless all were asked for."""
    shown = findings if verbose else findings[:MAX_CARDS]
    lines = cards(shown, report.run.header, look, preview=preview, full=verbose)[1:]
    if len(shown) < len(findings):
        folder = report.folder or "DIR"
        lines.append(Text())
        lines += look.paragraph(f"+{len(findings) - len(shown)} more: flatout report {folder} --verbose", hanging=2)
    return lines


def _notes(report: Report, look: Look) -> list[Text]:
    """Return what may be wrong with the measurement itself."""
    notes = doubts(report)
    if not notes:
        return []
    lines = [look.line("About this measurement", style="bold")]
    for note in notes:
        lines += look.paragraph(f"- {note}", hanging=2, style="magenta")
    return lines


def _folder(folder: str, look: Look) -> list[Text]:
    """Return where the recording lies, uncut: people copy it."""
    return [Text.assemble("Recording: ", look.safe(folder))] if folder else []


def _probes(report: Report, look: Look) -> list[Text]:
    """Return what the light probes cost the steps that were timed."""
    cost_us, mean_ms = report.run.probe_us, report.breakdown.mean_ms
    if not cost_us or not mean_ms:
        return []
    share = format_share(cost_us / 1000 / mean_ms)
    told = f"The light probes took at least {cost_us:.0f} us of each step ({share}), as timed in a tight loop."
    return look.paragraph(told, style="dim")
