"""A connection is opened for every sample.

## What it measures

How much of its time the process that makes the samples spends, in the deep run (the second, instrumented run), in
Python functions that look up a name, open a connection, or negotiate its encryption (of `socket`, `ssl`, `http`, and
the libraries on top of them). It fires when that is at least 20% of the loading and at least 10% of the step.

## Why it matters

A new connection costs a name lookup, one round trip for TCP, one or two for TLS, and reading the trusted certificates.
With 12 KB a sample from a server on the same machine, a step on 8 samples took 54 ms, and 9 ms with a connection that
was kept (medians of n=3 runs on a busy machine). Over a distance, each round trip adds to that.

## What to do

Open one connection in each worker, at its first sample, and keep it in the data set: `requests.Session`,
`httpx.Client`, `http.client.HTTPSConnection`, the client of the object store. Do not open it before the workers start:
processes cannot share one.

## When it is wrong

If the server closes each connection after its answer, keeping it gains nothing. Connections opened by libraries
written in C are not seen.
"""

import re
from dataclasses import replace

from flatout.rules.core.bounds import speedup_of_input
from flatout.rules.core.example import example, line
from flatout.rules.core.rule import Rule
from flatout.rules.core.sentence import of_step, within
from flatout.rules.facts.loader_facts import training_loader
from flatout.rules.facts.sample_stacks import sample_lines, where_samples_are_made
from flatout.rules.facts.user_lines import MIN_SAMPLES, costs, hottest, seconds
from flatout.schema.finding import Breakdown, Ceiling, Evidence, Finding
from flatout.schema.phase import Phase
from flatout.schema.run import LineCost, LoaderFacts, Run
from flatout.units import format_share

MIN_SHARE = 0.10
MIN_SHARE_OF_LOADING = 0.20
WORK = ("sample", "collate", "sampler")
OPENS = re.compile(
    r"^(getaddrinfo|create_connection|_?connect|_new_conn|_create|do_handshake|ssl_wrap_socket\w*|_ssl_wrap_socket\w*"
    r"|wrap_socket|create_default_context|_?load_\w*(certs|locations)|load_windows_store_certs"
    r"|create_urllib3_context|create_ssl_context|set_default_verify_paths)$"
)
CLIENTS = re.compile(
    r"^(socket|ssl|http|ftplib|imaplib|urllib|urllib3|requests|httpx|httpcore|aiohttp|anyio|botocore|boto3|s3fs|gcsfs"
    r"|paramiko|redis|pymysql|pymongo)$"
)


def check(run: Run, breakdown: Breakdown, headroom: tuple[Ceiling, ...]) -> Finding | None:
    """IN017: a fifth of the loading and a tenth of the step are opening connections."""
    loader = training_loader(run)
    process = where_samples_are_made(loader)
    among = costs(run, Phase.INPUT, process=process, stages=WORK if process == "worker" else None)
    opening = [cost for cost in sample_lines(run, loader) if _opens(cost)]
    samples = sum(cost.samples for cost in opening)
    fraction = min(1.0, seconds(opening) / seconds(among)) if seconds(among) > 0 else 0.0
    share = breakdown.share(Phase.INPUT) * fraction
    if samples < MIN_SAMPLES or fraction < MIN_SHARE_OF_LOADING or share < MIN_SHARE:
        return None
    spot = hottest(opening, among=among)
    return Finding(
        code="IN017",
        name="connection-per-sample",
        phase=Phase.INPUT,
        share=share,
        max_speedup=speedup_of_input(run, breakdown, loader, fraction, headroom),
        location=spot.place if spot else None,
        message=f"{of_step(breakdown, share * breakdown.mean_ms)} is spent opening connections"
        f"{f', from {within(spot)}' if spot else ''}: {format_share(fraction)} of the loading ({samples} stack "
        "samples). Open one connection in each worker, and keep it.",
        evidence=(
            Evidence("share of the loading", fraction, ""),
            Evidence("stack samples", samples, ""),
        ),
        fixes=("compiled-input", "loader-workers"),
    )


def _opens(cost: LineCost) -> bool:
    return bool(CLIENTS.match(cost.leaf) and OPENS.match(cost.leaf_function))


_GET = ("data.py", 30, "Remote.__getitem__")
_LINES = (
    line(1.0, _GET, stage="sample", leaf="ssl", leaf_function="do_handshake"),
    line(0.5, _GET, stage="sample", leaf="socket", leaf_function="create_connection"),
    line(0.5, _GET, stage="sample", leaf="socket", leaf_function="readinto"),
    line(0.1, stage="collate", leaf="torch"),
)
_KEPT = (
    line(0.2, _GET, stage="sample", leaf="ssl", leaf_function="do_handshake"),
    line(2.0, _GET, stage="sample", leaf="socket", leaf_function="readinto"),
)
_OTHER = (line(2.0, _GET, stage="sample", leaf="sqlalchemy", leaf_function="connect"),)
_WORKERS = LoaderFacts(is_training=True, num_workers=2, batch_size=16, fetches=60)

RULE = Rule(
    code="IN017",
    name="connection-per-sample",
    check=check,
    subsumes=("slow-sample-line",),
    fires_on=(
        example(step_ms=100, input=60, forward=30, lines=_LINES),
        example(
            step_ms=100, input=40, forward=50, loaders=(_WORKERS,),
            lines=[replace(each, process="worker") for each in _LINES],
        ),
    ),
    quiet_on=(
        example(step_ms=100, input=60, forward=30, lines=_KEPT),
        example(step_ms=100, input=12, forward=80, lines=_LINES),
        example(step_ms=100, input=60, forward=30, lines=_OTHER),
        example(step_ms=100, input=60, forward=30, lines=[replace(each, samples=2) for each in _LINES]),
        example(step_ms=100, input=60, forward=30),
    ),
)  # fmt: skip
