import warnings
from contextlib import nullcontext
from copy import deepcopy

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from sb3_contrib import ARS, QRDQN, TRPO, MaskablePPO, RecurrentPPO
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize
from stable_baselines3.dqn.policies import DQNPolicy
from support.counting_env import CountingEnv
from support.small_camp import Trace, noisy_cartpole, same, sampled_actors, small_model, weights

from sb3_camp import CAMPDQN
from sb3_camp.action_scores import action_scores
from sb3_camp.errors import InputError
from sb3_camp.noisy_net import NoisyNetDQN
from sb3_camp.training_only import TRAINING_ONLY

# A trained agent as the reference


@pytest.fixture(scope="module")
def trained_dqn(tmp_path_factory):
    env = make_vec_env("CartPole-v1", seed=0)
    model = DQN("MlpPolicy", env, learning_starts=50, policy_kwargs=dict(net_arch=[16]), seed=0, device="cpu").learn(300)
    path = tmp_path_factory.mktemp("dqn") / "model.zip"
    model.save(path)
    return model, path


def test_a_dqn_reference_is_copied_frozen_and_contained_in_the_saved_model(trained_dqn, tmp_path):
    dqn, path = trained_dqn
    copy_path = tmp_path / "reference.zip"
    copy_path.write_bytes(path.read_bytes())
    model = small_model(reference=str(copy_path))
    copy_path.unlink()
    assert same(weights(dqn.q_net), weights(model.q_net))
    trace = Trace()
    model.learn(300, callback=trace)
    assert same(weights(dqn.q_net), weights(model.reference_policy.q_net))
    assert not same(weights(dqn.q_net), weights(model.q_net))
    model.save(tmp_path / "model")
    loaded = CAMPDQN.load(tmp_path / "model", env=noisy_cartpole(), device="cpu")
    assert same(weights(model.reference_policy), weights(loaded.reference_policy))
    assert same(weights(model.q_net), weights(loaded.q_net))
    before = weights(loaded.q_net)
    loaded.learn(300)
    assert same(weights(dqn.q_net), weights(loaded.reference_policy.q_net)) and not same(before, weights(loaded.q_net))


def test_from_a_noisy_net_the_primary_starts_as_its_greedy_policy():
    noisy = NoisyNetDQN("MlpPolicy", noisy_cartpole(), policy_kwargs=dict(net_arch=[16]), buffer_size=10, seed=1, device="cpu")
    model = small_model(reference=noisy)
    observations = th.randn(50, 4)
    assert th.equal(model.q_net(observations), action_scores(noisy.policy)(observations))


def test_with_a_frozen_reference_only_the_primary_acts_and_learns_from_every_step(trained_dqn):
    dqn, _ = trained_dqn
    model = small_model(
        reference=dqn, learning_starts=0, exploration_initial_eps=0.0, exploration_final_eps=0.0, gradient_steps=0
    )
    with th.no_grad():
        for parameter in model.q_net.parameters():
            parameter.zero_()
        model.q_net.q_net[-1].bias[1] = 1.0
    trace = Trace()
    model.learn(50, callback=trace)
    assert (np.array(trace.actions) == 1).all()
    assert not same(weights(dqn.q_net), weights(model.q_net))  # the given model itself is left alone
    assert sampled_actors(model) == [None]


@pytest.mark.parametrize("algorithm", [DQN, QRDQN, PPO, A2C, TRPO, ARS, CAMPDQN])
def test_any_trained_model_or_its_file_can_be_the_reference(algorithm, tmp_path):
    settings = dict(n_steps=64) if algorithm in (PPO, TRPO) else {}
    teacher = algorithm("MlpPolicy", make_vec_env("CartPole-v1", seed=0), seed=0, device="cpu", **settings)
    teacher.learn(200)
    teacher.save(tmp_path / "teacher")
    obs = th.randn(7, 4)
    expected = action_scores(teacher.policy)(obs)
    for reference in (teacher, tmp_path / "teacher", str(tmp_path / "teacher.zip")):
        model = small_model(reference=reference)
        assert th.equal(action_scores(model.reference_policy)(obs), expected)
    model.learn(100)
    model.save(tmp_path / "model")
    loaded = CAMPDQN.load(tmp_path / "model", device="cpu")
    assert th.equal(action_scores(loaded.reference_policy)(obs), expected)


