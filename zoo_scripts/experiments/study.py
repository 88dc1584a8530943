"""A study: what its yml says, checked, the cells of its grids, and the commands of each."""

import hashlib
import importlib
import inspect
import json
import os
import shlex
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from itertools import count, product
from pathlib import Path
from typing import Any

import gymnasium as gym
import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from programs import PROGRAMS, is_program, training_by_program
from results import DEFAULT, Cell
from rl_zoo3.exp_manager import ExperimentManager
from rl_zoo3.utils import ALGOS
from stable_baselines3 import DQN

import sb3_camp.zoo
from sb3_camp.attack_names import ALL, LEARNED
from sb3_camp.camp_dqn import CAMPDQN
from sb3_camp.certification.band_registry import band_of
from sb3_camp.certification.rounded_text import exact
from sb3_camp.errors import InputError
from sb3_camp.evaluation.episode_plan import plan_chunks
from sb3_camp.runs.scenario import noisy_wrappers, takes_sigma
from sb3_camp.zoo.registration import hyperparams_folder

SCHEMA = json.loads(Path(__file__).with_name("study.schema.json").read_text(encoding="utf-8"))
CAMP = "camp_dqn"
# Seeds of cells are below
_SHARD_SEEDS = 1_000_000
# Keys of the zoo's yml files that are not arguments of the algorithm
_ZOO_KEYS = {
    *("callback", "env_kwargs", "env_wrapper", "frame_stack", "monitor_kwargs", "n_envs", "n_timesteps", "noise_std"),
    *("noise_type", "normalize", "vec_env_class", "vec_env_wrapper"),
}


def read_study(file: Path) -> "Study":
    """
    :param file: yml of a study
    :return: the study
    :raises InputError: if it is none, in one line
    """
    try:
        config = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (UnicodeError, yaml.YAMLError) as error:
        raise InputError(f"{file}: not yml: {error}") from None
    try:
        return Study(config, file.parent)
    except InputError as error:
        raise InputError(f"{file}: {error}") from None


