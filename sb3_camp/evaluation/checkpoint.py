"""Loading a checkpoint to act with it, not to train on."""

import contextlib
import io
import reprlib
import warnings
from pathlib import Path
from typing import Any

import torch as th
from gymnasium import spaces
from rl_zoo3.utils import ALGOS
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.preprocessing import is_image_space_channels_first
from stable_baselines3.common.vec_env import VecEnv, VecTransposeImage

from sb3_camp.errors import InputError
from sb3_camp.evaluation.checkpoint_kind import check_kind
from sb3_camp.evaluation.old_checkpoints import Spaces, substitutes, unreadable_members
from sb3_camp.files import read_bytes
from sb3_camp.runs.run_folder import RunFolder
from sb3_camp.space_signature import space_signature
from sb3_camp.training_only import TRAINING_ONLY


def load_checkpoint(
    path: str | Path,
    algorithm: type[BaseAlgorithm],
    device: th.device | str = "auto",
    env_spaces: Spaces | None = None,
    content: bytes | None = None,
) -> BaseAlgorithm:
    """
    Load a checkpoint for acting only: what only training needs is neither unpickled nor allocated.

    :param path: The ``.zip`` file that the algorithm's ``save`` wrote
    :param algorithm: Class of the algorithm
    :param device: Device to put the policy on
    :param env_spaces: Returns observation and action space of the environment, for a checkpoint that other versions pickled:
        they take the place of spaces that cannot be unpickled here, defaults of the algorithm that of other members; what was
        replaced is printed
    :param content: Content of the file, where it has been read already, so that a digest of it is that of what is loaded
    :return: The model in evaluation mode; continuing its training would not work
    :raises InputError: if it cannot be loaded, or is that of another algorithm; names the member of the file that cannot be
        read
    """
    path = Path(path)
    content = read_bytes(path) if content is None else content
    try:
        check_kind(content, algorithm)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    kwargs: dict[str, Any] = {}
    if issubclass(algorithm, OffPolicyAlgorithm):
        kwargs.update(buffer_size=1, optimize_memory_usage=False, n_steps=1)
    elif issubclass(algorithm, OnPolicyAlgorithm):
        kwargs.update(n_steps=1)
    custom_objects = dict(TRAINING_ONLY)
    unreadable = {} if env_spaces is None else unreadable_members(content)
    if unreadable:
        assert env_spaces is not None
        replaced = substitutes(path, unreadable, algorithm, env_spaces)
        custom_objects.update(replaced)
        print(f"{path}: pickled by other versions, replaced: " + ", ".join(f"{name} by {replaced[name]}" for name in replaced))
    try:
        with warnings.catch_warnings():
            # SB3 only warns, and fails later at something that does not tell what was missing
            warnings.filterwarnings("error", message="Could not deserialize")
            model = algorithm.load(io.BytesIO(content), device=device, custom_objects=custom_objects, **kwargs)
    except Exception as error:  # of every kind, for pickled data may raise anything
        raise InputError(f"{path}: {_why_not_loaded(path, content, algorithm, error)}") from error
    model.policy.set_training_mode(False)
    return model


def check_spaces(model: BaseAlgorithm, env: VecEnv, model_path: Path) -> None:
    """
    Check that the policy can act in the env. Bounds may differ (noise makes a bounded space unbounded).

    :param model: The loaded model
    :param env: The environment
    :param model_path: File of the model, for the message
    :raises InputError: if shapes, kinds of numbers or actions differ
    """
    expected = space_signature(model.observation_space)
    if expected not in (space_signature(env.observation_space), space_signature(_channels_first(env.observation_space))):
        raise InputError(
            f"{model_path}: the policy observes {model.observation_space}, the environment gives {env.observation_space}: "
            "check --env, --env-kwargs, and the wrappers and frame stack that it was trained with"
        )
    if model.action_space != env.action_space:
        raise InputError(
            f"{model_path}: the actions of the policy are {model.action_space}, those of the environment {env.action_space}: "
            "check --env"
        )


def _why_not_loaded(path: Path, content: bytes, algorithm: type[BaseAlgorithm], error: Exception) -> str:
    member = next(iter(unreadable_members(content)), None)
    if member is not None:
        return (
            f"not a checkpoint of {algorithm.__name__} that can be loaded: its member {member!r} cannot be read by this Python"
        )
    text = f"does not look like a checkpoint of {algorithm.__name__}"
    with contextlib.suppress(InputError):
        run = RunFolder.read(path.parent)
        if ALGOS.get(run.algo) is not algorithm:
            return f"{text}, and {run.path} is a run of {run.algo}: check --algo"
    if isinstance(error, InputError):  # of an algorithm of this package, which says what is wrong
        return f"{algorithm.__name__} cannot load it: {error}"
    return f"{text}: check --algo ({reprlib.repr(' '.join(str(error).split()))})"


def _channels_first(space: spaces.Space) -> spaces.Space:
    """The space after SB3's transposition of images, which the policy does by itself, where their channels come last."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: _channels_first(entry) for key, entry in space.spaces.items()})
    if isinstance(space, spaces.Box) and space.dtype == "uint8" and len(space.shape) == 3:
        image = spaces.Box(0, 255, space.shape, space.dtype)
        return image if is_image_space_channels_first(image) else VecTransposeImage.transpose_space(image)
    return space
