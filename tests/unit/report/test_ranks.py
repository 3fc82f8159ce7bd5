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


def test_what_became_of_loaders_without_workers():
    def loader(name, divided=0, reason="", hint=""):
        shared, place = 8 * divided, f"train.py:{len(name)}"
        told = {"samples": 80, "divided": divided, "shared": shared, "own": shared // 2, "reason": reason, "hint": hint}
        return {"name": name, "place": place, "batches": 10, **told}

    def said(*inputs, **counts):
        return ranks_in_words([{"modules": {}, "inputs": inputs, "counts": counts}], size=2)[1:]

    assert said(loader("Photos", 8)) == [
        "loader of Photos (train.py:6): 8 of 10 batches divided among the ranks",
        "64 samples were made once, divided among the ranks, and 16 made 2 times, once by each rank",
    ]
    assert said(loader("Photos", 8, hint="prints while it is read"), divided=1) == [
        "loader of Photos (train.py:6): 8 of 10 batches divided among the ranks; Photos prints while it is read",
        "64 samples were made once, divided among the ranks, and 16 made 2 times, once by each rank,"
        " those of workers once",
    ]
    assert said(loader("Photos", 3, reason="Photos holds an open file"))[0] == (
        "loader of Photos (train.py:6): 3 of 10 batches divided among the ranks;"
        " later ones made by every rank: Photos holds an open file"
    )
    assert said(loader("Kept", reason="changes while it is read: Kept.cache"), loader("X")) == [
        "loader of Kept (train.py:4): made by every rank: Kept changes while it is read: Kept.cache",
        "loader of X (train.py:1): made by every rank",
        "the input was made 2 times, once by each rank",
    ]


def test_many_ranks_are_not_all_listed():
    account = {"modules": {"Net": {**NET, "rows": [4] * 8, "few": 0}}}
    assert ranks_in_words([account], size=8)[0] == "Net: 1,200 calls by rows (4 + 4 + 4 + 4 + ... of 32 in the first)"


def test_a_stop_is_all_that_is_said():
    assert ranks_in_words([{"modules": {}}, {"modules": {}, "stopped": "why"}], size=2) == ["stopped: why"]


def test_scripts_that_do_otherwise():
    assert "no rank of 2 has told" in ranks_in_words([], size=2)[0]
    assert "distributes itself" in ranks_in_words([{"own": True, "modules": {}}], size=2)[0]
    assert "every rank has computed everything" in ranks_in_words([{"modules": {}}], size=2)[0]
