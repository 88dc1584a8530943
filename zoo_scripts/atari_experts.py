"""
Players of the three Atari tasks that read the emulator's memory: teachers of networks that see noisy frames
(``atari_teacher.py``). They cannot be certified, and need not be: only what they teach is.

- Freeway: a planner. Cars move at constant speeds, so dynamic programming over the next 52 steps knows when to go.
- Pong1r and Bank Heist: PPO on numbers from the memory, half an hour of one core, as no picture is drawn.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol

import gymnasium as gym
import numpy as np
import torch
from ale_py import ALEInterface, LoggerMode, roms
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecMonitor, VecNormalize

import sb3_camp  # noqa: F401  registers the tasks
from sb3_camp.errors import InputError

MEMORY_SIZE = 128
_N_GAMES = 32
_MOST_IDLE_FRAMES, _FRAMES_A_STEP = 30, 4  # as Gymnasium's AtariPreprocessing
_STICKY = 0.25  # probability that a frame repeats the action before


class Expert(Protocol):
    """Knows what to do."""

    def advise(self, memory: np.ndarray, memory_before: np.ndarray, last_actions: np.ndarray) -> np.ndarray:
        """
        :param memory: Memories of the emulators, uint8, shape (n_games, 128)
        :param memory_before: The same one step earlier (that of the reset if there is none)
        :param last_actions: What was done last, 0 after a reset, shape (n_games,)
        :return: how good each action is, as probabilities, float32, shape (n_games, n_actions)
        """


class FreewayPlanner:
    """
    Crosses the road in the least time that it expects to need.

    Dynamic programming over time, height of the chicken and last action (which the emulator repeats with the probability
    0.25 in each frame). Where cars and chicken collide, and how fast each lane is, was read off 120,000 frames.
    """

    _SPEEDS = np.array([0.8, 1, 4 / 3, 2, 4, -4, -2, -4 / 3, -1, -0.8])  # of the ten cars, in units of the memory a step
    _CARS, _HEIGHT = slice(108, 118), 14  # where the memory has their places, and the height of the chicken
    _ROAD = 160
    _LOWEST, _GOAL, _N_HEIGHTS = 6, 178, 182
    _HIT_FROM, _HIT_TO = 40, 54  # places of a car that touches the chicken
    _LANE_FROM, _LANE_TO = 13, 29  # heights of the chicken in the first lane
    _LANE = 16  # from one lane to the next
    _STEPS_OF_A_HIT = 14.0  # until the chicken moves again
    _HORIZON = 52
    _SHARPNESS = 3.0  # an action that costs a step more is e^3 times less likely

    def __init__(self) -> None:
        heights = np.arange(self._N_HEIGHTS)
        lanes = self._LANE * np.arange(len(self._SPEEDS))[:, None]
        self._in_lane = ((heights >= self._LANE_FROM + lanes) & (heights <= self._LANE_TO + lanes)).astype(np.float32)
        # The first `late` of the four frames repeat the last action
        last, action, late = np.meshgrid(range(3), range(3), range(_FRAMES_A_STEP + 1), indexing="ij")
        move = np.array([0, 1, -1])  # nothing, up, down
        half, whole = (
            (move[last] * np.minimum(late, n) + move[action] * (n - np.minimum(late, n))) for n in (2, _FRAMES_A_STEP)
        )
        self._half = np.clip(heights + half[..., None], self._LOWEST, self._N_HEIGHTS - 1)
        self._whole = np.clip(heights + whole[..., None], self._LOWEST, self._N_HEIGHTS - 1)
        done = np.where(late < _FRAMES_A_STEP, action, last)[..., None]
        self._next = done * self._N_HEIGHTS + self._whole
        chances = (1 - _STICKY) * _STICKY ** np.arange(_FRAMES_A_STEP + 1)
        chances[-1] = _STICKY**_FRAMES_A_STEP
        self._chances = chances[None, None, :, None]
        steps = (self._GOAL - heights) / _FRAMES_A_STEP + _FRAMES_A_STEP
        self._at_horizon = np.repeat(np.where(heights >= self._GOAL, 0, steps)[None], 3, axis=0)

    def costs(self, memory: np.ndarray, last_action: int) -> np.ndarray:
        """
        :param memory: Memory of the emulator, uint8, shape (128,)
        :param last_action: What was done last
        :return: the expected number of steps to the other side for each of the actions "nothing", "up" and "down"
        """
        halves = np.arange(2 * self._HORIZON + 1)[:, None] / 2
        places = (memory[self._CARS].astype(float) + self._SPEEDS * halves) % self._ROAD
        danger = ((places >= self._HIT_FROM) & (places <= self._HIT_TO)).astype(np.float32) @ self._in_lane > 0
        values = self._at_horizon
        for step in reversed(range(self._HORIZON)):
            hit = danger[2 * step + 1][self._half] | danger[2 * step + 2][self._whole]
            after = np.where(hit, self._STEPS_OF_A_HIT + values[:, self._LOWEST].mean(), values.ravel()[self._next])
            costs = 1 + (after * self._chances).sum(axis=2)  # last action, action, height
            values = costs.min(axis=1)
            values[:, self._GOAL :] = 0
        found: np.ndarray = costs[last_action, :, int(memory[self._HEIGHT])]
        return found

    def advise(self, memory: np.ndarray, memory_before: np.ndarray, last_actions: np.ndarray) -> np.ndarray:
        costs = np.stack([self.costs(one, last) for one, last in zip(memory, last_actions, strict=True)])
        odds = np.exp(-self._SHARPNESS * (costs - costs.min(axis=1, keepdims=True)))
        return (odds / odds.sum(axis=1, keepdims=True)).astype(np.float32)


def pong_features(memory: np.ndarray, before: np.ndarray) -> np.ndarray:
    """
    :param memory: Memory of the emulator, uint8, shape (128,)
    :param before: The same one step earlier
    :return: places and speeds of ball and paddles, and where the ball will arrive, float32, shape (18,)
    """
    (x, y, own, other), (x_before, y_before, own_before, other_before) = (
        m[[49, 54, 51, 50]].astype(float) for m in (memory, before)
    )
    flies = x > 0 and x_before > 0 and y > 0
    dx, dy = (x - x_before, y - y_before) if flies else (0.0, 0.0)
    arrives_at, arrives_in = y, 0.0
    if dx != 0:
        low, high, paddle = 44, 207, 186 if dx > 0 else 70
        arrives_in = (paddle - x) / dx
        bounced = (y + dy * arrives_in - low) % (2 * (high - low))
        arrives_at = low + (bounced if bounced <= high - low else 2 * (high - low) - bounced)
    from_own, from_other = arrives_at - own, arrives_at - other
    places = [x / 100 - 1, y / 100 - 1, dx / 10, dy / 10, own / 100 - 1, other / 100 - 1, (own - own_before) / 20]
    places += [(other - other_before) / 20, (y - own) / 50, (y - other) / 50]
    arrival = [from_own / 20, np.clip(from_own / 100, -1, 1), from_other / 20, np.clip(from_other / 100, -1, 1)]
    arrival += [arrives_at / 100 - 1, arrives_in / 10, dx > 0]
    return np.array([flies, *places, *arrival], dtype=np.float32)


def memory_features(memory: np.ndarray, before: np.ndarray) -> np.ndarray:
    """
    :param memory: Memory of the emulator, uint8, shape (128,)
    :param before: The same one step earlier
    :return: all of it and what changed, float32, shape (256,)
    """
    changes = (memory - before).astype(np.int8).astype(np.float32)  # modulo 256, as bytes do
    return np.concatenate([memory.astype(np.float32) / 127.5 - 1, np.clip(changes / 16, -1, 1)])


class MemoryGame(gym.Env):
    """
    A task whose observation is made of the emulator's memory, with repeated actions. No picture is drawn.

    :param task: id of an Atari task of this package
    :param seed: Seed of the emulator and of the idle frames at the start
    """

    FEATURES: ClassVar[Mapping[str, Any]] = {"camp/Pong1r-v0": pong_features, "camp/BankHeist-v0": memory_features}

    def __init__(self, task: str, seed: int) -> None:
        spec = gym.spec(task)
        self._emulator = ALEInterface()
        self._emulator.setInt("random_seed", seed)
        # Also where the task repeats none: an expert must know its way wherever its pupil has gone astray
        self._emulator.setFloat("repeat_action_probability", _STICKY)
        self._emulator.loadROM(roms.get_rom_path(spec.kwargs["game"]))  # type: ignore[arg-type]
        self._emulator.setDifficulty(spec.kwargs["difficulty"])
        self._emulator.reset_game()
        self._actions = self._emulator.getMinimalActionSet()
        self._random = np.random.default_rng(seed)
        self._first_point_ends = spec.kwargs.get("first_point_ends", False)
        self._limit = spec.max_episode_steps
        self._features = self.FEATURES[task]
        self._memory = np.zeros(MEMORY_SIZE, dtype=np.uint8)
        shape = self._features(self._memory, self._memory).shape
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, shape, np.float32)
        self.action_space = gym.spaces.Discrete(len(self._actions))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        self._emulator.reset_game()
        for _ in range(self._random.integers(1, _MOST_IDLE_FRAMES + 1)):
            self._emulator.act(0)
        self._steps, self._memory = 0, self._emulator.getRAM()
        return self._features(self._memory, self._memory), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        reward = sum(self._emulator.act(self._actions[action]) for _ in range(_FRAMES_A_STEP))
        before, self._memory = self._memory, self._emulator.getRAM()
        self._steps += 1
        ends = self._emulator.game_over() or (self._first_point_ends and reward != 0)
        stops = self._limit is not None and self._steps >= self._limit
        return self._features(self._memory, before), float(reward), bool(ends), stops, {}


class MemoryPPO:
    """
    PPO on features of the memory.

    :param task: The task
    :param file: A model that :meth:`train` saved
    """

    # What differs between the games. Rewards of Bank Heist are tens of points
    _SETTINGS: ClassVar[Mapping[str, dict[str, Any]]] = {
        "camp/Pong1r-v0": dict(
            learning_rate=1e-3, n_epochs=8, ent_coef=0.005, gamma=0.995, policy_kwargs=dict(net_arch=[64, 64])
        ),
        "camp/BankHeist-v0": dict(
            learning_rate=5e-4,
            n_epochs=3,
            ent_coef=0.01,
            policy_kwargs=dict(net_arch=[256, 256], activation_fn=torch.nn.ReLU),
        ),
    }
    _SHARPNESS = 3  # of the advice, as its training left the policy more random than it plays best
    N_TIMESTEPS: ClassVar[Mapping[str, int]] = {"camp/Pong1r-v0": 2_000_000, "camp/BankHeist-v0": 1_500_000}

    def __init__(self, task: str, file: Path) -> None:
        self._features = MemoryGame.FEATURES[task]
        try:
            self._policy = PPO.load(file, device="cpu").policy
        except Exception as error:  # of any kind, for what is damaged
            raise InputError(f"{file}: no expert that can be read ({error}): remove it, to train another") from None
        memory = np.zeros(MEMORY_SIZE, dtype=np.uint8)
        if self._policy.observation_space.shape != self._features(memory, memory).shape:
            raise InputError(f"{file}: no expert of {task}: remove it, to train one")

    @classmethod
    def train(cls, task: str, file: Path, seed: int, n_timesteps: int) -> None:
        """
        :param task: The task
        :param file: Where to save the model
        :param seed: Seed of the training
        :param n_timesteps: Its steps
        """
        games: VecEnv = VecMonitor(
            DummyVecEnv([lambda i=i: MemoryGame(task, seed * _N_GAMES + i) for i in range(_N_GAMES)])  # type: ignore[misc]
        )
        settings = dict(cls._SETTINGS[task])
        if task == "camp/BankHeist-v0":
            games = VecNormalize(games, norm_obs=False, norm_reward=True)
        rate = settings.pop("learning_rate")
        model = PPO(
            "MlpPolicy",
            games,
            learning_rate=lambda left: rate * left,
            n_steps=128,
            batch_size=512,
            seed=seed,
            verbose=1,
            **settings,
        )
        model.learn(n_timesteps)
        part = file.with_name(f"{file.stem}.part{os.getpid()}.zip")  # two networks may ask for the same expert
        model.save(part)
        part.replace(file)

    def advise(self, memory: np.ndarray, memory_before: np.ndarray, last_actions: np.ndarray) -> np.ndarray:
        seen = np.stack([self._features(*pair) for pair in zip(memory, memory_before, strict=True)])
        with torch.no_grad():
            chances = self._policy.get_distribution(torch.as_tensor(seen)).distribution.probs  # type: ignore[union-attr]
        odds = chances.numpy() ** self._SHARPNESS
        found: np.ndarray = odds / odds.sum(axis=1, keepdims=True)
        return found


def expert_of(task: str, folder: Path, seed: int, n_timesteps: int | None) -> Expert:
    """
    :param task: id of an Atari task of this package
    :param folder: Where trained experts are, and are put
    :param seed: Seed of the training, if there is one to do
    :param n_timesteps: Its steps (None: as many as are known to be enough)
    :return: the expert
    """
    ALEInterface.setLoggerMode(LoggerMode.Error)
    if task == "camp/Freeway-v0":
        return FreewayPlanner()
    steps = MemoryPPO.N_TIMESTEPS[task] if n_timesteps is None else n_timesteps
    # What the training depends on is in the name, so that what is taught depends on the arguments alone
    file = folder / f"{task.replace('/', '-')}_{steps}_steps_seed{seed}.zip"
    folder.mkdir(parents=True, exist_ok=True)  # before the training, whose result is put there
    if not file.exists():
        MemoryPPO.train(task, file, seed, steps)
    return MemoryPPO(task, file)
