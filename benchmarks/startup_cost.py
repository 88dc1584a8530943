"""
What the start-up file of the installed package costs an interpreter that never uses it.

Two bare virtual environments, one of them with the start-up files; their interpreters are started in turn, so that whatever
else the machine does hits both alike. Prints a line per statement and a line of JSON.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from build_hook import START_UP_FILES  # noqa: E402

STATEMENTS = ("pass", "import json")


def make_environment(folder: Path, with_start_up_files: bool) -> str:
    """
    Create a virtual environment without pip.

    :param folder: where to create it
    :param with_start_up_files: whether to install the start-up files and their module
    :return: path of its interpreter
    """
    builder = venv.EnvBuilder(with_pip=False, symlinks=sys.platform != "win32")
    context = builder.ensure_directories(folder)
    builder.create(folder)
    ask = [context.env_exe, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site_packages = Path(subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip())
    if with_start_up_files:
        module = shutil.copy(ROOT / "sb3_camp_startup.py", site_packages)
        subprocess.run([context.env_exe, "-m", "py_compile", str(module)], check=True)  # as pip does
        for name, text in START_UP_FILES.items():
            (site_packages / name).write_text(text, encoding="utf-8")
    return context.env_exe


def start(python: str, statement: str) -> float:
    """
    Time one interpreter from its start to its end.

    :param python: path of the interpreter
    :param statement: what it executes
    :return: milliseconds
    """
    begin = time.perf_counter()
    subprocess.run([python, "-c", statement], check=True)
    return 1000 * (time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=400, help="interpreter starts per environment and statement")
    parser.add_argument("--short", action="store_true", help="50 runs")
    args = parser.parse_args()
    runs = 50 if args.short else args.runs

    results = {}
    with tempfile.TemporaryDirectory() as folder:
        without = make_environment(Path(folder) / "without", with_start_up_files=False)
        with_files = make_environment(Path(folder) / "with", with_start_up_files=True)
        for statement in STATEMENTS:
            times = [(start(without, statement), start(with_files, statement)) for _ in range(runs)]
            baseline = statistics.median(a for a, _ in times)
            results[statement] = {
                "without_ms": round(baseline, 3),
                "with_ms": round(statistics.median(b for _, b in times), 3),
                "added_ms": round(statistics.median(b - a for a, b in times), 3),
                "ratio": round(statistics.median(b for _, b in times) / baseline, 4),
            }
            print(f"python -c {statement!r}: {results[statement]}")
    print(json.dumps({"benchmark": "startup_cost", "python": sys.version.split()[0], "runs": runs, "results": results}))


if __name__ == "__main__":
    main()
