"""An adversary between an environment and the policy that acts in it."""

import os
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import Any, NamedTuple, SupportsFloat

import gymnasium as gym
import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.atari_wrappers import EpisodicLifeEnv

from sb3_camp.attack_names import LEARNED
from sb3_camp.attacks.batch import whole_steps
from sb3_camp.attacks.registry import ATTACKS
from sb3_camp.errors import InputError
from sb3_camp.frozen_policy import TrainedAgent
from sb3_camp.threat_models import Threat, is_per_step
from sb3_camp.wrappers.adversary import Adversary, AttackedFrame, AttackRequest
from sb3_camp.wrappers.attacked_space import attacked_entry, observed_entry, received_space
from sb3_camp.wrappers.chain import wrapper_chain
from sb3_camp.wrappers.channel import Channel
from sb3_camp.wrappers.episode_budget import budgets_of
from sb3_camp.wrappers.frame_history import GivenStack, SentFrames, StackPadding
from sb3_camp.wrappers.frame_layout import FrameLayout
from sb3_camp.wrappers.learned import LearnedAdversary
from sb3_camp.wrappers.observation_noise import attack_generator


class AttackedEpisode(NamedTuple):
    """
    :param budget_spent: l2 norm of all its perturbations together
    :param flips: Number of observations on which the greedy action was changed
    :param steps: Number of steps
    """

    budget_spent: float
    flips: int
    steps: int


