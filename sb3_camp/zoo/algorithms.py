"""The algorithms that the RL Zoo learns of, by name: those of this package, and whatever is added to them."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sb3_camp.errors import InputError

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm


@dataclass(frozen=True)
class Algorithm:
    """
    :param model: Its class, of SB3's kind
    :param hyperparams: A yml file in the zoo's format, used where the zoo has none of this name and none is given (``-conf``)
    :param sampler: Search space of ``-optimize``, as the functions in ``rl_zoo3.hyperparams_opt``; None without a search
    :param converter: From the parameters of a trial to hyper-parameters, as there
    """

    model: "type[BaseAlgorithm]"
    hyperparams: Path | None = None
    sampler: Callable[..., dict[str, Any]] | None = None
    converter: Callable[..., dict[str, Any]] | None = None


ALGORITHMS: dict[str, Algorithm] = {}
"""The algorithms by the zoo's name (``--algo``)"""

# Tables of the zoo: the module, the table, and what stands in it
_TABLES = (
    ("rl_zoo3.utils", "ALGOS", "model"),
    ("rl_zoo3.hyperparams_opt", "HYPERPARAMS_SAMPLER", "sampler"),
    ("rl_zoo3.hyperparams_opt", "HYPERPARAMS_CONVERTER", "converter"),
)


def register_algorithm(name: str, algorithm: Algorithm) -> None:
    """
    Add an algorithm: for ``--algo name`` of the zoo's commands, of ``evaluate`` and of ``attack``.

    The zoo reads its command line early. So for its commands call this from a function that your package names in the
    entry-point group ``sb3_camp.plugins``; for those of this package, it is enough that the import of a package given as
    ``--gym-packages`` does it.

    :param name: Its name. What the zoo has under it is kept
    :param algorithm: The algorithm
    :raises InputError: if another algorithm was added with this name
    """
    if ALGORITHMS.get(name, algorithm) != algorithm:
        raise InputError(f"there is an algorithm {name!r} already: choose another name")
    ALGORITHMS[name] = algorithm
    fill_tables()


def fill_tables() -> None:
    """Add all algorithms to those tables of the zoo that are loaded; what stands there is kept."""
    for module, table, member in _TABLES:
        loaded = getattr(sys.modules.get(module), table, None)
        if loaded is not None:
            for name, algorithm in ALGORITHMS.items():
                value = getattr(algorithm, member)
                if value is not None:
                    loaded.setdefault(name, value)
