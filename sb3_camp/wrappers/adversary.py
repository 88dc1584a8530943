"""An attack on one frozen policy, which any number of environments may share."""

import contextlib
import hashlib
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
import torch as th
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.utils import get_device

from sb3_camp.attacks.batch import frames_alone
from sb3_camp.attacks.norm import L2, Norm
from sb3_camp.attacks.registry import Attack, check_name, chosen_attack
from sb3_camp.errors import InputError
from sb3_camp.frozen_policy import TrainedAgent, checkpoint_file, load_frozen_policy
from sb3_camp.policy_view import LstmStates, Remembering, policy_view
from sb3_camp.threat_models import Threat
from sb3_camp.wrappers.channel import Channel
from sb3_camp.wrappers.frame_layout import FrameLayout

# What the wrapper gives itself
_OWN_ARGUMENTS = {"assemble", "generators", "norm"}

# One copy of each policy in a process, as long as an adversary uses it: many environments attack the same one
_POLICIES: WeakValueDictionary[tuple[str, str], BasePolicy] = WeakValueDictionary()


class AttackRequest(NamedTuple):
    """
    :param frames: What the policy sees, the newest frame still clean, shape (n_stack, \\*frame_shape), float32 or uint8
    :param is_newest: Which of them are the newest frame or a copy of it, bool (n_stack,)
    :param budget: What is left
    :param step: Number of steps since the episode began
    :param rng: Generator of the environment's random attacks
    :param others: The observation that the frame is an entry of, None if it is no Dict
    :param memory: What the adversary keeps from one observation to the next of an episode; empty at its start
    """

    frames: np.ndarray
    is_newest: np.ndarray
    budget: float
    step: int
    rng: np.random.Generator
    others: dict[str, np.ndarray] | None = None
    memory: dict[str, Any] | None = None


class AttackRequests(NamedTuple):
    """The requests of N environments, as arrays whose first dimension runs over them; see :class:`AttackRequest`."""

    frames: np.ndarray
    is_newest: np.ndarray
    budget: np.ndarray
    step: np.ndarray
    rngs: Sequence[np.random.Generator]
    others: dict[str, np.ndarray] | None = None
    memory: Sequence[dict[str, Any] | None] = ()

    @classmethod
    def of(cls, requests: Sequence[AttackRequest]) -> "AttackRequests":
        """
        :param requests: One or more, all of Dict observations or none
        :return: the same as arrays
        """
        frames, is_newest, budget, step, rngs, others, memory = zip(*requests, strict=True)
        batch = None
        if others[0] is not None:
            batch = {name: np.stack([entry[name] for entry in others]) for name in others[0]}
        return cls(np.stack(frames), np.stack(is_newest), np.array(budget), np.array(step), rngs, batch, memory)


class AttackAnswers(NamedTuple):
    """
    :param frames: What the newest frames become, shape (N, \\*frame_shape), float32 or uint8
    :param norms: l2 norms of what was added, computed in float64, at most the budgets, (N,)
    :param flipped: Whether the greedy action changes, bool (N,)
    """

    frames: np.ndarray
    norms: np.ndarray
    flipped: np.ndarray


class AttackedFrame(NamedTuple):
    """
    :param frame: What the newest frame becomes, shape (\\*frame_shape,), float32 or uint8
    :param norm: l2 norm of what was added, computed in float64, at most the budget
    :param flipped: Whether the greedy action changes
    """

    frame: np.ndarray
    norm: float
    flipped: bool