class AdversarialObservationWrapper(gym.Wrapper, gym.utils.RecordConstructorArgs):
    """
    Perturbs the observations so that the policy changes its greedy action for a worse one, by at most a given l2 norm over
    the whole episode (CAMP paper, appendix, Algorithm 2 "Empirical Attack").

    The adversary knows the policy and sees each observation before the policy does. It spends what it needs to change the
    action at one step after the other, until the budget is gone: the squared l2 norms of the perturbations since the last
    reset of the game sum up to at most budget^2. A lost life (SB3's ``EpisodicLifeEnv`` inside) does not refill the budget.
    The observation that ends an episode is left alone, as no action follows.

    What an attack means depends on where the wrapper is:

    - *Inside of* ``NoisyObservationWrapper`` (adversary first, then noise): the threat model of the certificate. But for
      chance, the mean return is not below the certified return at radius ``budget``. The adversary does not know the noise
      that is still to come, and chooses the perturbation as if there were none.
    - *Outside of* ``NoisyObservationWrapper``: the adversary sees the noise and attacks exactly what the policy observes. This
      is stronger than what the certificate covers, and the certificate says nothing about the returns.

    For policies on stacked frames, only the newest frame is perturbed, and older ones keep the perturbations that they got
    when they were new. The copies of one frame that fill the stack after a reset are one frame: perturbed as one, and paid
    for once.

    - The environment gives *one frame* at a time, and SB3's ``VecFrameStack`` or Gymnasium's ``FrameStackObservation`` outside
      stacks them: the wrapper returns the newest frame, and keeps a stack of its own of what it has sent. With noise in
      between, that stack is without the noise of the older frames, which this adversary does not see.
    - The environment gives the *whole stack* (``camp/CartPole5-v0``): it is taken apart and put together again.

    Between the wrapper and the policy there may be nothing but the noise and the stack: behind a normalizer, for example, the
    policy would see something else than the adversary thinks.

    Float observations come out as float32, of an unbounded space; images (uint8 from 0 to 255) are rounded and clipped. The
    budget is in the units of the observation (pixel values for images), and so is the attack's ``step_size``. By default that
    is the paper's: 0.01 for "pgd" and "random", times 255 for images, and 0.05 * budget for "apgd" and "fgsm".

    ``info`` of every reset and step has ``perturbation_norm`` (spent now), ``budget_left`` and ``action_flipped`` (whether
    the greedy action on what is sent differs from that on what came in).

    :param env: The environment to wrap
    :param model: The agent to attack: path of an SB3 checkpoint of any algorithm with discrete actions, an SB3 model or an
        SB3 policy. The attacks are on a frozen copy, made now: they never touch the model, and if it is trained further they
        stay those on the policy that it was. Give a path where the wrapper is to be rebuilt from ``env.spec``.
    :param budget: l2 norm that all perturbations of an episode may have together
    :param attack: "pgd", "apgd", "fgsm" or "random", see :mod:`sb3_camp.attacks`, one that was added by
        :func:`sb3_camp.attacks.register_attack`, or "learned"
    :param n_stack: Number of frames that the policy observes
    :param stack_padding: What fills the stack after a reset: copies of the first frame ("reset", as ``FrameStackObservation``
        does it) or zeros ("zero", as ``VecFrameStack`` does it, and so ``frame_stack`` of the zoo)
    :param attack_kwargs: Keyword arguments of the attack, such as ``step_size`` or ``q_threshold``; for "learned" the
        ``agent`` and its ``view``, see :class:`sb3_camp.wrappers.learned.LearnedAdversary`
    :param device: Device that the attack is computed on, "auto" for a GPU if there is one. Worker processes of
        ``SubprocVecEnv`` cannot use a GPU.
    :param key: Entry of a Dict observation to attack, if it has several float or image Boxes
    :param threat: "episode-l2"; or "step-l2" or "step-linf", where ``budget`` bounds the norm of each single perturbation
    :param sensor_sigma: What each entry of a perturbation is divided by before its norm is taken, nested lists in the shape of
        the frame: the sigma of each sensor. Where it is 0, nothing may be changed
    :param channel: What is between the adversary and the policy, as far as the attack is to reckon with it: noise to average
        over, a frozen normaliser
    :param spread: Of the budget of an episode, at most budget / sqrt(spread) is spent at one observation
    :raises InputError: (a ValueError) if an argument is out of its range, if the model cannot be read, if it does not fit the
        environment, or if the environment has an adversary already
    """

    def __init__(
        self,
        env: gym.Env,
        model: TrainedAgent,
        budget: float,
        attack: str = "pgd",
        n_stack: int = 1,
        stack_padding: StackPadding = "reset",
        attack_kwargs: dict[str, Any] | None = None,
        device: th.device | str = "cpu",
        key: str | None = None,
        threat: Threat = "episode-l2",
        sensor_sigma: Any = None,
        channel: Channel | None = None,
        spread: float = 1,
    ) -> None:
        _check_only_adversary(env)
        self.budgets = budgets_of(threat, budget, spread=spread)
        settings = dict(attack_kwargs or {})
        _check_stack(n_stack, stack_padding)
        self.key, given = attacked_entry(env.observation_space, key)
        if self.key is not None and n_stack > 1:
            raise InputError("AdversarialObservationWrapper: n_stack > 1 is not supported for Dict observations.")
        self.adversary: Adversary | LearnedAdversary
        if attack == LEARNED:
            self.adversary = LearnedAdversary(model, device=device, channel=channel, **settings)
        else:
            step_size = default_step_size(attack, self.budgets.total, given, threat)
            self.adversary = Adversary(model, attack, settings, device, threat, sensor_sigma, channel, step_size)
            check_steps(attack, self.budgets.total, settings, given, threat)
        policy = self.adversary.policy
        observed = observed_entry(policy.observation_space, env.observation_space, self.key)
        self.layout = FrameLayout.between(given, observed, n_stack)
        if np.shape(sensor_sigma) not in ((), self.layout.frame_shape):
            raise InputError(
                f"AdversarialObservationWrapper: sensor_sigma has the shape {np.shape(sensor_sigma)}, what is attacked has "
                f"{self.layout.frame_shape}."
            )
        if policy.action_space != env.action_space:
            raise InputError(
                f"AdversarialObservationWrapper: the actions of the model are {policy.action_space}, those of the environment "
                f"{env.action_space}: check model."
            )
        gym.utils.RecordConstructorArgs.__init__(
            self,
            _disable_deepcopy=True,
            model=str(model) if isinstance(model, str | os.PathLike) else policy,
            budget=self.budgets.total,
            attack=attack,
            n_stack=n_stack,
            stack_padding=stack_padding,
            attack_kwargs=dict(attack_kwargs or {}),
            device=str(device),
            key=key,
            threat=threat,
            sensor_sigma=sensor_sigma,
            channel=channel,
            spread=spread,
        )
        gym.Wrapper.__init__(self, env)
        self.observation_space = received_space(env.observation_space, self.key)
        self._dtype = np.uint8 if given.dtype == np.uint8 else np.float32  # of what the policy side receives
        self.attacker: Callable[[AttackRequest], AttackedFrame] = self._attack_alone
        """Computes the attacks"""
        self.channel = channel or Channel()
        """What is outside, as far as the attack reckons with it"""
        self._memory: dict[str, Any] = {}
        self._history = (GivenStack if self.layout.is_stacked else SentFrames)(self.layout, stack_padding)
        self._real_resets = _counter_of_real_resets(env)
        self._rng: np.random.Generator | None = None
        self._is_started = False
        self._flips = self._steps = 0
        self._closed: list[AttackedEpisode] = []
        self.always = False
        """Whether to ask for an attack also where the budget is gone: for adversaries that learn"""
        self.reward = 0.0
        """Reward of the last step"""
        self.starts = False
        """Whether the game was reset since"""
        self.limits: Sequence[gym.wrappers.TimeLimit] = ()
        """Step limits outside of this wrapper, which cut off episodes that go on here"""
        self.n_sent = 0
        """How many observations it has sent on, perturbed or not"""

    @property
    def budget(self) -> float:
        """l2 norm that all perturbations of an episode may have together."""
        return self.budgets.total

    @property
    def sent(self) -> np.ndarray:
        """The frames that the policy sees, but for what is outside: as they were sent, shape (n_stack, \\*frame_shape)."""
        return self._history.frames

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        n_before = self._real_resets.count if self._real_resets else 0
        observation, info = self.env.reset(seed=seed, options=options)
        is_new_game = self._real_resets is None or self._real_resets.count > n_before
        if seed is not None:
            self._rng = attack_generator(seed)
        if is_new_game:
            if self._is_started:
                self._closed.append(AttackedEpisode(float(self.budgets.spent[0]), self._flips, self._steps))
            self._is_started = True
            self._flips = self._steps = 0
            self.starts = True
            self.budgets.refill()
        self._memory.clear()
        self._history.start(self._attacked_part(observation), is_new_game)
        return self._perturbed(observation, info)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        if not self._is_started:
            raise gym.error.ResetNeeded("AdversarialObservationWrapper: call reset before step.")
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._steps += 1
        self.reward, self.starts = float(reward), False
        self._history.follow(self._attacked_part(observation))
        cut_off = any(limit._elapsed_steps + 1 >= limit._max_episode_steps for limit in self.limits)  # type: ignore[operator]
        observation, info = self._perturbed(observation, info, is_last=terminated or truncated or cut_off)
        return observation, reward, terminated, truncated, info

    def take_closed_attacks(self) -> list[AttackedEpisode]:
        """
        :return: the episodes that real resets have closed since they were last taken, the oldest first; the first reset of all
            closes none
        """
        closed, self._closed = self._closed, []
        return closed

    def _attacked_part(self, observation: Any) -> np.ndarray:
        return np.asarray(observation if self.key is None else observation[self.key], dtype=self._dtype)

    def _perturbed(self, observation: Any, info: dict[str, Any], is_last: bool = False) -> tuple[Any, dict[str, Any]]:
        attacked = AttackedFrame(self._history.frames[-1], 0.0, False)
        if (self.budgets.left[0] > 0 or self.always) and not is_last:
            if self._rng is None:  # made only now, so that processes that were forked before do not share it
                self._rng = np.random.default_rng()
            attacked = self.attacker(
                AttackRequest(
                    self._history.frames,
                    self._history.is_newest,
                    float(self.budgets.allowed[0]),
                    self._steps,
                    self._rng,
                    observation if self.key is not None else None,
                    self._memory,
                )
            )
        self.budgets.spend(np.array([attacked.norm]))
        self._flips += attacked.flipped
        part = self._history.receive(attacked.frame)
        self.n_sent += 1
        info = {
            **info,
            "perturbation_norm": attacked.norm,
            "budget_left": float(self.budgets.left[0]),
            "action_flipped": attacked.flipped,
        }
        return part if self.key is None else {**observation, self.key: part}, info

    def _attack_alone(self, request: AttackRequest) -> AttackedFrame:
        return self.adversary.perturb([request], self.layout, self.key)[0]


