"""What adversaries can attack: spaces, models, copies of themselves; and what they refuse."""

import copy
import pickle

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env as gymnasium_check_env
from sb3_contrib import ARS, QRDQN
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.env_checker import check_env as sb3_check_env
from support.attacked_envs import (
    RandomFrames,
    Recorder,
    attacked,
    attacked_constant,
    greedy_action,
    image_space,
    play,
    random_policy,
    two_action_policy,
    vector_space,
)
from support.constant_env import ConstantEnv

from sb3_camp import CAMPDQN
from sb3_camp.errors import InputError
from sb3_camp.noisy_net import NoisyNetDQN
from sb3_camp.wrappers import AdversarialObservationWrapper

VECTOR = vector_space(4)
IMAGE = image_space(36, 36, 1)


@pytest.fixture(scope="module")
def policies():
    return {space.shape: random_policy(space) for space in (VECTOR, IMAGE)}


# Spaces


@pytest.mark.parametrize("space", [VECTOR, vector_space(4, dtype=np.float64), IMAGE], ids=["float32", "float64", "image"])
def test_the_wrapped_environment_passes_the_checkers(policies, space):
    def make():
        return attacked(RandomFrames(space), policies[space.shape])

    gymnasium_check_env(make(), skip_render_check=True)
    sb3_check_env(make())
    env = make()
    assert env.observation_space.dtype == (np.uint8 if space is IMAGE else np.float32)
    observations, infos = play(env, policies[space.shape], 14)
    assert all(env.observation_space.contains(observation) for observation in observations)
    assert any(info["action_flipped"] for info in infos)


def test_a_flattened_observation_is_attacked_in_front_of_the_flattening():
    policy = random_policy(vector_space(12))
    flat = gym.wrappers.FlattenObservation(RandomFrames(vector_space(3, 4)))
    inside = gym.wrappers.FlattenObservation(attacked(RandomFrames(vector_space(3, 4)), policy))
    outside = attacked(flat, policy)
    observations, infos = play(inside, policy, 20)
    np.testing.assert_array_equal(observations, play(outside, policy, 20)[0])
    assert any(info["action_flipped"] for info in infos)


class TwoEntries(RandomFrames):
    """A Dict with a vector that changes, an image and a mode."""

    def __init__(self, *names):
        super().__init__(VECTOR)
        entries = {"position": VECTOR, "image": IMAGE, "mode": spaces.Discrete(3)}
        self.observation_space = spaces.Dict({name: entries[name] for name in names})

    def _observation(self):
        everything = {
            "position": self.np_random.standard_normal(4).astype(np.float32),
            "image": self.np_random.integers(0, 256, IMAGE.shape, np.uint8),
            "mode": self.np_random.integers(3),
        }
        return {name: everything[name] for name in self.observation_space}


@pytest.mark.parametrize(
    ("names", "key", "changing", "budget", "step_size"),
    [
        (("mode", "position"), None, "position", 3.0, 0.1),
        (("position", "image"), "position", "position", 3.0, 0.1),
        (("position", "image"), "image", "image", 3000.0, 100.0),
    ],
)
def test_only_the_attacked_entry_of_a_dict_changes(names, key, changing, budget, step_size):
    inner = Recorder(TwoEntries(*names))
    policy = random_policy(inner.observation_space)
    env = AdversarialObservationWrapper(inner, policy, budget, key=key, attack_kwargs={"step_size": step_size})
    observations, infos = play(env, policy, 12)
    assert any(info["action_flipped"] for info in infos)
    for clean, sent, info in zip(inner.observations, observations, infos, strict=True):
        assert env.observation_space.contains(sent)
        assert info["action_flipped"] == (greedy_action(policy, sent) != greedy_action(policy, clean))
        for name in names:
            assert np.array_equal(clean[name], sent[name]) == (name != changing or not info["action_flipped"])


# The model


# CartPole with the angle and the position in units in which random weights decide
class SmallUnits(gym.ObservationWrapper):
    def observation(self, observation):
        return observation * 100


def cartpole():
    return SmallUnits(gym.make("CartPole-v1"))


def first_perturbations(agent):
    env = attacked(cartpole(), agent, budget=40.0)
    clean = cartpole()
    difference = []
    for seed in range(10):
        difference.append(env.reset(seed=seed)[0] - clean.reset(seed=seed)[0])
    return np.array(difference)


