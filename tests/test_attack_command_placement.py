"""Where the attack command puts the adversary: directly inside of the noise, and inside of the frame stack."""

import numpy as np
import pytest
from gymnasium.wrappers import FrameStackObservation
from stable_baselines3 import DQN
from support.attack_agents import NOISE, POLE, STACK, attack, column, result, save_balancing

from sb3_camp.attack_runs.attacked_env import attacked_environment, attacked_frames
from sb3_camp.errors import InputError
from sb3_camp.evaluation import EpisodeSeeder, EvaluationEnv
from sb3_camp.wrappers import AdversarialObservationWrapper, BatchedAttackVecEnv, NoisyObservationWrapper
from sb3_camp.wrappers.chain import wrapper_chain

NOISY = {"sb3_camp.wrappers.NoisyObservationWrapper": {"sigma": 0.1}}
STACKING = "gymnasium.wrappers.FrameStackObservation"
STACKED = {STACKING: {"stack_size": 3}}
FLAT = "gymnasium.wrappers.FlattenObservation"


@pytest.fixture(scope="module")
def stacked_agent(tmp_path_factory):
    return save_balancing(tmp_path_factory.mktemp("agent") / "agent.zip", n_stack=3)


def opened(environment, model_path, sigma):
    model = DQN.load(model_path, device="cpu")
    frames = attacked_frames(environment, model, model_path)
    arguments = dict(sigma=sigma, budget=0.7, attack="pgd", settings={"q_threshold": 0.1})
    return attacked_environment(environment, model, frames, **arguments).opened(2)


@pytest.mark.parametrize(
    ("environment", "directly_outside", "padding"),
    [
        (EvaluationEnv("tests/NoisyStackedPole-v0"), NoisyObservationWrapper, "reset"),
        (EvaluationEnv(POLE, wrappers={"env_wrapper": [NOISY, STACKED, FLAT]}), NoisyObservationWrapper, "reset"),
        (EvaluationEnv(POLE, wrappers={"env_wrapper": NOISY, "frame_stack": 3}), NoisyObservationWrapper, "zero"),
        (EvaluationEnv("tests/NoisyPole-v0", wrappers={"frame_stack": 3}), NoisyObservationWrapper, "zero"),
        (EvaluationEnv(POLE, wrappers={"frame_stack": 3}).with_noise(0.1), NoisyObservationWrapper, "zero"),
        (EvaluationEnv(POLE, wrappers={"env_wrapper": [STACKED, FLAT]}), FrameStackObservation, "reset"),
        (EvaluationEnv(POLE, wrappers={"frame_stack": 3}), EpisodeSeeder, "zero"),
    ],
)
def test_adversary_is_inside_of_noise_and_frame_stack(environment, directly_outside, padding, stacked_agent):
    sigma = 0.1 if directly_outside is NoisyObservationWrapper else 0.0
    with opened(environment, stacked_agent, sigma) as env:
        assert isinstance(env.unwrapped, BatchedAttackVecEnv)
        for one in env.unwrapped.envs:
            chain = list(wrapper_chain(one))
            (position,) = [i for i, wrapper in enumerate(chain) if isinstance(wrapper, AdversarialObservationWrapper)]
            assert type(chain[0]) is EpisodeSeeder
            assert type(chain[position - 1]) is directly_outside
            adversary = chain[position]
            assert adversary.layout.n_stack == 3 and not adversary.layout.is_stacked
            assert adversary.budget == 0.7 and adversary.adversary.settings["q_threshold"] == 0.1
            expected = dict(zip(("n_stack", "stack_padding"), (3, padding), strict=True))
            assert {name: adversary._saved_kwargs[name] for name in expected} == expected
        # what the policy sees of an attacked frame, noise and all, is a stack whose older frames stay what they were
        env.seed(0)
        first = env.reset()
        second = env.step(np.zeros(2, dtype=int))[0]
        np.testing.assert_array_equal(second[:, :8], first[:, 4:])
        start = np.zeros_like(first[:, 8:]) if padding == "zero" else first[:, 8:]
        np.testing.assert_array_equal(first[:, 4:8], start)


def test_noise_of_the_task_is_set_where_it_is(stacked_agent):
    for sigma in (0.0, 0.3):
        with opened(EvaluationEnv("tests/NoisyStackedPole-v0"), stacked_agent, sigma) as env:
            assert env.get_attr("sigma") == [sigma, sigma]
    bare = EvaluationEnv(POLE, wrappers={"frame_stack": 3})
    with pytest.raises(InputError, match="0 smoothing noises"), opened(bare, stacked_agent, 0.3):
        pass


def test_same_attack_wherever_the_noise_is_configured(stacked_agent, tmp_path):
    common = ("--model", stacked_agent, "-n", 8, "--budget", 0.5)
    arguments = {
        "inside": (common, "tests/NoisyStackedPole-v0"),
        "sigma": ((*common, "--sigma", 0.1), "tests/NoisyStackedPole-v0"),
        "wrappers": ((*common, "-params", f"env_wrapper:[{NOISE}, {STACK}]"), POLE),
    }
    for name, (options, env) in arguments.items():
        assert attack(*options, "-o", tmp_path / name, env=env) == 0
        assert result(tmp_path / name)["sigma"] == 0.1
    contents = {(tmp_path / name / "attack.csv").read_bytes() for name in arguments}
    assert len(contents) == 1
    assert column(tmp_path / "inside", "budget_spent").min() > 0


@pytest.mark.parametrize(
    ("wrappers", "message"),
    [
        ([NOISY, {"gymnasium.wrappers.ReshapeObservation": {"shape": [2, 2]}}, FLAT], "ReshapeObservation"),
        ([NOISY, {STACKING: {"stack_size": 1}}, FLAT], "stacked twice"),
        ([NOISY, {STACKING: {"stack_size": 3, "padding_type": np.ones(4, np.float32)}}, FLAT], "padding"),
    ],
)
def test_what_the_adversary_cannot_see_through_is_an_error(wrappers, message, stacked_agent):
    n_vec_stack = 0 if message == "padding" else 3
    environment = EvaluationEnv(POLE, wrappers={"env_wrapper": wrappers, "frame_stack": n_vec_stack})
    model = DQN.load(stacked_agent, device="cpu")
    with pytest.raises(InputError, match=message):
        attacked_frames(environment, model, stacked_agent)
