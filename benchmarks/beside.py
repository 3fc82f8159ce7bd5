"""An environment beside this one, for packages that a benchmark compares with and this project does not need.

It also sees the packages of the running one, so that all contenders use the same torch.
"""

import subprocess
import sysconfig
import venv
from collections.abc import Mapping
from pathlib import Path

__all__ = ["install"]


def install(folder: Path, packages: Mapping[str, str]) -> tuple[Path, dict[str, str]]:
    """Install packages, given by name with their requirement; return the interpreter that sees them and, for those that
    failed, the reason."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        own = subprocess.check_output(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
        )
        line = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
        Path(own.strip(), "zz_outer.pth").write_text(line)
    failed = {}
    for name, requirement in packages.items():
        command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            failed[name] = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
    return python, failed