@pytest.mark.parametrize("algorithm", [DQN, QRDQN, PPO, A2C, ARS, CAMPDQN, NoisyNetDQN])
def test_a_model_its_policy_and_its_file_are_attacked_alike(algorithm, tmp_path):
    policy_name = "NoisyMlpPolicy" if algorithm is NoisyNetDQN else "MlpPolicy"
    model = algorithm(policy_name, cartpole(), seed=1, device="cpu")
    if algorithm is ARS:  # its initial weights are zero
        generator = th.Generator().manual_seed(0)
        for parameter in model.policy.parameters():
            th.nn.init.normal_(parameter, std=0.1, generator=generator)
    model.save(tmp_path / "model")
    expected = first_perturbations(model)
    assert np.any(expected)
    for agent in (model.policy, str(tmp_path / "model"), tmp_path / "model.zip"):
        np.testing.assert_array_equal(first_perturbations(agent), expected)


def test_the_model_and_the_global_generator_are_left_alone():
    model = DQN("MlpPolicy", cartpole(), seed=1, device="cpu")
    model.q_net(th.ones(1, 4)).sum().backward()
    model.policy.set_training_mode(True)
    parameters = [parameter.detach().clone() for parameter in model.policy.parameters()]
    grads = [None if parameter.grad is None else parameter.grad.clone() for parameter in model.policy.parameters()]
    assert any(grad is not None and grad.any() for grad in grads)
    state = th.get_rng_state()
    with th.no_grad():
        assert np.any(first_perturbations(model))
    assert th.equal(state, th.get_rng_state())
    assert model.policy.training and model.policy.q_net.training
    for parameter, before, grad in zip(model.policy.parameters(), parameters, grads, strict=True):
        assert th.equal(parameter, before)
        assert (parameter.grad is None) if grad is None else th.equal(parameter.grad, grad)


def test_training_the_model_further_does_not_change_the_attack():
    model = DQN("MlpPolicy", cartpole(), seed=1, device="cpu")
    env = attacked(cartpole(), model, budget=40.0)
    before, _ = env.reset(seed=0)
    assert np.any(first_perturbations(model))
    with th.no_grad():
        model.q_net.q_net[-1].bias += th.tensor([1e6, 0.0])
    np.testing.assert_array_equal(env.reset(seed=0)[0], before)
    assert not np.any(first_perturbations(model))  # no longer within reach


def test_adversaries_on_one_policy_share_one_copy_of_it(tmp_path):
    model = DQN("MlpPolicy", gym.make("CartPole-v1"), seed=0, device="cpu")
    model.save(tmp_path / "model")
    for agent in (model, tmp_path / "model.zip"):
        one, other = (AdversarialObservationWrapper(gym.make("CartPole-v1"), agent, 1.0).adversary.policy for _ in range(2))
        assert one is other and one is not model.policy
    with th.no_grad():
        next(model.policy.parameters()).add_(1.0)
    assert AdversarialObservationWrapper(gym.make("CartPole-v1"), model, 1.0).adversary.policy is not one


def test_attacks_work_inside_of_inference_mode():
    with th.inference_mode():
        _, info = attacked_constant().reset()
    assert info["action_flipped"]


# Rebuilding and copying


def test_the_wrapper_is_rebuilt_from_its_spec(tmp_path):
    DQN("MlpPolicy", gym.make("CartPole-v1"), seed=0, device="cpu").save(tmp_path / "model")
    env = AdversarialObservationWrapper(
        gym.make("CartPole-v1"), tmp_path / "model", 1.0, "apgd", attack_kwargs={"q_threshold": 0.01}
    )
    spec = gym.envs.registration.EnvSpec.from_json(env.spec.to_json())
    assert spec.additional_wrappers[-1].kwargs["model"] == str(tmp_path / "model")
    rebuilt = gym.make(spec)
    assert isinstance(rebuilt, AdversarialObservationWrapper)
    np.testing.assert_array_equal(rebuilt.reset(seed=0)[0], env.reset(seed=0)[0])
    assert rebuilt.adversary.settings == env.adversary.settings == {"q_threshold": 0.01, "step_size": 0.05}


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))], ids=["copy", "pickle"])
def test_a_copy_goes_on_like_the_original(policies, duplicate):
    env = AdversarialObservationWrapper(
        RandomFrames(VECTOR), policies[VECTOR.shape], 2.0, "random", attack_kwargs={"step_size": 0.1}
    )
    env.reset(seed=0)
    env.step(0)
    twin = duplicate(env)
    for _ in range(4):
        one, other = env.step(0), twin.step(0)
        np.testing.assert_array_equal(one[0], other[0])
        assert one[4] == other[4]


