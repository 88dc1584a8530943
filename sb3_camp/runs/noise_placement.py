"""
The one rule of where smoothing noise may stand: the policy must see nothing except what has passed through it.

It is asked of the wrappers of a live environment and of the settings of a run alike, as a list of layers.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sb3_camp.errors import InputError
from sb3_camp.runs.layers import Layer, Shows


class SmoothingNoise(NamedTuple):
    """
    :param sigma: Standard deviation, in the units of the observation; 1 where each entry has one of its own
    :param clean_keys: What has no noise: entries of a Dict observation, and ``"[i]"`` or ``"key[i]"`` where a sigma is 0
    :param sensor_sigma: Standard deviation of each entry, as nested lists or a mapping of these; None where all have the same
    """

    sigma: float
    clean_keys: tuple[str, ...] = ()
    sensor_sigma: Any = None


def noise_positions(layers: Sequence[Layer]) -> list[int]:
    """
    :param layers: The layers between the environment and the policy
    :return: the positions of those that add noise; if none does, of the first that could, if there is one
    """
    noises = [i for i, layer in enumerate(layers) if layer.shows is Shows.NOISY]
    return [i for i in noises if layers[i].sigma > 0] or noises[:1]


def check_no_moving_statistics(layers: Sequence[Layer], where: str = "") -> None:
    """
    :param layers: The layers between the environment and the policy
    :param where: The file or the like that the layers come from, in front of the message
    :raises InputError: if one of them normalises observations by statistics that move while episodes are played
    """
    for layer in layers:
        if layer.shows is Shows.STATISTICS:
            raise InputError(
                f"{_prefix(where)}{layer.name} normalises the observations by statistics that move from episode to episode, "
                "so neither are the episodes independent nor is sigma in fixed units: take it out, or scale by constants"
            )


def smoothing_noise(layers: Sequence[Layer], where: str = "", *, unknown_were_checked: bool = False) -> SmoothingNoise | None:
    """
    Find the smoothing noise and check its place.

    The certificate bounds what an adversary can do who moves the observations in front of the noise (policy smoothing: Kumar,
    Levine and Feizi, "Policy Smoothing for Provably Robust Reinforcement Learning", 2021). Any fixed function of the noisy
    observations so far may follow: clipping, stacking, a network. What shows the policy anything else voids it.

    :param layers: The layers between the environment and the policy, the innermost first
    :param where: The file or the like that the layers come from, in front of messages
    :param unknown_were_checked: Whether the layers that nothing is known of here were checked in a live environment
    :return: the only noise, None if there is none; of sigma 0 if there is a wrapper for noise that adds none
    :raises InputError: if there are several noises; if one comes after a frame stack, so that a frame is noised more than
        once; if statistics that move change its units; or if a layer outside of it may show what has not passed through it
    """
    positions = noise_positions(layers)
    if not positions:
        return None
    noise = layers[positions[0]]
    if noise.sigma == 0:
        return SmoothingNoise(0.0, noise.clean_keys)
    where = _prefix(where)
    if len(positions) > 1:
        sigmas = " and ".join(f"{layers[i].sigma:g}" for i in positions)
        raise InputError(f"{where}{len(positions)} smoothing noises on top of each other (sigma {sigmas}): use one")
    check_no_moving_statistics(layers, where)
    for layer in layers[: positions[0]]:
        if layer.shows is Shows.STACK:
            raise InputError(
                f"{where}the smoothing noise comes after {layer.name}: put it before (in env_wrapper too), so that each frame "
                "is noised once"
            )
    for layer in layers[positions[0] + 1 :]:
        if layer.shows is Shows.STATE:
            raise InputError(f"{where}{layer.name} shows the clean state outside of the smoothing noise: put it inside")
        if layer.shows is Shows.UNKNOWN and not unknown_were_checked:
            raise InputError(
                f"{where}{layer.name} stands between the smoothing noise and the policy, and nothing tells whether it shows "
                "the policy what has not passed through the noise: put it inside of the noise (in env_wrapper: before it)"
            )
    return SmoothingNoise(noise.sigma, noise.clean_keys, noise.sensor_sigma)


def _prefix(where: str) -> str:
    return where if where.endswith(": ") or not where else f"{where}: "
