"""What a run folder of RL Zoo says about the run: environment, algorithm, hyperparameters and the smoothing noise."""

import ast
import math
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import yaml

from sb3_camp.errors import InputError

NOISE_WRAPPER = "NoisyObservationWrapper"


class ZooLoader(yaml.SafeLoader):
    """
    A YAML loader for the files that the zoo dumps: plain data, ``OrderedDict`` and ``tuple``, nothing else.

    The zoo's own loader builds any Python object that a file names, so a run folder from elsewhere could run any code.
    """

    def construct_ordered_dict(self, node: yaml.Node) -> dict:
        # The zoo's dump: a call of OrderedDict with one argument, the list of its [key, value] pairs
        arguments = self.construct_sequence(node, deep=True) if isinstance(node, yaml.SequenceNode) else []
        try:
            (pairs,) = arguments
            return dict(pairs)
        except (TypeError, ValueError):
            raise InputError(f"{self.name}, line {node.start_mark.line + 1}: not a list of key and value pairs") from None

    def construct_tuple(self, node: yaml.Node) -> tuple:
        return tuple(self.construct_sequence(node, deep=True))

    def refuse(self, node: yaml.Node) -> None:
        tag = node.tag.replace("tag:yaml.org,2002:", "!!")
        raise InputError(
            f"{self.name}, line {node.start_mark.line + 1}: the tag {tag} asks for more than plain data, it was not executed"
        )


ZooLoader.add_constructor("tag:yaml.org,2002:python/object/apply:collections.OrderedDict", ZooLoader.construct_ordered_dict)
ZooLoader.add_constructor("tag:yaml.org,2002:python/tuple", ZooLoader.construct_tuple)
ZooLoader.add_constructor(None, ZooLoader.refuse)


def read_zoo_yaml(path: Path) -> dict[str, Any]:
    """
    Read ``config.yml`` or ``args.yml`` of a run folder without executing anything.

    :param path: the file
    :return: its mapping
    :raises InputError: if the file cannot be read, is not a mapping or has a tag that is neither OrderedDict nor tuple
    """
    try:
        with open(path, encoding="utf-8") as file:
            content = yaml.load(file, Loader=ZooLoader)
    except InputError:
        raise
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise InputError(f"{path}: cannot be read as YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: not a mapping of names to values")
    return content


