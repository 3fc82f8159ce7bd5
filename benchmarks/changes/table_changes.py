"""Tables: columns of a frame, large arrays of which one number changes, prices that a thread writes."""

import threading

import numpy as np
import torch
from script_list import decode, script
from torch.utils.data import DataLoader, Dataset


class Frame:
    """What a table of a library looks like from outside: columns by name, rows by `loc`."""

    def __init__(self, **columns):
        self._columns = {name: np.asarray(values) for name, values in columns.items()}

    def __getattr__(self, name):
        try:
            return self.__dict__["_columns"][name]
        except KeyError:
            raise AttributeError(name) from None

    def __setitem__(self, name, values):
        self._columns[name] = np.asarray(values)

    @property
    def loc(self):
        return self

    def at(self, row, name, value):
        self._columns[name][row] = value


@script("labels", attributes=["frame"])
def labels_in_a_frame_of_columns(wrap, rec):
    class Rows(Dataset):
        def __init__(self, frame):
            self.frame = frame

        def __len__(self):
            return len(self.frame.label)

        def __getitem__(self, i):
            decode()
            return self.frame.age[i], self.frame.label[i]

    frame = Frame(age=np.linspace(0, 1, 256), label=np.arange(256) % 3)
    loader = wrap(DataLoader(Rows(frame), batch_size=16, shuffle=True))
    for epoch in range(6):
        for batch in loader:
            rec(batch)
        if epoch == 2:
            frame.at(201, "label", 50)
        if epoch == 3:
            frame["age"] = frame.age * 2


@script("buffers", attributes=["pages"])
def buffer_much_larger_than_a_page_changed_in_one_element(wrap, rec):
    class Big(Dataset):
        def __init__(self):
            self.pages = np.zeros((2000, 600), dtype=np.float32)

        def __len__(self):
            return 2000

        def __getitem__(self, i):
            return self.pages[i, ::50], i

    data = Big()
    loader = wrap(DataLoader(data, batch_size=100, shuffle=True))
    for epoch in range(5):
        for number, batch in enumerate(loader):
            rec(batch)
            if epoch == 2 and number == 9:
                data.pages[1999, 550] = 1.0
            if epoch == 3 and number == 3:
                data.pages[0, 0] = 1.0


@script("buffers", attributes=["prices"])
def buffer_updated_by_a_thread_that_is_waited_for(wrap, rec):
    class Market(Dataset):
        def __init__(self):
            self.prices = torch.arange(200.0)
            self.lock = threading.Lock()

        def __len__(self):
            return 200

        def __getitem__(self, i):
            with self.lock:
                decode()
                return self.prices[i]

    data, asked, done = Market(), threading.Event(), threading.Event()

    def update():
        for _ in range(4):
            asked.wait()
            asked.clear()
            with data.lock:
                data.prices[::17] += 1
            done.set()

    thread = threading.Thread(target=update)
    loader = wrap(DataLoader(data, batch_size=20, shuffle=True))
    thread.start()
    for epoch in range(5):
        for number, batch in enumerate(loader):
            rec(batch)
            if number == 4 and epoch:
                asked.set()
                done.wait()
                done.clear()
    thread.join()
