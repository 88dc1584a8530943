"""CAMP: deep Q-learning that widens the gap between the best and the second-best action."""

import io
import os
import pathlib
import warnings
from collections.abc import Iterator
from typing import Any, ClassVar, Literal, TypeVar, cast

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import (
    GymEnv,
    MaybeCallback,
    PyTorchObs,
    ReplayBufferSamples,
    RolloutReturn,
    Schedule,
)
from stable_baselines3.common.utils import FloatSchedule, LinearSchedule, get_parameters_by_name, polyak_update
from stable_baselines3.dqn import DQN
from stable_baselines3.dqn.policies import DQNPolicy
from torch.nn import functional as F

from sb3_camp.action_scores import action_scores
from sb3_camp.buffer_on_first_use import buffer_on_first_use
from sb3_camp.camp_dqn.clean_observations import CleanObservations
from sb3_camp.camp_dqn.frozen_reference import check_same_spaces
from sb3_camp.camp_dqn.losses import Imitation, adaptive_eta, imitation_loss, q_gap, robustness_loss
from sb3_camp.camp_dqn.replay_buffers import (
    Actor,
    AlternatingDictReplayBuffer,
    AlternatingReplayBuffer,
    AlternatingSampling,
    CleanReplayBuffer,
    CleanReplayBufferSamples,
)
from sb3_camp.errors import InputError
from sb3_camp.frozen_policy import PolicyRecipe, frozen_agent
from sb3_camp.space_signature import space_signature

# Enough to make the cost of a call small, few enough for batches of images to fit into memory
_STEPS_SAMPLED_AT_ONCE = 16


