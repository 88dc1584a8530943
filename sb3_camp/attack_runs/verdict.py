"""Which of several attacks on a policy is the strongest, and what it leaves of the return: what an agent is judged by."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sb3_camp.attack_names import LEARNED, TRANSFER
from sb3_camp.attack_runs.attack_result import AttackResult, BudgetResult
from sb3_camp.attack_runs.mean_interval import mean_interval, mean_return
from sb3_camp.certification.certificate_entries import is_number
from sb3_camp.certification.rounded_text import exact
from sb3_camp.errors import InputError
from sb3_camp.files import read_json

VERDICT_FORMAT = "sb3_camp-verdict-1"

_PILOT_SHARE = 0.2
RANDOM = "random"


class Strongest(NamedTuple):
    """
    The strongest attack with a budget.

    :param budget: l2 norm for an episode
    :param attack: Its name
    :param at_budget: What it was given of the budget: an adversary may leave the rest
    :param mean_return: Mean return of episodes that had no part in the choice
    :param confidence_interval: Of the expected return, see :func:`sb3_camp.attack_runs.mean_interval.mean_interval`
    :param n_pilot: Number of episodes of each attack by which it was chosen
    :param n_episodes: Number of episodes by which its mean return is estimated
    """

    budget: float
    attack: str
    at_budget: float
    mean_return: float
    confidence_interval: tuple[float, float] | None
    n_pilot: int
    n_episodes: int


def strongest(attacks: Sequence[AttackResult]) -> list[Strongest]:
    """
    Find the strongest attack at each budget.

    The lowest of several means of the same episodes is too low on average, the more so the more attacks there are. So the
    first fifth of the episodes of each attack chooses, and the others of the chosen one estimate: their mean has no such bias,
    and its interval holds as for one attack alone. With a larger budget an adversary can do all that it could with a smaller
    one, so the choice is among all budgets up to it.

    :param attacks: Attacks on one policy with the same noise, with their returns
    :return: the strongest with each budget of any of them, budgets ascending
    :raises InputError: if there is none, if they are on different policies, or if the returns of one are gone or only one
    """
    if not attacks:
        raise InputError("no attack: there is no strongest one")
    names = ("env_id", "env_kwargs", "env_wrappers", "model_sha256", "deterministic", "sigma", "clean_keys", "threat")
    for attack in attacks[1:]:
        difference = attack.settings.difference(attacks[0].settings, names)
        if difference is not None:
            raise InputError(f"the attack {attack.settings.attack} was made with {difference}: they are not on one policy")
    rows = []
    for attack in attacks:
        for one in attack.budgets:
            if one.returns is None or one.returns.size < 2:
                raise InputError(f"the attack {attack.settings.attack} has no attack.csv with two episodes and more beside it")
            n_pilot = max(1, int(_PILOT_SHARE * one.returns.size))
            rows.append((mean_return(one.returns[:n_pilot]), one, attack.settings.attack, n_pilot))
    found = []
    for budget in sorted({one.budget for _, one, _, _ in rows}):
        _, one, name, n_pilot = min((row for row in rows if row[1].budget <= budget), key=lambda row: row[0])
        fresh = one.returns[n_pilot:]  # type: ignore[index]
        found.append(Strongest(budget, name, one.budget, mean_return(fresh), mean_interval(fresh), n_pilot, fresh.size))
    return found


def reasons(attacks: Sequence[AttackResult], zero_gradients: float | None = None) -> dict[str, str]:
    """
    Say of attacks that did not hurt why that may be.

    :param attacks: What was given to :func:`strongest`
    :param zero_gradients: Share of the observations at which the action scores do not depend on the observation, as far as
        gradients tell; None if it is not known
    :return: by the names of the attacks that left the return as it was
    """
    ends = {attack.settings.attack: (attack.budgets[0], attack.budgets[-1]) for attack in attacks}
    hurt = {name: one for name, (first, one) in ends.items() if first.budget > 0 or _is_below(one, first)}
    found = {}
    for name, (first, one) in ends.items():
        if name not in hurt and one is not first:
            better = [other for other, result in hurt.items() if _is_below(result, one)]
            found[name] = "; ".join(_reasons(name, one, better, len(ends) > 1, zero_gradients))
    return found


def _reasons(name: str, one: BudgetResult, better: Sequence[str], has_others: bool, zero_gradients: float | None) -> list[str]:
    """Why an attack left the return as it was."""
    texts = []
    if not one.mean_flips:
        texts.append(f"it changed no action with budget {exact(one.budget)}")
    else:
        texts.append(f"it changed {one.mean_flips:.1f} actions of an episode, but not those that matter")
    if name == RANDOM:
        return [*texts, "it is blind, the control"]
    if name not in (LEARNED, TRANSFER):  # these follow no gradients of the policy
        if zero_gradients:
            texts.append(
                f"saturated: at {zero_gradients:.0%} of the observations the gradient is zero, so it sees no direction"
            )
        if RANDOM in better:
            texts.append("masked: random directions hurt more than its gradients")
        if TRANSFER in better:
            texts.append("masked: the gradients of another agent hurt more than its own")
    if better:
        texts.append(f"the agent can be hurt: {' and '.join(better)} did")
    elif has_others:
        texts.append("none of the others hurt either")
    return texts


def _is_below(one: BudgetResult, other: BudgetResult) -> bool:
    """Whether the first mean is lower by more than chance, by the intervals of both."""
    low = other.confidence_interval or (other.mean_return, other.mean_return)
    high = one.confidence_interval or (one.mean_return, one.mean_return)
    return high[1] < low[0]


def verdict_as_json(found: Sequence[Strongest], why: Mapping[str, str], left_out: Mapping[str, str]) -> dict[str, Any]:
    """
    :param found: What :func:`strongest` returned
    :param why: What :func:`reasons` returned
    :param left_out: Attacks that were not made, and why
    :return: the content of a ``verdict.json``
    """
    return {
        "chosen_by": "the first fifth of the episodes of each attack, which are not among those of the mean and its interval",
        "budgets": [one._asdict() for one in found],
        "did_not_hurt": dict(why),
        "left_out": dict(left_out),
    }


def read_verdict(path: str | Path) -> tuple[list[str], list[Strongest]]:
    """
    :param path: A ``verdict_sigma<S>.json``
    :return: the names of the attacks that were made, and the strongest with each budget
    :raises InputError: if it is not a sound one
    """
    content = read_json(Path(path))
    if not isinstance(content, dict) or content.get("format") != VERDICT_FORMAT:
        raise InputError(f"{path}: not a verdict of the format {VERDICT_FORMAT}")
    names, budgets = content.get("attacks"), content.get("budgets")
    if not isinstance(names, list) or not isinstance(budgets, list) or not all(map(_is_strongest, budgets)):
        raise InputError(f"{path}: attacks must be a list of names, and budgets one of objects as {VERDICT_FORMAT} has them")
    found = [Strongest(**{name: one[name] for name in Strongest._fields}) for one in budgets]
    return names, [one._replace(confidence_interval=_pair(one.confidence_interval)) for one in found]


def _is_strongest(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("attack"), str):
        return False
    numbers = [value.get(name) for name in Strongest._fields if name not in ("attack", "confidence_interval")]
    interval = value.get("confidence_interval", ())
    is_interval = interval is None or (isinstance(interval, list) and len(interval) == 2 and all(map(is_number, interval)))
    return is_interval and all(map(is_number, numbers))


def _pair(interval: Any) -> tuple[float, float] | None:
    return None if interval is None else tuple(interval)
