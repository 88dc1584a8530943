"""
What several seeds say together: intervals of curves, and comparisons of algorithms, by rliable.

Source: Agarwal et al., *Deep reinforcement learning at the edge of the statistical precipice*, NeurIPS 2021.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import scipy.stats
from results import DEFAULT
from summaries import NO_LAMBDA, at_radius

_RESAMPLES = 2000


def intervals_over_seeds(rows: pd.DataFrame, by: Sequence[str], complete: bool = True) -> dict[tuple, pd.DataFrame]:
    """
    Interquartile means with stratified bootstrap intervals, as Agarwal et al. (*Deep reinforcement learning at the edge of the
    statistical precipice*, NeurIPS 2021) recommend for few seeds. They resample the seeds, so of three or less they are too
    narrow rather than too wide.

    :param rows: Rows of one quantity
    :param by: Columns that tell the curves apart, at least two
    :param complete: Whether to leave out the x that a seed of the curve lacks
    :return: of each curve the columns ``iqm``, ``low`` and ``high`` (95 %) and ``seeds`` by x; no interval (nan) of a
        single seed
    """
    by = list(by)
    values = rows.pivot(index=[*by, "x"], columns="seed", values="value").sort_index()
    if complete:
        n_seeds = values.notna().groupby(level=by).any().sum(axis=1)
        values = values[values.notna().sum(axis=1) == n_seeds.reindex(values.index.droplevel("x")).to_numpy()]
    # At once for all that have the same seeds: a thousand small bootstraps would take minutes
    parts = [_interquartile_means(own.dropna(axis=1)) for _, own in values.groupby([values[seed].isna() for seed in values])]
    found = pd.concat(parts).sort_index() if parts else pd.DataFrame()
    return {key: own.droplevel(by) for key, own in found.groupby(level=by)} if parts else {}


def _interquartile_means(values: pd.DataFrame) -> pd.DataFrame:
    """Of values whose columns are the seeds."""
    found = pd.DataFrame({"iqm": _interquartile_mean(values.to_numpy().T), "low": np.nan, "high": np.nan}, index=values.index)
    if values.shape[1] > 1:
        scores = values.to_numpy().T[:, np.newaxis, :]  # seeds, one task, points of the curves
        found["low"], found["high"] = _interval(scores, lambda resampled: _interquartile_mean(resampled[:, 0, :]))
    return found.assign(seeds=values.shape[1])


def _interval(scores: Any, statistic: Callable[..., np.ndarray]) -> np.ndarray:
    """Ends, shape (2, n), of stratified bootstrap intervals of n statistics of scores (seeds, tasks, ...), or of a pair."""
    from rliable.library import get_interval_estimates  # takes a second to import

    state = np.random.get_state()
    np.random.seed(0)  # rliable draws from the generator of all, whatever it is given
    try:
        return get_interval_estimates({"": scores}, statistic, reps=_RESAMPLES)[1][""]
    finally:
        np.random.set_state(state)


def _interquartile_mean(values: np.ndarray) -> np.ndarray:
    return scipy.stats.trim_mean(values, 0.25, axis=0)


def comparison_table(rows: pd.DataFrame, method: str) -> pd.DataFrame:
    """
    :param rows: All rows
    :param method: Method of the certificates
    :return: for each two algorithms with their default settings, and each checkpoint, the probability of improvement: that a
        seed of the first certifies more at the radius sigma than a seed of the second, on average over the tasks and sigmas in
        which both have two seeds or more, with its 95 % interval over the seeds (Agarwal et al., NeurIPS 2021). Where the
        interval lies on one side of 0.5, the difference is more than the luck of the seeds
    """
    certified = rows[(rows.quantity == "certified_return") & (rows.method == method) & (rows.variant == DEFAULT)]
    certified = certified[certified.camp_lambda == NO_LAMBDA]
    found: dict[tuple[str, str], dict[tuple[str, float], pd.Series]] = {}
    for (checkpoint, algo, task, sigma), own in certified.groupby(["checkpoint", "algo", "task", "sigma"]):
        bounds = at_radius(own, sigma)
        if len(bounds) > 1:
            found.setdefault((checkpoint, algo), {})[task, sigma] = bounds
    lines = [
        {"checkpoint": checkpoint, "algorithm": first, "compared with": second, **_improvement(one, other)}
        for ((checkpoint, first), one), ((other_checkpoint, second), other) in itertools.combinations(found.items(), 2)
        if checkpoint == other_checkpoint and one.keys() & other.keys()
    ]
    return pd.DataFrame(lines)


def _improvement(one: dict[tuple[str, float], pd.Series], other: dict[tuple[str, float], pd.Series]) -> dict[str, str]:
    cells = sorted(one.keys() & other.keys())
    # A seed is a row of the table of scores, so it must have all of them
    x, y = (pd.concat([of[cell] for cell in cells], axis=1, join="inner").to_numpy() for of in (one, other))
    settings = {"settings": str(len(cells)), "seeds": f"{len(x)} and {len(y)}"}
    if min(len(x), len(y)) < 2:
        return {**settings, "probability of improvement": "", "95 % interval": ""}

    def probability(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        pairs = x[:, np.newaxis] - y
        return np.array([(pairs > 0).mean() + (pairs == 0).mean() / 2])

    low, high = _interval([x, y], probability)[:, 0]
    return {
        **settings,
        "probability of improvement": f"{probability(x, y)[0]:.2f}",
        "95 % interval": f"{low:.2f} to {high:.2f}",
    }
