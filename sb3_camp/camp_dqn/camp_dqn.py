"""CAMP: deep Q-learning that widens the gap between the best and the second-best action."""

import io
import pathlib
import warnings
from collections.abc import Iterator
from typing import Any, ClassVar, Literal, TypeVar, cast

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import GymEnv, MaybeCallback, RolloutReturn, Schedule
from stable_baselines3.dqn import DQN
from stable_baselines3.dqn.policies import DQNPolicy

from sb3_camp.buffer_on_first_use import buffer_on_first_use
from sb3_camp.camp_dqn.buffer_choice import buffer_class, check_loaded
from sb3_camp.camp_dqn.clean_observations import CleanObservations
from sb3_camp.camp_dqn.compile_choice import is_worth_compiling
from sb3_camp.camp_dqn.compiled_update import UpdateCompiler
from sb3_camp.camp_dqn.options import check_options, lambda_schedule
from sb3_camp.camp_dqn.reference_option import BY_DEFAULT, in_new_words, settle
from sb3_camp.camp_dqn.reference_registry import REFERENCES, sees_clean
from sb3_camp.camp_dqn.references import FrozenReference, Reference, learning_reference
from sb3_camp.camp_dqn.replay_buffers import Actor, AlternatingSampling
from sb3_camp.camp_dqn.trained_reference import frozen_reference
from sb3_camp.camp_dqn.update import PRIMARY_LOGS, Update, fuse_adam
from sb3_camp.camp_dqn.update_function import Batches, Logs
from sb3_camp.frozen_policy import PolicyRecipe, TrainedAgent

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
    - ``target_update_interval`` concerns the reference's target network. As in SB3, copies are made while steps are collected:
      an interval below ``train_freq * n_envs`` (the paper: 10 and 256) makes several copies of the same weights in a row.
    - ``n_steps``: windows run on across the actions of both networks (off-policy, uncorrected); Dict observations too.

    :param policy: The policy model to use (MlpPolicy, CnnPolicy, MultiInputPolicy): the architecture of both networks
    :param env: The environment to learn from, with its noise already (:class:`~sb3_camp.wrappers.NoisyObservationWrapper`)
    :param learning_rate: The learning rate of both networks, it can be a function of the current progress remaining
    :param buffer_size: size of the replay buffer, both halves together; rounded up to an even number of rows
    :param learning_starts: how many steps of the model to collect transitions for before learning starts
    :param batch_size: Minibatch size for each gradient update of each network
    :param tau: the soft update coefficient of the reference's target network
    :param gamma: the discount factor
    :param train_freq: Update the model every ``train_freq`` steps
    :param gradient_steps: How many gradient steps to do after each rollout, -1: as many as steps of the environment
    :param replay_buffer_class: :class:`AlternatingReplayBuffer` or :class:`AlternatingDictReplayBuffer` (chosen by the
        observation space if ``None``) or a subclass; with ``reference="clean"`` :class:`CleanReplayBuffer` or a subclass
    :param replay_buffer_kwargs: Keyword arguments to pass to the replay buffer on creation
    :param optimize_memory_usage: Store each observation only once: also with ``n_steps``, but not for Dict observations
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
    :param imitation: "soft": imitate Softmax(reference Q-values) (the paper); "hard": imitate the reference's greedy action;
        or a loss that was added with :func:`~sb3_camp.camp_dqn.register_imitation`
    :param reference: What the primary imitates. A saved model contains it.
        "alternating": a network that learns alongside; both act in turn, each learns from its own steps (Algorithm 1).
        "shared": the same, both learn from all steps. A loaded model may change from one to the other.
        "clean": a network that sees the observations without noise while it learns (the env needs a
        :class:`~sb3_camp.wrappers.NoisyObservationWrapper` around vectors), and learns the values of the primary, which sees
        the noisy ones as ever: only the primary acts, both learn from all its steps, and the temporal differences bootstrap
        from the primary's greedy action. Not in the paper. What becomes of the noisy observation further up (frame stacks,
        VecNormalize) is not followed: the reference sees what lies under the newest noise.
        "clean_quantiles": the same, but it learns the distribution of the return; the larger ``wang_parameter`` (a setting of
        it, 0 by default), the more its worst episodes count in what is imitated. R / sigma is that of the certificate at R.
        The name of another one that was added with :func:`~sb3_camp.camp_dqn.register_reference`.
        A trained agent (the paper's Atari mode): an SB3 model or the path of a checkpoint (if it is called like one of these
        words: ``./clean``), of DQN or any algorithm that :func:`~sb3_camp.action_scores.action_scores` knows. It is frozen,
        only the primary acts, and all transitions are its own. It starts from the weights of a DQN of its architecture.
    :param reference_kwargs: Settings of a reference that learns, such as ``dict(wang_parameter=1.0)``
    :param compile: Whether to compile the update (TorchInductor): several times as fast for small networks, the same numbers
        within float error. "auto": if there is a C++ compiler (on a GPU: Triton) and the training has enough updates for it.
        What cannot be compiled (dropout, batch normalisation, optimizers other than Adam) is done as ever, with a warning.
    :param stats_window_size: Window size for the rollout logging
    :param tensorboard_log: the log location for tensorboard (if None, no logging)
    :param policy_kwargs: additional arguments to be passed to the policy (and to the reference's) on creation
    :param verbose: Verbosity level: 0 for no output, 1 for info messages, 2 for debug messages
    :param seed: Seed for the pseudo random generators
    :param device: Device (cpu, cuda, ...) on which the code should be run
    :param _init_setup_model: Whether or not to build the networks at the creation of the instance
    :param replay: deprecated: "split" is ``reference="alternating"``, "shared" is ``reference="shared"``
    :param clean_reference: deprecated: True is ``reference="clean"``
    :raises InputError: (a ValueError) for options that cannot be right, e.g. HER buffers or a reference with other spaces
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = DQN.policy_aliases
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
        imitation: str = "soft",
        reference: TrainedAgent = BY_DEFAULT,
        reference_kwargs: dict[str, Any] | None = None,
        compile: bool | Literal["auto"] = "auto",
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: th.device | str = "auto",
        _init_setup_model: bool = True,
        replay: Literal["split", "shared"] | None = None,
        clean_reference: bool | None = None,
    ) -> None:
        self.camp_lambda = camp_lambda
        self.camp_eta = camp_eta
        self.imitation = imitation
        self.compile = compile
        self.reference = in_new_words(reference, {"replay": replay, "clean_reference": clean_reference}, stacklevel=2)
        self.reference_kwargs = reference_kwargs
        #: What the reference is, "frozen" if a trained agent; None before the model is set up
        self.reference_kind: str | None = None
        self.frozen_reference: PolicyRecipe | None = None
        self.clean_observation_space: spaces.Box | None = None
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
        check_options(self.action_space, self.camp_eta, self.imitation, self.compile, self.n_steps)
        self._compiler = UpdateCompiler() if self.compile is True else None
        self.camp_lambda_schedule = lambda_schedule(self.camp_lambda)
        self.reference_kind, agent = settle(vars(self))
        self.reference = self.reference_kind
        clean_observations = None
        if sees_clean(self.reference_kind) and self.clean_observation_space is None and self.env is not None:
            clean_observations = CleanObservations(self.env)
            self.clean_observation_space = clean_observations.space

        self.replay_buffer_class = buffer_class(
            self.replay_buffer_class, self.observation_space, sees_clean(self.reference_kind), self.optimize_memory_usage
        )
        # super() hands only these to the buffer, and for more than one step it would expect a class of its own
        n_steps, kwargs = self.n_steps, self.replay_buffer_kwargs
        self.n_steps, self.replay_buffer_kwargs = 1, self._buffer_settings()
        with buffer_on_first_use(self):
            super()._setup_model()
        self.n_steps, self.replay_buffer_kwargs = n_steps, kwargs
        self._reference = self._make_reference(agent, clean_observations)
        for optimizer in self._optimizers():
            fuse_adam(optimizer)

    def _buffer_settings(self) -> dict[str, Any]:
        settings = {"n_steps": self.n_steps, "gamma": self.gamma, **self.replay_buffer_kwargs}
        if sees_clean(self.reference_kind):
            settings["clean_observation_space"] = self.clean_observation_space
        return settings

    def _make_reference(self, agent: TrainedAgent | None, clean_observations: CleanObservations | None) -> Reference:
        if agent is not None:
            self.frozen_reference, reference = frozen_reference(agent, self.policy, self._vec_normalize_env)
            if not reference.start(self.policy) and self.verbose >= 1:
                print("The reference has another architecture: the primary network starts from random weights.")
            return reference
        if self.frozen_reference is not None:
            return FrozenReference(self.frozen_reference.build(self.device))  # the model's own file holds its weights
        space = self.clean_observation_space or self.observation_space
        assert self.reference_kind is not None
        kind = REFERENCES[self.reference_kind]
        policy_class = cast(type[DQNPolicy], self.policy_class)
        actions = cast(spaces.Discrete, self.action_space)
        policy: Any = kind.make_policy(space, actions, self.lr_schedule, policy_class, self.policy_kwargs)
        policy = policy.to(self.device)
        return learning_reference(kind, policy, space, clean_observations, self.reference_kwargs)

    @property
    def reference_policy(self) -> BasePolicy:
        """The policy whose action scores the primary imitates: of the same class as the primary's and learning, or frozen."""
        return self._reference.policy

    def _optimizers(self) -> list[th.optim.Optimizer]:
        learning = [self.policy, self.reference_policy] if self._reference.learns else [self.policy]
        return [policy.optimizer for policy in learning]

    # Acting

    def _next_actor(self) -> Actor:
        """Who acts at the next step: the parity of the row of the buffer, which goes on where a saved buffer left off."""
        assert self.replay_buffer is not None
        return self.replay_buffer.next_actor if self._reference.acts else Actor.PRIMARY

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
            # A callback ended the training before the last step was stored: the next one must not join its observation to what
            # comes before, so let it reset the envs
            self._last_obs = None
        return rollout

    def _on_step(self) -> None:
        self._n_calls += 1
        # Each call to step() corresponds to n_envs transitions
        if self._n_calls % max(self.target_update_interval // self.n_envs, 1) == 0:
            self._reference.update_target(self.tau)
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
        self._reference.complete(infos, dones)
        super()._store_transition(replay_buffer, buffer_action, new_obs, reward, dones, infos)

    # Learning

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        update = self._begin_updates()
        if update is not None:
            step = update if self._compiler is None else self._compiler(update)
            self._end_updates(update, [step(*batches) for batches in self._batches(gradient_steps, batch_size)])

    def _begin_updates(self) -> Update | None:
        """The update with the settings of the time, None as long as one of the networks has not acted."""
        assert self.replay_buffer is not None
        if self.replay_buffer.size() < 2:
            return None
        self.policy.set_training_mode(True)
        self._update_learning_rate(self._optimizers())
        camp_lambda = self.camp_lambda_schedule(self._current_progress_remaining)
        return Update(self.policy, self._reference, camp_lambda, self.camp_eta, self.imitation, self.gamma, self.max_grad_norm)

    def _batches(self, gradient_steps: int, batch_size: int) -> Iterator[Batches]:
        assert self.replay_buffer is not None
        return self._reference.batches(self.replay_buffer, gradient_steps, batch_size, self._vec_normalize_env)

    def _end_updates(self, update: Update, logs: list[Logs]) -> None:
        """Log what the updates returned: tensors till now, as to read them out each time would make the host wait."""
        self._n_updates += len(logs)
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/camp_lambda", update.camp_lambda)
        td_losses = [td_loss for td_loss, _ in logs if td_loss is not None]
        if td_losses:
            self.logger.record("train/td_loss", th.stack(td_losses).mean().item())
        primary_logs = th.stack([primary for _, primary in logs]).cpu()
        for name, values in zip(PRIMARY_LOGS, primary_logs.unbind(dim=1), strict=True):
            self.logger.record(f"train/{name}", (values.min() if name == "q_gap_min" else values.mean()).item())

    def learn(
        self: SelfCAMPDQN,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int = 4,
        tb_log_name: str = "CAMPDQN",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> SelfCAMPDQN:
        return super().learn(total_timesteps, callback, log_interval, tb_log_name, reset_num_timesteps, progress_bar)

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
        assert self.env is not None, "You must set the environment before calling learn()"
        if self._reference.prepare(self.env):
            self._last_obs = None
        resets = reset_num_timesteps or self._last_obs is None
        if resets:
            self.replay_buffer.cut_trajectory()  # super() resets the envs
        total_timesteps, callback = super()._setup_learn(
            total_timesteps, callback, reset_num_timesteps, tb_log_name, progress_bar
        )
        if resets:
            self._reference.begin()
        if is_worth_compiling(self.compile, self) and self._compiler is None:
            self._compiler = UpdateCompiler()
        # The schedule, not the rate that the last call ended with, gives the exploration of the first step
        self._update_current_progress_remaining(self.num_timesteps, self._total_timesteps)
        self.exploration_rate = self.exploration_schedule(self._current_progress_remaining)
        return total_timesteps, callback

    # Saving and loading

    def load_replay_buffer(self, path: str | pathlib.Path | io.BufferedIOBase, truncate_last_traj: bool = True) -> None:
        own = self.replay_buffer
        super().load_replay_buffer(path, truncate_last_traj)
        loaded, self.replay_buffer = cast(Any, self.replay_buffer), own
        check_loaded(loaded, self.n_envs, sees_clean(self.reference_kind), path)
        self.replay_buffer = loaded
        # These are settings of the model, which may have been changed when it was loaded
        loaded.n_steps, loaded.gamma = map(self._buffer_settings().get, ("n_steps", "gamma"))

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "reference", "_reference", "camp_lambda_schedule", "_compiler"]

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        state_dicts = ["policy", "policy.optimizer", "reference_policy"]
        if self._reference.learns:
            state_dicts.append("reference_policy.optimizer")
        return state_dicts, []
