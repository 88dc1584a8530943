"""Adversaries that are trained: on small MDPs they come to the exact worst case, and never below it."""

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from scipy.special import ndtr
from stable_baselines3 import DQN, PPO
from support.attack_agents import POLE, attack, result, save_balancing
from support.attacked_envs import linear_policy, vector_space

from sb3_camp.attack_runs.adversary_training import adversary_env
from sb3_camp.attack_runs.attack_player import AttackPlayer, plays_native
from sb3_camp.attack_runs.attacked_env import attacked_frames
from sb3_camp.attacks.adversary_view import AdversaryView
from sb3_camp.attacks.norm import Norm
from sb3_camp.certification import certified_return
from sb3_camp.errors import InputError
from sb3_camp.evaluation import EvaluationEnv
from sb3_camp.evaluation.episode_plan import Chunk
from sb3_camp.learned_adversary import train_adversary

SEEN, SIGMA = 1.5, 1.0
N = 40_000
"""Episodes of a mean, so that three standard errors of it are less than 2 % of the worst case"""
NOISE = {"sb3_camp.wrappers.NoisyObservationWrapper": {"sigma": SIGMA}}


class Looks(gym.Env):
    """The state is always 1.5; 1 for each step in which the policy takes it for positive. A mistake ends the game."""

    observation_space, action_space = vector_space(1), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.full(1, SEEN, np.float32), {}

    def step(self, action):
        return np.full(1, SEEN, np.float32), float(action == 1), bool(action != 1), False, {}


