"""Teachers of the Atari tasks: experts that read the emulator's memory, and networks on noisy frames that learn from them."""

import sys
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor
from support.zoo_scripts import ZOO_SCRIPTS, imported_script, run_python, status_of

import sb3_camp  # noqa: F401


@pytest.fixture(scope="module")
def experts():
    with imported_script("atari_experts") as module:
        yield module


@pytest.fixture(scope="module")
def planner(experts):
    return experts.FreewayPlanner()


def empty_road(height):
    """A memory with all cars past the chicken."""
    memory = np.zeros(128, dtype=np.uint8)
    memory[108:113], memory[113:118] = 100, 140
    memory[14] = height
    return memory


def test_on_an_empty_road_the_planner_goes_up_and_counts_the_steps_that_are_left(planner):
    for height in (174, 166, 150):
        costs = planner.costs(empty_road(height), last_action=1)
        assert costs.argmin() == 1
        assert costs[1] == -(-(178 - height) // 4), "four units a step"
        assert costs[1] < costs[0] < costs[2]


def test_the_planner_does_not_walk_into_a_car(planner):
    memory = empty_road(8)
    memory[108] = 45  # in front of the chicken, in the lowest lane
    costs = planner.costs(memory, last_action=0)
    assert costs.argmin() != 1 and costs[1] > costs[0] + 0.5


def test_repeated_actions_are_expected_as_often_as_the_emulator_repeats_them(planner):
    """Three units below the other side. The first j of four frames repeat the last action with the probability 0.25^j 0.75."""
    road = empty_road(175)
    up_after_nothing = 1 + 0.25**2  # late by two frames it is two units instead of three, and then nearly always there
    assert planner.costs(road, last_action=0)[1] == pytest.approx(up_after_nothing, abs=0.001)
    heights = [1 + 0.25**2, 1 + 0.25**3, 1 + 0.25**4]  # steps from 175, 176 and 177
    nothing_after_up = 1 + sum(0.75 * 0.25**late * steps for late, steps in enumerate(heights))
    assert planner.costs(road, last_action=1)[0] == pytest.approx(nothing_after_up, abs=0.001)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_planner_crosses_four_times_where_going_up_crosses_once_or_twice(experts, planner, seed):
    env = gym.make("camp/Freeway-v0", sigma=0)
    env.reset(seed=seed)
    emulator, last, points = env.unwrapped.ale, np.zeros(1, dtype=int), 0.0
    for _ in range(250):
        memory = emulator.getRAM()[None]
        last = planner.advise(memory, memory, last).argmax(axis=1)
        _, reward, _, stops, _ = env.step(int(last[0]))
        points += float(reward)
    assert stops and points >= 3


def test_the_ball_of_pong_arrives_where_it_bounces_to(experts):
    """Against a ball that is moved frame by frame between the walls."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        x, y, dx, dy = rng.integers(60, 120), rng.integers(60, 190), rng.integers(2, 9), rng.integers(-12, 12)
        before, memory = np.zeros((2, 128), dtype=np.uint8)
        before[[49, 54]], memory[[49, 54]] = (x - dx, np.clip(y - dy, 1, 255)), (x, y)
        speed = y - int(before[54])
        place, at, time = float(y), float(x), 0.0
        velocity = speed / 1000
        while at < 186:
            place, at, time = place + velocity, at + dx / 1000, time + 1 / 1000
            if not 44 <= place <= 207:
                velocity = -velocity
        features = experts.pong_features(memory, before)
        assert features[15] == pytest.approx(place / 100 - 1, abs=0.01) and features[16] == pytest.approx(time / 10, abs=0.01)
        assert features[17] == 1


def test_without_a_ball_nothing_flies(experts):
    features = experts.pong_features(np.zeros(128, dtype=np.uint8), np.full(128, 90, dtype=np.uint8))
    assert not features[[0, 3, 4, 17]].any()


@pytest.mark.parametrize("task", ["camp/Pong1r-v0", "camp/BankHeist-v0"])
def test_a_game_of_the_memory_ends_and_pays_as_its_task(experts, task):
    """Returns and lengths of random play, in 20 episodes of each."""
    rng = np.random.default_rng(0)

    def played(env, n):
        found = []
        for _ in range(n):
            env.reset()
            points, steps, done = 0.0, 0, False
            while not done:
                _, reward, ends, stops, _ = env.step(int(rng.integers(env.action_space.n)))
                points, steps, done = points + float(reward), steps + 1, ends or stops
            found.append((points, steps))
        return np.array(found)

    task_env = gym.make(task, sigma=0)
    task_env.reset(seed=0)
    memory_env = experts.MemoryGame(task, seed=0)
    assert memory_env.action_space.n == task_env.action_space.n
    ours, theirs = played(memory_env, 20), played(task_env, 20)
    if task == "camp/BankHeist-v0":
        assert set(ours[:, 1]) == set(theirs[:, 1]) == {250}
        error = np.hypot(ours[:, 0].std(), theirs[:, 0].std()) / np.sqrt(20)
        assert abs(ours[:, 0].mean() - theirs[:, 0].mean()) < 4 * error + 1
    else:
        assert set(np.abs(ours[:, 0])) == set(np.abs(theirs[:, 0])) == {1}
        assert 40 < np.median(ours[:, 1]) < 120 and 40 < np.median(theirs[:, 1]) < 120


class Lamps(gym.Env):
    """A bar stands where a random number in the memory says, which changes with each step."""

    observation_space = gym.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    action_space = gym.spaces.Discrete(3)

    def __init__(self, seed):
        self._random, self.ale = np.random.default_rng(seed), self

    def getRAM(self):
        return np.full(128, self._level, dtype=np.uint8)

    def _light(self):
        self._level = 80 * self._random.integers(3)
        picture = np.zeros((4, 84, 84), dtype=np.uint8)
        picture[:, self._level // 3 :][:, :20] = 255  # a bar that is somewhere else for each number
        return picture

    def reset(self, *, seed=None, options=None):
        self._steps = 0
        return self._light(), {}

    def step(self, action):
        self._steps += 1
        return self._light(), 0.0, False, self._steps == 7, {}


class ByLevel:
    def advise(self, memory, memory_before, last_actions):
        assert (last_actions < 3).all() and memory_before.shape == memory.shape == (16, 128)
        return np.eye(3, dtype=np.float32)[(memory[:, 0] // 80 + 1) % 3]


def test_a_network_learns_what_the_expert_says():
    env = VecMonitor(DummyVecEnv([lambda i=i: Lamps(i) for i in range(16)]))
    model = DQN("CnnPolicy", env, buffer_size=1, seed=0, device="cpu")
    with imported_script("atari_teacher") as teacher:
        teacher.learn_from(ByLevel(), env, model, 2048, 1, seed=0)
    frames, levels = zip(*((env.reset()[0], env.envs[0].unwrapped.getRAM()[0] // 80) for _ in range(20)), strict=True)
    wanted = (np.array(levels) + 1) % 3
    assert len(set(levels)) == 3 and model.predict(np.stack(frames), deterministic=True)[0].tolist() == wanted.tolist()
    for ours, target in zip(model.q_net.parameters(), model.q_net_target.parameters(), strict=True):
        assert torch.equal(ours, target)


@pytest.mark.parametrize(
    ("task", "options", "told"),
    [
        ("Freeway", ["-n", "15"], "-n 15: at least 16"),
        ("Freeway", ["--env-kwargs", "n_stack:2"], "the names are sigma"),
        ("Freeway", ["--epochs", "nan"], "nan: give a number above 0"),
        ("Pong1r", ["--expert-timesteps", "0"], "give a whole number, at least 1"),
        ("Pong1r", ["--expert-folder", "a_file"], "a_file"),
        ("Pong1r", [], "camp-Pong1r-v0_2000000_steps_seed0.zip: no expert that can be read"),
        ("BankHeist", [], "camp-BankHeist-v0_1500000_steps_seed0.zip: no expert of camp/BankHeist-v0"),
    ],
)
def test_what_it_cannot_use_is_said_before_anything_is_learned(task, options, told, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a_file").touch()
    (tmp_path / "experts").mkdir()
    (tmp_path / "experts" / "camp-Pong1r-v0_2000000_steps_seed0.zip").write_bytes(b"junk")
    PPO("MlpPolicy", "CartPole-v1").save(tmp_path / "experts" / "camp-BankHeist-v0_1500000_steps_seed0.zip")
    monkeypatch.setattr(sys, "argv", ["atari_teacher", "--env", f"camp/{task}-v0", *options])
    with imported_script("atari_teacher") as teacher:
        monkeypatch.setattr(teacher, "learn_from", lambda *args: pytest.fail("it learns"))
        assert status_of(teacher.main) == 2
    assert told in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "logs" / "dqn" / f"camp-{task}-v0_1").exists()


@pytest.mark.slow
def test_a_teacher_is_a_run_of_the_zoo_that_is_evaluated_and_certified(tmp_path):
    run = partial(run_python, tmp_path)
    script = str(ZOO_SCRIPTS / "atari_teacher.py")
    options = ("--env", "camp/Freeway-v0", "--env-kwargs", "sigma:25.5", "-f", "logs", "--num-threads", "1")
    run(script, *options, "-n", "32", "--epochs", "0.1")
    again = run(script, *options, "-n", "32", status=2)
    assert "is there already" in again.stderr and "Traceback" not in again.stderr
    assert "give name:value" in run(script, *options[:3], "sigma=1", "-f", "other", status=2).stderr
    run("-m", "sb3_camp.evaluate", "--algo", "dqn", "--env", "camp/Freeway-v0", "-f", "logs", "-n", "2", "--n-envs", "2")
    told = run("-m", "sb3_camp.certify", "logs/dqn/camp-Freeway-v0_1").stdout
    assert "25.5" in told
