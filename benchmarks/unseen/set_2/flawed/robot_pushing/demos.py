import io
import pickle
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch.utils.data import Dataset

SIDE = 64


def render(tool, block, goal):
    img = Image.new("RGB", (SIDE, SIDE), (70, 75, 80))
    d = ImageDraw.Draw(img)
    gx, gy = goal * SIDE
    d.rectangle([gx - 7, gy - 7, gx + 7, gy + 7], outline=(40, 200, 70), width=2)
    bx, by = block * SIDE
    d.rectangle([bx - 5, by - 5, bx + 5, by + 5], fill=(200, 160, 40))
    tx, ty = tool * SIDE
    d.ellipse([tx - 3, ty - 3, tx + 3, ty + 3], fill=(220, 60, 60))
    return img


def record_episode(rng, length):
    """A scripted pusher: get behind the block, then push it towards the goal."""
    tool, block, goal = rng.uniform(0.15, 0.85, (3, 2))
    frames, actions = [], []
    for _ in range(length):
        heading = goal - block
        heading /= np.linalg.norm(heading) + 1e-6
        behind = block - 0.08 * heading
        target = behind if np.linalg.norm(tool - behind) > 0.04 else block + 0.05 * heading
        move = np.clip(target - tool, -0.04, 0.04)
        buf = io.BytesIO()
        render(tool, block, goal).save(buf, "JPEG", quality=88)
        frames.append(buf.getvalue())
        actions.append(move / 0.04)
        tool = tool + move
        if np.linalg.norm(tool - block) < 0.06:
            block = block + 0.8 * move
    return {"frames": frames, "actions": np.array(actions, np.float32)}


def write_demos(root: Path, episodes=80, length=30, seed=5):
    rng = np.random.default_rng(seed)
    for e in range(episodes):
        with open(root / f"demo_{e:04d}.pkl", "wb") as f:
            pickle.dump(record_episode(rng, length), f)


class Demonstration:
    def __init__(self, path):
        with open(path, "rb") as f:
            raw = pickle.load(f)
        self.frames = raw["frames"]
        self.actions = raw["actions"]

    def __len__(self):
        return len(self.frames)

    def video(self):
        return np.stack([np.asarray(Image.open(io.BytesIO(b))) for b in self.frames])  # <<


class PushDataset(Dataset):
    """Two consecutive frames (6 channels) and the action that followed."""

    def __init__(self, root: Path):
        self.demos = [Demonstration(p) for p in sorted(root.glob("demo_*.pkl"))]
        self.index = [(d, t) for d, demo in enumerate(self.demos) for t in range(1, len(demo))]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        d, t = self.index[i]
        demo = self.demos[d]
        pair = demo.video()[t - 1:t + 1]  # <<
        obs = torch.from_numpy(pair).permute(0, 3, 1, 2).reshape(6, SIDE, SIDE)
        return obs.float() / 255 - 0.5, torch.from_numpy(demo.actions[t])