class VectorLooks(VectorEnv):
    """Many of them as arrays."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, num_envs: int, max_episode_steps: int) -> None:
        self.num_envs, self.horizon = num_envs, max_episode_steps
        self.single_observation_space, self.single_action_space = Looks.observation_space, Looks.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.ended = np.zeros(self.num_envs, int), np.zeros(self.num_envs, bool)
        return np.full((self.num_envs, 1), SEEN, np.float32), {}

    def step(self, actions):
        self.t = np.where(self.ended, 0, self.t + 1)
        rewards = np.where(self.ended, 0.0, actions == 1)
        terminated = ~self.ended & (actions != 1)
        truncated = ~self.ended & (self.t == self.horizon)
        self.ended = terminated | truncated
        return np.full((self.num_envs, 1), SEEN, np.float32), rewards, terminated, truncated, {}


def worst_return(horizon: int, budget: float, n: int = 600) -> float:
    """Dynamic programming over the squared budget that is left, in n parts."""
    shifts = budget * np.sqrt(np.arange(n + 1) / n)
    value = np.zeros(n + 1)
    for _ in range(horizon):
        right = ndtr((SEEN - shifts) / SIGMA)
        value = np.array([np.min(right[: k + 1] * (1 + value[k::-1])) for k in range(n + 1)])
    return float(value[-1])


@pytest.fixture
def policy():
    """A DQN that takes what is above 0 for positive."""
    model = DQN("MlpPolicy", Looks(), buffer_size=1, policy_kwargs={"net_arch": []}, device="cpu")
    model.policy.load_state_dict(linear_policy(np.array([[-1.0], [1.0]]), np.zeros(2)).state_dict())
    return model


@pytest.fixture
def looks():
    ids = {"entry_point": Looks, "vector_entry_point": VectorLooks, "disable_env_checker": True}
    gym.register("tests/Looks-v0", **ids)
    yield lambda horizon: EvaluationEnv(
        "tests/Looks-v0", env_kwargs={"max_episode_steps": horizon}, wrappers={"env_wrapper": [NOISE]}
    )
    del gym.registry["tests/Looks-v0"]


@pytest.mark.parametrize(
    ("threat", "horizon", "n_timesteps"),
    [
        ("episode-l2", 1, 60_000),
        pytest.param("episode-l2", 3, 120_000, marks=pytest.mark.slow),
        ("step-linf", 3, 40_000),
        pytest.param("step-l2", 3, 40_000, marks=pytest.mark.slow),
    ],
)
def test_learned_adversary_comes_to_the_exact_worst_case(looks, policy, tmp_path, threat, horizon, n_timesteps):
    environment = looks(horizon)
    frames = attacked_frames(environment, policy, tmp_path / "model.zip")
    native = plays_native(environment, frames, SIGMA, "native")
    player = AttackPlayer(policy, environment, frames, SIGMA, native, 256, True, threat)
    budget = 1.5 if threat == "episode-l2" else 0.8
    with adversary_env(player, budget, seed=0, n_envs=128) as env:
        agent = train_adversary(env, n_timesteps, seed=0, n_steps=16, batch_size=512, learning_rate=5e-3, log_std_init=0.0)
        agent.save(tmp_path / "adversary.zip")
    returns = {}
    for name, settings, b in (
        ("learned", {"agent": tmp_path / "adversary.zip", "view": player.view()}, budget),
        ("pgd", {}, 0.0),
    ):
        with player.opened(name, settings, b) as play:
            returns[name] = play(Chunk(N, 2**30 + 7), lambda: None)
    mean, error = returns["learned"].episodes.returns.mean(), 3 * returns["learned"].episodes.returns.std() / N**0.5
    # With a bound on each step, the most at each is the worst
    at_once = sum(ndtr((SEEN - budget) / SIGMA) ** k for k in range(1, horizon + 1))
    exact = worst_return(horizon, budget) if threat == "episode-l2" else at_once
    assert exact - error < mean < 1.05 * exact + error
    assert np.all(returns["learned"].budget_spent <= budget)
    radius = budget if threat == "episode-l2" else budget * horizon**0.5
    (certified,) = certified_return(returns["pgd"].episodes.returns, SIGMA, [radius])
    assert certified < exact and mean > certified


def test_perturbations_stay_within_what_is_left_whatever_the_adversary_wants():
    rng = np.random.default_rng(0)
    for image in (False, True):
        view = AdversaryView((2, 3), image, 0.5, 100)
        frames = (
            rng.integers(0, 256, (200, 2, 3)).astype(np.uint8) if image else rng.normal(size=(200, 2, 3)).astype(np.float32)
        )
        left = rng.choice([0.0, 1e-9, 0.3, 40.0], 200)
        actions = rng.uniform(-10, 10, (200, 7)).astype(np.float32)
        actions[:20] = 0
        received, norms = view.perturbed(actions, frames, left)
        measured = np.linalg.norm((received.astype(float) - frames.astype(float)).reshape(200, -1), axis=1)
        assert received.dtype == frames.dtype and np.all(measured <= left)
        np.testing.assert_allclose(norms, measured, rtol=1e-9, atol=1e-12)
        assert view.observation_space.contains(view.observations(frames, left, np.arange(200))[5])


@pytest.mark.parametrize("threat", ["step-l2", "step-linf"])
def test_perturbations_stay_within_the_bound_of_each_step_and_come_to_it(threat):
    rng = np.random.default_rng(0)
    order = 2 if threat == "step-l2" else np.inf
    for image in (False, True):
        view = AdversaryView((2, 3), image, 0.5, 100, Norm.of(threat), per_step=True)
        frames = rng.normal(size=(200, 2, 3)).astype(np.float32)
        if image:
            frames = rng.integers(0, 256, (200, 2, 3)).astype(np.uint8)
        left = rng.choice([0.0, 1.0, 40.0] if image else [0.0, 1e-9, 0.3, 40.0], 200)
        actions = rng.uniform(-10, 10, (200, *view.action_space.shape)).astype(np.float32)
        received, norms = view.perturbed(actions, frames, left)
        added = (received.astype(float) - frames.astype(float)).reshape(200, -1)
        measured = np.linalg.norm(added, order, axis=1)
        assert received.dtype == frames.dtype and np.all(measured <= left)
        np.testing.assert_allclose(norms, measured, rtol=1e-9, atol=1e-12)
        if not image:
            assert np.all(measured[left > 1e-3] > 0.9 * left[left > 1e-3]), "an action beyond the bound is cut off at it"
        _, idle = view.perturbed(np.tile(view.idle_action, (200, 1)), frames, left)
        assert not idle.any()


def test_command_trains_an_adversary_for_a_bound_on_each_step(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sb3_camp.learned_adversary.training._STEPS_PER_UPDATE", 256)
    model = save_balancing(tmp_path / "agent.zip")
    common = ("--model", model, "--sigma", 0.3, "-n", 20, "--attack", "learned", "--threat", "step-linf")
    trained = ("--epsilon", 0, 0.5, "--adversary-timesteps", 512, "-o", tmp_path / "a")
    assert attack(*common, *trained, env="CartPole-v1") == 0
    content = result(tmp_path / "a")
    assert content["threat"] == "step-linf" and len(content["adversary_sha256"]) == 64
    assert content["budgets"][0]["max_spent"] == 0 < content["budgets"][1]["max_spent"] <= 0.5
    again = ("--epsilon", 0.25, "--adversary", tmp_path / "a" / "adversary.zip", "-o", tmp_path / "b")
    assert attack(*common, *again, env="CartPole-v1") == 0
    capsys.readouterr()
    # An adversary of another threat model has another action
    other = ("--attack", "learned", "--adversary", tmp_path / "a" / "adversary.zip", "-o", tmp_path / "c")
    assert attack("--model", model, "--sigma", 0.3, "-n", 2, *other, env="CartPole-v1") == 2
    assert "its action_space is" in capsys.readouterr().err
    assert attack(*common, "--epsilon", 0, "-o", tmp_path / "d", env="CartPole-v1") == 2
    assert "needs --epsilon above 0" in capsys.readouterr().err


def test_a_resumed_attack_does_not_take_an_adversary_that_was_trained_for_something_else(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sb3_camp.learned_adversary.training._STEPS_PER_UPDATE", 64)
    model = save_balancing(tmp_path / "agent.zip")
    common = ("--model", model, "--sigma", 0.3, "-n", 4, "--attack", "learned", "-o", tmp_path / "a", "--resume")

    def trained(*arguments):
        """Whether another adversary was trained, after an attack that was interrupted before its first episodes."""
        (tmp_path / "a" / "attack.json").unlink(missing_ok=True)
        assert attack(*common, *arguments, env=POLE) == 0
        return "Training an adversary" in capsys.readouterr().out

    assert trained("--budget", 0.5, "--adversary-timesteps", 64)
    assert not trained("--budget", 0.5, "--adversary-timesteps", 64)
    assert not trained("--budget", 0, 0.5, "--adversary-timesteps", 64), "the largest is the same"
    assert trained("--budget", 1, "--adversary-timesteps", 64)
    assert trained("--budget", 1, "--adversary-timesteps", 128)
    assert trained("--threat", "step-linf", "--epsilon", 1, "--adversary-timesteps", 128)
    (tmp_path / "a" / "adversary.trained_for.json").unlink()
    assert not trained("--threat", "step-linf", "--epsilon", 1, "--adversary-timesteps", 128), "as of earlier versions"


def test_game_of_single_envs_gives_minus_the_rewards_of_an_episode_at_its_end(looks, policy, tmp_path):
    environment = looks(4)
    frames = attacked_frames(environment, policy, tmp_path / "model.zip")
    for native in (False, True):
        player = AttackPlayer(policy, environment, frames, SIGMA, native, 8, True)
        with adversary_env(player, 1.0, seed=3, n_envs=8) as env:
            observations, totals = env.reset(), np.zeros(8)
            assert np.all(observations[:, 2] == 0) and np.all(observations[:, 1] <= 1) and np.any(observations[:, 1] == 1)
            sums = []
            actions = np.tile(np.float32([-1, -10]), (8, 1))  # spends next to nothing
            for _ in range(400):
                observations, rewards, dones, _ = env.step(actions)
                totals += rewards
                sums += totals[dones].tolist()
                totals[dones] = 0
                assert np.all(observations[dones, 2] == 0)
            assert set(sums) == {0.0, -1.0, -2.0, -3.0, -4.0}
            assert sums == [-value for value in env.returns]
            # Right with probability 0.933 at each step
            assert np.mean(sums) == pytest.approx(-sum(ndtr(SEEN) ** k for k in range(1, 5)), abs=0.25)


def test_adversary_of_another_task_is_refused(looks, policy, tmp_path):
    environment = looks(1)
    player = AttackPlayer(policy, environment, attacked_frames(environment, policy, tmp_path), SIGMA, True, 8, True)
    PPO("MlpPolicy", "Pendulum-v1", n_steps=8, batch_size=8, device="cpu").save(tmp_path / "other.zip")
    with (
        pytest.raises(InputError, match="its action_space is"),
        player.opened("learned", {"agent": tmp_path / "other.zip", "view": player.view()}, 1.0),
    ):
        pass


def test_command_trains_an_adversary_attacks_with_it_and_uses_it_again(tmp_path, capsys):
    model = save_balancing(tmp_path / "agent.zip")
    common = ("--model", model, "--sigma", 0.3, "-n", 30, "--attack", "learned", "--budget", 0, 2)
    th.manual_seed(0)
    assert attack(*common, "--adversary-timesteps", 500, "-o", tmp_path / "a", env="CartPole-v1") == 0
    content = result(tmp_path / "a")
    assert content["native_vec_env"] and len(content["adversary_sha256"]) == 64
    assert content["budgets"][1]["max_spent"] <= 2 and content["budgets"][1]["mean_spent"] > 0
    again = ("--adversary", tmp_path / "a" / "adversary.zip", "-o", tmp_path / "b")
    assert attack(*common, *again, env="CartPole-v1") == 0
    assert (tmp_path / "a" / "attack.csv").read_bytes() == (tmp_path / "b" / "attack.csv").read_bytes()
    capsys.readouterr()
    for arguments, message in (
        (("--attack", "pgd", "--adversary", model), "for --attack learned"),
        (("--attack", "learned", "--adversary", model), "its observation_space is"),
        (("--attack", "learned", "--budget", 0), "needs --budget above 0"),
        (("--attack", "learned", "--adversary-timesteps", 0), "at least 1"),
    ):
        assert attack("--model", model, "-n", 2, "-o", tmp_path / "c", *arguments, env="CartPole-v1") == 2
        assert message in capsys.readouterr().err
