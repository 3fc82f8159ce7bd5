"""How many batches came from workers: flatout.loader_account says it in words."""

from flatout.torch_loader.predicted.worker_shares import WorkerShares


class Loader:
    dataset = "a data set"


def test_loaders_of_one_line_have_one_account():
    shares = WorkerShares()
    for taken in (10, 20):
        share = shares.begin(Loader, "train.py:7")
        share.passes, share.asked, share.taken = 2, 24, taken
    other = shares.begin(Loader, "train.py:30")
    other.asked, other.reason = 3, "str changes while it is read"
    assert list(map(str, shares.all())) == [
        "str at train.py:7, 4 passes: 30 of 48 batches from workers",
        "str at train.py:30, 0 passes: 0 of 3 batches from workers: str changes while it is read",
    ]
