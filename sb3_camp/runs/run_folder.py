"""What a run folder of RL Zoo says about the run: environment, algorithm, hyperparameters and the smoothing noise."""

import re
import reprlib
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sb3_camp.command_line import spelled
from sb3_camp.errors import InputError
from sb3_camp.runs.layers import NOISE_WRAPPER, is_smoothing_noise
from sb3_camp.runs.noise_placement import SmoothingNoise
from sb3_camp.runs.scenario import WRAPPER_KEYS, Scenario, takes_sigma, wrapper_entries
from sb3_camp.runs.zoo_yaml import named_in, read_zoo_yaml

# What the environment and its noise depend on. What else the files hold is the training's business.
_USED_KEYS = (*WRAPPER_KEYS, "normalize", "env_kwargs", "eval_env_kwargs", "env", "algo")


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
        command = [*spelled("evaluate").split(), "--algo", self.algo, "--env", self.env_id]
        number = re.fullmatch(re.escape(env_name) + r"_(\d+)", path.name)
        if number and path.parent.name == self.algo:
            command += ["-f", str(self.path.parent.parent), "--exp-id", number[1]]
        else:
            command += ["--model", str(self.path / f"{env_name}.zip")]
        if not self.has_noise():
            command += ["--sigma", "S"]
        return shlex.join(command)

    def has_noise(self) -> bool:
        """
        :return: whether the settings tell of smoothing noise, so that an evaluation needs no other
        :raises InputError: if it cannot carry a certificate
        """
        noise = self.smoothing_noise(unknown_were_checked=True)
        return noise is not None and noise.sigma > 0

    def scenario(self, evaluation: bool = False) -> Scenario:
        """
        :param evaluation: the environment that the zoo's own evaluations during training use, which gets no ``env_kwargs``
            from the hyperparameters; otherwise the environment that the zoo trains and plays in
        :return: the environment with its wrappers and its noise
        :raises InputError: if the settings do not tell, or if the noise does not reach the evaluation environment
        """
        arguments = self.args.get("env_kwargs")
        played = (self.config.get("env_kwargs") if arguments is None else arguments) or {}
        kwargs = (self.args.get("eval_env_kwargs") or arguments or {}) if evaluation else played
        if not (isinstance(played, Mapping) and isinstance(kwargs, Mapping)):
            texts = f"{reprlib.repr(played)}, {reprlib.repr(kwargs)}"
            raise InputError(f"{self.config_file}: env_kwargs is not a mapping of names to values: {texts}")
        if takes_sigma(self.env_id) and "sigma" in played and "sigma" not in kwargs:
            raise InputError(
                f"{self.config_file}: the zoo does not pass the sigma in env_kwargs to its evaluation env, so its evaluations "
                f"are not smoothed with it: run {self.evaluate_command()}"
            )
        wrappers = {key: self.config[key] for key in (*WRAPPER_KEYS, "normalize") if self.config.get(key) is not None}
        return Scenario(self.env_id, dict(kwargs), wrappers)

    def smoothing_noise(self, evaluation: bool = False, *, unknown_were_checked: bool = False) -> SmoothingNoise | None:
        """
        :param evaluation: see :meth:`scenario`
        :param unknown_were_checked: whether wrappers that nothing is known of were checked in a live environment
        :return: the smoothing noise that the settings tell of, None if they tell of none; see
            :func:`sb3_camp.runs.noise_placement.smoothing_noise`
        :raises InputError: if it cannot carry a certificate
        """
        scenario = self.scenario(evaluation)
        return scenario.configured_noise(str(self.config_file), unknown_were_checked=unknown_were_checked)

    def foreign_noise(self) -> str | None:
        """
        :return: full name of a wrapper that is called as ours but is of another package, None if there is none
        """
        names = [name for name, _ in wrapper_entries(self.config, str(self.config_file))]
        return next((name for name in names if name.split(".")[-1] == NOISE_WRAPPER and not is_smoothing_noise(name)), None)
