"""What a run folder of RL Zoo says about the run: environment, algorithm, hyperparameters and the smoothing noise."""

import ast
import re
import reprlib
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym

from sb3_camp.errors import InputError
from sb3_camp.runs.zoo_yaml import named_in, read_zoo_yaml

NOISE_WRAPPER = "NoisyObservationWrapper"
_WRAPPER_KEYS = ("env_wrapper", "vec_env_wrapper")
# What the environment and its noise depend on. What else the files hold is the training's business.
_USED_KEYS = (*_WRAPPER_KEYS, "frame_stack", "normalize", "env_kwargs", "eval_env_kwargs", "env", "algo")


def wrapper_entries(settings: Mapping[str, Any], where: Path) -> list[tuple[str, Any]]:
    """
    :param settings: hyperparameters of the zoo
    :param where: their file, for the message
    :return: full class name and keyword arguments of each wrapper, the innermost first
    :raises InputError: if an entry is neither a name nor one name with arguments
    """
    wrappers = []
    for key in _WRAPPER_KEYS:
        entries = settings.get(key)
        for entry in entries if isinstance(entries, list) else [] if entries is None else [entries]:
            ((name, kwargs),) = entry.items() if isinstance(entry, dict) and len(entry) == 1 else [(entry, {})]
            if not isinstance(name, str):
                text = reprlib.repr(entry)
                raise InputError(f"{where}: {key}: {text} is neither a wrapper's name nor one name with arguments")
            wrappers.append((name, kwargs))
    return wrappers


def noise_clean_keys(settings: Mapping[str, Any], where: Path) -> list[str] | None:
    """
    :param settings: hyperparameters of the zoo
    :param where: their file, for the message
    :return: the entries of a Dict observation that the smoothing noise passes on without noise, sorted; None if no wrapper is
        smoothing noise
    :raises InputError: if ``clean_keys`` is not a list of texts
    """
    found: list[str] | None = None
    for name, kwargs in wrapper_entries(settings, where):
        if is_smoothing_noise(name):
            keys = kwargs.get("clean_keys", ()) if isinstance(kwargs, Mapping) else ()
            if not isinstance(keys, list | tuple) or not all(isinstance(key, str) for key in keys):
                raise InputError(f"{where}: clean_keys of {NOISE_WRAPPER} must be a list of texts, not {reprlib.repr(keys)}")
            found = sorted({*(found or ()), *keys})
    return found


def is_smoothing_noise(name: str) -> bool:
    """
    :param name: full name of a wrapper
    :return: whether it is the smoothing noise of this package
    """
    return name.startswith("sb3_camp.") and name.split(".")[-1] == NOISE_WRAPPER


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
        for name, content in (("args.yml", args), ("config.yml", run.config)):
            for key in _USED_KEYS:
                if (python := named_in(content.get(key))) is not None:
                    raise InputError(
                        f"{settings[0] / name}: {key} refers to the Python object {python.name}, so it does not tell what the "
                        "environment is"
                    )
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
        :return: the command that evaluates the last model of this run, with noise of a sigma S to choose if the run has none
        """
        path = self.path.absolute()
        env_name = self.env_id.replace("/", "-")
        command = ["python", "-m", "sb3_camp.evaluate", "--algo", self.algo, "--env", self.env_id]
        number = re.fullmatch(re.escape(env_name) + r"_(\d+)", path.name)
        if number and path.parent.name == self.algo:
            command += ["-f", str(self.path.parent.parent), "--exp-id", number[1]]
        else:
            command += ["--model", str(self.path / f"{env_name}.zip")]
        if self.smoothing_sigma() == 0:
            command += ["--sigma", "S"]
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
        entries = wrapper_entries(self.config, self.config_file)
        noises = [
            (position, self._sigma_value(kwargs, f"{NOISE_WRAPPER} in env_wrapper"))
            for position, (name, kwargs) in enumerate(entries)
            if is_smoothing_noise(name)
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
        wrappers = [(name.split(".")[-1], kwargs) for name, kwargs in entries]
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

    def clean_keys(self) -> list[str] | None:
        """
        :return: see :func:`noise_clean_keys`
        """
        return noise_clean_keys(self.config, self.config_file)

    def foreign_noise(self) -> str | None:
        """
        :return: full name of a wrapper that is called as ours but is of another package, None if there is none
        """
        names = [name for name, _ in wrapper_entries(self.config, self.config_file)]
        return next((name for name in names if name.split(".")[-1] == NOISE_WRAPPER and not is_smoothing_noise(name)), None)

    def _sigma_value(self, kwargs: Any, where: str) -> float:
        sigma = kwargs.get("sigma") if isinstance(kwargs, Mapping) else None
        if isinstance(sigma, bool) or not isinstance(sigma, int | float) or not 0 <= sigma <= sys.float_info.max:
            text = reprlib.repr(sigma)
            raise InputError(f"{self.config_file}: the sigma of {where} must be a number that is at least 0, not {text}")
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
            texts = f"{reprlib.repr(played)}, {reprlib.repr(kwargs)}"
            raise InputError(f"{self.config_file}: env_kwargs is not a mapping of names to values: {texts}")
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
        return self.running_normaliser()

    def running_normaliser(self) -> str | None:
        """
        :return: "normalize" if the zoo normalises the observations of this run by running statistics, None otherwise
        """
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
