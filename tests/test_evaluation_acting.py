import numpy as np
import pytest
from gymnasium import spaces
from sb3_contrib import QRDQN
from stable_baselines3 import A2C, DQN
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.utils import set_random_seed

from sb3_camp import CAMPDQN
from sb3_camp.evaluation.environment import EvaluationEnv
from sb3_camp.evaluation.episodes import play_episodes
from sb3_camp.evaluation.independent_actions import actor

OBSERVATIONS = np.zeros((400, 4), dtype=np.float32)


@pytest.mark.parametrize("algorithm", [DQN, QRDQN, CAMPDQN])
def test_epsilon_greedy_envs_explore_each_on_its_own_at_the_models_rate(algorithm):
    model = algorithm("MlpPolicy", make_vec_env("CartPole-v1"), buffer_size=10, seed=0, device="cpu")
    model.exploration_rate = 0.5
    greedy = model.predict(OBSERVATIONS, deterministic=True)[0]
    act = actor(model, deterministic=False)
    set_random_seed(0)
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
