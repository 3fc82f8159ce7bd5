"""The bundled demo: an ordinary training script and a small set of real images.

`train.py` is what most people write after a few tutorials, in plain PyTorch and Pillow. It knows
nothing of flatout, is started as a script of its own and is never imported by the package.

`data/digits.zip` holds 1,797 digits written by hand (E. Alpaydin and C. Kaynak, "Optical
Recognition of Handwritten Digits", UCI Machine Learning Repository, 1998), under CC BY 4.0;
`data/LICENSE.txt` names the source and what was changed.
"""

import os
import tempfile
import zipfile
from pathlib import Path

__all__ = ["licence", "script", "unpack"]

_FOLDER = Path(__file__).parent


def script() -> Path:
    """The demo's training script, ready to be started with `python`."""
    return _FOLDER / "train.py"


def licence() -> Path:
    """The text that names the images' authors, licence and changes."""
    return _FOLDER / "data" / "LICENSE.txt"


def unpack(folder: Path) -> Path:
    """Put the images and their licence under `folder`, whole or not at all.

    Several runs can then share one copy (`train.py --data FOLDER`) instead of unpacking their own.

    Args:
        folder: where `train/` and `test/` shall lie; left as it is when it already exists.

    Returns:
        The folder.

    Raises:
        OSError: the folder cannot be written.
    """
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".unpack-") as scratch:
        whole = Path(scratch) / "images"
        with zipfile.ZipFile(_FOLDER / "data" / "digits.zip") as images:
            images.extractall(whole)
        (whole / "LICENSE.txt").write_bytes(licence().read_bytes())
        try:
            os.rename(whole, folder)
        except OSError:
            if not folder.exists():
                raise
    return folder
