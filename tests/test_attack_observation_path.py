"""What may stand between the adversary and the policy: nothing that changes what the policy sees of the attacked frames."""

import re

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import wrappers as gym_wrappers
from rl_zoo3.wrappers import DelayedRewardWrapper
from stable_baselines3 import DQN
from stable_baselines3.common import atari_wrappers
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecEnvWrapper
from support import attack_wrappers
from support.attack_agents import NOISE, POLE, attack, column, result, save_balancing
from support.command_errors import error_line

from sb3_camp.attack_runs.attacked_env import attacked_environment, attacked_frames
from sb3_camp.attack_runs.observation_path import ObservationPathCheck, check_observation_path
from sb3_camp.errors import InputError
from sb3_camp.evaluation import EvaluationEnv
from sb3_camp.wrappers.chain import wrapper_chain

pytest_plugins = ["support.attack_fixtures"]

NOISY = {"sb3_camp.wrappers.NoisyObservationWrapper": {"sigma": 0.1}}


@pytest.fixture(scope="module")
def stacked_agent(tmp_path_factory):
    return save_balancing(tmp_path_factory.mktemp("stacked_agent") / "agent.zip", n_stack=3)


@pytest.mark.parametrize("sigma", [0, 0.1])
@pytest.mark.parametrize(
    ("wrapper", "name"),
    [
        ("'rl_zoo3.wrappers.FrameSkip'", "FrameSkip"),
        ("{'stable_baselines3.common.atari_wrappers.MaxAndSkipEnv': {'skip': 2}}", "MaxAndSkipEnv"),
        ("{'gymnasium.wrappers.MaxAndSkipObservation': {'skip': 2}}", "MaxAndSkipObservation"),
        ("'support.attack_wrappers.Scaled'", "Scaled"),
        ("'support.attack_wrappers.Scaled', 'gymnasium.wrappers.FlattenObservation'", "Scaled"),
        ("'rl_zoo3.wrappers.MaskVelocityWrapper'", "MaskVelocityWrapper"),
    ],
)
def test_what_changes_frames_outside_of_the_noise_is_refused_by_name(wrapper, name, sigma, agent, tmp_path, capsys):
    common = ("--model", agent, "-n", 2, "--budget", 1, "--sigma", sigma, "-o", tmp_path / "out")
    assert attack(*common, "-params", f"env_wrapper:[{NOISE}, {wrapper}]", env="CartPole-v1") == 2
    line = error_line(capsys)
    assert re.search(f"{name} (is|stands) between the (adversary|smoothing noise) and the policy", line)
    assert "inside of the noise" in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["VecScaled", "StackOfOwn"])
def test_vec_env_wrappers_that_may_change_frames_are_refused_by_name(name, agent, stacked_agent, tmp_path, capsys):
    wrapper = "'support.attack_wrappers.VecScaled'"
    if name == "StackOfOwn":
        wrapper = "{'support.attack_wrappers.StackOfOwn': {'n_stack': 3}}"
    model = agent if name == "VecScaled" else stacked_agent
    assert attack("--model", model, "-n", 2, "-o", tmp_path / "out", "-params", f"vec_env_wrapper:{wrapper}") == 2
    line = error_line(capsys)
    assert f"{name} is between the adversary and the policy" in line and "env_wrapper" in line


def test_resets_of_atari_that_play_are_refused_between_adversary_and_policy():
    class Bare(gym.Env):
        observation_space = gym.spaces.Box(0, 255, (4, 4, 1), np.uint8)
        action_space = gym.spaces.Discrete(3)

        def get_action_meanings(self):
            return ["NOOP", "FIRE", "LEFT"]

    for wrapper in ("FireResetEnv", "NoopResetEnv", "EpisodicLifeEnv", "WarpFrame"):
        env = getattr(atari_wrappers, wrapper)(Bare())
        with pytest.raises(InputError, match=f"{wrapper} is between"):
            check_observation_path([env])


def test_wrappers_that_leave_observations_alone_are_let_through():
    env = gym.make("CartPole-v1", disable_env_checker=False)  # order, checker and time limit
    for wrapper in (
        attack_wrappers.Halved,
        attack_wrappers.Swapped,
        attack_wrappers.Named,
        atari_wrappers.ClipRewardEnv,
        Monitor,
        DelayedRewardWrapper,
        gym_wrappers.RecordEpisodeStatistics,
        gym_wrappers.NormalizeReward,
    ):
        env = wrapper(env)
    chain = list(wrapper_chain(env))
    assert len(chain) == 11
    check_observation_path(chain)


