"""
The statistics of a VecNormalize, from the pickle that it saves, to be frozen for an evaluation.

The pickle is read as data: of all that it names only arrays of NumPy are built, everything else becomes an empty object. So
nothing in it is executed, and files that were pickled with the old ``gym`` or another NumPy are read too.
"""

import io
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.vec_env import VecNormalize

from sb3_camp.errors import InputError
from sb3_camp.files import read_bytes


class _Inert:
    """Takes the place of an object that a pickle names: it keeps the state, and does nothing."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):
            self.__dict__.update(state)

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def append(self, value: Any) -> None:
        pass

    def extend(self, values: Any) -> None:
        pass


_BUILT = {("numpy", "ndarray"), ("numpy", "dtype"), ("collections", "OrderedDict"), ("_codecs", "encode")}
_ARRAY_BUILDERS = ("_reconstruct", "scalar")


class _StatisticsUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _BUILT:
            return super().find_class(module, name)
        # Where NumPy had them before 2.0, and since
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name in _ARRAY_BUILDERS:
            return getattr(np._core.multiarray, name) if hasattr(np, "_core") else super().find_class(module, name)
        return type(name, (_Inert,), {})

    def persistent_load(self, pid: Any) -> Any:
        return _Inert()


def read_normalization(path: str | Path) -> dict[str, Any] | None:
    """
    :param path: The file that ``VecNormalize.save`` wrote
    :return: The arguments of :class:`~sb3_camp.wrappers.frozen_normalization.FrozenNormalizeObservation`, as JSON can hold
        them; None if observations are not normalised
    :raises InputError: if it cannot be read
    """
    path = Path(path)
    content = read_bytes(path)
    try:
        return _arguments(vars(_StatisticsUnpickler(io.BytesIO(content)).load()))
    except Exception as error:  # of any kind, for what is damaged
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise InputError(f"{path}: not the statistics of a VecNormalize that can be read ({reason})") from error


def normalization_of(normalizer: VecNormalize) -> dict[str, Any] | None:
    """
    :param normalizer: A normaliser, of a training for instance
    :return: its statistics as they are, like :func:`read_normalization`
    :raises InputError: if they are not finite
    """
    try:
        return _arguments(vars(normalizer))
    except ValueError as error:
        raise InputError(f"the statistics of VecNormalize cannot be used: {error}") from error


def _arguments(state: Mapping[str, Any]) -> dict[str, Any] | None:
    if not state.get("norm_obs", True):
        return None
    statistics = state["obs_rms"]
    if isinstance(statistics, dict):
        mean: Any = {key: _numbers(one.mean) for key, one in statistics.items()}
        var: Any = {key: _numbers(one.var) for key, one in statistics.items()}
    else:
        mean, var = _numbers(statistics.mean), _numbers(statistics.var)
    return {"mean": mean, "var": var, "epsilon": float(state["epsilon"]), "clip_obs": float(state["clip_obs"])}


def _numbers(values: Any) -> Any:
    array = np.asarray(values)
    if array.dtype.kind != "f" or not np.all(np.isfinite(array)):
        raise ValueError("means and variances must be finite numbers")
    return array.astype(np.float64).tolist()


def statistics_beside(model_path: Path) -> Path | None:
    """
    Find the statistics that belong to a checkpoint, by the names that Stable-Baselines3 and the zoo give them.

    :param model_path: The checkpoint
    :return: ``<name>_vecnormalize.pkl`` beside ``<name>.zip``, ``rl_model_vecnormalize_<steps>_steps.pkl`` beside
        ``rl_model_<steps>_steps.zip`` (any prefix), the ``vecnormalize.pkl`` in the sub-folder of a run of the zoo, or the one
        beside the checkpoint, which may be called ``vec_normalize.pkl``; None if there is none
    """
    folder, name = model_path.parent, model_path.stem
    prefix, _, steps = name.removesuffix("_steps").rpartition("_")
    candidates = [folder / f"{name}_vecnormalize.pkl"]
    candidates += [folder / f"{prefix}_vecnormalize_{steps}_steps.pkl"] if name.endswith("_steps") and steps.isdigit() else []
    candidates += sorted(args.with_name("vecnormalize.pkl") for args in folder.glob("*/args.yml"))
    candidates += [folder / "vecnormalize.pkl", folder / "vec_normalize.pkl"]
    return next((path for path in candidates if path.is_file()), None)
