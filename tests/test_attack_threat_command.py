"""The attack command in other threat models, on continuous actions, through the noise, and with a plan for when to spend."""

import json
import math

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from stable_baselines3 import DQN, PPO, TD3
from support.attack_agents import TwoSignals, attack, column, result, save_balancing, write_certificate
from support.attacked_envs import vector_space
from support.command_errors import error_line

from sb3_camp.attack_runs import read_attack
from sb3_camp.attacks.robust_sarsa import LearnedCritic
from sb3_camp.plot import main as plot

PULL, TOLL, ONE_PULL = "tests/Pull-v0", "tests/Toll-v0", "tests/OnePull-v0"


class Pull(gym.Env):
    """
    Ten steps; the observation is three random numbers, the reward minus the square of action + first number. What is known of
    the worst perturbation: the policy -s[0] is moved by as much as its first sensor is.
    """

    observation_space = vector_space(3)
    action_space = gym.spaces.Box(-50, 50, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._observed(), {}

    def step(self, action):
        self.t += 1
        reward = -float((action[0] + self.state[0]) ** 2)
        return self._observed(), reward, False, self.t == 10, {}

    def _observed(self):
        self.state = self.np_random.normal(size=3).astype(np.float32)
        return self.state


class Toll(gym.Env):
    """
    Ten steps in which action 1 earns 0.05, then ten in which it earns 5. The observation (0.5, k) tells which, and a policy
    that takes action 1 where the first entry is positive is turned by a perturbation of norm 0.5, always.
    """

    observation_space = vector_space(2)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._observed(), {}

    def step(self, action):
        reward = (0.05 if self.t < 10 else 5.0) * float(action)
        self.t += 1
        return self._observed(), reward, False, self.t == 20, {}

    def _observed(self):
        return np.array([0.5, float(self.t >= 10)], np.float32)


for name, env in ((PULL, Pull), (TOLL, Toll)):
    gym.register(name, entry_point=lambda env=env: env(), max_episode_steps=10 if env is Pull else 20)
gym.register(ONE_PULL, entry_point=Pull, max_episode_steps=1)


@pytest.fixture(scope="module")
def puller(tmp_path_factory):
    """A PPO whose greedy action is -s[0]."""
    model = PPO("MlpPolicy", Pull(), policy_kwargs={"net_arch": []}, device="cpu")
    with th.no_grad():
        model.policy.action_net.weight.copy_(th.tensor([[-1.0, 0.0, 0.0]]))
        model.policy.action_net.bias.zero_()
        model.policy.value_net.weight.copy_(th.tensor([[1.0, 0.0, 0.0]]))
    path = tmp_path_factory.mktemp("puller") / "puller.zip"
    model.save(path)
    return path


def pull(puller, *arguments):
    return attack("--model", puller, "-n", 8, "--n-envs", 4, *arguments, env=PULL, algo="ppo")


@pytest.mark.parametrize("threat", ["step-l2", "step-linf"])
@pytest.mark.parametrize("name", ["mad", "critic"])
def test_a_bound_on_each_step_is_used_at_each_step(puller, tmp_path, threat, name, capsys):
    assert pull(puller, "--attack", name, "--threat", threat, "--epsilon", 0, 0.3, "-o", tmp_path) == 0
    content = read_attack(tmp_path / "attack.json")
    assert content.settings.threat == threat and content.settings.attack == name
    clean, attacked = content.budgets
    assert clean.mean_return == pytest.approx(0, abs=1e-9)
    assert attacked.mean_return == pytest.approx(-10 * 0.3**2, rel=1e-2), "each of ten steps moves the action by 0.3"
    assert 0.29 < attacked.max_spent <= 0.3 and np.all(column(tmp_path, "budget_spent", 0.3) <= 0.3)
    assert "epsilon" in capsys.readouterr().out


def test_random_loses_less_than_what_looks_for_the_action(puller, tmp_path):
    arguments = ("--threat", "step-l2", "--epsilon", 0.3)
    assert pull(puller, "--attack", "random", *arguments, "-o", tmp_path) == 0
    # A third of the square of a random direction falls to each of three sensors
    assert result(tmp_path)["budgets"][0]["mean_return"] == pytest.approx(-10 * 0.3**2 / 3, rel=0.4)


@pytest.mark.parametrize("spend, steps", [("even", 10), ("early", 1)])
def test_the_budget_of_an_episode_is_spent_evenly_or_at_once(puller, tmp_path, spend, steps):
    assert pull(puller, "--attack", "critic", "--budget", 0.5, "--spend", spend, "-o", tmp_path) == 0
    one = result(tmp_path)["budgets"][0]
    if spend == "even":
        assert one["mean_flips"] == 10
    assert 0.499 < one["max_spent"] <= 0.5 and one["mean_return"] == pytest.approx(-(0.5**2), rel=1e-2)
    assert (result(tmp_path)["spend"], result(tmp_path)["spread"]) == (spend, steps)


def test_robust_sarsa_learns_which_actions_are_bad_and_is_used_again(puller, tmp_path, monkeypatch):
    for name, value in (("N_STEPS", 4000), ("_UPDATES", 800)):
        monkeypatch.setattr(f"sb3_camp.attack_runs.critic_training.{name}", value)
    arguments = ("--attack", "robust-sarsa", "--threat", "step-l2", "--epsilon", 20)
    assert pull(puller, *arguments, "-o", tmp_path / "one") == 0
    lost = result(tmp_path / "one")["budgets"][0]["mean_return"]
    assert lost < -0.5 * 10 * 20**2, "the value is a parabola, whose slope at the best action a little exploring shows"
    critic = tmp_path / "one" / "critic.npz"
    assert pull(puller, *arguments, "--critic", critic, "-o", tmp_path / "two") == 0
    assert result(tmp_path / "two")["budgets"] == result(tmp_path / "one")["budgets"]
    assert result(tmp_path / "two")["critic_sha256"] == result(tmp_path / "one")["critic_sha256"] is not None
    np.savez(tmp_path / "bad.npz", mean=np.zeros(3))
    assert pull(puller, *arguments, "--critic", tmp_path / "bad.npz", "-o", tmp_path / "three") == 2


def test_robust_sarsa_learns_from_episodes_of_one_step(puller, tmp_path, monkeypatch):
    for name, value in (("N_STEPS", 1000), ("_UPDATES", 400)):
        monkeypatch.setattr(f"sb3_camp.attack_runs.critic_training.{name}", value)
    arguments = ("--model", puller, "-n", 8, "--attack", "robust-sarsa", "--threat", "step-l2", "--epsilon", 20)
    assert attack(*arguments, "-o", tmp_path, env=ONE_PULL, algo="ppo") == 0
    (one,) = result(tmp_path)["budgets"]
    assert one["mean_steps"] == 1 and one["mean_return"] < -0.5 * 20**2


def test_robust_sarsa_and_a_pilot_play_with_dict_observations(tmp_path, monkeypatch):
    for name, value in (("N_STEPS", 200), ("_UPDATES", 20)):
        monkeypatch.setattr(f"sb3_camp.attack_runs.critic_training.{name}", value)
    model = DQN("MultiInputPolicy", TwoSignals(), buffer_size=1, seed=0, device="cpu")
    model.save(tmp_path / "two.zip")
    common = ("--model", tmp_path / "two.zip", "-n", 4, "--n-envs", 2, "--key", "signal", "--budget", 0.5, "--step-size", 0.1)
    for name, more in (("robust-sarsa", ()), ("pgd", ("--spend", "pilot"))):
        assert attack(*common, "--attack", name, *more, "-o", tmp_path / name, env="tests/TwoSignals-v1") == 0
        assert result(tmp_path / name)["key"] == "signal"


@pytest.mark.parametrize("name", ["robust-sarsa", "learned"])
def test_a_step_limit_outside_of_the_noise_gives_no_observation_too_many(tmp_path, monkeypatch, name):
    """As of this package's own tasks: the adversary inside has to know that an episode is cut off."""
    for module, changed, value in (
        ("attack_runs.critic_training", "N_STEPS", 1500),
        ("attack_runs.critic_training", "_UPDATES", 20),
        ("learned_adversary.training", "_STEPS_PER_UPDATE", 1600),
    ):
        monkeypatch.setattr(f"sb3_camp.{module}.{changed}", value)
    model = save_balancing(tmp_path / "agent.zip")
    common = ("--model", model, "--attack", name, "--budget", 0, 0.01, "-n", 4, "--n-envs", 2, "-o", tmp_path / "out")
    more = ("--adversary-timesteps", 1600) if name == "learned" else ()
    assert attack(*common, *more, env="tests/NoisyPole-v0") == 0
    assert result(tmp_path / "out")["budgets"][0]["mean_steps"] == 60, "the episodes are cut off"


@pytest.mark.parametrize("shape", [(7, 1, False), (3, 2, False), (3, 1, True)], ids=str)
def test_a_critic_that_was_learned_for_another_policy_is_refused(puller, tmp_path, capsys, shape):
    np.savez(tmp_path / "other.npz", **LearnedCritic(*shape).arrays())
    arguments = ("--attack", "robust-sarsa", "--budget", 1, "--critic", tmp_path / "other.npz", "-o", tmp_path)
    assert pull(puller, *arguments) == 2
    assert "this one has 3 inputs and 1 dimensions of actions" in error_line(capsys)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--critic", "none.npz"), "none.npz"),
        (("--adversary", "none.zip"), "none.zip"),
        (("--step-size", 1e-9), "more than 1000000 steps"),
        (("--eot", 2), "no noise whose draws"),
    ],
    ids=str,
)
def test_all_attacks_refuse_what_one_refuses_before_anything_is_played(puller, tmp_path, capsys, arguments, message):
    assert pull(puller, "--attack", "all", "--budget", 0, 1, *arguments, "-o", tmp_path / "out") == 2
    assert message in error_line(capsys)
    assert not list(tmp_path.rglob("attack*"))


