"""
The zoo's published agents (github.com/DLR-RM/rl-trained-agents), certified: which of those that people use withstand what.

Each agent plays with noise of several sigmas, in units of the standard deviation of each sensor, by ``sb3_camp.evaluate``,
and is certified by ``sb3_camp.certify``; all certificates of an agent hold together with a confidence of 95 %. The same
command goes on where it was interrupted, and makes the table and the figure of what there is (docs/leaderboard.md).
"""

import argparse
import contextlib
import json
import shlex
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.special import ndtr, ndtri
from tqdm import tqdm

from sb3_camp import certify, evaluate
from sb3_camp.certification.certificate import Certificate, read_certificate
from sb3_camp.certification.curve_style import curve_styles
from sb3_camp.certification.picture_file import write_picture
from sb3_camp.certification.rounded_text import floor_decimals
from sb3_camp.certification.sensor_table import most_steps


class Task(NamedTuple):
    """
    :param play_in: The environment of today
    :param n_episodes: Episodes of each round
    :param min_return: A return that no episode can fall below, None if none is known
    :param env_kwargs: Settings with which it observes what it did when the agents were trained
    """

    play_in: str
    n_episodes: int
    min_return: float | None = None
    env_kwargs: str | None = None


# Lowest returns: 0 or -1 for each step up to the limit of steps, Pendulum's as sb3_camp.tasks.returns has them. In
# MountainCarContinuous a step costs 0.1 * force^2, where SB3 clips the force to [-1, 1], for 999 steps
TASKS = {
    "CartPole-v1": Task("CartPole-v1", 1000, 0.0),
    "Acrobot-v1": Task("Acrobot-v1", 200, -500.0),
    "MountainCar-v0": Task("MountainCar-v0", 200, -200.0),
    "MountainCarContinuous-v0": Task("MountainCarContinuous-v0", 200, -99.9),
    "Pendulum-v1": Task("Pendulum-v1", 200, -3254.722),
    "LunarLander-v2": Task("LunarLander-v3", 25),
    "LunarLanderContinuous-v2": Task("LunarLanderContinuous-v3", 25),
    "BipedalWalker-v3": Task("BipedalWalker-v3", 25),
    "BipedalWalkerHardcore-v3": Task("BipedalWalkerHardcore-v3", 25),
    "Hopper-v3": Task("Hopper-v4", 25),
    "Walker2d-v3": Task("Walker2d-v4", 25),
    "HalfCheetah-v3": Task("HalfCheetah-v4", 25),
    "Swimmer-v3": Task("Swimmer-v4", 25),
    "Humanoid-v3": Task("Humanoid-v4", 25),
    "Ant-v3": Task("Ant-v4", 25, env_kwargs="use_contact_forces:True"),
}
SHARES = (0.1, 0.03, 0.3)
"""Sigmas, in standard deviations of each sensor. The first is evaluated first, of all agents."""
ALMOST_CLEAN = 0.001
"""Noise that hardly changes an observation: shows what the agent returns without an adversary."""
RADII = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8)
"""l2 norms over an episode, in standard deviations of each sensor."""
ALPHA = 0.05 / len(SHARES)
UNKNOWN_LOWEST = -1e6
"""Stands for a lowest return that is not known: medians and probabilities do not depend on it, and the mean is not quoted."""
CERTIFIED = ("certified_half", "certified_median", "certified_mean")


class Refused(Exception):
    """A command refuses an agent, for this reason."""


