from .engine import Engine
from .hooks import LossPrinter, PreviewWriter, EpochTimer
from .scenes import Lot

if __name__ == "__main__":
    engine = Engine(Lot(2000, seed=6), epochs=3, batch=24)
    engine.hooks += [LossPrinter(every=25), PreviewWriter(), EpochTimer()]
    engine.run()