def test_nothing_that_only_training_needs_is_unpickled_from_a_reference(tmp_path, trained_dqn):
    marker = tmp_path / "executed"

    class Poison:
        def __reduce__(self):
            return marker.touch, ()

    model, _ = trained_dqn
    for name in TRAINING_ONLY:
        copy = deepcopy(model)
        setattr(copy, name, Poison())
        copy.save(tmp_path / "poisoned")
        small_model(reference=tmp_path / "poisoned")
        assert not marker.exists(), name


def test_a_reference_given_at_load_is_kept_out_openly(trained_dqn, tmp_path):
    dqn, path = trained_dqn
    small_model(reference=path).save(tmp_path / "frozen")
    with pytest.warns(UserWarning, match="keeps the reference"):
        loaded = CAMPDQN.load(tmp_path / "frozen", reference="elsewhere.zip", device="cpu")
    assert same(weights(dqn.q_net), weights(loaded.reference_policy.q_net))
    small_model().learn(60).save(tmp_path / "learned")
    with pytest.raises(InputError, match="start a new model"):
        CAMPDQN.load(tmp_path / "learned", reference=path, device="cpu")


def test_a_reference_trained_on_another_float_precision_is_accepted():
    class DoublePrecision(ThreeActions):
        observation_space = spaces.Box(-1, 1, (4,), np.float64)

    dqn = DQN("MlpPolicy", DoublePrecision(), buffer_size=10, device="cpu")
    small_model(make_vec_env(ThreeActions), reference=dqn)


@pytest.mark.slow
def test_imitating_makes_the_primary_act_like_the_reference():
    dqn = DQN("MlpPolicy", make_vec_env("CartPole-v1", seed=0), policy_kwargs=dict(net_arch=[16]), seed=5, device="cpu")
    model = small_model(reference=dqn, policy_kwargs=dict(net_arch=[32]), gradient_steps=32, imitation="hard")
    model.learn(2000)
    observations = model.replay_buffer.sample(1000).observations
    agreement = (model.q_net(observations).argmax(dim=1) == dqn.q_net(observations).argmax(dim=1)).float().mean()
    assert agreement > 0.95


def test_a_reference_with_other_spaces_is_refused(trained_dqn):
    _, path = trained_dqn
    with pytest.raises(InputError, match="it observes"):
        small_model(make_vec_env(CountingEnv), reference=path)
    with pytest.raises(InputError, match="its actions"):
        small_model(make_vec_env(ThreeActions), reference=path)


class ThreeActions(gym.Env):
    observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = spaces.Discrete(3)


def test_a_reference_with_another_number_of_discrete_observations_is_refused():
    class Cells(ThreeActions):
        def __init__(self, n: int):
            self.observation_space = spaces.Discrete(n)

    dqn = DQN("MlpPolicy", Cells(5), buffer_size=10, device="cpu")
    small_model(make_vec_env(lambda: Cells(5)), reference=dqn)
    with pytest.raises(InputError, match="it observes"):
        small_model(make_vec_env(lambda: Cells(7)), reference=dqn)


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path):
    (tmp_path / "model.zip").write_bytes(b"not a zip")
    with pytest.raises(InputError, match="not an SB3 checkpoint"):
        small_model(reference=tmp_path / "model.zip")


class Masked(ThreeActions):
    def action_masks(self):
        return np.ones(3, dtype=bool)


