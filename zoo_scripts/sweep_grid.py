"""The grid of a sweep: its cells, what they have in common, and the file that keeps it."""

import ast
import hashlib
import inspect
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import yaml
from rl_zoo3.exp_manager import ExperimentManager
from rl_zoo3.utils import ALGOS
from stable_baselines3 import DQN
from sweep_cells import DEFAULT, Cell, write_atomically

from sb3_camp.camp_dqn import CAMPDQN
from sb3_camp.errors import InputError
from sb3_camp.zoo.registration import hyperparams_folder

SWEEP_FORMAT = "sb3_camp-sweep-2"
CAMP = "camp_dqn"
# Keys of the zoo's yml files that are not arguments of the algorithm
_ZOO_KEYS = {
    "callback",
    "env_kwargs",
    "env_wrapper",
    "frame_stack",
    "monitor_kwargs",
    "n_envs",
    "n_timesteps",
    "noise_std",
    "noise_type",
    "normalize",
    "vec_env_class",
    "vec_env_wrapper",
}

# What must be the same for all cells, as they stand in one table, each with the option that sets it
_COMMON = {
    "n_timesteps": "-n",
    "eval_freq": "--eval-freq",
    "eval_episodes": "--eval-episodes",
    "n_eval_envs": "--n-eval-envs",
    "n_episodes": "--n-episodes",
    "radii": "--radii",
    "device": "--device",
    "gym_packages": "--gym-packages",
}
_ATTACK = {
    "attack_budgets": "--attack-budgets",
    "attack_episodes": "--attack-episodes",
    "attack_envs": "--attack-envs",
}


@dataclass(frozen=True)
class Variant:
    """
    A change of hyper-parameters.

    :param algo: The algorithm that it is for, None for all
    :param params: Words of the zoo's ``-params``
    """

    algo: str | None
    params: list[str]

    @property
    def keys(self) -> set[str]:
        """The hyper-parameters that it sets."""
        return {word.partition(":")[0] for word in self.params}


def parse_variants(given: list[list[str]]) -> dict[str, Variant]:
    """
    :param given: name, with ``:ALGO`` if it is for one algorithm only, and ``-params`` words of each
    :return: the variants by their names
    :raises InputError: if one cannot be used
    """
    variants: dict[str, Variant] = {}
    for title, words in given:
        name, _, algo = title.partition(":")
        if not re.fullmatch(r"[A-Za-z0-9.+-]+", name) or re.match(r"(lambda|sigma|seed)[0-9.]", name):
            raise InputError(
                f"--variant {name}: a name has letters, digits, '.', '+' and '-', and is not like lambda1 or seed1"
            )
        if name in variants:
            raise InputError(f"--variant {name} is given twice: one name, one change")
        params = re.split(r"\s+(?=[A-Za-z_]\w*:)", words.strip()) if words.strip() else []
        if not all(map(_is_param, params)):
            raise InputError(f"--variant {name}: {words!r} is not of the form KEY:VALUE KEY:VALUE with Python values")
        if (name == DEFAULT) != (not params):
            raise InputError(f"--variant {name}: default is the name of the variant that changes nothing")
        variants[name] = Variant(algo or None, params)
    return variants


def _is_param(word: str) -> bool:
    key, _, value = word.partition(":")
    try:
        ast.parse(value, mode="eval")
    except (SyntaxError, ValueError):
        return False
    return key.isidentifier()