# Bad arguments


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        (dict(budget=-1.0), "budget must be a finite number >= 0, not -1.0"),
        (dict(budget=float("nan")), "budget must be a finite number >= 0"),
        (dict(budget="0.4"), "budget must be a finite number >= 0, not '0.4'"),
        (dict(budget=True), "budget must be"),
        (dict(attack="cw"), r"attack must be one of pgd, apgd, fgsm, random, .*not 'cw'"),
        (dict(attack_kwargs={"steps": 3}), r"attack_kwargs names \['steps'\], the attack pgd has step_size, multiplier"),
        (dict(attack_kwargs={"generators": []}, attack="random"), r"attack_kwargs names \['generators'\]"),
        (dict(attack_kwargs={"step_size": -0.1}), "attack_kwargs: step_size must be"),
        (dict(attack_kwargs={"step_size": "big"}), "attack_kwargs: "),
        (dict(attack_kwargs={"objective": "huber"}), "attack_kwargs: objective must be"),
        (dict(n_stack=0), "n_stack must be an integer >= 1, not 0"),
        (dict(n_stack=2.0), "n_stack must be an integer"),
        (dict(n_stack=3), r"the model observes the shape \(2,\), the environment gives \(2,\), .*check model and n_stack"),
        (dict(stack_padding="first"), "stack_padding must be 'reset' or 'zero'"),
        (dict(key="position"), "key is 'position', but the observation is no Dict"),
        (dict(model=7), "model: give an SB3 model or the path of a checkpoint, not 7"),
        (dict(model="nowhere"), "model: no checkpoint at nowhere"),
        (dict(model=random_policy(vector_space(3))), r"the model observes the shape \(3,\)"),
        (dict(model=random_policy(vector_space(2))), r"the actions of the model are Discrete\(3\)"),
        (dict(model=random_policy(image_space(36, 36, 1))), "the model observes Box.0, 255"),
        (dict(device="gpu"), "device must be cpu, cuda or auto, not 'gpu'"),
        (dict(device="cuda"), "device: there is no GPU")
        if not th.cuda.is_available()
        else (dict(device="cpu", n_stack=-1), "n_stack must be"),
    ],
)
def test_a_wrong_argument_is_refused_in_one_line(kwargs, message):
    arguments = {"model": two_action_policy(), "budget": 1.0, **kwargs}
    with pytest.raises(InputError, match=message) as error:
        AdversarialObservationWrapper(ConstantEnv(vector_space(2), np.zeros(2, np.float32)), **arguments)
    assert "\n" not in str(error.value)


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path):
    (tmp_path / "model.zip").write_bytes(b"not a zip")
    with pytest.raises(InputError, match=f"model: {tmp_path / 'model.zip'} is not an SB3 checkpoint"):
        attacked = ConstantEnv(vector_space(2), np.zeros(2, np.float32))
        AdversarialObservationWrapper(attacked, tmp_path / "model.zip", 1.0)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Discrete(3), "only float Boxes and images"),
        (spaces.Box(0, 9, (2,), np.int64), "only float Boxes and images"),
        (spaces.Tuple([VECTOR]), "only float Boxes and images"),
        (TwoEntries("position", "image").observation_space, r"\['image', 'position'\]: name the one to attack with key"),
        (spaces.Dict(mode=spaces.Discrete(3)), r"that can be perturbed .* are \[\]"),
    ],
)
def test_a_space_that_cannot_be_attacked_is_refused(space, message):
    with pytest.raises(InputError, match=message):
        AdversarialObservationWrapper(ConstantEnv(space, None), two_action_policy(), 1.0)


def test_an_observation_that_is_not_finite_is_refused():
    with pytest.raises(InputError, match="not finite"):
        attacked_constant(observation=(np.nan, 0)).reset()


def test_attacks_on_scores_refuse_continuous_actions_and_name_those_that_do_not():
    model = PPO("MlpPolicy", gym.make("Pendulum-v1"), device="cpu", n_steps=2, batch_size=2)
    with pytest.raises(InputError, match=r"those of a policy with discrete actions.*use random, mad, critic, robust-sarsa"):
        AdversarialObservationWrapper(gym.make("Pendulum-v1"), model, 1.0)


def test_a_second_adversary_is_refused_as_their_budgets_would_add_up():
    for between in (lambda env: env, lambda env: gym.wrappers.TimeLimit(env, 3)):
        with pytest.raises(InputError, match="has an adversary already, and their budgets would add up"):
            AdversarialObservationWrapper(between(attacked_constant()), two_action_policy(), 1.0)


@pytest.mark.parametrize(
    ("budget", "attack", "settings"),
    [
        (1e17, "pgd", {}),
        (1.0, "pgd", {"step_size": 1e-9}),
        (1.0, "random", {"multiplier": 1e5}),
        (1.0, "apgd", {"multiplier": 1e6}),
        (1e300, "pgd", {"step_size": 1e-300}),
    ],
)
def test_more_steps_than_anybody_could_wait_for_are_refused(budget, attack, settings):
    with pytest.raises(InputError, match="steps"):
        attacked_constant(budget=budget, attack=attack, attack_kwargs=settings)
