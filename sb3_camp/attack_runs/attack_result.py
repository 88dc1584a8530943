"""The result of an attack: how it was made, and what it left of the return at each budget."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from sb3_camp.attack_runs.mean_interval import CONFIDENCE, METHOD, mean_interval, mean_return

if TYPE_CHECKING:
    from sb3_camp.attack_runs.attacked_episodes import AttackedEpisodes  # which needs PyTorch, as plots do not


@dataclass(frozen=True)
class AttackSettings:
    """
    All that the episodes of an attack depend on.

    :param env_id: Id of the environment
    :param env_kwargs: Its keyword arguments
    :param env_wrappers: Its wrappers, as in the zoo's hyperparameters
    :param algo: The zoo's name of the algorithm
    :param model: Path of the checkpoint
    :param model_sha256: SHA-256 of its content
    :param timesteps: Steps that it was trained for
    :param deterministic: Whether the actions are greedy
    :param sigma: Standard deviation of the noise that the policy acts on, 0 for none
    :param clean_keys: Entries of a Dict observation that have no noise
    :param attack: Name of the attack
    :param objective: What it climbs
    :param step_size: Length of its steps, None for the default of the attack
    :param multiplier: How many steps an observation gets, see :func:`sb3_camp.attacks.pgd`; None if the attack has none
    :param q_threshold: Least loss of score that is worth an attack
    :param key: Entry of a Dict observation that is attacked
    :param seed: Seed of the command
    :param n_episodes: Episodes at each budget
    :param n_envs: Envs that play at once
    :param device: PyTorch device
    :param versions: Versions of the packages that play
    :param native_vec_env: Whether they step as one array, in a native vector environment
    :param adversary_sha256: SHA-256 of the checkpoint of a learned adversary, None for other attacks
    :param sensor_sigma: Standard deviation of each entry of the observation, where each has its own; ``sigma`` is 1 then
    :param threat: The threat model, see :mod:`sb3_camp.threat_models`
    :param eot: Over how many draws of the noise the gradients are averaged, 0 for an attack as if there were none
    :param critic_sha256: SHA-256 of the critic that was learned for the policy, None for other attacks
    :param spend: When the budget of an episode is spent, see :func:`sb3_camp.attack_runs.spending.spending`
    :param spread: Of the budget of an episode, at most budget / sqrt(spread) is spent at one observation
    :param transfer_sha256: SHA-256 of the checkpoint of another agent whose gradients were followed, None for other attacks
    """

    env_id: str
    env_kwargs: dict[str, Any]
    env_wrappers: dict[str, Any]
    algo: str
    model: str
    model_sha256: str
    timesteps: int | None
    deterministic: bool
    sigma: float
    clean_keys: list[str]
    attack: str
    objective: str
    step_size: float | None
    multiplier: float | None
    q_threshold: float
    key: str | None
    seed: int
    n_episodes: int
    n_envs: int
    device: str
    versions: dict[str, str] = field(default_factory=dict)
    native_vec_env: bool = False
    adversary_sha256: str | None = None
    sensor_sigma: Any = None
    threat: str = "episode-l2"
    eot: int = 0
    critic_sha256: str | None = None
    spend: str = "early"
    spread: float = 1
    transfer_sha256: str | None = None

    def as_json(self) -> dict[str, Any]:
        """
        :return: what is read again where it is written: Infinity, which JSON does not know, as a text, as in a certificate
        """
        return json.loads(json.dumps(asdict(self), default=repr), parse_constant=str)

    def difference(self, other: "AttackSettings", names: Sequence[str]) -> str | None:
        """
        :param other: Settings of another attack
        :param names: Which settings to compare
        :return: the first that differs, with its values, as in "sigma 0.2, not 0.4"; None if all are the same
        """
        mine, others = self.as_json(), other.as_json()
        return next(
            (f"{name} {_text(mine[name])}, not {_text(others[name])}" for name in names if mine[name] != others[name]), None
        )


@dataclass(frozen=True, eq=False)
class BudgetResult:
    """
    The episodes at one budget.

    :param budget: What the adversary had: the l2 norm for an episode, or the bound on the norm of each perturbation
    :param mean_return: Mean of the returns
    :param confidence_interval: Of the expected return, see :func:`sb3_camp.attack_runs.mean_interval.mean_interval`
    :param mean_steps: Mean number of steps
    :param mean_flips: Mean number of observations whose greedy action was changed
    :param mean_spent: Mean of what was spent of it in an episode: the l2 norm of all that was added, or the largest norm of a
        perturbation
    :param max_spent: Largest of these norms
    :param returns: Returns of the episodes, float64 (n,); None where ``attack.csv`` is gone
    """

    budget: float
    mean_return: float
    confidence_interval: tuple[float, float] | None
    mean_steps: float | None = None
    mean_flips: float | None = None
    mean_spent: float | None = None
    max_spent: float | None = None
    returns: np.ndarray | None = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class AttackResult:
    """
    What an attack left of the return of a policy.

    :param settings: How it was made
    :param budgets: The results, budgets ascending
    :param confidence: Level of the confidence intervals
    :param interval_method: How they were computed
    """

    settings: AttackSettings
    budgets: tuple[BudgetResult, ...]
    confidence: float = CONFIDENCE
    interval_method: str = METHOD


def attack_result(settings: AttackSettings, budgets: Sequence[float], played: "AttackedEpisodes") -> AttackResult:
    """
    Sum up the episodes of an attack.

    :param settings: All that the numbers depend on
    :param budgets: The budgets, ascending
    :param played: The episodes of all budgets, one budget after the other
    :return: the result
    """
    return AttackResult(
        settings, tuple(_summary(budget, part) for budget, part in zip(budgets, parts_of(played, len(budgets)), strict=True))
    )


def parts_of(played: "AttackedEpisodes", n_budgets: int) -> Iterator["AttackedEpisodes"]:
    """
    :param played: The episodes of all budgets, one budget after the other, as many of each
    :param n_budgets: Number of budgets
    :return: the episodes of each budget
    """
    n_episodes = played.flips.size // n_budgets
    for start in range(0, n_budgets * n_episodes, n_episodes):
        yield played.part(start, start + n_episodes)


def _summary(budget: float, part: "AttackedEpisodes") -> BudgetResult:
    returns = part.episodes.returns
    return BudgetResult(
        budget=budget,
        mean_return=mean_return(returns),
        confidence_interval=mean_interval(returns),
        mean_steps=float(part.episodes.lengths.mean()),
        mean_flips=float(part.flips.mean()),
        mean_spent=float(part.budget_spent.mean()),
        max_spent=float(part.budget_spent.max()),
        returns=returns,
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