class Study:
    """
    :param config: What the yml of a study says, see ``study.schema.json``
    :param folder: Folder that the files in it are relative to
    :raises InputError: if something is unknown, out of range or does not fit together
    """

    def __init__(self, config: Any, folder: Path) -> None:
        error = best_match(Draft202012Validator(SCHEMA).iter_errors(config))
        if error is not None:
            where = error.json_path.removeprefix("$").lstrip(".") or "the study"
            advice = error.schema.get("description") if error.validator == "pattern" else None
            raise InputError(f"{where}: {error.message}{f' ({advice})' if advice else ''}")
        self._config, self._folder = config, folder
        self.train, self.evaluate, self.certify, self.attack, self.figures = map(
            self._section, ("train", "evaluate", "certify", "attack", "figures")
        )
        self.variants: dict[str, dict[str, Any]] = config.get("variants", {})
        self.device = config.get("device", "auto")
        self._packages = config.get("gym_packages", [])
        self.linear_search = config.get("linear_search")
        self._ymls: dict[Path, Any] = {}
        sb3_camp.zoo.register()
        self._check()
        self.cells = {cell.name: cell for grid in config["grids"] for cell in self._cells_of(grid)}
        for cell in self.cells.values():
            self._check_teacher(cell)
            self.hyperparameters(cell)

    def _section(self, name: str) -> dict[str, Any]:
        """A section of the yml, with the defaults of the schema; None where there is none."""
        known = SCHEMA["properties"][name]["properties"]
        return {key: spec.get("default") for key, spec in known.items()} | self._config.get(name, {})

    # What is wrong that a schema cannot know

    def _check(self) -> None:
        for package in self._packages:
            try:
                importlib.import_module(package)
            except ImportError as error:
                raise InputError(f"gym_packages: cannot import {package}: {error}") from error
        grids = self._config["grids"]
        algorithms = {name for grid in grids for name in grid["algorithms"]}
        for name in sorted({*algorithms, *self.train["conf"]}):
            if name not in ALGOS:
                raise InputError(f"the zoo knows no algorithm {name}, but {', '.join(ALGOS)}")
        for task in dict.fromkeys(task for grid in grids for task in grid["tasks"]):
            _check_task(task)
        for grid in grids:
            if "lambdas" in grid and CAMP not in grid["algorithms"]:
                raise InputError(f"lambdas are for {CAMP}, which is not among the algorithms of its grid")
            for name in grid.get("variants", []):
                if name != DEFAULT and name not in self.variants:
                    raise InputError(f"the variant {name} of a grid is not among the variants of the study")
            if ALL in grid.get("attacks", []) and len(set(grid["attacks"])) > 1:
                raise InputError("attacks: all makes the others too: leave them out")
        for name, variant in self.variants.items():
            self._check_variant(name, variant)
        frequency, steps = self.train["eval_freq"], self.train["n_timesteps"]
        if frequency < 1 or (steps is not None and frequency > steps):
            used = {*self.evaluate["checkpoints"], *(c for grid in grids for c in grid.get("attack_checkpoints", []))}
            if "best" in used | {variant.get("teacher", {}).get("checkpoint") for variant in self.variants.values()}:
                raise InputError(
                    f"train.eval_freq {frequency}: without a validation during the training there is no best checkpoint: give "
                    "a smaller one, or checkpoints: [last]"
                )
        if self.evaluate["shards"] > self.evaluate["n_episodes"]:
            raise InputError("evaluate.shards: more than there are episodes")

    def _check_variant(self, name: str, variant: Mapping[str, Any]) -> None:
        grids = self._grids_of(name)
        keys, only = set(variant.get("params", {})), variant.get("algorithm")
        if not variant.keys() & {"params", "env_kwargs", "teacher", "program"}:
            raise InputError(f"variant {name} changes nothing: give it params, env_kwargs, a teacher or a program")
        if "program" in variant:
            self._check_program(name, variant)
        if "teacher" in variant and only != CAMP:
            raise InputError(f"variant {name}: only {CAMP} imitates a teacher: give it algorithm: {CAMP}")
        if "teacher" in variant and "reference" in keys:
            raise InputError(f"variant {name}: its teacher is the reference: take that out of params")
        if "env_kwargs" in keys:
            raise InputError(f"variant {name}: env_kwargs stand beside params, not in them")
        if "sigma" in variant.get("env_kwargs", {}):
            raise InputError(f"variant {name}: sigma is set by the sigmas of a grid, not by env_kwargs")
        if "env_wrapper" in keys:
            raise InputError(f"variant {name}: env_wrapper holds the noise that sigmas set: write a task of your own")
        if only is not None and not any(only in grid["algorithms"] for grid in grids):
            raise InputError(f"variant {name}: no grid with it has the algorithm {only}")
        if "program" in variant:
            return  # its params are options of its own
        for grid in grids:
            if "camp_lambda" in keys and "lambdas" in grid:
                raise InputError(f"variant {name} sets camp_lambda, and so do the lambdas of its grid: take one of them")
            for algorithm in grid["algorithms"] if only is None else [only]:
                known = _ZOO_KEYS | set(inspect.signature(ALGOS[algorithm]).parameters)
                if unknown := sorted(keys - known):
                    of_camp = unknown[0] in inspect.signature(CAMPDQN).parameters
                    advice = f"give it algorithm: {CAMP}" if of_camp else "check its spelling"
                    raise InputError(f"variant {name}: {algorithm} has no {unknown[0]}: {advice}")

    def _check_program(self, name: str, variant: Mapping[str, Any]) -> None:
        if variant.get("algorithm") in (None, CAMP):
            raise InputError(f"variant {name}: name the algorithm whose agents its program leaves, other than {CAMP}")
        if not is_program(variant["program"]):
            raise InputError(f"variant {name}: no module {variant['program']} in {PROGRAMS} or among the installed ones")
        if tasks := [task for g in self._grids_of(name) for task in g["tasks"] if not takes_sigma(task)]:
            raise InputError(f"variant {name}: {tasks[0]} takes no sigma, which its program is given among --env-kwargs")

    def _grids_of(self, variant: str) -> list[Mapping[str, Any]]:
        return [grid for grid in self._config["grids"] if variant in grid.get("variants", [])]

    def _check_teacher(self, cell: Cell) -> None:
        found = self.teacher(cell)
        if found is None:
            return
        teacher = found[0]
        who = f"variant {cell.variant}: its teacher {teacher.name}"
        if teacher.name not in self.cells:
            raise InputError(f"{who} is in no grid: add it to one")
        if self.teacher(teacher) is not None:
            raise InputError(f"{who} has a teacher itself: take that one")
        own, other = (self.variants.get(one.variant, {}).get("env_kwargs", {}) for one in (cell, teacher))
        if own != other:
            raise InputError(f"{who} has the env_kwargs {other}, and it has {own}: give both the same")

    # The grid

    def _cells_of(self, grid: Mapping[str, Any]) -> Iterator[Cell]:
        """All cells of the first seed come first."""
        for seed, task, sigma, algorithm in product(grid["seeds"], grid["tasks"], grid["sigmas"], grid["algorithms"]):
            lambdas = grid.get("lambdas", [None]) if algorithm == CAMP else [None]
            for camp_lambda, variant in product(lambdas, self._variants_of(grid, algorithm)):
                value = None if camp_lambda is None else float(camp_lambda)
                yield Cell(task, float(sigma), algorithm, value, variant, int(seed))

    def _variants_of(self, grid: Mapping[str, Any], algorithm: str) -> list[str]:
        names = grid.get("variants", [DEFAULT])
        return [n for n in names if self.variants.get(n, {}).get("algorithm") in (None, algorithm)] or [DEFAULT]

    def teacher(self, cell: Cell) -> tuple[Cell, str] | None:
        """The cell that a cell imitates, of the same task, sigma and seed, and which checkpoint; None without a teacher."""
        given = self.variants.get(cell.variant, {}).get("teacher")
        if given is None:
            return None
        variant = given.get("variant", DEFAULT)
        return Cell(cell.task, cell.sigma, given["algorithm"], None, variant, cell.seed), given.get("checkpoint", "last")

    @cached_property
    def attacks(self) -> dict[str, list[tuple[str, str]]]:
        """Checkpoint and name of each attack on a cell, by the name of the cell: "pgd", without noise "pgd-sigma0"."""
        found: dict[str, dict[tuple[str, str], None]] = {name: {} for name in self.cells}
        for grid in self._config["grids"]:
            names = [
                f"{attack}{'' if noise == 'own' else '-sigma0'}"
                for attack, noise in product(grid.get("attacks", []), grid.get("attack_noise", ["own"]))
            ]
            checkpoints = grid.get("attack_checkpoints", self.evaluate["checkpoints"])
            for cell in self._cells_of(grid):
                found[cell.name].update(dict.fromkeys(product(checkpoints, names)))
        return {name: list(attacks) for name, attacks in found.items()}

    def checkpoints(self, cell: Cell) -> list[str]:
        """The checkpoints of a cell that are evaluated and certified."""
        return self.evaluate["checkpoints"] if cell.sigma > 0 else []

    def methods(self, cell: Cell) -> list[str]:
        """The bands of its certificates."""
        return [name for name in self.certify["methods"] if not band_of(name).pointwise or _counts_steps(cell.task)]

    # Hyper-parameters: a copy in the folder of the results, named by its content, so that an edit is another command

    def hyperparameters(self, cell: Cell) -> tuple[str, str] | None:
        """
        :param cell: A cell
        :return: name and text of the yml with its hyper-parameters, None for those of the stock zoo
        :raises InputError: if the yml that is given for it cannot be used
        """
        given = self.train["conf"].get(cell.algo)
        names = [f"{cell.algo}.yml", f"baselines/{cell.algo}.yml"] if given is None else [given]
        places = [hyperparams_folder()] if given is None else [self._folder, hyperparams_folder()]
        file = next((place / name for name in names for place in places if (place / name).is_file()), None)
        if file is None:
            if given is not None:
                raise InputError(f"train.conf: no file {given}")
            return None
        sections = self._yml(file)
        otherwise = "atari" if ExperimentManager.is_atari(cell.task) else "default"  # as the zoo chooses
        section = sections.get(cell.task, sections.get(otherwise))
        if section is None:
            if given is not None:
                raise InputError(f"train.conf: {given} has nothing for {cell.task}")
            return None
        text = yaml.safe_dump({cell.task: section}, sort_keys=True)
        return f"conf/{cell.algo}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.yml", text

    def _yml(self, file: Path) -> Mapping[str, Any]:
        if file not in self._ymls:
            try:
                self._ymls[file] = yaml.safe_load(file.read_text(encoding="utf-8"))
            except (UnicodeError, yaml.YAMLError) as error:
                raise InputError(f"{file}: not yml: {error}") from None
            if not isinstance(self._ymls[file], dict):
                raise InputError(f"{file}: no hyper-parameters by task")
        return self._ymls[file]

    def write_hyperparameters(self, folder: Path) -> None:
        """Write the yml of each cell, where it is not yet."""
        for name, text in {conf for cell in self.cells.values() if (conf := self.hyperparameters(cell)) is not None}:
            file = folder / name
            if not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True)
                part = file.with_name(f".{file.name}.{os.getpid()}")
                part.write_text(text, encoding="utf-8")
                part.replace(file)

    # The commands, as arguments of the Python interpreter, to be run in the folder of the results

    def training(self, cell: Cell) -> str:
        """Train a cell into ``cells/NAME/train``."""
        variant = self.variants.get(cell.variant, {})
        if "program" in variant:
            return training_by_program(variant, cell, self.device)
        words = ["-m", "rl_zoo3.train", "--algo", cell.algo, "--env", cell.task, "-f", f"cells/{cell.name}/train"]
        words += ["--seed", str(cell.seed), "--device", self.device, "--eval-freq", str(self.train["eval_freq"])]
        words += ["--eval-episodes", str(self.train["eval_episodes"]), "--n-eval-envs", str(self.train["n_eval_envs"])]
        if self.train["n_timesteps"] is not None:
            words += ["-n", str(self.train["n_timesteps"])]
        conf = self.hyperparameters(cell)
        if conf is not None:
            words += ["-conf", conf[0]]
        params, env_kwargs = dict(variant.get("params", {})), dict(variant.get("env_kwargs", {}))
        if cell.camp_lambda is not None:
            params["camp_lambda"] = cell.camp_lambda
        if (found := self.teacher(cell)) is not None:
            params["reference"] = found[0].model(found[1])
        given = [f"sigma:{exact(cell.sigma)}"] if takes_sigma(cell.task) else []
        given += [f"{key}:{value!r}" for key, value in env_kwargs.items()]
        if given:
            words += ["--env-kwargs", *given, "--eval-env-kwargs", *given]
        if not takes_sigma(cell.task):
            others = None if conf is None else yaml.safe_load(conf[1])[cell.task].get("env_wrapper")
            params["env_wrapper"] = noisy_wrappers(others, cell.sigma)
        return self._joined(words, ["-params", *(f"{key}:{value!r}" for key, value in params.items())] if params else [])

    def evaluation(self, cell: Cell, checkpoint: str, shard: int) -> str:
        """Evaluate a checkpoint, or a part of it with seeds of its own."""
        n_all, n_shards = self.evaluate["n_episodes"], self.evaluate["shards"]
        n_episodes, seeds = (n_all + shard) // n_shards, shard_seeds(cell.seed, n_all, n_shards)
        words = ["-m", "sb3_camp.evaluate", *self._agent(cell, checkpoint), "--seed", str(seeds[shard])]
        words += ["-n", str(n_episodes), "--resume", *(["--q-gap"] if _has_q_values(cell.algo) else [])]
        return self._joined([*words, "-o", cell.shard(checkpoint, shard)])

    def certification(self, cell: Cell, checkpoint: str) -> str:
        """Certify the shards of an evaluation together, by one method after the other."""
        logs = [f"{cell.shard(checkpoint, shard)}/evaluations.npz" for shard in range(self.evaluate["shards"])]
        more = ["--radii", *map(exact, sorted(set(self.certify["radii"])))] if self.certify["radii"] else []
        if self.certify["min_return"] is not None:
            more += ["--min-return", exact(self.certify["min_return"])]
        commands = (
            shlex.join(
                ["-m", "sb3_camp.certify", *logs, "--method", method, *more, "-o", cell.certificate(checkpoint, method)]
            )
            for method in self.methods(cell)
        )
        return " --then ".join(commands)

    def attacking(self, cell: Cell, checkpoint: str, name: str) -> str:
        """Attack a checkpoint."""
        attack, _, sigma = name.partition("-sigma")
        words = ["-m", "sb3_camp.attack", *self._agent(cell, checkpoint), "--seed", str(cell.seed), "--attack", attack]
        words += ["--budget", *map(exact, sorted(set(self.attack["budgets"])))] if self.attack["budgets"] else []
        if attack in (LEARNED, ALL) and self.attack["adversary_timesteps"]:
            words += ["--adversary-timesteps", str(self.attack["adversary_timesteps"])]
        words += ["-n", str(self.attack["n_episodes"]), "--n-envs", str(self.attack["n_envs"]), "--resume"]
        return self._joined([*words, *(["--sigma", sigma] if sigma else []), "-o", cell.attack(checkpoint, name)])

    @property
    def figure_options(self) -> str:
        """Options of ``figures.py``."""
        checkpoint = self.figures["checkpoint"]
        words = ["--format", *self.figures["formats"], "--method", self.figures["method"]]
        return shlex.join([*words, *([] if checkpoint is None else ["--checkpoint", checkpoint])])

    def _agent(self, cell: Cell, checkpoint: str) -> list[str]:
        words = ["--algo", cell.algo, "--env", cell.task, "-f", f"cells/{cell.name}/train", "--exp-id", "1"]
        return [*words, "--device", self.device, *(["--load-best"] if checkpoint == "best" else [])]

    def _joined(self, words: list[str], last: list[str] | None = None) -> str:
        packages = ["--gym-packages", *self._packages] if self._packages else []
        return shlex.join([*words, *packages, *(last or [])])


