"""Synthetic pond recordings and the log-mel front end."""
import math

import numpy as np
import torch

RATE = 16000
SPECIES = [  # (name, carrier Hz, pulse rate Hz)
    ("peeper", 2900, 5), ("bullfrog", 220, 2), ("treefrog", 1600, 22), ("toad", 1350, 45),
    ("chorus", 3400, 30), ("leopard", 900, 12), ("mink", 600, 4), ("cricket", 4200, 60),
]


def make_clips(count, seconds, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(int(RATE * seconds)) / RATE
    labels = rng.integers(0, len(SPECIES), count)
    clips = np.empty((count, len(t)), dtype=np.float32)
    for i, lab in enumerate(labels):
        _, carrier, pulse = SPECIES[lab]
        f = carrier * rng.uniform(0.92, 1.08)
        p = pulse * rng.uniform(0.8, 1.2)
        call = np.sin(2 * np.pi * f * t) * (0.5 + 0.5 * np.sin(2 * np.pi * p * t + rng.uniform(0, 6)))
        clips[i] = 0.3 * call + rng.normal(0, 0.25, len(t))
    return torch.from_numpy(clips), torch.from_numpy(labels)


def hz_to_mel(hz):
    return 2595.0 * math.log10(1.0 + hz / 700.0)


def mel_to_hz(mel):
    return 700.0 * (10.0 ** (mel / 2595.0) - 1.0)


def mel_bank(n_fft, n_mels, fmin=50.0, fmax=RATE / 2):
    lo, hi = hz_to_mel(fmin), hz_to_mel(fmax)
    edges = [mel_to_hz(lo + (hi - lo) * i / (n_mels + 1)) for i in range(n_mels + 2)]
    bank = np.zeros((n_mels, n_fft // 2 + 1), dtype=np.float32)
    for m in range(n_mels):  # <<
        left, centre, right = edges[m], edges[m + 1], edges[m + 2]
        for k in range(n_fft // 2 + 1):  # <<
            hz = k * RATE / n_fft
            if left < hz <= centre:
                bank[m, k] = (hz - left) / (centre - left)
            elif centre < hz < right:
                bank[m, k] = (right - hz) / (right - centre)
    return torch.from_numpy(bank)


class LogMel:
    def __init__(self, n_fft=512, hop=160, n_mels=48):
        self.n_fft, self.hop, self.n_mels = n_fft, hop, n_mels

    def __call__(self, wave):
        window = torch.hann_window(self.n_fft)
        spec = torch.stft(wave, self.n_fft, self.hop, window=window, return_complex=True)
        mel = mel_bank(self.n_fft, self.n_mels) @ spec.abs().square()  # <<
        return torch.log(mel + 1e-5)