def build_grid(
    tasks: list[str],
    algos: list[str],
    lambdas: list[float] | None,
    variants: Mapping[str, Variant],
    sigmas: list[float],
    seeds: list[int],
) -> list[Cell]:
    """
    :param tasks: Ids of the environments
    :param algos: The zoo's names of the algorithms
    :param lambdas: CAMP's lambdas, None for that of its hyper-parameters
    :param variants: The variants, empty for none
    :param sigmas: Noises
    :param seeds: Seeds
    :return: the cells, each once: all of the first seed come first
    :raises InputError: if something is unknown, out of range or does not fit together
    """
    for task in tasks:
        _check_task(task)
    for algo in [*algos, *(variant.algo for variant in variants.values() if variant.algo)]:
        if algo not in ALGOS:
            raise InputError(f"--algos: the zoo knows no {algo}, but {', '.join(ALGOS)}")
    if lambdas is not None and CAMP not in algos:
        raise InputError(f"--lambdas is for {CAMP}, which is not among --algos")
    for value in lambdas or ():
        if not 0 <= value < float("inf"):
            raise InputError(f"--lambdas must be numbers that are at least 0, not {value:g}")
    for value in sigmas:
        if not 0 < value < float("inf"):
            raise InputError(f"--sigmas must be positive numbers, not {value:g}: without noise there is nothing to certify")
    for seed in seeds:
        if not 0 <= seed < 2**31:
            raise InputError(f"--seeds must be from 0 to {2**31 - 1}, not {seed}")
    for name, variant in variants.items():
        _check_variant(name, variant, algos, lambdas)
    cells = [
        Cell(task, algo, camp_lambda, variant, sigma, seed)
        for seed in seeds
        for task in tasks
        for sigma in sigmas
        for algo in algos
        for camp_lambda in ([abs(value) for value in lambdas] if lambdas is not None and algo == CAMP else [None])
        for variant in _variants_of(algo, variants)
    ]
    return list(dict.fromkeys(cells))


def _variants_of(algo: str, variants: Mapping[str, Variant]) -> list[str]:
    """The variants for an algorithm; the default if there are none."""
    return [name for name, variant in variants.items() if variant.algo in (None, algo)] or [DEFAULT]


def _check_task(task: str) -> None:
    try:
        spec = gym.spec(task)
    except gym.error.Error as error:
        raise InputError(f"--tasks {task}: {error}: check the id, or give its package with --gym-packages") from None
    if "sigma" not in spec.kwargs and "ale_py" in str(spec.entry_point):
        raise InputError(f"--tasks {task}: it has no sigma to set: take camp/Freeway-v0 and its like, or register such a task")


def _known_keys(algo: str) -> set[str]:
    """What the zoo takes as hyper-parameters: its own keys, and the arguments of the algorithm."""
    return _ZOO_KEYS | set(inspect.signature(ALGOS[algo]).parameters)


def _check_variant(name: str, variant: Variant, algos: list[str], lambdas: list[float] | None) -> None:
    own = set(inspect.signature(CAMPDQN).parameters) - set(inspect.signature(DQN).parameters)
    others = [algo for algo in algos if algo != CAMP and variant.algo in (None, algo)]
    if (keys := sorted(own & variant.keys)) and others:
        raise InputError(f"--variant {name}: {others[0]} has no {keys[0]}: write {name}:{CAMP}")
    for algo in algos:
        if variant.algo in (None, algo) and (unknown := sorted(variant.keys - _known_keys(algo))):
            raise InputError(f"--variant {name}: {algo} has no {unknown[0]}: check its spelling")
    if variant.algo is not None and variant.algo not in algos:
        raise InputError(f"--variant {name}:{variant.algo}: {variant.algo} is not among --algos")
    if "camp_lambda" in variant.keys and lambdas is not None:
        raise InputError(f"--variant {name} sets camp_lambda, and so does --lambdas: take one of them")
    if "env_wrapper" in variant.keys:
        raise InputError(f"--variant {name}: env_wrapper holds the noise that --sigmas sets: write a task of your own")


def takes_sigma(task: str) -> bool:
    """Whether the environment itself adds the noise."""
    return "sigma" in gym.spec(task).kwargs


def counts_steps(task: str) -> bool:
    """Whether the return is the number of steps, so that the possible returns are known beforehand."""
    return task.startswith(("camp/CartPole", "CartPole-")) and gym.spec(task).max_episode_steps is not None


def find_conf(algos: list[str], given: list[str]) -> dict[str, dict[str, str] | None]:
    """
    :param algos: The algorithms
    :param given: ``ALGO=PATH`` for some of them
    :return: path and SHA-256 of the yml of each algorithm, None for the one that the zoo finds by itself
    :raises InputError: if one cannot be used
    """
    found: dict[str, dict[str, str] | None] = dict.fromkeys(algos)
    for text in given:
        algo, _, path = text.partition("=")
        if algo not in found or not path:
            raise InputError(f"--conf {text}: not of the form ALGO=FILE.yml with one of --algos")
        if not Path(path).is_file():
            raise InputError(f"--conf {text}: no such file")
        found[algo] = {"path": path, "sha256": hashlib.sha256(Path(path).read_bytes()).hexdigest()}
    return found


