"""Random choices of a policy: each env makes its own, as the independence of the episodes needs it."""

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from sb3_contrib import QRDQN, TQC, TRPO, RecurrentPPO
from scipy import stats
from stable_baselines3 import A2C, DQN, PPO, SAC
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.utils import set_random_seed
from stable_baselines3.common.vec_env import DummyVecEnv
from support.evaluation_envs import recorded

from sb3_camp import CAMPDQN
from sb3_camp.errors import InputError
from sb3_camp.evaluation.environment import EvaluationEnv
from sb3_camp.evaluation.episodes import play_episodes
from sb3_camp.evaluation.independent_actions import actor, fixed_policy

OBSERVATIONS = np.zeros((400, 4), dtype=np.float32)


@pytest.mark.parametrize("algorithm", [DQN, QRDQN, CAMPDQN])
def test_epsilon_greedy_envs_explore_each_on_its_own_at_the_models_rate(algorithm):
    model = algorithm("MlpPolicy", make_vec_env("CartPole-v1"), buffer_size=10, seed=0, device="cpu")
    model.exploration_rate = 0.5
    greedy = model.predict(OBSERVATIONS, deterministic=True)[0]
    set_random_seed(0)
    act = actor(model, deterministic=False)
    shares = np.array([np.mean(act(OBSERVATIONS)[0] != greedy) for _ in range(40)])
    # An env deviates with probability 1/4; standard deviation of a share if they are independent: 0.022, with one coin: 0.25
    assert shares.std() < 0.04
    assert abs(shares.mean() - 0.25) < 4 * 0.022 / np.sqrt(40)


def test_the_same_seed_explores_in_the_same_way():
    model = DQN("MlpPolicy", make_vec_env("CartPole-v1"), buffer_size=10, seed=0, device="cpu")
    model.exploration_rate = 0.5
    environment = EvaluationEnv("CartPole-v1").with_noise(0.2)
    with environment.opened(4) as env:
        runs = [play_episodes(model, env, 12, seed=3, deterministic=False).returns.tolist() for _ in range(2)]
    assert runs[0] == runs[1]


class SeedsAll(gym.Env):
    """An episode is one step, which earns the action; each reset seeds the global generators alike."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        set_random_seed(4)
        return np.ones(3, np.float32), {}

    def step(self, action):
        return np.ones(3, np.float32), float(action), True, False, {}


@pytest.mark.parametrize("algorithm", [DQN, PPO])
def test_an_env_that_seeds_the_global_generators_does_not_repeat_the_choices_of_the_policy(algorithm):
    model = algorithm("MlpPolicy", SeedsAll(), seed=0, device="cpu", **({"buffer_size": 10} if algorithm is DQN else {}))
    model.exploration_rate = 1.0
    env = DummyVecEnv([lambda: recorded(SeedsAll())])
    returns, again = (play_episodes(model, env, 60, seed=3, deterministic=False).returns for _ in range(2))
    assert 15 <= returns.sum() <= 45 and np.array_equal(returns, again)
    runs = np.count_nonzero(np.diff(returns))
    assert 15 <= runs <= 45, "and they are not in blocks"
    set_random_seed(4)
    expected = np.random.random(), th.rand(1).item()
    env.reset()
    actor(model, deterministic=False)(np.ones((1, 3), np.float32))
    assert (np.random.random(), th.rand(1).item()) == expected, "what the env draws is its own"


def test_random_actions_respect_where_the_actions_start():
    model = DQN("MlpPolicy", make_vec_env("CartPole-v1"), buffer_size=10, seed=0, device="cpu")
    model.exploration_rate = 1.0
    model.action_space = spaces.Discrete(3, start=5)
    assert set(actor(model, deterministic=False)(OBSERVATIONS)[0].tolist()) == {5, 6, 7}


def test_deterministic_and_other_algorithms_act_as_predict_does():
    for algorithm, kwargs in ((DQN, {"buffer_size": 10}), (A2C, {})):
        model = algorithm("MlpPolicy", make_vec_env("CartPole-v1"), seed=0, device="cpu", **kwargs)
        model.exploration_rate = 1.0
        observations = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
        assert np.array_equal(actor(model, True)(observations)[0], model.predict(observations, deterministic=True)[0])
    set_random_seed(1)
    sampled = actor(model, False)(observations)[0]
    set_random_seed(1)
    assert np.array_equal(sampled, model.predict(observations, deterministic=False)[0])


# Generalized state-dependent exploration


class ActionPlusFifty(gym.Env):
    """An episode is one step, which earns the action plus 50."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Box(-200, 200, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.ones(3, np.float32), {}

    def step(self, action):
        return np.ones(3, np.float32), float(action[0]) + 50, True, False, {}


class TenSteps(ActionPlusFifty):
    """An episode is ten steps; each observation is the same, so with one matrix all actions are the same."""

    def reset(self, **kwargs):
        self.t, self.first = 0, None
        return super().reset(**kwargs)

    def step(self, action):
        self.t += 1
        self.first = self.first or float(action[0])
        changed = float(action[0]) != pytest.approx(self.first, rel=1e-4)
        return np.ones(3, np.float32), float(changed), self.t == 10, False, {}


