"""What is said of a training on several ranks."""

from flatout.report.ranks import ranks_in_words

NET = {"cut": 1200, "rows": [16, 16], "few": 1, "whole": {}}
HEAD = {"cut": 0, "rows": [], "few": 0, "whole": {"rows of its batch depend on each other": 3}}


def test_what_was_cut_and_what_was_not():
    account = {"rank": 0, "modules": {"Net": NET, "Head": HEAD}, "seconds": {"proof": 1.26}}
    assert ranks_in_words([account], size=2) == [
        "Net: 1,200 calls by rows (16 + 16 of 32 in the first)",
        "Net: 1 call whole on every rank: fewer rows than ranks",
        "Head: 3 calls whole on every rank: rows of its batch depend on each other",
        "the input was made 2 times, once by each rank; 1.3 s to prove it on copies",
    ]


def test_how_often_the_input_was_made():
    def said(**counts):
        return ranks_in_words([{"modules": {}, "counts": counts}], size=2)[-1]

    assert said(alone=3) == said() == "the input was made 2 times, once by each rank"
    assert said(divided=3) == "the input was made once, by workers that the ranks have divided among them"
    assert said(divided=3, alone=1).endswith("was made once, that of others made 2 times, once by each rank")


def test_many_ranks_are_not_all_listed():
    account = {"modules": {"Net": {**NET, "rows": [4] * 8, "few": 0}}}
    assert ranks_in_words([account], size=8)[0] == "Net: 1,200 calls by rows (4 + 4 + 4 + 4 + ... of 32 in the first)"


def test_a_stop_is_all_that_is_said():
    assert ranks_in_words([{"modules": {}}, {"modules": {}, "stopped": "why"}], size=2) == ["stopped: why"]


def test_scripts_that_do_otherwise():
    assert "no rank of 2 has told" in ranks_in_words([], size=2)[0]
    assert "distributes itself" in ranks_in_words([{"own": True, "modules": {}}], size=2)[0]
    assert "every rank has computed everything" in ranks_in_words([{"modules": {}}], size=2)[0]