def package_hyperparameters(tasks: list[str], algos: list[str], conf: Mapping[str, Any]) -> dict[str, str]:
    """
    What the yml files of the package say, so that an edit between two runs of a sweep does not mix two settings in one table.
    Any edit of the section counts, also of what the command line sets.

    :param tasks: The tasks
    :param algos: The algorithms
    :param conf: What ``find_conf`` found: algorithms with a file of their own are left out
    :return: for each "algorithm task" that such a file is for, the SHA-256 of its hyper-parameters
    """
    found = {}
    for algo in (algo for algo in algos if conf[algo] is None):
        paths = (hyperparams_folder() / f"{algo}.yml", _baseline_yml(algo))
        path = next((path for path in paths if path.is_file()), None)
        sections = {} if path is None else yaml.safe_load(path.read_text(encoding="utf-8"))
        for task in tasks:
            otherwise = "atari" if ExperimentManager.is_atari(task) else "default"  # as the zoo chooses
            section = sections.get(task, sections.get(otherwise))
            if section is not None:
                found[f"{algo} {task}"] = hashlib.sha256(json.dumps(section, sort_keys=True).encode()).hexdigest()
    return found


def _baseline_yml(algo: str) -> Path:
    return hyperparams_folder() / "baselines" / f"{algo}.yml"


def baseline_conf(algo: str, task: str) -> str | None:
    """The yml of the package for an algorithm of the stock zoo, if it has one for the task."""
    path = _baseline_yml(algo)
    if not path.is_file() or task not in yaml.safe_load(path.read_text(encoding="utf-8")):
        return None
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def keep_settings(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """
    Keep what all cells have in common in ``sweep.json``, or compare with what is kept there. Algorithms, variants and the
    attack may come later.

    :param folder: Folder of the sweep
    :param settings: The settings
    :return: the settings of the whole sweep
    :raises InputError: if the folder holds something else, or a sweep with other settings
    """
    file = folder / "sweep.json"
    folder.mkdir(parents=True, exist_ok=True)
    if not file.exists():
        if any(path.name != "sweep.json" and not path.name.startswith(".sweep.json") for path in folder.iterdir()):
            raise InputError(f"{folder}: not empty, and not a sweep: choose another folder with -o")
        if _create(file, settings):
            return settings
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{file}: not JSON: {error}") from None
    if not isinstance(kept, dict) or kept.get("format") != SWEEP_FORMAT:
        raise InputError(f"{file}: not of the format {SWEEP_FORMAT}")
    merged = _merged(file, kept, settings)
    if merged != kept:
        write_atomically(file, json.dumps(merged, indent=1) + "\n")
    return merged


def _merged(file: Path, kept: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    way_out = "give the same, or another folder with -o"

    def check(old: Any, new: Any, option: str) -> None:
        if old != new:
            raise InputError(f"{file}: the sweep was begun with {option} {_shown(old)}, not {_shown(new)}: {way_out}")

    for key, option in _COMMON.items():
        check(kept[key], new[key], option)
    attacked = kept["attack_episodes"] is not None
    if attacked and new["attack_episodes"] is not None:
        for key, option in _ATTACK.items():
            check(kept[key], new[key], option)
    for algo, conf in new["conf"].items():
        if algo in kept["conf"] and (kept["conf"][algo] or {}).get("sha256") != (conf or {}).get("sha256"):
            raise InputError(f"{file}: the sweep was begun with another content of --conf for {algo}: {way_out}")
    for name, digest in new["package_hyperparameters"].items():
        if kept["package_hyperparameters"].get(name, digest) != digest:
            raise InputError(
                f"{file}: the sweep was begun with other hyper-parameters of {name} in the yml of the package: put them back "
                "and name the change as a --variant, or give another folder with -o"
            )
    for name, variant in new["variants"].items():
        old = kept["variants"].get(name, variant)
        check(old["params"], variant["params"], f"--variant {name}")
    merged = kept if attacked else {**kept, **{key: new[key] for key in _ATTACK}}
    return {**merged, **{key: {**kept[key], **new[key]} for key in ("conf", "variants", "package_hyperparameters")}}


def _shown(value: Any) -> str:
    if value is None:
        return "(its default)"
    return " ".join(map(_shown, value)) if isinstance(value, list) else str(value)


def _create(file: Path, settings: dict[str, Any]) -> bool:
    """Write the file whole; False if another process was faster."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
    try:
        os.link(temporary, file)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    return True