class _ResetCounter(gym.Wrapper):
    """Counts the resets that reach it."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self.count = 0

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        self.count += 1
        return self.env.reset(**kwargs)


def _counter_of_real_resets(env: gym.Env) -> _ResetCounter | None:
    """
    A counter put directly inside of the innermost ``EpisodicLifeEnv``: only there can resets be told from lost lives.

    :return: None if there are no lives, so that each reset is a real one
    """
    lives = [wrapper for wrapper in wrapper_chain(env) if isinstance(wrapper, EpisodicLifeEnv)]
    if not lives:
        return None
    innermost = lives[-1]
    innermost.env = counter = _ResetCounter(innermost.env)
    return counter


def _check_only_adversary(env: gym.Env) -> None:
    """Each adversary has its own budget, so that together they would spend more than any of them."""
    if any(isinstance(wrapper, AdversarialObservationWrapper) for wrapper in wrapper_chain(env)):
        raise InputError(
            "AdversarialObservationWrapper: the environment has an adversary already, and their budgets would add up: use "
            "one, with the budget that both may have together."
        )


def _check_stack(n_stack: int, stack_padding: str) -> None:
    if isinstance(n_stack, bool) or not isinstance(n_stack, Integral) or n_stack < 1:
        raise InputError(f"AdversarialObservationWrapper: n_stack must be an integer >= 1, not {n_stack!r}.")
    if stack_padding not in ("reset", "zero"):
        raise InputError(f"AdversarialObservationWrapper: stack_padding must be 'reset' or 'zero', not {stack_padding!r}.")


def check_steps(
    attack: str, budget: float, settings: Mapping[str, Any], space: spaces.Box, threat: Threat = "episode-l2"
) -> None:
    """
    :param attack: Name of the attack
    :param budget: What an adversary may spend
    :param settings: Arguments of the attack
    :param space: Space of the attacked frames
    :param threat: The threat model
    :raises InputError: if it may take more steps for one observation than an attack is allowed
    """
    if attack not in ("fgsm", LEARNED):
        step_size = settings.get("step_size", default_step_size(attack, budget, space, threat))
        if step_size is not None:
            whole_steps(th.tensor([budget], dtype=th.float64), step_size, settings.get("multiplier", 2.0))


def default_step_size(attack: str, budget: float, space: spaces.Box, threat: Threat = "episode-l2") -> float | None:
    """
    :param attack: Name of the attack
    :param budget: What an adversary may spend
    :param space: Space of the attacked frames
    :param threat: The threat model
    :return: in the units of the budget: that of the paper, or in other threat models a share of the bound; None where the
        attack has one of its own
    """
    known = ATTACKS.get(attack)
    if known is not None and known.goes_on:
        return None
    share = None
    if known is not None:
        share = known.step_of_bound if is_per_step(threat) else known.step_of_budget
    if share is not None:
        return share * (budget or 1.0)  # without a budget there are no steps
    return 0.01 * 255 if space.dtype == np.uint8 else 0.01
