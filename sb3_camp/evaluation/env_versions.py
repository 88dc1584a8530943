"""Which version of an environment was played: that of its package, or the digest of its source where it belongs to none."""

import importlib.metadata
import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium as gym
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker
from rl_zoo3.gym_patches import PatchedTimeLimit
from stable_baselines3.common.monitor import Monitor

from sb3_camp.errors import InputError
from sb3_camp.evaluation.environment import EvaluationEnv
from sb3_camp.files import read_bytes, sha256
from sb3_camp.tasks.returns import registered_otherwise, registration_of
from sb3_camp.wrappers.chain import wrapper_chain

# Every environment has classes of these; what the wrappers of this package do is told by its own version
_NOT_ITS_OWN = ("gymnasium.core", "gymnasium.utils", "typing", "builtins", "abc")
_OUR_PACKAGE = "sb3_camp"
# What Gymnasium, SB3 and the zoo put around every environment
_AROUND_ALL = {PatchedTimeLimit, *PatchedTimeLimit.__bases__, OrderEnforcing, PassiveEnvChecker, Monitor}


def env_versions(environment: EvaluationEnv) -> dict[str, str]:
    """
    :param environment: The environment of an evaluation
    :return: For each package that the environment or one of its wrappers comes from its version, by the name of the
        distribution. For a module that no installed distribution holds (a file of the user, an editable install)
        ``sha256:...`` of its source file, by the name of the module; "unknown" where there is no such file. Where something
        else is registered under an id whose lowest return is known, what that is, by :func:`registration_of` the id
    :raises InputError: if it cannot be built
    """
    with environment.single() as env:
        modules = set(_modules(env))
        env_id = "" if env.spec is None else env.spec.id
    distributions = importlib.metadata.packages_distributions()
    found = {}
    for module in modules:
        package = module.partition(".")[0]
        if package == _OUR_PACKAGE:
            continue
        source = getattr(sys.modules.get(module), "__file__", None)
        owners = [name for name in distributions.get(package, ()) if _holds(name, source)]
        if owners:
            found[owners[0]] = importlib.metadata.version(owners[0])
        else:
            found[module] = _digest(source)
    registered = registered_otherwise(env_id)
    if registered is not None:
        found[registration_of(env_id)] = registered
    return dict(sorted(found.items()))


def _modules(env: gym.Env) -> Iterator[str]:
    """The modules of the classes of an environment, of those that they inherit, and of its entry point."""
    for one in (env.unwrapped, *wrapper_chain(env)):
        if type(one) not in _AROUND_ALL:
            yield from (cls.__module__ for cls in type(one).__mro__ if not cls.__module__.startswith(_NOT_ITS_OWN))
    entry_point = env.spec.entry_point if env.spec is not None else None
    if isinstance(entry_point, str):
        yield entry_point.partition(":")[0]
    elif entry_point is not None and getattr(entry_point, "__module__", None):
        yield entry_point.__module__


def _holds(distribution: str, source: str | None) -> bool:
    """Whether the file lies where the distribution is installed: that of an editable install may change at any time."""
    folder = importlib.metadata.distribution(distribution).locate_file("")
    return source is not None and Path(source).is_relative_to(str(folder))


def _digest(source: str | None) -> str:
    try:
        return "unknown" if source is None else f"sha256:{sha256(read_bytes(Path(source)))}"
    except InputError:
        return "unknown"
