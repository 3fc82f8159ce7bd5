"""What is noted of delivered batches comes back in order, and files that changed are seen."""

from flatout.torch_loader.streamed.delivered_batches import DeliveredBatches
from flatout.watch.files.opened_files import mark_of


def test_batches_come_back_in_their_order():
    delivered, added = DeliveredBatches(), [((1, 0), 5), ((1, 0), 6), ((2, 0), 7), ((1, 0), 8)]
    for each in added:
        delivered.add(*each)
    assert (len(delivered), list(delivered)) == (4, added)


def test_a_file_that_changed_is_seen_while_it_is_among_the_last_ones(tmp_path):
    names = [tmp_path / f"{number}.txt" for number in range(12)]
    delivered = DeliveredBatches()
    for name in names:
        name.write_text("a")
        assert delivered.files_stand([(str(name), mark_of(str(name)))])
    names[0].write_text("changed")
    assert delivered.files_stand([])
    names[-1].write_text("changed")
    assert not delivered.files_stand([])


def test_a_file_that_changed_since_it_was_opened_is_seen(tmp_path):
    name = tmp_path / "a.txt"
    name.write_text("a")
    mark = mark_of(str(name))
    name.write_text("longer")
    assert not DeliveredBatches().files_stand([(str(name), mark)])
