"""Environments and agents for adversaries: random walks of vectors and images, linear agents, agents with random weights."""

import gymnasium as gym
import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3 import DQN
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.dqn.policies import DQNPolicy

from sb3_camp import AdversarialObservationWrapper
from support.constant_env import ConstantEnv

ACTIONS = spaces.Discrete(3)


class RandomFrames(gym.Env):
    """
    Each observation is a new random one; the seed decides them, not the actions. The reward is the action.

    :param space: Box of floats or of pixels
    :param length: Steps of an episode; at every other one its end is a time limit
    """

    action_space = ACTIONS

    def __init__(self, space: spaces.Box, length: int = 6) -> None:
        self.observation_space = space
        self.length = length
        self.n_episodes = 0

    def _observation(self) -> np.ndarray:
        if self.observation_space.dtype == np.uint8:
            return self.np_random.integers(0, 256, self.observation_space.shape, np.uint8)
        return self.np_random.standard_normal(self.observation_space.shape).astype(self.observation_space.dtype)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        self.n_episodes += 1
        return self._observation(), {"options": options}

    def step(self, action):
        self.t += 1
        ended = self.t == self.length
        truncated = ended and self.n_episodes % 2 == 0
        return self._observation(), float(action), ended and not truncated, truncated, {}


def vector_space(*shape: int, dtype=np.float32) -> spaces.Box:
    return spaces.Box(-np.inf, np.inf, shape, dtype)


def image_space(*shape: int) -> spaces.Box:
    return spaces.Box(0, 255, shape, np.uint8)


def linear_policy(weights: np.ndarray, bias: np.ndarray) -> DQNPolicy:
    """
    :param weights: (n_actions, n_inputs)
    :param bias: (n_actions,)
    :return: A policy with the Q-values weights @ observation + bias
    """
    policy = DQNPolicy(vector_space(weights.shape[1]), spaces.Discrete(len(bias)), lambda _: 0.0, net_arch=[])
    with th.no_grad():
        policy.q_net.q_net[0].weight.copy_(th.as_tensor(weights))
        policy.q_net.q_net[0].bias.copy_(th.as_tensor(bias))
    return policy


def random_policy(space: spaces.Space, seed: int = 0) -> BasePolicy:
    """
    :param space: What the policy observes, in the layout of the environment (channels of images last or first)
    :return: The policy of a DQN with random weights, that prefers each action somewhere
    """
    kind = "MultiInputPolicy" if isinstance(space, spaces.Dict) else "MlpPolicy"
    kwargs = {"net_arch": [16, 16]}
    if isinstance(space, spaces.Box) and space.dtype == np.uint8:
        kind, kwargs = "CnnPolicy", {"features_extractor_kwargs": {"features_dim": 16}}

    class Observing(gym.Env):
        observation_space, action_space = space, ACTIONS

    with th.random.fork_rng():
        policy = DQN(kind, Observing(), buffer_size=1, policy_kwargs=kwargs, seed=seed, device="cpu").policy
    space.seed(seed)
    with th.no_grad():
        scores = th.cat([policy.q_net(policy.obs_to_tensor(space.sample())[0]) for _ in range(64)])
        policy.q_net.q_net[-1].bias -= scores.mean(dim=0)
    return policy


def greedy_action(policy: BasePolicy, observation) -> int:
    return int(policy.predict(observation, deterministic=True)[0])


def play(env: gym.Env, policy: BasePolicy, n_steps: int, seed: int | None = 0):
    """
    Acts greedily from a seeded reset on, through resets.

    :return: observations, and the infos that came with them
    """
    observation, info = env.reset(seed=seed)
    observations, infos = [observation], [info]
    for _ in range(n_steps):
        observation, _, terminated, truncated, info = env.step(greedy_action(policy, observation))
        observations.append(observation)
        infos.append(info)
        if terminated or truncated:
            observation, info = env.reset()
            observations.append(observation)
            infos.append(info)
    return observations, infos


def balancing_dqn(n_stack: int = 1) -> DQN:
    """
    :param n_stack: Number of stacked observations, of which only the newest counts
    :return: A DQN with linear Q-values, set by hand, that keeps the pole of CartPole up for 500 steps
    """

    class Observing(gym.Env):
        observation_space, action_space = vector_space(4 * n_stack), spaces.Discrete(2)

    model = DQN("MlpPolicy", Observing(), buffer_size=1, policy_kwargs={"net_arch": []}, seed=0, device="cpu")
    with th.no_grad():
        layer = model.q_net.q_net[0]
        layer.weight.zero_()
        layer.bias.zero_()
        layer.weight[1, -4:] = th.tensor([0.1, 0.3, 3.0, 1.0])
    return model


def attacked(env: gym.Env, policy: BasePolicy, attack: str = "pgd", budget: float | None = None, **kwargs) -> gym.Env:
    """
    :param env: Environment
    :param policy: Its policy
    :param attack: Name of the attack
    :param budget: By default one for some flips of a random policy
    :param kwargs: More for the wrapper
    :return: the environment with an adversary that makes large steps, so that it is quick
    """
    if budget is None:
        budget = 1000.0 if env.observation_space.dtype == np.uint8 else 3.0
    step_size = budget / (2 if attack == "fgsm" else 20)
    return AdversarialObservationWrapper(env, policy, budget, attack, attack_kwargs={"step_size": step_size}, **kwargs)


class Recorder(gym.Wrapper):
    """Keeps what comes out of the environment."""

    def __init__(self, env):
        super().__init__(env)
        self.observations = []

    def reset(self, **kwargs):
        observation, info = self.env.reset(**kwargs)
        self.observations.append(observation)
        return observation, info

    def step(self, action):
        result = self.env.step(action)
        self.observations.append(result[0])
        return result


def two_action_policy():
    """Prefers action 0 where 3 x + 4 y < 1."""
    return linear_policy(np.array([[0.0, 0.0], [3.0, 4.0]]), np.array([0.0, -1.0]))


def attacked_constant(observation=(0.0, 0.0), budget=1.0, **kwargs):
    space = vector_space(2)
    return AdversarialObservationWrapper(
        ConstantEnv(space, np.array(observation, np.float32)), two_action_policy(), budget, **kwargs
    )
