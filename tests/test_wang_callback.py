"""On-policy algorithms that learn for the Wang transform of the return."""

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from sb3_contrib import TRPO, RecurrentPPO
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from sb3_camp.errors import InputError
from sb3_camp.risk import WangTransformCallback, episode_weights


class Scripted(gym.Env):
    """Episodes of given lengths and rewards, whatever is done: each is (steps, reward of a step)."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, episodes, truncated=False):
        self._episodes, self._next, self._truncated = episodes, 0, truncated

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._left, self._reward = self._episodes[self._next % len(self._episodes)]
        self._next += 1
        return self.observation_space.sample(), {}

    def step(self, action):
        self._left -= 1
        over = self._left == 0
        return self.observation_space.sample(), self._reward, over and not self._truncated, over and self._truncated, {}


class Kept(BaseCallback):
    """Keeps the advantages of each rollout."""

    def __init__(self):
        super().__init__()
        self.rollouts = []

    def _on_step(self):
        return True

    def _on_rollout_end(self):
        self.rollouts.append(self.model.rollout_buffer.advantages.copy())


def weights_of_rollouts(envs, n_steps, n_rollouts, callback, algorithm=PPO, **kwargs):
    """By what the callback multiplied the advantages of each rollout, shape (n_rollouts, n_steps, n_envs)."""
    before, after = Kept(), Kept()
    settings = {"batch_size": n_steps * len(envs), "n_epochs": 1} if algorithm in (PPO, RecurrentPPO) else {}
    env = DummyVecEnv([lambda env=env: env for env in envs])
    policy = "MlpLstmPolicy" if algorithm is RecurrentPPO else "MlpPolicy"
    model = algorithm(policy, kwargs.get("wrap", lambda e: e)(env), n_steps=n_steps, seed=0, device="cpu", **settings)
    model.learn(n_steps * len(envs) * n_rollouts, callback=CallbackList([before, callback, after]))
    return np.array(after.rollouts) / np.array(before.rollouts)


def test_each_step_has_the_weight_of_its_episode_also_of_one_that_straddles_rollouts():
    # Env 0: returns 6, 4; env 1: return 20 over five steps, of which three are in the second rollout
    envs = [Monitor(Scripted([(3, 2.0), (1, 4.0)])), Monitor(Scripted([(2, 1.0), (5, 4.0)]))]
    first, second = weights_of_rollouts(envs, 4, 2, WangTransformCallback(1.5))
    at_6, at_4, at_2 = episode_weights([6.0, 4.0, 2.0], 1.5)
    assert np.allclose(first[:, 0], [at_6] * 3 + [at_4], rtol=1e-4)
    assert np.allclose(first[:, 1], [at_2] * 2 + [1, 1], rtol=1e-4)
    at_6, at_4, at_20 = episode_weights([6.0, 4.0, 20.0], 1.5, [6.0, 4.0, 2.0, 6.0, 4.0, 20.0])
    assert np.allclose(second[:, 0], [at_6] * 3 + [at_4], rtol=1e-4)
    assert np.allclose(second[:, 1], [at_20] * 3 + [1], rtol=1e-4)


def test_episodes_are_ranked_among_the_latest_only():
    envs = [Monitor(Scripted([(1, float(reward)) for reward in range(1, 9)]))]
    weights = weights_of_rollouts(envs, 2, 4, WangTransformCallback(1.0, n_episodes=3))[:, :, 0]
    assert np.allclose(weights[3], episode_weights([7.0, 8.0], 1.0, [6.0, 7.0, 8.0]), rtol=1e-4)
    # All of one rollout are ranked, be they more
    envs = [Monitor(Scripted([(1, float(reward)) for reward in range(1, 9)]))]
    weights = weights_of_rollouts(envs, 4, 1, WangTransformCallback(1.0, n_episodes=3))[0, :, 0]
    assert np.allclose(weights, episode_weights([1.0, 2.0, 3.0, 4.0], 1.0), rtol=1e-4)


def test_ranked_are_the_returns_that_are_certified():
    """Not rewards that VecNormalize scales, nor those that SB3 adds to bootstrap at a time limit."""
    envs = [Monitor(Scripted([(1, 5.0), (1, 5.0), (2, 1.0)], truncated=True))]
    callback = WangTransformCallback(1.0)
    weights = weights_of_rollouts(envs, 4, 1, callback, wrap=lambda env: VecNormalize(env, norm_obs=False))
    high, _, low = episode_weights([5.0, 5.0, 2.0], 1.0)
    assert np.allclose(weights[0, :, 0], [high, high, low, low], rtol=1e-4)


@pytest.mark.parametrize("algorithm", [PPO, A2C, TRPO, RecurrentPPO])
def test_all_algorithms_with_rollouts_take_it(algorithm):
    envs = [Monitor(Scripted([(2, 2.0), (2, 3.0)])) for _ in range(2)]
    weights = weights_of_rollouts(envs, 4, 2, WangTransformCallback(2.0), algorithm)
    low, high = episode_weights([4.0, 6.0], 2.0)
    assert np.allclose(weights, np.array([low, low, high, high])[None, :, None], rtol=1e-3)


def trained(callback):
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=32, n_epochs=2, seed=3, device="cpu")
    model.learn(256, callback=callback)
    return th.cat([weights.detach().ravel() for weights in model.policy.parameters()])


def test_with_parameter_0_the_training_is_the_same_bit_for_bit():
    plain = trained(None)
    assert th.equal(trained(WangTransformCallback(0.0)), plain)
    assert not th.equal(trained(WangTransformCallback(2.0)), plain)


class TwoArms(gym.Env):
    """One step: arm 1 returns 0 or 3, arm 0 always 1. Arm 1 has the higher mean, arm 0 the higher certificate."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        reward = float(self.np_random.choice([0.0, 3.0])) if action == 1 else 1.0
        return np.zeros(1, np.float32), reward, True, False, {}


@pytest.mark.parametrize("parameter, arm", [(0.0, 1), (1.5, 0)])
def test_what_is_learned_has_the_higher_certificate_not_the_higher_mean(parameter, arm):
    envs = DummyVecEnv([lambda: Monitor(TwoArms())] * 8)
    model = PPO("MlpPolicy", envs, n_steps=64, batch_size=512, n_epochs=10, learning_rate=3e-3, seed=0, device="cpu")
    model.learn(20 * 512, callback=WangTransformCallback(parameter))
    assert model.predict(np.zeros(1, np.float32), deterministic=True)[0] == arm


def test_what_cannot_be_weighted_is_refused():
    with pytest.raises(InputError, match="on-policy"):
        DQN("MlpPolicy", "CartPole-v1", device="cpu").learn(10, callback=WangTransformCallback(1.0))
    bare = DummyVecEnv([lambda: Scripted([(2, 1.0)])])
    with pytest.raises(InputError, match="Monitor"):
        PPO("MlpPolicy", bare, n_steps=8, batch_size=8, device="cpu").learn(8, callback=WangTransformCallback(1.0))
    for wrong in ({"parameter": -1.0}, {"parameter": np.nan}, {"parameter": 1.0, "n_episodes": 0}):
        with pytest.raises(InputError):
            WangTransformCallback(**wrong)