@dataclass(frozen=True)
class RunFolder:
    """
    A run folder ``<log folder>/<algo>/<env>_<number>`` as ``rl_zoo3.train`` leaves it.

    :param path: the folder
    :param env_id: id of the environment, as Gymnasium registers it
    :param algo: the zoo's name of the algorithm
    :param config: hyperparameters of the run (``config.yml``)
    :param args: command line of the training (``args.yml``)
    """

    path: Path
    env_id: str
    algo: str
    config: dict[str, Any]
    args: dict[str, Any]

    @staticmethod
    def is_run_folder(path: Path) -> bool:
        """
        :param path: a folder
        :return: whether a sub-folder holds the settings of a run
        """
        return any((args.parent / "config.yml").is_file() for args in path.glob("*/args.yml"))

    @classmethod
    def read(cls, path: Path) -> "RunFolder":
        """
        :param path: the run folder
        :return: what its ``config.yml`` and ``args.yml`` say
        :raises InputError: if these are missing, unreadable or do not fit together
        """
        path = Path(path)
        settings = [args.parent for args in path.glob("*/args.yml") if (args.parent / "config.yml").is_file()]
        if len(settings) != 1:
            found = "several sub-folders" if settings else "no sub-folder"
            raise InputError(f"{path}: not a run folder of the zoo: {found} with args.yml and config.yml")
        args = read_zoo_yaml(settings[0] / "args.yml")
        for key in ("env", "algo"):
            if not isinstance(args.get(key), str):
                raise InputError(f"{settings[0] / 'args.yml'}: no text under the key {key}")
        # "package:env" names the package that registers env; importing it is not our business here
        run = cls(path, args["env"].split(":")[-1], args["algo"], read_zoo_yaml(settings[0] / "config.yml"), args)
        if run.config_file.parent != settings[0]:
            raise InputError(f"{settings[0] / 'args.yml'}: belongs to a run on {run.env_id}, not to this folder")
        return run

    @classmethod
    def containing(cls, path: Path) -> "RunFolder | None":
        """
        Find the run that a file belongs to.

        :param path: a file, or a folder
        :return: the run folder that is the given folder, the file's folder or one of the three folders above it, if any
        :raises InputError: if that run folder cannot be read
        """
        path = Path(path).absolute()
        folder = path if path.is_dir() else path.parent
        for candidate in (folder, *folder.parents[:3]):
            if cls.is_run_folder(candidate):
                return cls.read(candidate)
        return None

    @property
    def config_file(self) -> Path:
        """The ``config.yml`` of the run."""
        return self.path / self.env_id.replace("/", "-") / "config.yml"

    def evaluate_command(self) -> str:
        """
        :return: the command that evaluates the last model of this run
        """
        path = self.path.absolute()
        env_name = self.env_id.replace("/", "-")
        command = ["python", "-m", "sb3_camp.evaluate", "--algo", self.algo, "--env", self.env_id]
        number = re.fullmatch(re.escape(env_name) + r"_(\d+)", path.name)
        if number and path.parent.name == self.algo:
            command += ["-f", str(self.path.parent.parent), "--exp-id", number[1]]
        else:
            command += ["--model", str(self.path / f"{env_name}.zip")]
        return shlex.join(command)

    def smoothing_sigma(self, evaluation: bool = False) -> float:
        """
        Standard deviation of the smoothing noise on the observations, in their units.

        The noise is a ``NoisyObservationWrapper`` in ``env_wrapper``, the keyword ``sigma`` of the environment in
        ``env_kwargs``, or the default of ``sigma`` in the registration of the environment.

        :param evaluation: of the environment that the zoo's own evaluations during training use, which gets no
            ``env_kwargs`` from the hyperparameters; otherwise of the environment that the zoo trains and plays in
        :return: sigma, 0 if the run has no noise
        :raises InputError: if there are two noises, the noise comes after a frame stack or before a normaliser of the
            observations, something shows the clean state, or the noise does not reach the evaluation environment
        """
        wrappers = [*self._wrappers("env_wrapper"), *self._wrappers("vec_env_wrapper")]
        noises = [
            (position, self._sigma_value(kwargs, f"{NOISE_WRAPPER} in env_wrapper"))
            for position, (name, kwargs) in enumerate(wrappers)
            if name == NOISE_WRAPPER
        ]
        noises.append((-1, self._task_sigma(evaluation)))  # inside of every wrapper
        noises = [(position, sigma) for position, sigma in noises if sigma > 0]
        if not noises:
            return 0.0
        if len(noises) > 1:
            values = " and ".join(f"{sigma:g}" for _, sigma in sorted(noises))
            raise InputError(
                f"{self.config_file}: {len(noises)} smoothing noises on top of each other (sigma {values}): use one"
            )
        position, sigma = noises[0]
        inner, outer = wrappers[: max(position, 0)], wrappers[position + 1 :]
        for name, _ in inner:
            if "FrameStack" in name or "HistoryWrapper" in name:
                raise InputError(
                    f"{self.config_file}: {NOISE_WRAPPER} comes after {name} in env_wrapper: put the noise before it, so that "
                    "each frame is noised once"
                )
        for name, _ in outer:
            if name == "AddRenderObservation":
                raise InputError(f"{self.config_file}: {name} shows the clean state outside of the noise: put it inside")
        normaliser = self._observation_normaliser(inner, outer)
        if normaliser is not None:
            raise InputError(
                f"{self.config_file}: {normaliser} normalises the observations, so sigma and the radius are not in the units "
                "that the policy sees: scale by constants, before the noise"
            )
        return sigma

    def _wrappers(self, key: str) -> Iterator[tuple[str, Any]]:
        """Class names and keyword arguments of the wrappers under a key of the config, the innermost first."""
        entries = self.config.get(key)
        if entries is None:
            return
        for entry in entries if isinstance(entries, list) else [entries]:
            if isinstance(entry, dict) and len(entry) == 1:
                ((name, kwargs),) = entry.items()
            else:
                name, kwargs = entry, {}
            if not isinstance(name, str):
                raise InputError(
                    f"{self.config_file}: {key}: {entry!r} is neither a wrapper's name nor one name with arguments"
                )
            yield name.split(".")[-1], kwargs

    def _sigma_value(self, kwargs: Any, where: str) -> float:
        sigma = kwargs.get("sigma") if isinstance(kwargs, Mapping) else None
        if isinstance(sigma, bool) or not isinstance(sigma, int | float) or not math.isfinite(sigma) or sigma < 0:
            raise InputError(f"{self.config_file}: the sigma of {where} must be a number that is at least 0, not {sigma!r}")
        return float(sigma)

    def _task_sigma(self, evaluation: bool) -> float:
        """The noise that the environment itself adds."""
        spec = gym.registry.get(self.env_id)
        takes_sigma = self.env_id.startswith("camp/") or (spec is not None and "sigma" in spec.kwargs)
        if not takes_sigma:
            return 0.0
        arguments = self.args.get("env_kwargs")
        played = (self.config.get("env_kwargs") if arguments is None else arguments) or {}
        kwargs = (self.args.get("eval_env_kwargs") or arguments or {}) if evaluation else played
        if not (isinstance(played, Mapping) and isinstance(kwargs, Mapping)):
            raise InputError(f"{self.config_file}: env_kwargs is not a mapping of names to values: {played!r}, {kwargs!r}")
        if "sigma" in kwargs:
            return self._sigma_value(kwargs, "env_kwargs")
        if evaluation and "sigma" in played:
            raise InputError(
                f"{self.config_file}: the zoo does not pass the sigma in env_kwargs to its evaluation env, so its evaluations "
                f"are not smoothed with it: run {self.evaluate_command()}"
            )
        default = spec.kwargs.get("sigma") if spec is not None else None
        return 0.0 if default is None else self._sigma_value({"sigma": default}, f"the registration of {self.env_id}")

    def _observation_normaliser(self, inner: list[tuple[str, Any]], outer: list[tuple[str, Any]]) -> str | None:
        """What changes the units of the noise: running statistics anywhere, or any normaliser outside of it."""
        for name, _ in inner:
            if name == "NormalizeObservation":
                return name
        for name, kwargs in outer:
            keeps_observations = isinstance(kwargs, Mapping) and kwargs.get("norm_obs") is False
            if "Normalize" in name and "Reward" not in name and not keeps_observations:
                return name
        normalize = self.config.get("normalize")
        if normalize is None or normalize is False:
            return None
        if isinstance(normalize, str):
            normalize = _keywords(normalize)
        keeps_observations = isinstance(normalize, Mapping) and normalize.get("norm_obs") is False
        return None if keeps_observations else "normalize"


def _keywords(text: str) -> dict[str, Any] | None:
    """Value of the zoo's ``"dict(norm_obs=False)"`` or ``"{'norm_obs': False}"``, None for anything but literals."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict" and not node.args:
            return {keyword.arg: ast.literal_eval(keyword.value) for keyword in node.keywords if keyword.arg is not None}
        value = ast.literal_eval(node)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
