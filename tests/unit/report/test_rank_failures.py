"""Sentences of flatout.report.rank_failures."""

import pytest

from flatout.report.rank_failures import failure_in_words
from flatout.schema.ranks import FailureKind, RankFailure


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (RankFailure(kind=FailureKind.RANK, rank=1, code=-9), "rank 1 was killed by SIGKILL: the kernel does so when"),
        (RankFailure(kind=FailureKind.RANK, host="b", rank=0, code=-15), "rank 0 on b was killed by SIGTERM"),
        (RankFailure(kind=FailureKind.RANK, rank=2, code=-7), "rank 2 was killed by SIGBUS: often there is no room"),
        (RankFailure(kind=FailureKind.RANK, rank=2, code=-99), "rank 2 was killed by signal 99"),
        (RankFailure(kind=FailureKind.RANK, host="b", rank=3, code=1), "rank 3 on b has failed with exit code 1"),
        (RankFailure(kind=FailureKind.SIGNAL, host="b", code=-15), "flatout was ended on b by SIGTERM"),
        (RankFailure(kind=FailureKind.GONE, host="b"), "flatout has ended on b without a word"),
        (RankFailure(kind=FailureKind.UNREACHABLE, host="b"), "b cannot be reached any more"),
    ],
)
def test_a_failure_names_what_is_known(failure, words):
    assert failure_in_words(failure).startswith(words)