def _is_finite_and_not_negative(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")


def _linear_schedule(text: str) -> Schedule | str:
    """
    The zoo's notation ``lin_<number>``, linear from the number to 0, and its opposite ``ramp_<number>``, from 0 to the number;
    any other text as it is.
    """
    notation, _, number = text.partition("_")
    try:
        value = float(number)
    except ValueError:
        return text
    if notation not in ("lin", "ramp") or not _is_finite_and_not_negative(value):
        return text
    start, end = (value, 0.0) if notation == "lin" else (0.0, value)
    return LinearSchedule(start, end, end_fraction=1.0)


def _fuse(optimizer: th.optim.Optimizer) -> None:
    """Let Adam update all parameters in one kernel, unless the user chose an implementation: for small networks it is the
    calls that cost."""
    if type(optimizer) is th.optim.Adam:
        for group in optimizer.param_groups:
            if group["fused"] is None and group["foreach"] is None:
                group["fused"] = True


def _seen_by_reference(batch: ReplayBufferSamples) -> PyTorchObs:
    return batch.clean_observations if isinstance(batch, CleanReplayBufferSamples) else batch.observations


SelfCAMPDQN = TypeVar("SelfCAMPDQN", bound="CAMPDQN")


class CAMPDQN(DQN):
    """
    Certified-rAdius-Maximizing Policy training (CAMP) of a DQN.

    Two networks act in turn, step by step, in the same (noisy) environment and learn from what they did themselves
    (Algorithm 1). The reference network learns by temporal differences. The primary network, which is the policy of this
    model, imitates the reference, while a hinge loss widens the gap between its best and its second-best Q-value: the wider
    the gap, the larger a perturbation has to be to change the action (Theorem 3).

    Paper: CAMP in the Odyssey: Provably Robust Reinforcement Learning with Certified Radius Maximization,
    USENIX Security 2025.

    The arguments of SB3's DQN keep their meaning, with these remarks:

    - Each of the ``gradient_steps`` updates both networks, each on a batch of its own.
    - ``target_update_interval`` concerns the reference's target network; the primary has no use for one. As in SB3, copies are
      made while steps are collected: an interval below ``train_freq * n_envs`` (the paper: 10 and 256) makes several copies
      in a row of the same weights, in effect one copy per rollout.
    - ``n_steps``: windows run on across the actions of both networks (off-policy, uncorrected); Dict observations too.
    - ``optimize_memory_usage`` may be combined with ``n_steps`` and with the handling of time limits, but not with Dict
      observations.

    :param policy: The policy model to use (MlpPolicy, CnnPolicy, MultiInputPolicy): the architecture of both networks
    :param env: The environment to learn from, with its observations noised already
        (see :class:`~sb3_camp.wrappers.NoisyObservationWrapper`)
    :param learning_rate: The learning rate of both networks, it can be a function of the current progress remaining
    :param buffer_size: size of the replay buffer, both halves together; rounded up to an even number of rows
    :param learning_starts: how many steps of the model to collect transitions for before learning starts
    :param batch_size: Minibatch size for each gradient update of each network
    :param tau: the soft update coefficient of the reference's target network
    :param gamma: the discount factor
    :param train_freq: Update the model every ``train_freq`` steps
    :param gradient_steps: How many gradient steps to do after each rollout, -1: as many as steps of the environment
    :param replay_buffer_class: :class:`AlternatingReplayBuffer` or :class:`AlternatingDictReplayBuffer` (chosen by the
        observation space if ``None``) or a subclass; with ``clean_reference`` :class:`CleanReplayBuffer` or a subclass
    :param replay_buffer_kwargs: Keyword arguments to pass to the replay buffer on creation
    :param optimize_memory_usage: Store each observation only once
    :param n_steps: Number of rewards that are summed up before bootstrapping
    :param target_update_interval: update the target network every ``target_update_interval`` environment steps
    :param exploration_fraction: fraction of entire training period over which the exploration rate is reduced
    :param exploration_initial_eps: initial value of random action probability
    :param exploration_final_eps: final value of random action probability
    :param max_grad_norm: The maximum value for the gradient clipping, for each network
    :param camp_lambda: The paper's lambda, the weight of the hinge loss against imitation: a number, a function of the current
        progress remaining, "lin_<number>" (from there linearly to 0, as the zoo writes learning rates) or "ramp_<number>"
        (from 0 linearly to the number: first imitate, then widen the gaps)
    :param camp_eta: The paper's eta, the Q-gap up to which the hinge pulls, in units of the primary's Q-values (which are
        logits, not returns): a number, or "adaptive" for the range of the primary's Q-values over the batch
    :param imitation: "soft": imitate Softmax(reference Q-values) (the paper); "hard": imitate the reference's greedy action
    :param replay: "split": each network learns from the steps where it acted (Algorithm 1); "shared": both from all steps
    :param reference: A trained agent to imitate instead of a reference learned alongside (the paper's Atari mode): an SB3
        model or the path of a checkpoint, DQN or any algorithm with discrete actions that
        :func:`~sb3_camp.action_scores.action_scores` knows. It is frozen, only the primary acts, and all transitions are its
        own. If it is a DQN of the same architecture, the primary starts from its weights. The saved model contains it.
    :param clean_reference: The reference sees the observations without noise while it learns (the env needs a
        :class:`~sb3_camp.wrappers.NoisyObservationWrapper` around vectors), and learns the values of the primary, which sees
        the noisy ones as ever: only the primary acts, both learn from all its steps, and the temporal differences bootstrap
        from the primary's greedy action. Not in the paper. What becomes of the noisy observation further up (frame stacks,
        VecNormalize) is not followed: the reference sees what lies under the newest noise. The ``predict`` of a saved model
        needs no clean observation; whether a model has this option cannot be changed once it has trained.
    :param stats_window_size: Window size for the rollout logging
    :param tensorboard_log: the log location for tensorboard (if None, no logging)
    :param policy_kwargs: additional arguments to be passed to the policy (and to the reference's) on creation
    :param verbose: Verbosity level: 0 for no output, 1 for info messages, 2 for debug messages
    :param seed: Seed for the pseudo random generators
    :param device: Device (cpu, cuda, ...) on which the code should be run
    :param _init_setup_model: Whether or not to build the networks at the creation of the instance
    :raises InputError: (a ValueError) for options that cannot be right, e.g. HER buffers or a reference with other spaces
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = DQN.policy_aliases
    # The policy whose action scores the primary imitates: of the same class as the primary's and learning, or frozen
    reference_policy: BasePolicy
    replay_buffer: AlternatingSampling | None  # type: ignore[assignment]

    def __init__(
        self,
        policy: str | type[DQNPolicy],
        env: GymEnv | str,
        learning_rate: float | Schedule = 1e-4,
        buffer_size: int = 1_000_000,
        learning_starts: int = 100,
        batch_size: int = 32,
        tau: float = 1.0,
        gamma: float = 0.99,
        train_freq: int | tuple[int, str] = 4,
        gradient_steps: int = 1,
        replay_buffer_class: type[ReplayBuffer] | None = None,
        replay_buffer_kwargs: dict[str, Any] | None = None,
        optimize_memory_usage: bool = False,
        n_steps: int = 1,
        target_update_interval: int = 10000,
        exploration_fraction: float = 0.1,
        exploration_initial_eps: float = 1.0,
        exploration_final_eps: float = 0.05,
        max_grad_norm: float = 10,
        camp_lambda: float | str | Schedule = 1.0,
        camp_eta: float | Literal["adaptive"] = "adaptive",
        imitation: Imitation = "soft",
        replay: Literal["split", "shared"] = "split",
        reference: str | os.PathLike[str] | BaseAlgorithm | None = None,
        clean_reference: bool = False,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: th.device | str = "auto",
        _init_setup_model: bool = True,
    ) -> None:
        self.camp_lambda = camp_lambda
        self.camp_eta = camp_eta
        self.imitation = imitation
        self.replay = replay
        self.reference = reference
        self.clean_reference = clean_reference
        self.frozen_reference: PolicyRecipe | None = None
        self.clean_observation_space: spaces.Box | None = None
        self._clean_observations: CleanObservations | None = None
        super().__init__(
            policy,
            env,
            learning_rate=learning_rate,
            buffer_size=buffer_size,
            learning_starts=learning_starts,
            batch_size=batch_size,
            tau=tau,
            gamma=gamma,
            train_freq=train_freq,
            gradient_steps=gradient_steps,
            replay_buffer_class=replay_buffer_class,
            replay_buffer_kwargs=replay_buffer_kwargs,
            optimize_memory_usage=optimize_memory_usage,
            n_steps=n_steps,
            target_update_interval=target_update_interval,
            exploration_fraction=exploration_fraction,
            exploration_initial_eps=exploration_initial_eps,
            exploration_final_eps=exploration_final_eps,
            max_grad_norm=max_grad_norm,
            stats_window_size=stats_window_size,
            tensorboard_log=tensorboard_log,
            policy_kwargs=policy_kwargs,
            verbose=verbose,
            seed=seed,
            device=device,
            _init_setup_model=_init_setup_model,
        )

    # Setup

    def _setup_model(self) -> None:
        if isinstance(self.camp_lambda, str):
            self.camp_lambda = _linear_schedule(self.camp_lambda)
        self._check_options()
        self.camp_lambda_schedule = FloatSchedule(cast(Schedule | float, self.camp_lambda))
        if self.clean_reference and self.clean_observation_space is None and self.env is not None:
            self._clean_observations = CleanObservations(self.env)
            self.clean_observation_space = self._clean_observations.space
        with buffer_on_first_use(self):
            self._setup_replay_buffer()
        # For more than one step, super() would expect a buffer of its own
        n_steps, self.n_steps = self.n_steps, 1
        super()._setup_model()
        self.n_steps = n_steps
        self._setup_reference()
        for optimizer in self._optimizers():
            _fuse(optimizer)

    def _check_options(self) -> None:
        if isinstance(self.action_space, spaces.Discrete) and self.action_space.n < 2:
            raise InputError("CAMPDQN needs at least two actions: the Q-gap is the best minus the second-best.")
        if self.camp_eta != "adaptive" and not _is_finite_and_not_negative(self.camp_eta):
            raise InputError(f"camp_eta must be 'adaptive' or a number >= 0, not {self.camp_eta!r}.")
        if not callable(self.camp_lambda) and not _is_finite_and_not_negative(self.camp_lambda):
            raise InputError(
                "camp_lambda must be a number >= 0, 'lin_<number>' (linear to 0), 'ramp_<number>' (linear from 0) or a "
                f"schedule, not {self.camp_lambda!r}."
            )
        for name, choices in (("imitation", ("soft", "hard")), ("replay", ("split", "shared"))):
            if getattr(self, name) not in choices:
                raise InputError(f"{name} must be one of {', '.join(choices)}, not {getattr(self, name)!r}.")
        if not isinstance(self.clean_reference, bool):
            raise InputError(f"clean_reference must be True or False, not {self.clean_reference!r}.")
        was_clean = self.clean_observation_space is not None
        if (was_clean or self.num_timesteps > 0) and self.clean_reference != was_clean:
            raise InputError(
                f"clean_reference: this model was trained with it set to {was_clean}, which cannot be changed "
                f"(in the zoo: -params clean_reference:{was_clean})."
            )
        if self.clean_reference and self.reference is not None:
            raise InputError(
                "clean_reference is for a reference that learns: with a trained reference set it to False "
                "(in the zoo: -params clean_reference:False)."
            )

    def _setup_replay_buffer(self) -> None:
        is_dict = isinstance(self.observation_space, spaces.Dict)
        default_class = AlternatingDictReplayBuffer if is_dict else AlternatingReplayBuffer
        if self.clean_reference:
            default_class = CleanReplayBuffer
        buffer_class: type[ReplayBuffer] = self.replay_buffer_class or default_class
        if not issubclass(buffer_class, AlternatingSampling):
            raise InputError(
                f"CAMPDQN cannot use {buffer_class.__name__}, as its buffer must tell apart the steps of its two networks: "
                "leave out replay_buffer_class (hindsight relabelling and files of other algorithms are not supported)."
            )
        if self.clean_reference and not issubclass(buffer_class, CleanReplayBuffer):
            raise InputError(f"clean_reference needs a CleanReplayBuffer or a subclass, not {buffer_class.__name__}.")
        if not self.clean_reference and issubclass(buffer_class, CleanReplayBuffer):
            raise InputError(f"{buffer_class.__name__} is for clean_reference: set that to True, or leave this out.")
        if is_dict and self.optimize_memory_usage:
            raise InputError("optimize_memory_usage is not supported for Dict observations.")
        if self.replay_buffer is None:
            kwargs = {"n_steps": self.n_steps, "gamma": self.gamma, **self.replay_buffer_kwargs}
            if self.clean_reference:
                kwargs["clean_observation_space"] = self.clean_observation_space
            self.replay_buffer = buffer_class(  # type: ignore[assignment]
                self.buffer_size,
                self.observation_space,
                self.action_space,
                device=self.device,
                n_envs=self.n_envs,
                optimize_memory_usage=self.optimize_memory_usage,
                **kwargs,
            )
        self.replay_buffer_class = buffer_class

    def _setup_reference(self) -> None:
        if self.frozen_reference is not None:
            # A loaded model: its own file holds the weights
            self.reference_policy = self.frozen_reference.build(self.device)
            if self.reference is not None:
                warnings.warn(
                    f"The model keeps the reference it was trained with, {self.reference} is not read.", stacklevel=2
                )
        elif self.reference is not None:
            if self.num_timesteps > 0:
                raise InputError(
                    "reference: it cannot be added to a CAMPDQN that has learned a reference of its own: start a new model, "
                    "which may have this one as its reference."
                )
            recipe, policy = frozen_agent(self.reference, self.device)
            check_same_spaces(policy, self.observation_space, self.action_space)
            self.reference_policy = policy
            self.frozen_reference = recipe
            self._start_from_reference()
        else:
            self.reference_policy = self.policy_class(
                self.clean_observation_space or self.observation_space,
                self.action_space,
                self.lr_schedule,
                **self.policy_kwargs,
            ).to(self.device)
            self.batch_norm_stats = get_parameters_by_name(self._reference_dqn.q_net, ["running_"])
            self.batch_norm_stats_target = get_parameters_by_name(self._reference_dqn.q_net_target, ["running_"])

    def _start_from_reference(self) -> None:
        if not isinstance(self.reference_policy, DQNPolicy):
            return
        weights = self.reference_policy.q_net.state_dict()
        own = self.q_net.state_dict()
        # A noisy network has the scales of its noise besides: its greedy policy is that of the mean weights alone
        if own.keys() <= weights.keys() and all(weights[key].shape == own[key].shape for key in own):
            self.q_net.load_state_dict({key: weights[key] for key in own})
        elif self.verbose >= 1:
            print("The reference has another architecture: the primary network starts from random weights.")

    @property
    def _reference_learns(self) -> bool:
        return self.frozen_reference is None

    @property
    def _reference_acts(self) -> bool:
        return self._reference_learns and not self.clean_reference

    @property
    def _reference_dqn(self) -> DQNPolicy:
        """The reference while it learns, with its target network and its optimizer."""
        return cast(DQNPolicy, self.reference_policy)

    def _optimizers(self) -> list[th.optim.Optimizer]:
        learning = [self.policy, self._reference_dqn] if self._reference_learns else [self.policy]
        return [policy.optimizer for policy in learning]

    # Acting

    def _next_actor(self) -> Actor:
        """Who acts at the next step: the parity of the row of the buffer, which goes on where a saved buffer left off."""
        assert self.replay_buffer is not None
        return self.replay_buffer.next_actor if self._reference_acts else Actor.PRIMARY

    def _sample_action(
        self, learning_starts: int, action_noise: ActionNoise | None = None, n_envs: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        """Epsilon-greedy action of the network whose turn it is, each env with a coin of its own; random during warm-up."""
        assert self._last_obs is not None
        epsilon = 1.0 if self.num_timesteps < learning_starts else self.exploration_rate
        explore = np.random.rand(n_envs) < epsilon
        if explore.all():
            actions = np.zeros(n_envs, dtype=self.action_space.dtype)
        else:
            policy = self.policy if self._next_actor() is Actor.PRIMARY else self.reference_policy
            actions, _ = policy.predict(self._last_obs, deterministic=True)
        for env in np.flatnonzero(explore):
            actions[env] = self.action_space.sample()
        return actions, actions

    def collect_rollouts(self, *args: Any, **kwargs: Any) -> RolloutReturn:
        rollout = super().collect_rollouts(*args, **kwargs)
        if not rollout.continue_training:
            # A callback stopped the training before the last step was stored: another call of learn() must not join its
            # observation to what comes before, so let it reset the envs
            self._last_obs = None
        return rollout

    def _on_step(self) -> None:
        self._n_calls += 1
        # Each call to step() corresponds to n_envs transitions
        if self._reference_learns and self._n_calls % max(self.target_update_interval // self.n_envs, 1) == 0:
            reference = self._reference_dqn
            polyak_update(reference.q_net.parameters(), reference.q_net_target.parameters(), self.tau)
            polyak_update(self.batch_norm_stats, self.batch_norm_stats_target, 1.0)
        self.exploration_rate = self.exploration_schedule(self._current_progress_remaining)
        self.logger.record("rollout/exploration_rate", self.exploration_rate)

    def _store_transition(
        self,
        replay_buffer: ReplayBuffer,
        buffer_action: np.ndarray,
        new_obs: np.ndarray | dict[str, np.ndarray],
        reward: np.ndarray,
        dones: np.ndarray,
        infos: list[dict[str, Any]],
    ) -> None:
        if self._clean_observations is not None:
            self._clean_observations.complete(infos, dones)
        super()._store_transition(replay_buffer, buffer_action, new_obs, reward, dones, infos)

    # Learning

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        assert self.replay_buffer is not None
        if self.replay_buffer.size() < 2:
            return  # one of the networks has not acted yet
        self.policy.set_training_mode(True)
        self._update_learning_rate(self._optimizers())
        camp_lambda = self.camp_lambda_schedule(self._current_progress_remaining)

        # Tensors, not numbers: reading them out at every step would make the host wait for the device
        td_losses: list[th.Tensor] = []
        primary_losses: list[th.Tensor] = []
        for reference_batch, primary_batch in self._batches(gradient_steps, batch_size):
            if reference_batch is not None:
                # Only for its own update: the primary imitates the reference as it acts, without dropout or batch statistics
                self.reference_policy.set_training_mode(True)
                td_loss = self._td_loss(reference_batch)
                self._gradient_step(self._reference_dqn, td_loss)
                self.reference_policy.set_training_mode(False)
                td_losses.append(td_loss.detach())
            primary_losses.append(self._train_primary(primary_batch, camp_lambda))

        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/camp_lambda", camp_lambda)
        if td_losses:
            self.logger.record("train/td_loss", th.stack(td_losses).mean().item())
        imitation, robustness, eta, gap_mean, gap_min = th.stack(primary_losses).cpu().unbind(dim=1)
        self.logger.record("train/imitation_loss", imitation.mean().item())
        self.logger.record("train/robustness_loss", robustness.mean().item())
        self.logger.record("train/eta", eta.mean().item())
        self.logger.record("train/q_gap_mean", gap_mean.mean().item())
        self.logger.record("train/q_gap_min", gap_min.min().item())

    def _batches(
        self, gradient_steps: int, batch_size: int
    ) -> Iterator[tuple[ReplayBufferSamples | None, ReplayBufferSamples]]:
        """For each gradient step the batch of the reference, None if it is frozen, and that of the primary."""
        assert self.replay_buffer is not None
        for done in range(0, gradient_steps, _STEPS_SAMPLED_AT_ONCE):
            n_steps = min(_STEPS_SAMPLED_AT_ONCE, gradient_steps - done)
            if not self._reference_learns:
                actors: list[Actor | None] = [None] * n_steps
            elif self.replay == "shared" or not self._reference_acts:
                actors = [None, None] * n_steps
            else:
                actors = [Actor.REFERENCE, Actor.PRIMARY] * n_steps
            batches = self.replay_buffer.sample_batches(batch_size, actors, self._vec_normalize_env)
            for batch in batches:
                yield (batch, next(batches)) if self._reference_learns else (None, batch)

    def _td_loss(self, batch: ReplayBufferSamples) -> th.Tensor:
        """Huber loss of the temporal differences of the reference network (Eq. MSBE_dqn, with SB3's loss)."""
        reference = self._reference_dqn
        discounts = batch.discounts if batch.discounts is not None else self.gamma
        with th.no_grad():
            if isinstance(batch, CleanReplayBufferSamples):
                # A maximum over actions at the clean observation would be the value of a policy that sees it. The actions are
                # those of the primary as it acts, without dropout or batch statistics
                self.policy.set_training_mode(False)
                next_actions = self.q_net(batch.next_observations).argmax(dim=1, keepdim=True)
                self.policy.set_training_mode(True)
                next_q_values = reference.q_net_target(batch.clean_next_observations).gather(1, next_actions)
            else:
                next_q_values = reference.q_net_target(batch.next_observations).max(dim=1, keepdim=True).values
            targets = batch.rewards + (1 - batch.dones) * discounts * next_q_values
        q_values = reference.q_net(_seen_by_reference(batch)).gather(1, batch.actions.long())
        return F.smooth_l1_loss(q_values, targets)

    def _train_primary(self, batch: ReplayBufferSamples, camp_lambda: float) -> th.Tensor:
        """
        One gradient step on imitation + lambda * hinge (Eq. CAMP_loss, the terms that depend on the primary).

        :return: imitation loss, robustness loss, eta, mean and minimum of the Q-gap, shape (5,)
        """
        with th.no_grad():
            reference_q_values = action_scores(self.reference_policy)(_seen_by_reference(batch))
        q_values = self.q_net(batch.observations)
        eta = adaptive_eta(q_values) if self.camp_eta == "adaptive" else q_values.new_tensor(self.camp_eta)
        imitation = imitation_loss(q_values, reference_q_values, self.imitation)
        robustness = robustness_loss(q_values, reference_q_values, eta)
        self._gradient_step(self.policy, imitation + camp_lambda * robustness)
        gaps = q_gap(q_values.detach())
        return th.stack([imitation.detach(), robustness.detach(), eta.detach(), gaps.mean(), gaps.min()])

    def _gradient_step(self, policy: DQNPolicy, loss: th.Tensor) -> None:
        policy.optimizer.zero_grad()
        loss.backward()
        th.nn.utils.clip_grad_norm_(policy.q_net.parameters(), self.max_grad_norm)
        policy.optimizer.step()

    def learn(
        self: SelfCAMPDQN,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int = 4,
        tb_log_name: str = "CAMPDQN",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> SelfCAMPDQN:
        return super().learn(
            total_timesteps=total_timesteps,
            callback=callback,
            log_interval=log_interval,
            tb_log_name=tb_log_name,
            reset_num_timesteps=reset_num_timesteps,
            progress_bar=progress_bar,
        )

    def _setup_learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        reset_num_timesteps: bool = True,
        tb_log_name: str = "run",
        progress_bar: bool = False,
    ) -> tuple[int, BaseCallback]:
        assert self.replay_buffer is not None
        if self.num_timesteps > 0 and self.replay_buffer.size() == 0:
            warnings.warn(
                f"Training goes on after {self.num_timesteps} steps with an empty replay buffer: "
                "save it with save_replay_buffer() and load it with load_replay_buffer() to continue where you left off.",
                stacklevel=3,
            )
        if self.clean_reference:
            self._follow_clean_observations()
        resets = reset_num_timesteps or self._last_obs is None
        if resets:
            self.replay_buffer.cut_trajectory()  # super() resets the envs
        total_timesteps, callback = super()._setup_learn(
            total_timesteps, callback, reset_num_timesteps, tb_log_name, progress_bar
        )
        if resets and self._clean_observations is not None:
            self._clean_observations.begin()
        # The schedule, not the rate that the last call ended with, gives the exploration of the first step
        self._update_current_progress_remaining(self.num_timesteps, self._total_timesteps)
        self.exploration_rate = self.exploration_schedule(self._current_progress_remaining)
        return total_timesteps, callback

    def _follow_clean_observations(self) -> None:
        assert self.env is not None, "You must set the environment before calling learn()"
        assert self.clean_observation_space is not None
        if self._clean_observations is not None and self._clean_observations.env is self.env:
            return
        clean_observations = CleanObservations(self.env)
        own, new = self.clean_observation_space, clean_observations.space
        if space_signature(own) != space_signature(new):
            raise InputError(
                f"clean_reference: under the noise of this environment are observations of shape {new.shape} ({new.dtype}), "
                f"the reference sees {own.shape} ({own.dtype}): put the noise where it was when the model was trained."
            )
        self._clean_observations = clean_observations
        self._last_obs = None  # what is under the noise of these observations has not been reported

    # Saving and loading

    def load_replay_buffer(self, path: str | pathlib.Path | io.BufferedIOBase, truncate_last_traj: bool = True) -> None:
        own = self.replay_buffer
        assert own is not None
        super().load_replay_buffer(path, truncate_last_traj)
        loaded = cast(ReplayBuffer, self.replay_buffer)
        keeps_what_is_needed = isinstance(loaded, CleanReplayBuffer) == self.clean_reference
        if isinstance(loaded, AlternatingSampling) and keeps_what_is_needed and loaded.n_envs == self.n_envs:
            # These are settings of the model, which may have been changed when it was loaded
            loaded.n_steps, loaded.gamma = own.n_steps, own.gamma
            return
        self.replay_buffer = own
        if isinstance(loaded, CleanReplayBuffer) and not keeps_what_is_needed:
            problem = "it was filled with clean_reference, which this model does not have"
        elif isinstance(loaded, AlternatingSampling) and not keeps_what_is_needed:
            problem = "it does not hold the clean observations that clean_reference needs"
        elif isinstance(loaded, AlternatingSampling):
            problem = f"it was filled by {loaded.n_envs} envs, this model has {self.n_envs}"
        else:
            problem = f"it is a {type(loaded).__name__}, not a buffer of CAMPDQN"
        raise InputError(f"Cannot use the replay buffer {path}: {problem}.")

    def _excluded_save_params(self) -> list[str]:
        return [
            *super()._excluded_save_params(),
            "reference",
            "reference_policy",
            "camp_lambda_schedule",
            "_clean_observations",
        ]

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        state_dicts = ["policy", "policy.optimizer", "reference_policy"]
        if self._reference_learns:
            state_dicts.append("reference_policy.optimizer")
        return state_dicts, []