def test_reward_wrappers_outside_of_the_noise_change_no_attack(agent, tmp_path):
    common = ("--model", agent, "-n", 6, "--budget", 0.3)
    for folder, wrappers in (("a", ""), ("b", ", 'support.attack_wrappers.Halved', 'support.attack_wrappers.Named'")):
        assert attack(*common, "-o", tmp_path / folder, "-params", f"env_wrapper:[{NOISE}{wrappers}]") == 0
    assert (tmp_path / "a" / "attack.csv").read_bytes() == (tmp_path / "b" / "attack.csv").read_bytes()


@pytest.mark.parametrize(
    "wrapper",
    [
        "'stable_baselines3.common.vec_env.VecMonitor'",
        "{'stable_baselines3.common.vec_env.VecNormalize': {'norm_obs': False}}",
        "'stable_baselines3.common.vec_env.VecCheckNan'",
    ],
)
def test_vec_env_wrappers_that_leave_observations_alone_change_no_attack(wrapper, agent, tmp_path):
    common = ("--model", agent, "-n", 6, "--budget", 0.3)
    assert attack(*common, "-o", tmp_path / "a") == 0
    assert attack(*common, "-o", tmp_path / "b", "-params", f"vec_env_wrapper:{wrapper}") == 0
    assert (tmp_path / "a" / "attack.csv").read_bytes() == (tmp_path / "b" / "attack.csv").read_bytes()


def test_an_adversary_of_the_environments_own_is_refused(agent, tmp_path, capsys):
    own = f"{{'sb3_camp.AdversarialObservationWrapper': {{'model': '{agent}', 'budget': 0.1}}}}"
    for wrappers in (own, f"{NOISE}, {own}", f"{own}, {NOISE}"):
        assert attack("--model", agent, "-n", 2, "-o", tmp_path, "-params", f"env_wrapper:[{wrappers}]") == 2
        assert re.search("has an adversary of its own|AdversarialObservationWrapper stands", error_line(capsys))


class _Spoiled(VecEnvWrapper):
    """Lets the policy see something else from a certain step on, or hides a frame."""

    def __init__(self, venv, at, how):
        super().__init__(venv)
        self.at, self.how, self.t = at, how, 0

    def reset(self):
        return self.venv.reset()

    def step_wait(self):
        self.t += 1
        observations, *others = self.venv.step_wait()
        if self.t == self.at and self.how == "shifted":
            observations = observations + np.float32(1e-3)
        elif self.t == self.at:
            self.venv.step_async(self.venv.actions)
            observations, *others = self.venv.step_wait()
        return observations, *others


@pytest.mark.parametrize("wrappers", [{"env_wrapper": NOISY}, {"env_wrapper": NOISY, "frame_stack": 3}])
@pytest.mark.parametrize(("sigma", "how"), [(0.0, None), (0.1, None), (0.0, "shifted"), (0.0, "skipped"), (0.1, "skipped")])
def test_what_the_policy_sees_is_checked_while_it_plays(wrappers, sigma, how, agent, stacked_agent):
    path = stacked_agent if "frame_stack" in wrappers else agent
    environment, model = EvaluationEnv(POLE, wrappers=wrappers), DQN.load(path, device="cpu")
    frames = attacked_frames(environment, model, path)
    attacked = attacked_environment(environment, model, frames, sigma=sigma, budget=0.5, attack="fgsm", settings={})
    with attacked.opened(3) as env:
        checked = ObservationPathCheck(_Spoiled(env, 4, how) if how else env, model, exact=sigma == 0)
        checked.seed(0)
        observations = checked.reset()
        n_done = 0
        for t in range(1, 101):
            actions = model.predict(observations, deterministic=True)[0]
            if how and t == 4:
                with pytest.raises(InputError, match="does not see what the adversary sent"):
                    checked.step(actions)
                break
            observations, _, dones, _ = checked.step(actions)
            n_done += dones.sum()
        assert how or n_done >= 3  # through resets


def test_budgets_and_returns_of_a_noisy_task_are_played_through_the_check(stacked_agent, tmp_path):
    common = ("--model", stacked_agent, "-n", 6, "--budget", 0, 0.5, "-o", tmp_path)
    assert attack(*common, "--sigma", 0, env="tests/NoisyStackedPole-v0") == 0
    assert result(tmp_path)["sigma"] == 0 and column(tmp_path, "budget_spent", 0.5).min() > 0