class Adversary:
    """
    Attacks one policy, the observations of several environments in one batch.

    :param model: The agent: path of a checkpoint, SB3 model or policy. A frozen copy of its policy is attacked.
    :param attack: Name of an attack, see :data:`sb3_camp.attacks.ATTACKS`
    :param settings: Keyword arguments of the attack
    :param device: Device of the copy, "auto" for a GPU if there is one
    :param threat: The threat model
    :param sensor_sigma: What perturbations are divided by, entry by entry, before their norm is taken; None for 1
    :param channel: What happens to frames on their way to the policy, as far as the attack reckons with it
    :param default_step_size: For an attack with a step size, unless the settings name one
    :raises InputError: if the attack or one of its settings cannot be used, if the model cannot be read or cannot be attacked
        in this way, or if a GPU is asked for that cannot be used
    """

    def __init__(
        self,
        model: TrainedAgent,
        attack: str,
        settings: dict[str, Any],
        device: th.device | str,
        threat: Threat = "episode-l2",
        sensor_sigma: Any = None,
        channel: Channel | None = None,
        default_step_size: float | None = None,
    ) -> None:
        self.attack, self.threat = attack, threat
        self.channel = channel or Channel()
        with _as_of_the_wrapper():
            self.norm = Norm.of(threat, sensor_sigma)
            check_name(attack)
        self.device = usable_device(device, model)
        _use_one_thread_in_workers()
        self.fingerprint, self.policy = shared_policy(model, self.device)
        with _as_of_the_wrapper():
            self._view = policy_view(self.policy)
            self._attack = chosen_attack(attack, self._view, threat)
        has_steps = default_step_size is not None and "step_size" in self._attack.arguments
        self.settings = {**({"step_size": default_step_size} if has_steps else {}), **settings}
        _check_settings(attack, self._attack, self._asked(), self.settings)

    def differences(self, other: Any) -> list[str]:
        """
        :param other: Another adversary
        :return: the names of what keeps the two from attacking in one batch
        """
        if not isinstance(other, Adversary):
            return ["attack"]
        names = ("fingerprint", "device", "attack", "settings", "threat", "norm", "channel")
        return ["model" if name == "fingerprint" else name for name in names if getattr(self, name) != getattr(other, name)]

    def perturb(self, requests: Sequence[AttackRequest], layout: FrameLayout, key: str | None) -> list[AttackedFrame]:
        """
        :param requests: One per environment
        :param layout: How the policy's observation consists of frames, the same for all of them
        :param key: Entry of a Dict observation that is attacked
        :return: the answers in the same order
        """
        frames, norms, flipped = self.perturb_all(AttackRequests.of(requests), layout, key)
        return [AttackedFrame(*answer) for answer in zip(frames, norms.tolist(), flipped.tolist(), strict=True)]

    def perturb_all(self, requests: AttackRequests, layout: FrameLayout, key: str | None) -> AttackAnswers:
        """
        :param requests: Those of one environment or more
        :param layout: How the policy's observation consists of frames, the same for all of them
        :param key: Entry of a Dict observation that is attacked
        :return: the answers in the same order
        """
        usable_device(self.device, self.policy)
        _use_one_thread_in_workers()
        # The caller may be inside of torch.no_grad or torch.inference_mode
        with th.inference_mode(False), th.enable_grad():
            frames = th.as_tensor(requests.frames, device=self.device)
            noise = self.channel.noise(requests.rngs, layout.n_stack, layout.frame_shape)
            states = self._remembered(requests)
            perturbation = self._attack.function(
                self._asked(),
                frames[:, -1],
                th.as_tensor(requests.budget, dtype=th.float64, device=self.device),
                assemble=self._assemble(requests, frames, layout, key, noise, states),
                **self.settings,
                **_own_arguments(self._attack, self.norm, requests.rngs),
            )
            if states is not None:
                self._remember(requests, self._assemble(requests, frames, layout, key, None, states), perturbation.received)
        answers = (perturbation.received, perturbation.spent, perturbation.flipped)
        return AttackAnswers(*(values.detach().cpu().numpy() for values in answers))

    def _asked(self) -> Any:
        """What the attack gets to know of the policy."""
        scores, draws = self._view.scores, self.channel.draws
        if self._attack.asks != ("scores",):
            return self._view
        assert scores is not None
        return scores if not draws else lambda observed: scores(observed).unflatten(0, (-1, draws)).mean(dim=1)

    def _assemble(
        self,
        requests: AttackRequests,
        frames: th.Tensor,
        layout: FrameLayout,
        key: str | None,
        noise: np.ndarray | None,
        states: LstmStates | None,
    ) -> Callable[[th.Tensor, th.Tensor], Any]:
        """What the policy observes when the newest frames are others: with K draws of noise, K observations of each row."""
        is_plain = layout.is_identity and key is None and noise is None and states is None and self.channel.mean is None
        if is_plain:
            return frames_alone
        is_newest = th.as_tensor(requests.is_newest, device=self.device)
        is_newest = is_newest.reshape(*is_newest.shape, *(1,) * len(layout.frame_shape))
        draws = None if noise is None else th.as_tensor(noise, device=self.device)
        others: dict[str, th.Tensor] = {}
        if key is not None:
            others = self.policy.obs_to_tensor(requests.others)[0]  # type: ignore[arg-type, assignment]

        def assemble(newest: th.Tensor, rows: th.Tensor) -> Any:
            if layout.n_stack == 1:
                stacks = newest[:, None]
            else:
                stacks = th.where(is_newest[rows], newest[:, None], frames[rows].to(newest.dtype))
            if draws is not None:
                stacks = (stacks[:, None] + draws[rows]).flatten(0, 1)
                rows = rows.repeat_interleave(draws.shape[1])
                if frames.dtype == th.uint8:
                    stacks = stacks.clamp(0, 255)
            observed: Any = layout.observed(self.channel.normalised(stacks))
            if key is not None:
                observed = {name: other[rows] for name, other in others.items()} | {key: observed}
            return observed if states is None else Remembering(observed, (states[0][:, rows], states[1][:, rows]))

        return assemble

    def _remembered(self, requests: AttackRequests) -> LstmStates | None:
        """The states of a recurrent policy, as far as they follow from what it was sent."""
        if self._view.advance is None:
            return None
        n_layers, _, size = self.policy.lstm_hidden_state_shape  # type: ignore[attr-defined,misc]
        nothing = th.zeros(2, n_layers, size, device=self.device)
        kept = th.stack([(memory or {}).get("states", nothing) for memory in requests.memory], dim=2)
        return kept[0], kept[1]

    def _remember(
        self, requests: AttackRequests, assemble: Callable[[th.Tensor, th.Tensor], Any], received: th.Tensor
    ) -> None:
        assert self._view.advance is not None
        with th.no_grad():
            rows = th.arange(len(received), device=self.device)
            states = th.stack(self._view.advance(assemble(received.float(), rows)))
        for i, memory in enumerate(requests.memory):
            if memory is not None:
                memory["states"] = states[:, :, i]


