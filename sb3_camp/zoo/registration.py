"""
What the RL Zoo learns from this package: its algorithms, their default hyper-parameters and their search spaces.

An installed package needs no call: ``sb3_camp_startup`` extends the zoo's modules while they are imported, early enough for
the zoo's command line. :func:`register` does the same by hand, for places that read no start-up files
(``pip install --target``, ``python -S``, a checkout on ``PYTHONPATH``).

PyTorch, Stable-Baselines3 and the zoo are imported within the functions only: when these run, the zoo has loaded them anyway.
"""

import functools
import inspect
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import sb3_camp
from sb3_camp.errors import InputError
from sb3_camp.plugins import load_plugins

_ADVERSARY = "camp/Adversary-v0"


def register() -> None:
    """
    Make the zoo know ``camp_dqn``, ``gaussian_dqn`` and ``noisynet_dqn``, before its ``train()``, ``enjoy()``, ... are called.

    To call it again changes nothing. What the zoo or the user has registered under one of these names is kept.
    """
    for name in EXTENSIONS:
        extend(import_module(name))


def extend(module: ModuleType) -> None:
    """
    Extend one of the zoo's modules.

    :param module: a loaded module of the zoo, one of :data:`EXTENSIONS`
    :raises InputError: if a folder of the name of this package, such as that of its checkout, is found in its place
    """
    if sb3_camp.__file__ is None:
        raise InputError(f"the folder {next(iter(sb3_camp.__path__))} hides the installed package: work in another folder")
    _find_algorithms()
    EXTENSIONS[module.__name__](module)


@functools.cache
def _find_algorithms() -> None:
    """Those of this package, and those of other packages."""
    from sb3_camp.camp_dqn import CAMPDQN
    from sb3_camp.noisy_net import NoisyNetDQN
    from sb3_camp.zoo import hyperparams_opt
    from sb3_camp.zoo.algorithms import Algorithm, register_algorithm
    from sb3_camp.zoo.gaussian_dqn import GaussianDQN

    def with_search(name: str, model: Any, sampler: Any, converter: Any) -> None:
        register_algorithm(name, Algorithm(model, hyperparams_folder() / f"{name}.yml", sampler, converter))

    search = hyperparams_opt
    with_search("camp_dqn", CAMPDQN, search.sample_camp_dqn_params, search.convert_camp_dqn_params)
    with_search("gaussian_dqn", GaussianDQN, search.sample_gaussian_dqn_params, search.convert_gaussian_dqn_params)
    # Its trials hold the parameters of DQN, without those of the exploration
    with_search("noisynet_dqn", NoisyNetDQN, search.sample_noisynet_dqn_params, search.convert_gaussian_dqn_params)
    load_plugins()


def add_algorithms(zoo_module: ModuleType) -> None:
    """
    Add the algorithms and their search spaces to the zoo's tables.

    :param zoo_module: the module ``rl_zoo3.utils`` or ``rl_zoo3.hyperparams_opt``
    """
    from sb3_camp.zoo.algorithms import fill_tables

    fill_tables()


def add_default_hyperparams(zoo_exp_manager: ModuleType) -> None:
    """
    Let the zoo's ``ExperimentManager`` fall back on the yml files that come with the algorithms.

    They are used only if no config was given, and the zoo has no file for the algorithm or knows nothing of the task: those of
    ``camp/Adversary-v0`` are in ``adversary/<algo>.yml``.

    :param zoo_exp_manager: the module ``rl_zoo3.exp_manager``
    """
    from sb3_camp.zoo.algorithms import ALGORITHMS

    manager = zoo_exp_manager.ExperimentManager
    zoo_init = manager.__init__
    if hasattr(zoo_init, "sb3_camp_extended"):
        return
    signature = inspect.signature(zoo_init)

    @functools.wraps(zoo_init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        zoo_init(self, *args, **kwargs)
        if signature.bind(self, *args, **kwargs).arguments.get("config"):
            return
        own_config = ALGORITHMS[self.algo].hyperparams if self.algo in ALGORITHMS else None
        of_adversary = hyperparams_folder() / "adversary" / f"{self.algo}.yml"
        if self.env_name.gym_id == _ADVERSARY and of_adversary.is_file():
            self.config = str(of_adversary)
        elif own_config is not None and not Path(self.config).is_file() and own_config.is_file():
            self.config = str(own_config)

    __init__.sb3_camp_extended = True  # type: ignore[attr-defined]
    manager.__init__ = __init__


def hyperparams_folder() -> Path:
    """
    Where the yml files are.

    :return: a folder inside the installed package; in a checkout or an editable install the one beside it
    """
    package = Path(sb3_camp.__file__).parent
    inside = package / "hyperparams"
    return inside if inside.is_dir() else package.parent / "hyperparams"


def extend_exp_manager(zoo_exp_manager: ModuleType) -> None:
    """
    Let the zoo's ``ExperimentManager`` find the yml files of this package, and tune for the certified return on demand.

    :param zoo_exp_manager: the module ``rl_zoo3.exp_manager``
    """
    from sb3_camp.zoo.manager import extend_manager

    add_default_hyperparams(zoo_exp_manager)
    extend_manager(zoo_exp_manager)


EXTENSIONS = {
    "rl_zoo3.utils": add_algorithms,
    "rl_zoo3.hyperparams_opt": add_algorithms,
    "rl_zoo3.exp_manager": extend_exp_manager,
}
