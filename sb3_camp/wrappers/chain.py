"""The wrappers of an environment, one after the other."""

from collections.abc import Iterator

import gymnasium as gym


def wrapper_chain(env: gym.Env) -> Iterator[gym.Wrapper]:
    """
    :param env: An environment
    :return: its wrappers, the outermost first
    """
    while isinstance(env, gym.Wrapper):
        yield env
        env = env.env