@pytest.mark.parametrize(
    ("algorithm", "policy", "reason"), [(RecurrentPPO, "MlpLstmPolicy", "recurrent"), (MaskablePPO, "MlpPolicy", "mask")]
)
def test_an_agent_whose_action_depends_on_more_than_the_observation_is_refused_at_once(algorithm, policy, reason, tmp_path):
    agent = algorithm(policy, Masked(), n_steps=16, seed=0, device="cpu")
    agent.save(tmp_path / "agent")
    for reference in (agent, agent.policy, tmp_path / "agent"):
        with pytest.raises(InputError, match=f"^reference: it cannot be imitated.*{reason}") as error:
            small_model(make_vec_env(ThreeActions), reference=reference)
        assert "\n" not in str(error.value)


def test_the_words_for_a_reference_are_no_files_and_a_file_of_that_name_is_given_by_a_path(trained_dqn, tmp_path, monkeypatch):
    dqn, path = trained_dqn
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shared.zip").write_bytes(path.read_bytes())
    assert not same(weights(small_model(reference="shared").reference_policy.q_net), weights(dqn.q_net))
    assert same(weights(small_model(reference="./shared").reference_policy.q_net), weights(dqn.q_net))


def test_an_agent_that_does_not_do_what_its_scores_say_is_refused(tmp_path):
    class Contrary(DQNPolicy):
        def _predict(self, observation, deterministic=True):
            return self.q_net(observation).argmin(dim=1)

    agent = DQN(Contrary, noisy_cartpole(), seed=0, device="cpu")
    with pytest.raises(InputError, match="Contrary does not take the action with the highest score") as error:
        small_model(reference=agent)
    assert "\n" not in str(error.value)


def test_an_agent_is_not_refused_for_the_bounds_of_its_space():
    class Boundless(CountingEnv):
        observation_space = spaces.Box(-np.finfo(np.float32).max, np.finfo(np.float32).max, (50,), np.float32)

        def _observation(self):
            return np.full(50, super()._observation()[0])

    agent = DQN("MlpPolicy", Boundless(), seed=0, device="cpu")
    with np.errstate(all="ignore"):
        assert small_model(Boundless(), reference=agent).reference_kind == "frozen"


@pytest.mark.parametrize(
    "place", ["vecnormalize.pkl", "vec_normalize.pkl", "agent_vecnormalize.pkl", "CartPole-v1/vecnormalize.pkl"]
)
def test_statistics_beside_a_checkpoint_are_told_of(place, trained_dqn, tmp_path):
    trained_dqn[0].save(tmp_path / "agent.zip")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small_model(reference=str(tmp_path / "agent.zip"))
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).with_name("args.yml").touch()
    normalizer = VecNormalize(noisy_cartpole())
    normalizer.save(str(tmp_path / place))
    with pytest.warns(UserWarning, match=f"{place} lies beside it, so it learned from normalised observations"):
        small_model(reference=tmp_path / "agent")
    # Statistics of rewards alone tell nothing of the observations
    normalizer.norm_obs = False
    normalizer.save(str(tmp_path / place))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small_model(reference=str(tmp_path / "agent.zip"))


@pytest.mark.parametrize("norm_obs", [True, False])
def test_a_model_that_was_trained_in_a_normaliser_is_told_of(norm_obs):
    env = VecNormalize(noisy_cartpole(), norm_obs=norm_obs)
    agent = DQN("MlpPolicy", env, seed=0, device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small_model(env, reference=agent)
        with pytest.warns(UserWarning, match="trained in a VecNormalize") if norm_obs else nullcontext():
            small_model(reference=agent)


@pytest.mark.parametrize("algorithm", [DQN, PPO])
def test_an_agent_whose_weights_are_not_numbers_is_refused(algorithm):
    agent = algorithm("MlpPolicy", noisy_cartpole(), seed=0, device="cpu")
    with th.no_grad():
        next(agent.policy.parameters()).fill_(float("nan"))
    with pytest.raises(InputError, match="weights are not finite numbers"):
        small_model(reference=agent)
