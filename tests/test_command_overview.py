"""``sb3-camp``: all commands under one name, quick to list them, and safe in a folder that comes from elsewhere."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.logs import write_evaluation

import sb3_camp
from sb3_camp.__main__ import COMMANDS, main
from sb3_camp.command_line import spelled
from sb3_camp.version import __version__

ROOT = Path(sb3_camp.__file__).parents[1]
# Modules of the standard library and of others that the commands import
IMPORTED = (
    "argparse",
    "csv",
    "json",
    "hashlib",
    "zipfile",
    "numpy",
    "scipy",
    "yaml",
    "gymnasium",
    "matplotlib",
    "jinja2",
    "torch",
    "user_env",
)


@pytest.fixture
def console_script(tmp_path: Path) -> Path:
    """What pip makes of the entry in pyproject.toml."""
    script = tmp_path / "bin" / "sb3-camp"
    script.parent.mkdir()
    script.write_text("import sys\nfrom sb3_camp.__main__ import main\nsys.exit(main())\n")
    return script


def in_process(folder: Path, *args: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, *map(str, args)], cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.slow
def test_no_module_that_lies_in_the_working_folder_is_run(tmp_path, console_script):
    folder = tmp_path / "from_elsewhere"
    folder.mkdir()
    write_evaluation(folder / "evaluations.npz", [9.0, 8.0])
    for name in IMPORTED:
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'a').write('{name} ')\n")
    # A package that seems to be installed there, and would be loaded as a plugin
    planted = folder / "planted-1.0.dist-info"
    planted.mkdir()
    (planted / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n")
    (planted / "entry_points.txt").write_text("[sb3_camp.plugins]\nplanted = json:loads\n")
    certify, plot, report = ["certify", "evaluations.npz", "--radii", "0"], ["plot", "certificate", "."], ["report", "."]
    for start in ([console_script], ["-m", "sb3_camp"]):
        for command in (certify, plot, report):
            done = in_process(folder, *start, *command)
            assert (done.returncode, done.stderr) == (0, "")
    for name, *arguments in (certify, plot, report):
        done = in_process(folder, "-m", f"sb3_camp.{name}", *arguments)
        assert (done.returncode, done.stderr) == (0, "")
    for start in ([console_script, "card"], ["-m", "sb3_camp", "card"], ["-m", "sb3_camp.card"]):
        done = in_process(folder, *start, ".", "-o", "card")
        assert done.returncode == 2 and "not the agent that certificate.json is of" in done.stderr.splitlines()[0]
    assert not (tmp_path / "executed").exists()
    assert json.loads((folder / "certificate.json").read_text())["n_episodes"] == 2
    # where modules of the user are needed, they are found
    assert in_process(folder, "-m", "sb3_camp", "evaluate", "--help").returncode == 1
    assert (tmp_path / "executed").exists()


def test_the_overview_lists_the_commands_and_loads_none(tmp_path):
    code = (
        "import sys; from sb3_camp.__main__ import main\ntry: main(['--help'])\nfinally: print(*sys.modules, file=sys.stderr)"
    )
    done = in_process(tmp_path, "-c", code)
    assert all(f"    {name} " in done.stdout for name in COMMANDS)
    assert not {"torch", "stable_baselines3", "rl_zoo3", "scipy", "matplotlib"} & set(done.stderr.split())
    assert in_process(tmp_path, "-m", "sb3_camp", "--help").stdout == done.stdout


def test_every_command_is_there_with_its_arguments_and_its_status(tmp_path, console_script, capsys):
    assert set(COMMANDS) == {path.stem for path in (ROOT / "sb3_camp").glob("*.py") if "\ndef main(" in path.read_text()} - {
        "__main__"
    }
    assert main(["certify", str(tmp_path / "missing.npz")]) == 2
    assert capsys.readouterr().err == f"certify: error: {tmp_path / 'missing.npz'}: No such file or directory\n"
    assert main([]) == 2
    overview = capsys.readouterr().err
    assert all(f"    {name} " in overview for name in COMMANDS), "of whoever types nothing else"
    for arguments in (["unknown"], ["--unknown"]):
        with pytest.raises(SystemExit) as end:
            main(arguments)
        assert end.value.code == 2 and "usage: sb3-camp COMMAND" in capsys.readouterr().err
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0 and capsys.readouterr().out == f"sb3_camp {__version__}\n"
    for command, usage in (
        ([console_script, "plot", "certificate"], "usage: sb3-camp plot certificate PATH"),
        (["-m", "sb3_camp.plot", "certificate"], "usage: python -m sb3_camp.plot certificate PATH"),
    ):
        done = in_process(tmp_path, *command)
        assert done.returncode == 2
        first, last = done.stderr.splitlines()
        assert first.startswith(usage) and last == "plot certificate: error: the following arguments are required: PATH"


def test_messages_name_commands_as_they_can_be_typed(tmp_path, monkeypatch):
    for folder, installed in ((Path(sys.executable).parent, True), (tmp_path, False)):
        monkeypatch.setattr(shutil, "which", lambda name, folder=folder: str(folder / name))
        assert spelled("certify") == ("sb3-camp certify" if installed else "python -m sb3_camp.certify")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert spelled("plot") == "python -m sb3_camp.plot"
    elsewhere = r"(print|InputError|warn)\(.*python -m sb3_camp|^ +f?\".*python -m sb3_camp\.\w+( |\")"
    found = [
        f"{path.name}: {line.strip()}"
        for path in (ROOT / "sb3_camp").rglob("*.py")
        for line in path.read_text().splitlines()
        if re.search(elsewhere, line)
    ]
    assert found == []


def test_ctrl_c_while_a_command_is_loaded_leaves_one_line(monkeypatch, capsys):
    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr("sb3_camp.__main__.import_module", interrupted)
    assert main(["evaluate"]) == 130
    assert capsys.readouterr().err == "evaluate: interrupted\n"


def test_ctrl_c_before_a_command_has_begun_leaves_one_line(tmp_path, console_script):
    (tmp_path / "gymnasium.py").write_text("raise KeyboardInterrupt\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}

    def ended(*command):
        done = subprocess.run([sys.executable, *map(str, command)], env=environment, capture_output=True, text=True)
        return done.returncode, done.stderr

    for command in (["-m", "sb3_camp.evaluate"], ["-m", "sb3_camp", "certify"], [console_script, "attack"]):
        assert ended(*command) == (130, "sb3_camp: interrupted\n")
    status, message = ended("-c", "import sb3_camp")
    assert status != 130 and message.endswith("KeyboardInterrupt\n"), "in a program of the user it is the user's"
