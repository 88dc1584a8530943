"""What commands of the zoo leave behind, in a form that is equal for two runs that differ in nothing but time."""

import base64
import difflib
import io
import json
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import optuna
import pandas as pd

from support.fresh_environment import Environment

# Wall-clock time (in SB3's tables, before Optuna's messages, in names of the zoo's reports), and a random name
_TIMED_LINE = re.compile(r"^\| +(fps|time_elapsed) .*\n", re.MULTILINE)
_TABLE_RULE = re.compile(r"-{5,}")
_OPTUNA_TIME = re.compile(r"\[([IW]) [-0-9]+ [:0-9,]+\]")
_NAME_OF_UNNAMED_STUDY = re.compile(r"no-name-[-0-9a-f]{36}")
_SECONDS = re.compile(r"_\d{10}\b")
_SESSION = Path(__file__).with_name("zoo_session.py")
_ADDRESS = re.compile(r"0x[0-9a-f]+")


@dataclass
class Outcome:
    """
    :param status: exit status of each command
    :param printed: what they printed on standard output and standard error, without times
    :param files: content of each file in the folder, by name, without times
    """

    status: list[int]
    printed: list[str]
    files: dict[str, Any]


def outcomes(environments: list[Environment], folder: Path, commands: list[list[str]]) -> list[Outcome]:
    """
    Run the same commands, one after the other, in each of the environments at once.

    :param environments: the environments
    :param folder: where a folder for each environment is made
    :param commands: for each the module and its arguments
    :return: an outcome for each environment
    """
    (folder / "commands.json").write_text(json.dumps(commands))
    folders = [folder / str(number) / "run" for number in range(len(environments))]
    for own_folder in folders:
        own_folder.mkdir(parents=True)
    started = [
        environment.start(str(_SESSION), "../../commands.json", "../status.json", cwd=own_folder, PYTHONHASHSEED="0")
        for environment, own_folder in zip(environments, folders, strict=True)
    ]
    found = []
    for environment, own_folder, process in zip(environments, folders, started, strict=True):
        printed = [_timeless(text, environment) for text in process.communicate()]
        assert process.returncode == 0, printed
        status = json.loads((own_folder.parent / "status.json").read_text())
        found.append(Outcome(status, printed, _files(own_folder, environment)))
    return found


def _timeless(text: str, environment: Environment) -> str:
    text = _NAME_OF_UNNAMED_STUDY.sub("no-name", text.replace(environment.python, "python"))
    text = _OPTUNA_TIME.sub(r"[\1]", _SECONDS.sub("_TIME", _TABLE_RULE.sub("-----", _TIMED_LINE.sub("", text))))
    return "\n".join(" ".join(line.split()) for line in text.splitlines())


def _files(folder: Path, environment: Environment) -> dict[str, Any]:
    found = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {_SECONDS.sub("_TIME", name): _content(path, environment) for name, path in found.items()}


def _content(path: Path, environment: Environment) -> Any:
    if path.name.startswith("report_") and path.suffix == ".csv":
        return pd.read_csv(path).drop(columns=["datetime_start", "datetime_complete", "duration"]).to_csv()
    if path.name.startswith("report_") and path.suffix == ".pkl":
        return "a study, whose numbers are in the csv file beside it"
    if path.suffix == ".db":
        return _study(optuna.load_study(study_name=None, storage=f"sqlite:///{path}"))
    if path.suffix == ".zip":
        return _model(path.read_bytes())
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            return {name: (values.dtype.str, values.tolist()) for name, values in arrays.items()}
    if path.name.endswith(".monitor.csv"):
        first, columns, *rows = path.read_text().splitlines()
        header = {key: value for key, value in json.loads(first.removeprefix("#")).items() if key != "t_start"}
        time = columns.split(",").index("t")
        return header, columns, [[entry for i, entry in enumerate(row.split(",")) if i != time] for row in rows]
    if path.suffix in (".yml", ".txt"):
        return _timeless(path.read_text(), environment)
    return path.read_bytes()


def _study(study: optuna.Study) -> Any:
    trials = [(t.state.name, t.values, t.params, t.distributions, t.intermediate_values, t.user_attrs) for t in study.trials]
    attributes = {key: value for key, value in study.user_attrs.items() if key != "command"}
    return study.study_name, attributes, trials


def _model(content: bytes) -> dict[str, Any]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members: dict[str, Any] = {name: archive.read(name) for name in archive.namelist()}
    data = json.loads(members["data"])
    del data["start_time"]
    for name, value in data.items():
        if not isinstance(value, dict) or ":serialized:" not in value:
            continue
        serialized = base64.b64decode(value[":serialized:"])
        if name == "ep_info_buffer":
            episodes = cloudpickle.loads(serialized)
            data[name] = None if episodes is None else [(episode["r"], episode["l"]) for episode in episodes]
        elif name == "weights":  # those of ARS, whose pickle has an address in memory too
            data[name] = cloudpickle.loads(serialized).numpy().tobytes()
        else:  # beside the pickle stand texts for readers, with addresses in memory
            data[name] = serialized, _ADDRESS.sub("ADDRESS", json.dumps(value | {":serialized:": ""}))
    return members | {"data": data}


def assert_equal(one: Outcome, other: Outcome) -> None:
    """
    :param one: an outcome
    :param other: another one
    :raises AssertionError: with what differs, unless they are equal and all commands have ended well
    """
    assert one.status == other.status == [0] * len(one.status), "\n".join(one.printed + other.printed)
    for text, others in zip(one.printed, other.printed, strict=True):
        assert text == others, "\n".join(difflib.unified_diff(text.splitlines(), others.splitlines(), lineterm="", n=0))
    assert one.files.keys() == other.files.keys()
    for name, content in one.files.items():
        others = other.files[name]
        if isinstance(content, dict):
            assert content.keys() == others.keys(), name
            different = [key for key in content if content[key] != others[key]]
            assert not different, f"{name}: {different}: {content[different[0]]!r} {others[different[0]]!r}"
        assert content == others, name


def loads_the_package(environment: Environment, cwd: Path) -> bool:
    """
    :param environment: an environment
    :param cwd: working folder
    :return: whether the zoo's train command comes with modules of this package there
    """
    code = "import sys, rl_zoo3.train; print(any(name.partition('.')[0] == 'sb3_camp' for name in sys.modules))"
    return {"True": True, "False": False}[environment.run("-c", code, cwd=cwd).stdout.strip()]


def train(algo: str, env: str, params: list[str], *more: str, steps: int = 200) -> list[str]:
    """
    :param algo: the algorithm
    :param env: the environment
    :param params: hyper-parameters
    :param more: further arguments
    :param steps: of the training
    :return: module and arguments of a training of the zoo that leaves all that it can leave
    """
    frequent = ["--eval-freq", str(steps // 2), "--eval-episodes", "1", "--save-freq", str(steps // 2), "--save-replay-buffer"]
    task = ["rl_zoo3.train", "--algo", algo, "--env", env, "-n", str(steps), "-f", "logs", "--seed", "1", "--device", "cpu"]
    return [*task, *frequent, "-params", *params, *more]