class Agent(NamedTuple):
    """
    :param collection: Folder of the zoo's agents
    :param algo: The zoo's name of its algorithm
    :param env: Id of the environment that it was trained in
    :param folder: Where its results go
    """

    collection: Path
    algo: str
    env: str
    folder: Path

    @property
    def task(self) -> Task:
        return TASKS[self.env]

    @property
    def lacks(self) -> Path:
        """File with the reason why it cannot be certified."""
        return self.folder / "lacks.txt"

    def at(self, share: float, number: int) -> Path:
        """The evaluation of a round."""
        return self.folder / f"sigma_{share:g}" / f"seed_{number}" / "evaluations.npz"

    def evaluate(self, share: float, number: int) -> None:
        task = self.task
        n_episodes = task.n_episodes if share != ALMOST_CLEAN else max(20, task.n_episodes // 5)
        arguments = f"--algo {self.algo} --env {self.env} -f {self.collection} --exp-id 1 -n {n_episodes}".split()
        arguments += ["--seed", str(number), "-o", str(self.at(share, number).parent), "--resume"]
        # All envs play until the last one is done, so each has the same number of episodes
        arguments += [] if task.play_in == "CartPole-v1" else ["--n-envs", str(min(n_episodes, 100))]
        arguments += ["--sigma", *self._sigma(share)]
        arguments += [] if task.play_in == self.env else ["--play-in", task.play_in]
        arguments += [] if task.env_kwargs is None else ["--env-kwargs", task.env_kwargs]
        self._run("evaluate", arguments)

    def certify(self, share: float) -> Certificate:
        lowest = UNKNOWN_LOWEST if self.task.min_return is None else self.task.min_return
        radii = [f"{radius / share:.6g}" for radius in RADII]
        rounds = sorted(str(path) for path in self.folder.glob(f"sigma_{share:g}/seed_*/evaluations.npz"))
        folder = self.folder / f"sigma_{share:g}"
        file = folder / "certificate.json"
        if file.is_file() and file.stat().st_mtime > max(Path(path).stat().st_mtime for path in rounds):
            return read_certificate(file)
        arguments = [*rounds, "-o", str(folder), "--alpha", repr(ALPHA), "--quantile", "0.5", "--radii", *radii]
        arguments += [f"--min-return={lowest}", f"--probability-of={self.half()!r}"]
        self._run("certify", arguments)
        return read_certificate(file)

    def clean_median(self) -> float:
        with np.load(self.at(ALMOST_CLEAN, 0)) as file:
            return float(np.median(file["results"]))

    def half(self) -> float:
        """A return at which half of the clean median is lost; where that is negative, half as much again."""
        return self.clean_median() - abs(self.clean_median()) / 2

    def _sigma(self, share: float) -> list[str]:
        """``--sigma``: measured for the first evaluation, in proportion to it for the others."""
        if share == SHARES[0] and not self.at(share, 0).is_file():
            return [f"auto:{share:g}"]
        with np.load(self.at(SHARES[0], 0)) as file:
            measured = json.loads(str(file["sensor_sigma"]))
        return [f"{value * (share / SHARES[0]):.6g}" for value in measured]

    def _run(self, command: str, arguments: list[str]) -> None:
        """One of the package's commands, with its output in a log of the agent; in this process, which has loaded PyTorch."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "log.txt").open("a+") as log:
            log.write(f"$ python -m sb3_camp.{command} {shlex.join(arguments)}\n")
            before = log.tell()
            with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
                status = {"evaluate": evaluate, "certify": certify}[command].main(arguments)
            log.seek(before)
            said = [line for line in log.read().splitlines() if line.startswith(f"{command}: error: ")]
        if status == 2:
            raise Refused(said[-1].partition("error: ")[2])
        if status != 0:
            sys.exit(status)


def agents_of(collection: Path, results: Path) -> list[Agent]:
    """All run folders on the tasks, in the order of these."""
    return [
        Agent(collection, path.parent.name, env, results / path.parent.name / env)
        for env in TASKS
        for path in sorted(collection.glob(f"*/{env}_1"))
    ]


def evaluate_all(agents: list[Agent], n_rounds: int, costs: Path) -> None:
    """First one sigma of all agents, so that a study that was interrupted has something of each."""
    todo = [(agent, 0, share) for agent in agents for share in (SHARES[0], ALMOST_CLEAN)]
    todo += [(agent, 0, share) for share in SHARES[1:] for agent in agents]
    todo += [(agent, number, share) for number in range(1, n_rounds) for share in SHARES for agent in agents]
    bar = tqdm(todo, unit="evaluation", file=sys.__stderr__)
    for agent, number, share in bar:
        bar.set_postfix_str(f"{agent.algo} {agent.env} {share:g}")
        if agent.at(share, number).is_file() or agent.lacks.is_file():
            continue
        begun = time.process_time()
        try:
            if not (agent.collection / agent.algo / f"{agent.env}_1" / f"{agent.env}.zip").is_file():
                raise Refused("its run folder holds no model")
            agent.evaluate(share, number)
        except Refused as error:
            agent.folder.mkdir(parents=True, exist_ok=True)
            agent.lacks.write_text(f"{error}\n")
        with costs.open("a") as file:
            file.write(f"{agent.env},{agent.algo},{share},{number},{time.process_time() - begun:.1f}\n")


def certify_all(agents: list[Agent]) -> pd.DataFrame:
    """A row for each agent, sigma and radius."""
    rows = []
    for agent in tqdm(agents, unit="agent", file=sys.__stderr__):
        for share in SHARES:
            if not (agent.at(share, 0).is_file() and agent.at(ALMOST_CLEAN, 0).is_file()):
                continue
            certificate = agent.certify(share)
            probability, median = (quantity.certified for quantity in certificate.quantities)
            known = agent.task.min_return is not None
            rows += [
                {
                    "env": agent.env,
                    "played_in": certificate.env_id,
                    "algo": agent.algo,
                    "episodes": certificate.n_episodes,
                    "most_steps": most_steps(certificate)[0],
                    "clean_median": round(agent.clean_median(), 3),
                    "sigma": share,
                    "mean": round(certificate.mean_return, 3),
                    "radius": radius,
                    # A bound is never shown higher than it is
                    "certified_half": floor_decimals(probability[row], 5),
                    "certified_median": floor_decimals(median[row], 3) if known or median[row] > UNKNOWN_LOWEST else "",
                    "certified_mean": floor_decimals(certificate.certified_return[row], 3) if known else "",
                }
                for row, radius in enumerate(RADII)
            ]
    return pd.DataFrame(rows)


def ranking(rows: pd.DataFrame) -> pd.DataFrame:
    """
    A line for each agent: of all sigmas the best, as they hold together.

    ``half up to``: the largest radius at which at least half of the episodes are certified to return no less than half of the
    clean median: P(R) = Phi(Phi^-1(P(0)) - R / sigma) is one half at R = sigma * Phi^-1(P(0)).
    """
    numbers = rows.assign(**{name: pd.to_numeric(rows[name]) for name in CERTIFIED})
    lines = []
    for (env, algo), own in numbers.groupby(["env", "algo"], sort=False):
        at_zero = own[own.radius == 0].set_index("sigma").certified_half
        reach = pd.Series(ndtri(at_zero) * at_zero.index, at_zero.index).clip(lower=0)
        best = own.groupby("radius")[list(CERTIFIED)].max()
        shown = {
            "task": env,
            "agent": algo,
            "clean median": f"{own.clean_median.iloc[0]:.1f}",
            "half up to": floor_decimals(reach.max(), 3),
            "with sigma": f"{reach.idxmax():g}" if reach.max() > 0 else "",
            "offset": floor_decimals(reach.max() / np.sqrt(own.most_steps.max()), 4),
            **{f"median at {radius:g}": _number(best.certified_median[radius]) for radius in (0.0, 0.1, 0.2, 0.4)},
            **{f"mean at {radius:g}": _number(best.certified_mean[radius]) for radius in (0.0, 0.1, 0.2)},
        }
        lines.append((list(TASKS).index(env), -reach.max(), -own.clean_median.iloc[0], shown))
    return pd.DataFrame([shown for *_, shown in sorted(lines, key=lambda line: line[:3])])


def _number(value: float) -> str:
    return "" if np.isnan(value) else floor_decimals(value, 1)


def figure_of(rows: pd.DataFrame) -> Figure:
    """For each task the certified probability to keep half of the clean median, of all sigmas the best, over the radius."""
    tasks = [env for env in TASKS if env in set(rows.env)]
    algorithms = sorted(set(rows.algo))
    styles = curve_styles(algorithms, algorithms)
    figure = Figure(figsize=(13, 2.6 * -(-len(tasks) // 4)), layout="constrained")
    axes = figure.subplots(-(-len(tasks) // 4), 4, sharex=True, sharey=True, squeeze=False).ravel()
    radii = np.linspace(0, max(RADII), 121)
    for axis, env in zip(axes, tasks, strict=False):
        for algo, own in rows[(rows.env == env) & (rows.radius == 0)].groupby("algo"):
            curves = [ndtr(ndtri(float(row.certified_half)) - radii / row.sigma) for row in own.itertuples()]
            axis.plot(radii, np.max(curves, axis=0), label=algo, markevery=20, markersize=4, **styles[algo])
        axis.set_title(env, fontsize=10)
        axis.grid(alpha=0.3)
    for axis in axes[len(tasks) :]:
        axis.axis("off")
    handles = {label: line for axis in axes for line, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside right center")
    figure.supxlabel("l2 norm of the perturbations of an episode, in standard deviations of each sensor")
    figure.supylabel("certified probability of half the clean median")
    return figure


def as_markdown(table: pd.DataFrame) -> str:
    lines = [list(table.columns), ["---"] * len(table.columns), *table.astype(str).to_numpy().tolist()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", type=Path, help="folder with the zoo's agents, <algo>/<env>_1")
    parser.add_argument("-o", "--output", type=Path, default=Path("leaderboard"), help="folder for all results")
    parser.add_argument(
        "--rounds", type=int, default=4, help="evaluations of each sigma, which are pooled (default: %(default)s)"
    )
    parser.add_argument("--only", nargs="+", metavar="ENV", choices=TASKS, default=list(TASKS), help="of these environments")
    parser.add_argument("--tables", action="store_true", help="evaluate nothing, make the table of what there is")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    agents = [agent for agent in agents_of(args.collection, args.output) if agent.env in args.only]
    if not args.tables:
        evaluate_all(agents, args.rounds, args.output / "costs.csv")
    rows = certify_all(agents)
    rows.to_csv(args.output / "leaderboard.csv", index=False)
    lacking = [(agent.env, agent.algo, agent.lacks.read_text().strip()) for agent in agents if agent.lacks.is_file()]
    table = as_markdown(ranking(rows))
    if lacking:
        table += "\n" + as_markdown(pd.DataFrame(lacking, columns=["task", "agent", "lacks"]))
    (args.output / "leaderboard.md").write_text(table)
    write_picture(figure_of(rows), args.output / "leaderboard.png")
    print(f"{len(rows.drop_duplicates(['env', 'algo']))} of {len(agents)} agents certified, {len(lacking)} refused")
    print(f"Written: {args.output}/leaderboard.csv, .md, .png")


if __name__ == "__main__":
    main()
