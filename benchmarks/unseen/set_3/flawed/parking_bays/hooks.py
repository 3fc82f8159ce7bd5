import tempfile
import time
from pathlib import Path

from PIL import Image, ImageDraw

from .scenes import CELL, GRID, SIZE


class Hook:
    def on_epoch_start(self, engine): ...
    def on_step_end(self, engine): ...
    def on_epoch_end(self, engine): ...


class LossPrinter(Hook):
    def __init__(self, every):
        self.every = every

    def on_step_end(self, engine):
        if engine.step % self.every == 0:
            print(f"epoch {engine.epoch} step {engine.step} loss {engine.loss:.4f}")


class EpochTimer(Hook):
    def on_epoch_start(self, engine):
        self.t = time.time()

    def on_epoch_end(self, engine):
        print(f"epoch {engine.epoch} took {time.time() - self.t:.1f}s")


class PreviewWriter(Hook):
    """Keeps previews/latest.png up to date so that one can look at the detections in a browser."""

    def __init__(self, columns=4, rows=1, zoom=3):
        self.columns, self.rows, self.zoom = columns, rows, zoom
        self.folder = Path(tempfile.mkdtemp(prefix="parking_bays_"))

    def on_step_end(self, engine):
        tile = SIZE * self.zoom
        sheet = Image.new("RGB", (self.columns * tile, self.rows * tile))
        for k in range(self.columns * self.rows):  # <<
            picture = self.draw(engine.images[k], engine.output[k])  # <<
            sheet.paste(picture, ((k % self.columns) * tile, (k // self.columns) * tile))
        sheet.save(self.folder / "latest.png")  # <<

    def draw(self, image, out):
        pixels = image.mul(255).byte().permute(1, 2, 0).contiguous().numpy()
        picture = Image.fromarray(pixels).resize((SIZE * self.zoom, SIZE * self.zoom), Image.BICUBIC)
        pen = ImageDraw.Draw(picture)
        out = out.sigmoid()
        best = out[0].flatten().topk(8)
        for score, cell in zip(best.values.tolist(), best.indices.tolist()):
            gy, gx = divmod(cell, GRID)
            dx, dy, w, h = out[1:, gy, gx].tolist()
            cx, cy = (gx + dx) * CELL, (gy + dy) * CELL
            box = [cx - w * SIZE / 2, cy - h * SIZE / 2, cx + w * SIZE / 2, cy + h * SIZE / 2]
            pen.rectangle([v * self.zoom for v in box], outline=(255, int(255 * score), 0), width=2)
        return picture