@cache
def shard_seeds(seed: int, n_episodes: int, n_shards: int) -> list[int]:
    """
    :param seed: Seed of an evaluation
    :param n_episodes: Episodes of all its shards
    :param n_shards: Number of shards
    :return: seeds of the shards: it and others that no other evaluation of the study has, such that no two have episodes with
        the same seed. By chance two of many large shards would, and could not be pooled
    """
    n_of_one = -(-n_episodes // n_shards)
    span = n_of_one + n_of_one // 16 + 1024  # at most, as an env may play an episode less than it has seeds
    found: dict[int, int] = {}
    for candidate in count(seed, _SHARD_SEEDS):
        first = plan_chunks(1, 1, candidate)[0].seed
        if all(abs(first - other) >= span for other in found.values()):
            found[candidate] = first
        if len(found) == n_shards:
            break
    return list(found)


def _check_task(task: str) -> None:
    try:
        spec = gym.spec(task)
    except gym.error.Error as error:
        raise InputError(f"task {task}: {error}: check the id, or give its package in gym_packages") from None
    if not takes_sigma(task) and "ale_py" in str(spec.entry_point):  # whose wrappers may be those of the zoo's yml
        raise InputError(f"task {task}: it has no sigma to set: take camp/Freeway-v0 and its like, or register such a task")


def _counts_steps(task: str) -> bool:
    """Whether the return is the number of steps, so that the possible returns are known beforehand."""
    return task.startswith(("camp/CartPole", "CartPole-")) and gym.spec(task).max_episode_steps is not None


def _has_q_values(algo: str) -> bool:
    """Whether the action scores of an algorithm are values of the actions."""
    return algo == "qrdqn" or issubclass(ALGOS[algo], DQN)
