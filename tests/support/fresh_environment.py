"""A virtual environment of its own for a test, with this package or without it. No network."""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Environment:
    """A fresh virtual environment that sees the packages of the running one, but runs none of its start-up files."""

    def __init__(self, folder: Path) -> None:
        venv.EnvBuilder(with_pip=False, symlinks=sys.platform != "win32").create(folder)
        self.python = str(folder / ("Scripts" if sys.platform == "win32" else "bin") / "python")
        ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
        self.site_packages = Path(self.run("-c", ask, cwd=folder).stdout.strip())
        outer = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
        (self.site_packages / "outer.pth").write_text("\n".join(outer) + "\n")

    def start(self, *args: str, cwd: Path, **env: str) -> subprocess.Popen[str]:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        variables = inherited | {"OMP_NUM_THREADS": "1"} | env
        return subprocess.Popen(
            [self.python, *args], cwd=cwd, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def run(self, *args: str, cwd: Path, check: bool = True, **env: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*args, cwd=cwd, **env)
        stdout, stderr = process.communicate()
        assert not check or process.returncode == 0, f"{args}\n{stdout}\n{stderr}"
        return subprocess.CompletedProcess([self.python, *args], process.returncode, stdout, stderr)

    def pip(self, *args: str, cwd: Path) -> None:
        self.run("-m", "pip", "--disable-pip-version-check", "--no-input", *args, cwd=cwd)

    def install(self, *what: str, cwd: Path) -> None:
        # --ignore-installed: what the running environment holds must not count as installed here
        self.pip("install", "--no-deps", "--no-index", "--no-build-isolation", "--ignore-installed", *what, cwd=cwd)

    def files(self) -> set[str]:
        found = {str(path.relative_to(self.site_packages)) for path in self.site_packages.rglob("*")}
        return {name for name in found if "__pycache__" not in name}


def copied_checkout(folder: Path) -> Path:
    """A copy of the checkout, made in the folder, without what git ignores and without git itself (a file in a worktree)."""
    ignored = shutil.ignore_patterns(
        ".git", ".venv", ".*_cache", "__pycache__", "*.egg-info", "build", "dist", "logs", "quickstart"
    )
    return shutil.copytree(ROOT, folder / "sb3_camp", ignore=ignored)