def gsde_model(algorithm, env):
    on_policy = issubclass(algorithm, OnPolicyAlgorithm)
    kwargs = {} if on_policy else {"buffer_size": 10}
    policy = "MlpLstmPolicy" if algorithm is RecurrentPPO else "MlpPolicy"
    return algorithm(
        policy, env, use_sde=True, seed=0, device="cpu", policy_kwargs={"log_std_init": 0.5 if on_policy else -2}, **kwargs
    )


def recorded_envs(env_class, n_envs):
    return DummyVecEnv([lambda: recorded(env_class())] * n_envs)


GSDE = [PPO, A2C, TRPO, RecurrentPPO, SAC, TQC]


@pytest.mark.parametrize("n_envs", [1, 7])
@pytest.mark.parametrize("algorithm", GSDE)
def test_each_episode_has_an_exploration_matrix_of_its_own(algorithm, n_envs):
    model = gsde_model(algorithm, ActionPlusFifty())
    returns, again, other = (
        play_episodes(model, recorded_envs(ActionPlusFifty, n_envs), 280, seed=seed, deterministic=False).returns
        for seed in (0, 0, 1000)
    )
    assert np.array_equal(returns, again) and not np.array_equal(returns, other)
    assert len(set(returns)) > 275  # some are rounded to one number
    # As much between the episodes of one env as between the envs: all is drawn anew
    table = returns.reshape(-1, n_envs)
    assert 0.6 < table.std(axis=0).mean() / returns.std() < 1.4
    # The distribution of the actions is that of a matrix that is drawn for each: SB3's own draws
    expected = []
    for _ in range(280):
        getattr(model.policy, "actor", model.policy).reset_noise()
        expected.append(50 + model.predict(np.ones((1, 3), np.float32), deterministic=False)[0].item())
    assert stats.ks_2samp(returns, expected).pvalue > 0.001


@pytest.mark.parametrize("algorithm", [PPO, SAC])
def test_an_episode_keeps_its_matrix_and_the_model_keeps_its_own(algorithm):
    model = gsde_model(algorithm, TenSteps())
    distribution = getattr(model.policy, "actor", model.policy).action_dist
    before = distribution.exploration_mat, distribution.exploration_matrices
    for n_envs in (1, 4):
        assert not play_episodes(model, recorded_envs(TenSteps, n_envs), 12, seed=0, deterministic=False).returns.any()
    assert before[0] is distribution.exploration_mat and before[1] is distribution.exploration_matrices


def test_a_matrix_that_is_kept_elsewhere_is_refused():
    model = gsde_model(PPO, ActionPlusFifty())
    model.policy.hidden, model.policy.action_dist = model.policy.action_dist, None
    with pytest.raises(InputError, match="without --stochastic"):
        actor(model, deterministic=False)
    actor(model, deterministic=True)


class Normalizes(BaseFeaturesExtractor):
    """By statistics that move with each batch, unless they are those of PyTorch, which stop in eval mode."""

    def __init__(self, space, stops):
        super().__init__(space, space.shape[0])
        self.norm = th.nn.BatchNorm1d(space.shape[0])
        self.stops = stops

    def forward(self, observations):
        return self.norm(observations) if self.stops else self.norm.train()(observations)


@pytest.mark.parametrize("stops", [True, False])
@pytest.mark.parametrize("algorithm", [DQN, PPO])
def test_statistics_of_the_policy_must_not_move_while_it_plays(algorithm, stops):
    env = make_vec_env("CartPole-v1", 4, wrapper_class=recorded)
    options = dict(features_extractor_class=Normalizes, features_extractor_kwargs=dict(stops=stops))
    model = algorithm("MlpPolicy", env, policy_kwargs=options, device="cpu")
    if stops:
        with fixed_policy(model):
            play_episodes(model, env, 4, seed=0)
    else:
        with pytest.raises(InputError, match=r"the policy changes while it plays .*norm\.running_mean"), fixed_policy(model):
            play_episodes(model, env, 4, seed=0)


class Counts(th.nn.Module):
    """Plays differently after a number of calls, which it keeps where no checkpoint has it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", th.zeros(()), persistent=False)

    def forward(self, values):
        self.calls += 1
        return values


class Forgets(Counts):
    """Drops a buffer at its first call."""

    def forward(self, values):
        self.calls = None
        return values


@pytest.mark.parametrize("kind", [Counts, Forgets])
def test_a_buffer_that_is_not_saved_must_not_move_either(kind):
    env = make_vec_env("CartPole-v1", 2, wrapper_class=recorded)
    model = DQN("MlpPolicy", env, device="cpu")
    model.policy.q_net.q_net.insert(0, kind())
    with pytest.raises(InputError, match=r"the policy changes while it plays .*calls"), fixed_policy(model):
        play_episodes(model, env, 2, seed=0)
