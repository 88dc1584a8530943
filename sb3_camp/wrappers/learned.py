"""A trained adversary at work."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.policies import BasePolicy

from sb3_camp.attacks.adversary_view import AdversaryView
from sb3_camp.errors import InputError
from sb3_camp.frozen_policy import TrainedAgent
from sb3_camp.wrappers.adversary import (
    AttackAnswers,
    AttackedFrame,
    AttackRequest,
    AttackRequests,
    shared_policy,
    usable_device,
)
from sb3_camp.wrappers.channel import Channel
from sb3_camp.wrappers.frame_layout import FrameLayout


class LearnedAdversary:
    """
    Perturbs observations as a policy of SB3 says that was trained for it, in an
    :class:`~sb3_camp.learned_adversary.AdversaryVecEnv`.

    It does for environments what :class:`sb3_camp.wrappers.adversary.Adversary` does with gradients; but it takes its most
    likely action, and looks at the victim no more.

    :param model: The agent that it attacks, to tell which greedy actions change
    :param agent: The trained adversary: path of a checkpoint, SB3 model or policy. A frozen copy acts; None for one that gives
        no answers, but is given them by an :class:`~sb3_camp.learned_adversary.AdversaryVecEnv`
    :param view: What it observes and what its actions mean
    :param device: Device of the victim's policy
    :param statistics: By which its observations are normalised, as ``mean``, ``var``, ``epsilon`` and ``clip_obs`` of SB3's
        ``VecNormalize``; None if they are not
    :param channel: What is between the adversary and the victim
    :raises InputError: if it cannot be read, or was trained for other observations
    """

    attack = "learned"

    def __init__(
        self,
        model: TrainedAgent,
        agent: TrainedAgent | None,
        view: AdversaryView,
        device: th.device | str = "cpu",
        statistics: Mapping[str, Any] | None = None,
        channel: Channel | None = None,
    ) -> None:
        self._channel = channel or Channel()
        self.view, self.device = view, usable_device(device, model)
        self.fingerprint, self.policy = shared_policy(model, self.device)
        self._agent: BasePolicy | None = None
        self._agent_fingerprint = ""
        self._statistics = dict(statistics or {})
        if agent is None:
            return
        self._agent_fingerprint, self._agent = shared_policy(agent, th.device("cpu"), "adversary")
        for name in ("observation_space", "action_space"):
            mine, expected = getattr(self._agent, name), getattr(view, name)
            if not isinstance(mine, spaces.Box) or mine.shape != expected.shape:
                raise InputError(f"adversary: its {name} is {mine}, that of an adversary of this policy {expected}")
        if statistics is not None and np.shape(statistics["mean"]) != view.observation_space.shape:
            raise InputError("adversary: the statistics of its VecNormalize are of other observations than its own")

    def perturb_all(self, requests: AttackRequests, layout: FrameLayout, key: str | None) -> AttackAnswers:
        """See :meth:`sb3_camp.wrappers.adversary.Adversary.perturb_all`."""
        clean = requests.frames[:, -1]
        assert self._agent is not None
        observations = self._normalized(self.view.observations(clean, requests.budget, requests.step))
        actions, _ = self._agent.predict(observations, deterministic=True)
        frames, norms = self.view.perturbed(actions, clean, requests.budget)
        return AttackAnswers(frames, norms, self._flipped(requests, frames, layout, key))

    def perturb(self, requests: Sequence[AttackRequest], layout: FrameLayout, key: str | None) -> list[AttackedFrame]:
        """See :meth:`sb3_camp.wrappers.adversary.Adversary.perturb`."""
        frames, norms, flipped = self.perturb_all(AttackRequests.of(requests), layout, key)
        return [AttackedFrame(*answer) for answer in zip(frames, norms.tolist(), flipped.tolist(), strict=True)]

    def differences(self, other: Any) -> list[str]:
        """See :meth:`sb3_camp.wrappers.adversary.Adversary.differences`."""
        if not isinstance(other, LearnedAdversary):
            return ["attack"]
        names = {"fingerprint": "model", "device": "device", "_agent_fingerprint": "agent", "view": "view"}
        names["_statistics"] = "statistics"
        names["_channel"] = "channel"
        return [text for name, text in names.items() if getattr(self, name) != getattr(other, name)]

    def _normalized(self, observations: np.ndarray) -> np.ndarray:
        if not self._statistics:
            return observations
        mean, var, epsilon, clip = (self._statistics[name] for name in ("mean", "var", "epsilon", "clip_obs"))
        return np.clip((observations - np.asarray(mean)) / np.sqrt(np.asarray(var) + epsilon), -clip, clip).astype(np.float32)

    def _flipped(self, requests: AttackRequests, frames: np.ndarray, layout: FrameLayout, key: str | None) -> np.ndarray:
        """Whether the greedy actions on what is sent are others than those on what came in, bool (N,)."""
        is_newest = requests.is_newest.reshape(*requests.is_newest.shape, *(1,) * (frames.ndim - 1))
        stacks = np.where(is_newest, frames[:, None], requests.frames)
        actions = []
        for seen in (requests.frames, stacks):
            observed = layout.observed(self._channel.normalised(th.from_numpy(seen))).numpy()
            observation = observed if key is None else {**(requests.others or {}), key: observed}
            actions.append(self.policy.predict(observation, deterministic=True)[0])
        return (actions[0] != actions[1]).reshape(len(frames), -1).any(axis=1)
