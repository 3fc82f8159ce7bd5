import io
import time

import numpy as np
import torch
from torch.utils.data import Dataset


class Bucket:
    """In-process stand-in for an object store: keys, bytes and a round trip."""

    def __init__(self, latency_s):
        self.latency_s = latency_s
        self.blobs = {}

    def put(self, key, array):
        buffer = io.BytesIO()
        np.save(buffer, array.astype(np.float16))
        self.blobs[key] = buffer.getvalue()

    def get(self, key):
        time.sleep(self.latency_s)
        return self.blobs[key]

    def list(self, prefix):
        return sorted(k for k in self.blobs if k.startswith(prefix))


class BlobDataset(Dataset):
    def __init__(self, bucket, prefix):
        self.bucket = bucket
        self.keys = bucket.list(prefix)

    def __len__(self):
        return len(self.keys)

    def __getitem__(self, i):
        blob = self.bucket.get(self.keys[i])
        array = np.load(io.BytesIO(blob)).astype(np.float32)
        return torch.from_numpy(array)[None], i % 5
