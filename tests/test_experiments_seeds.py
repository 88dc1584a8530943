"""What the tables of studies say over the seeds: intervals of curves, and comparisons of algorithms."""

import numpy as np
import pandas as pd
import pytest
from support.experiments import script

results, over_seeds = map(script, ("results", "over_seeds"))


def test_intervals_over_seeds_are_those_of_a_bootstrap_of_the_interquartile_mean():
    values = np.random.default_rng(0).normal(100, 10, size=10)
    rows = pd.DataFrame({"algo": "a", "variant": "v", "x": 0.5, "seed": range(10), "value": values})
    # another agent, with other seeds, changes nothing
    other = pd.DataFrame({"algo": "b", "variant": "v", "x": 0.7, "seed": range(8, 13), "value": 7.0})
    curve = over_seeds.intervals_over_seeds(pd.concat([rows, other]), ["algo", "variant"])["a", "v"]
    resampled = np.random.default_rng(1).choice(values, (20_000, 10))
    means = np.sort(resampled, axis=1)[:, 2:8].mean(axis=1)
    assert curve.loc[0.5, "iqm"] == pytest.approx(np.sort(values)[2:8].mean())
    np.testing.assert_allclose(curve.loc[0.5, ["low", "high"]].astype(float), np.quantile(means, [0.025, 0.975]), atol=0.6)
    assert curve.loc[0.5, "seeds"] == 10


def test_algorithms_are_compared_by_the_probability_that_a_seed_of_one_certifies_more():
    def rows(algo, values):
        lines = [
            [task, "0.4", algo, "", "default", seed, "best", "certified_return", "berk-jones", 0.4, value]
            for task, of_task in zip(("a", "b"), values, strict=True)
            for seed, value in enumerate(of_task)
        ]
        frame = pd.DataFrame(lines, columns=results.RESULT_COLUMNS).assign(sigma=0.4, camp_lambda=-1.0)
        return frame.assign(seed=frame.seed.astype(int), x=frame.x.astype(float), value=frame.value.astype(float))

    better, worse, alike = [[7, 8, 9], [4, 5, 6]], [[1, 2, 3], [1, 2, 3]], [[1, 2, 3], [7, 2, 3]]
    table = pd.concat([rows("a2c", better), rows("dqn", worse), rows("ppo", alike), rows("ars", [[5], [5]])])
    before = np.random.get_state()[1].tolist()
    found = {
        (line["algorithm"], line["compared with"]): line
        for line in over_seeds.comparison_table(table, "berk-jones").to_dict("records")
    }
    assert np.random.get_state()[1].tolist() == before, "nobody else's random numbers change"
    assert set(found) == {("a2c", "dqn"), ("a2c", "ppo"), ("dqn", "ppo")}, "one seed says nothing"
    assert found["a2c", "dqn"]["probability of improvement"] == "1.00"
    assert found["a2c", "dqn"]["95 % interval"] == "1.00 to 1.00"
    # in the first task all nine pairs, in the second six
    assert found["a2c", "ppo"]["probability of improvement"] == f"{15 / 18:.2f}"
    assert (found["a2c", "ppo"]["settings"], found["a2c", "ppo"]["seeds"]) == ("2", "3 and 3")
    low, high = map(float, found["dqn", "ppo"]["95 % interval"].split(" to "))
    assert low < 0.5 > float(found["dqn", "ppo"]["probability of improvement"]) and high > 0.5
    pd.testing.assert_frame_equal(
        over_seeds.comparison_table(table, "berk-jones"), over_seeds.comparison_table(table, "berk-jones")
    )