def test_a_policy_is_attacked_by_what_it_serves_and_the_rest_is_named(puller, tmp_path, capsys):
    assert pull(puller, "--attack", "pgd", "-o", tmp_path) == 2
    assert "use random, mad, critic, robust-sarsa, transfer, learned" in error_line(capsys)
    model = TD3("MlpPolicy", Pull(), buffer_size=1, device="cpu", seed=0)
    model.save(tmp_path / "td3.zip")
    arguments = ("--threat", "step-linf", "--epsilon", 0.1, "-n", 4, "--attack", "critic", "-o", tmp_path / "td3")
    assert attack("--model", tmp_path / "td3.zip", *arguments, env=PULL, algo="td3") == 0
    assert result(tmp_path / "td3")["budgets"][0]["max_spent"] > 0.09


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("--threat", "step-l2"), "--epsilon"),
        (("--threat", "step-l2", "--epsilon", 1, "--budget", 1), "no --budget"),
        (("--epsilon", 1), "step-l2 and step-linf"),
        (("--threat", "step-linf", "--epsilon", "-1"), "from 0"),
        (("--threat", "step-linf", "--epsilon", 1, "--spend", "even"), "--spend"),
        (("--attack", "critic", "--eot", 4), "--eot"),
        (("--attack", "critic", "--critic", "x.npz"), "robust-sarsa"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(puller, tmp_path, capsys, arguments, words):
    assert pull(puller, *arguments, "-o", tmp_path) == 2
    assert words in error_line(capsys)


def test_the_certificate_of_an_episode_is_not_about_bounds_on_steps_and_no_axis_holds_both(tmp_path, capsys):
    agent = save_balancing(tmp_path / "agent.zip")
    common = ("--model", agent, "-n", 10, "--sigma", 0.1)
    assert attack(*common, "--budget", 0.5, "-o", tmp_path / "episode") == 0
    certificate = tmp_path / "certification" / "certificate.json"
    write_certificate(certificate, result(tmp_path / "episode"), [59.0, 58.0, 57.0])
    assert attack(*common, "--threat", "step-linf", "--epsilon", 0.5) == 0
    assert "a bound on each observation, while a certificate is about" in capsys.readouterr().out
    step = tmp_path / "attacks" / "pgd_step-linf_sigma0.1" / "attack.json"
    assert plot(["both", str(certificate), str(step), "-o", str(tmp_path / "both.png")]) == 2
    assert "step-linf" in capsys.readouterr().err
    assert plot(["attack", str(tmp_path / "episode"), str(step), "-o", str(tmp_path / "a.png")]) == 2
    assert "one axis" in capsys.readouterr().err
    assert plot(["attack", str(step), "-o", str(tmp_path / "a.png")]) == 0
    assert "epsilon" in capsys.readouterr().out
    for key in ("threat", "eot", "spend", "spread", "sensor_sigma", "critic_sha256", "transfer_sha256"):
        content = result(tmp_path / "episode")
        del content[key]
        (tmp_path / "episode" / "attack.json").write_text(json.dumps(content))
        assert read_attack(tmp_path / "episode" / "attack.json").settings.threat == "episode-l2", "as older versions wrote it"


@pytest.mark.slow
def test_a_pilot_finds_the_steps_that_are_worth_the_budget(tmp_path):
    model = DQN("MlpPolicy", Toll(), buffer_size=1, policy_kwargs={"net_arch": [2]}, device="cpu")
    first, _, last = model.policy.q_net.q_net
    with th.no_grad():
        # Q = (0, 0.1 x + 9.9 relu(x + 100 (k - 1))) for x > 0
        first.weight.copy_(th.tensor([[1.0, 0.0], [1.0, 100.0]]))
        first.bias.copy_(th.tensor([10.0, -100.0]))
        last.weight.copy_(th.tensor([[0.0, 0.0], [0.1, 9.9]]))
        last.bias.copy_(th.tensor([0.0, -1.0]))
    model.save(tmp_path / "toll.zip")
    left = {}
    for spend in ("early", "pilot"):
        folder = tmp_path / spend
        arguments = ("--budget", 1, "-n", 4, "--spend", spend, "-o", folder)
        assert attack("--model", tmp_path / "toll.zip", *arguments, env=TOLL) == 0
        content = result(folder)
        assert content["budgets"][0]["max_spent"] <= 1
        left[spend] = content["budgets"][0]["mean_return"]
    assert left["early"] == pytest.approx(50.5 - 4 * 0.05) and left["pilot"] == pytest.approx(50.5 - 3 * 5)


def test_averaging_over_the_noise_finds_what_the_noiseless_gradient_does_not(tmp_path):
    """Close to the observation the value is flat; only what the noise adds shows where it falls."""
    model = DQN("MlpPolicy", Toll(), buffer_size=1, policy_kwargs={"net_arch": [1]}, device="cpu")
    first, _, last = model.policy.q_net.q_net
    with th.no_grad():
        # Q1 - Q0 = 0.35 - relu(-(x - 0.2)): the gap falls only where x < 0.2, and x is 0.5
        first.weight.copy_(th.tensor([[-1.0, 0.0]]))
        first.bias.fill_(0.2)
        last.weight.copy_(th.tensor([[1.0], [0.0]]))
        last.bias.copy_(th.tensor([0.0, 0.35]))
    model.save(tmp_path / "flat.zip")
    spent = {}
    for draws in (0, 16):
        arguments = ("--budget", 4, "-n", 8, "--sigma", 0.5, "--step-size", 0.05, "--eot", draws, "-o", tmp_path / str(draws))
        assert attack("--model", tmp_path / "flat.zip", *arguments, env=TOLL) == 0
        content = result(tmp_path / str(draws))
        assert content["eot"] == draws
        spent[draws] = content["budgets"][0]["mean_flips"]
    assert spent[0] == 0 and spent[16] > 5


@pytest.mark.slow
def test_sensors_are_attacked_in_units_of_their_sigma(puller, tmp_path):
    sigma = ("--sigma", 0.5, 0.1, 2)
    arguments = ("--attack", "critic", "--threat", "step-l2", "--epsilon", 0.6, *sigma)
    assert pull(puller, *arguments, "-n", 300, "-o", tmp_path) == 0
    content = result(tmp_path)
    assert content["sensor_sigma"] == [0.5, 0.1, 2.0] and content["sigma"] == 1
    assert 0.599 < content["budgets"][0]["max_spent"] <= 0.6
    # The noise of the first sensor alone costs 0.5^2 at each step, the attack (0.6 * 0.5)^2 besides
    assert content["budgets"][0]["mean_return"] == pytest.approx(-10 * (0.25 + 0.09), rel=0.12)
    assert math.isclose(content["spread"], 1)


@pytest.mark.slow
def test_an_agent_behind_its_normaliser_is_attacked_through_it_in_raw_units(puller, tmp_path, capsys):
    noise = "{'sb3_camp.wrappers.NoisyObservationWrapper': {'sigma': 0.1}}"
    normaliser = "{'sb3_camp.wrappers.FrozenNormalizeObservation': {'mean': [0, 1, 2], 'var': [0.25, 4, 9], 'epsilon': 0}}"
    wrappers = ("-params", f"env_wrapper:[{noise}, {normaliser}]")
    arguments = ("--attack", "critic", "--threat", "step-l2", "--epsilon", 0, 0.3, "--sigma", 0, "-n", 200)
    assert pull(puller, *arguments, *wrappers, "-o", tmp_path) == 0
    clean, attacked = result(tmp_path)["budgets"]
    # The action is -2 s[0], and with s[0] shown 0.3 lower it is 0.6 higher: (s[0] - 0.6)^2 is lost in place of s[0]^2
    assert clean["mean_return"] - attacked["mean_return"] == pytest.approx(10 * 0.6**2, rel=0.25)
    assert attacked["max_spent"] == pytest.approx(0.3, rel=1e-4)
    assert pull(puller, *arguments, "--sigma", 0.1, 0.1, 0.1, *wrappers, "-o", tmp_path / "other") == 2
    assert "another sigma" in error_line(capsys)
