"""Which algorithm wrote a checkpoint, by the names of what it holds: nothing is unpickled."""

import io
import json
import zipfile
from typing import Any

from rl_zoo3.utils import ALGOS
from sb3_contrib import ARS, QRDQN, TQC, TRPO, CrossQ, MaskablePPO, RecurrentPPO
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm

from sb3_camp.camp_dqn import CAMPDQN
from sb3_camp.errors import InputError

# By members that no other has, those of algorithms with more of them first. Two differ from PPO by their policies only
_MEMBERS: dict[type[BaseAlgorithm], tuple[str, ...]] = {
    CAMPDQN: ("camp_lambda",),
    QRDQN: ("n_quantiles",),
    DQN: ("exploration_fraction",),
    TQC: ("top_quantiles_to_drop_per_net",),
    TD3: ("target_policy_noise",),  # and DDPG
    CrossQ: ("target_entropy", "policy_delay"),
    SAC: ("target_entropy",),
    TRPO: ("cg_max_steps",),
    MaskablePPO: ("clip_range", "policy_class of sb3_contrib.common.maskable"),
    RecurrentPPO: ("clip_range", "policy_class of sb3_contrib.common.recurrent"),
    PPO: ("clip_range",),
    A2C: ("gae_lambda",),
    ARS: ("n_delta",),
}


def check_kind(content: bytes, algorithm: type[BaseAlgorithm]) -> None:
    """
    Refuse a checkpoint of another algorithm, which would be loaded, played and named as what it is not.

    :param content: Content of the file that the ``save`` of an algorithm wrote
    :param algorithm: Class of the algorithm that it is said to be of. That of another package is only checked as far as it
        inherits one of SB3 or sb3-contrib
    :raises InputError: if it is that of another one
    """
    kind = _kind(content)
    expected = next((one for one in _MEMBERS if issubclass(algorithm, one)), None)
    if kind is None or expected is None or kind is expected:
        return
    names = [name for name, one in ALGOS.items() if next((k for k in _MEMBERS if issubclass(one, k)), None) is kind]
    way = f"give --algo {' or '.join(names)}" if names else "which the zoo does not have, and whose actions need masks"
    raise InputError(f"it is a checkpoint of {kind.__name__}, not of {algorithm.__name__}: {way}")


def _kind(content: bytes) -> type[BaseAlgorithm] | None:
    members = _members(content)
    if members is None:
        return None
    policy_class = members.get("policy_class")
    module = policy_class.get("__module__") if isinstance(policy_class, dict) else None
    found = {*members, "policy_class of " + ".".join(str(module).split(".")[:3])}
    return next((kind for kind, names in _MEMBERS.items() if found.issuperset(names)), None)


def _members(content: bytes) -> dict[str, Any] | None:
    """What the file says of its settings, None if it is no checkpoint."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = json.loads(archive.read("data"))
    except (OSError, KeyError, ValueError, RecursionError, zipfile.BadZipFile):
        return None
    return members if isinstance(members, dict) else None