@contextlib.contextmanager
def _as_of_the_wrapper() -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise InputError(f"AdversarialObservationWrapper: {error}") from error


def _check_settings(name: str, attack: Attack, asked: Any, settings: dict[str, Any]) -> None:
    known = [argument for argument in attack.arguments if argument not in _OWN_ARGUMENTS]
    unknown = [argument for argument in settings if argument not in known]
    if unknown:
        raise InputError(
            f"AdversarialObservationWrapper: attack_kwargs names {unknown}, the attack {name} has {', '.join(known)}."
        )
    no_rows = th.zeros(0, 1), th.zeros(0)
    # Rows of one entry are none that a policy could observe, and an attack may ask for the scores of no rows
    checked = (lambda rows: rows) if attack.asks == ("scores",) else asked
    try:  # values are checked even where there is nothing to attack
        attack.function(checked, *no_rows, **settings, **_own_arguments(attack, L2, []))
    except (TypeError, InputError) as error:
        raise InputError(f"AdversarialObservationWrapper: attack_kwargs: {error}") from error


def _own_arguments(attack: Attack, norm: Norm, generators: Sequence[np.random.Generator]) -> dict[str, Any]:
    return {**({"generators": generators} if attack.draws else {}), **({"norm": norm} if attack.has_norm else {})}


def usable_device(device: th.device | str, model: TrainedAgent) -> th.device:
    """
    :param device: Device, "auto" for a GPU if there is one
    :param model: What is to be used on it
    :return: the device
    :raises InputError: if it cannot be used here
    """
    try:
        device = get_device(device) if device == "auto" else th.device(device)
    except (RuntimeError, TypeError) as error:
        raise InputError(f"AdversarialObservationWrapper: device must be cpu, cuda or auto, not {device!r}.") from error
    policy = model.policy if isinstance(model, BaseAlgorithm) else model
    is_on_gpu = isinstance(policy, BasePolicy) and policy.device.type == "cuda"
    if _is_worker() and (is_on_gpu or device.type == "cuda"):
        raise InputError(
            "AdversarialObservationWrapper: a model on a GPU cannot be used by worker processes: use DummyVecEnv, or a model "
            'on the CPU with device="cpu".'
        )
    if device.type == "cuda" and not th.cuda.is_available():
        raise InputError(f'AdversarialObservationWrapper: device: there is no GPU for {str(device)!r}: use device="cpu".')
    return device


def _use_one_thread_in_workers() -> None:
    """Many worker processes would fight for the cores; the threads of the main process are the user's to choose."""
    if _is_worker() and th.get_num_threads() > 1:
        th.set_num_threads(1)


def _is_worker() -> bool:
    return multiprocessing.current_process().daemon


def shared_policy(model: TrainedAgent, device: th.device, role: str = "model") -> tuple[str, BasePolicy]:
    """
    :param model: The agent: path of a checkpoint, SB3 model or policy
    :param device: Device of the copy
    :param role: What it is, for messages
    :return: what tells its policy from others, and a frozen copy, which all adversaries of it in this process share
    :raises InputError: if it cannot be read
    """
    if isinstance(model, BaseAlgorithm | BasePolicy):
        fingerprint = _fingerprint(model.policy if isinstance(model, BaseAlgorithm) else model)
    else:
        fingerprint = hashlib.sha256(Path(checkpoint_file(model, role)).read_bytes()).hexdigest()
    policy = _POLICIES.get((fingerprint, str(device)))
    if policy is None:
        # Building a policy draws its initial weights from the global generator, which is the user's; and parameters that were
        # made in the caller's inference mode would have no gradients
        with th.random.fork_rng(devices=[]), th.inference_mode(False):
            policy = load_frozen_policy(model, device, role=role)
        _POLICIES[fingerprint, str(device)] = policy
    return fingerprint, policy


def _fingerprint(policy: BasePolicy) -> str:
    """Equal for policies that act alike: of one class and architecture, with the same parameters."""
    spaces_of = (policy.observation_space, policy.action_space)
    digest = hashlib.sha256(repr((type(policy), policy, spaces_of, policy.normalize_images)).encode())
    for name, values in policy.state_dict().items():
        digest.update(name.encode())
        digest.update(values.cpu().numpy().tobytes())
    return digest.hexdigest()
