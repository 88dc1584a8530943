"""
``python -m sb3_camp.certify``: from the log of an evaluation to a certificate.

How much expected return a policy keeps under any attack on its observations, as a function of the l2 norm of the attack over
an episode. The policy must act on observations with Gaussian noise, and its episodes must be logged by ``sb3_camp.evaluate``,
the zoo's ``enjoy --reward-log`` or SB3's ``EvalCallback``.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from sb3_camp.certification.bands import METHODS, berk_jones_level, largest_ratio
from sb3_camp.certification.certificate import build_certificate, write_certificate
from sb3_camp.certification.episode_logs import EpisodeLog, read_logs
from sb3_camp.command_line import exit_status
from sb3_camp.errors import InputError
from sb3_camp.zoo.run_folder import RunFolder

MONITOR_WARNING = (
    "a monitor log lacks the episode that the step limit of enjoy (-n) cut off, with several envs short episodes are "
    "over-represented, and it does not tell whether actions were greedy or --env-kwargs changed the noise: "
    "python -m sb3_camp.evaluate has none of these faults"
)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="certify",
        usage="python -m sb3_camp.certify PATH [PATH ...] [options]",
        description="Certify the expected return of a smoothed policy under attacks on its observations.",
    )
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="+",
        type=Path,
        help="zoo run folder, evaluations.npz, *.monitor.csv or a folder with these; several are pooled",
    )
    parser.add_argument(
        "--sigma", type=float, help="Noise on the observations, where neither the log nor its run folder tells"
    )
    parser.add_argument("--alpha", type=float, default=0.05, help="The certificate is wrong with at most this probability")
    parser.add_argument("--method", choices=METHODS, default="berk-jones", help="Confidence band on the law of the return")
    parser.add_argument("--min-return", type=float, default=0.0, help="Lowest return that any episode of the task can have")
    parser.add_argument(
        "--support",
        nargs="+",
        metavar="RETURN",
        help="For clopper-pearson: the possible returns, as numbers or a range like 1:200",
    )
    parser.add_argument("--radii", type=float, nargs="+", metavar="R", help="l2 radii (default: 121 up to 3 sigma)")
    parser.add_argument("--targets", type=float, nargs="+", default=[], metavar="RETURN", help="Also find their largest radii")
    parser.add_argument("-o", "--output", type=Path, help="Folder for the certificate (default: certification/ of the run)")
    return parser


def _certify(args: argparse.Namespace) -> None:
    logs = read_logs(args.paths)
    run = _find_run(logs)
    sigma = _find_sigma(logs[0], run, args.sigma)
    support = _find_support(args, logs, run)
    radii = sigma * np.linspace(0, 3, 121) if args.radii is None else np.unique(args.radii)
    if not np.all(np.isfinite(radii)) or np.any(radii < 0):
        raise InputError("--radii must be finite numbers that are at least 0")
    certificate = build_certificate(
        logs,
        sigma,
        radii,
        alpha=args.alpha,
        method=args.method,
        min_return=args.min_return,
        support=support,
        targets=args.targets,
    )
    if run is not None:
        certificate.update(env_id=run.env_id, algo=run.algo)
    folder = args.output or (logs[0].path.parent if run is None else run.path / "certification")
    files = write_certificate(certificate, folder)
    if logs[0].is_monitor:
        print(f"certify: warning: {MONITOR_WARNING}", file=sys.stderr)
    _report(certificate, every=10 if args.radii is None else 1)
    print("Written: " + ", ".join(str(file) for file in files))


def _find_run(logs: list[EpisodeLog]) -> RunFolder | None:
    """The run folder that all the logs lie in, if they lie in one."""
    runs = [RunFolder.containing(log.path) for log in logs]
    for log, run in zip(logs, runs, strict=True):
        if (run and run.path) != (runs[0] and runs[0].path):
            raise InputError(f"{log.path}: not in the same run folder as {logs[0].path}")
        for name in ("env_id", "algo") if run is not None else ():
            logged, configured = getattr(log, name), getattr(run, name)
            if logged is not None and logged != configured:
                raise InputError(f"{log.path}: its {name} is {logged}, but it lies in the folder of a run of {configured}")
    return runs[0]


def _find_sigma(log: EpisodeLog, run: RunFolder | None, given: float | None) -> float:
    """The noise that the episodes were played with; all that tell of it must agree."""
    sources: list[tuple[str, float]] = []
    if log.sigma is not None:
        sources.append((str(log.path), log.sigma))
    if run is not None:
        if log.env_kwargs is not None:  # may set another sigma than the training had
            run = replace(run, args={**run.args, "env_kwargs": log.env_kwargs})
        configured = run.smoothing_sigma(evaluation=not log.is_monitor and not log.is_evaluation)
        # A model that was trained without noise may be evaluated with it: then the log says so
        if configured > 0 or log.sigma is None:
            sources.append((str(run.config_file), configured))
    if given is not None:
        if not (math.isfinite(given) and given >= 0):
            raise InputError(f"--sigma must be a finite number that is at least 0, not {given}")
        sources.append(("--sigma", given))
    if not sources:
        raise InputError(f"{log.path}: nothing tells the noise on the observations: pass it with --sigma")
    where, sigma = sources[0]
    if sigma == 0:
        raise InputError(f"{where}: no smoothing noise on the observations, so there is nothing to certify (log: {log.path})")
    for other, value in sources[1:]:
        if not math.isclose(value, sigma, rel_tol=1e-6):
            raise InputError(f"{log.path}: {where} says sigma {sigma:g}, but {other} says {value:g}")
    return sigma


def _find_support(args: argparse.Namespace, logs: list[EpisodeLog], run: RunFolder | None) -> list[float] | None:
    """The possible returns: as given, or 1 to the step limit where each step is worth 1."""
    if args.support is not None:
        if args.method != "clopper-pearson":
            raise InputError(f"--support is for the method clopper-pearson, not for {args.method}")
        return _parse_support(args.support)
    if args.method != "clopper-pearson":
        return None
    spec = gym.registry.get((run.env_id if run else logs[0].env_id) or "")
    one_per_step = all(np.array_equal(log.returns, log.lengths) for log in logs)
    if spec is None or spec.max_episode_steps is None or not one_per_step:
        raise InputError(
            f"{logs[0].path}: clopper-pearson needs the possible returns: pass them with --support, or use berk-jones"
        )
    return [float(steps) for steps in range(1, spec.max_episode_steps + 1)]


def _parse_support(words: list[str]) -> list[float]:
    values: list[float] = []
    for word in words:
        try:
            if ":" in word:
                first, last = map(int, word.split(":"))
                values += map(float, range(first, last + 1))
            else:
                values.append(float(word))
        except ValueError:
            raise InputError(f"--support: {word!r} is neither a number nor a range of whole numbers like 1:200") from None
    if not values or not np.all(np.isfinite(values)):
        raise InputError("--support must hold at least one return, and only finite ones")
    return sorted(set(values))


def _report(certificate: dict[str, Any], every: int) -> None:
    sigma, m, alpha, method = (certificate[key] for key in ("sigma", "n_episodes", "alpha", "method"))
    actions = {True: "greedy actions", False: "sampled actions", None: "greedy or sampled actions (the log does not say)"}
    names = ", ".join(str(certificate[key]) for key in ("env_id", "algo") if certificate[key]) or "unknown environment"
    print(f"{names}: {m} episodes with {actions[certificate['deterministic']]}, mean return {certificate['mean_return']:.2f}")
    print(f"Noise sigma {sigma:g}; method {method}, confidence {100 * (1 - alpha):g} % for all radii together")
    print(f"Assumed: no episode can return less than {certificate['min_return']:g} (--min-return)")
    print(f"\n{'radius':>12} {'radius/sigma':>14} {'certified return':>18}")
    curve = list(zip(certificate["radii"], certificate["certified_return"], strict=True))
    for radius, value in curve[::every]:
        print(f"{radius:12.6g} {radius / sigma:14.3f} {math.floor(1000 * value) / 1000:18.3f}")  # a bound is rounded down
    ratio = certificate["ceiling"]["ratio"]
    more = _ceiling_of_more(10 * m, m, certificate)
    print(f"\nCeiling: beyond radius {ratio * sigma:.4g} ({ratio:.2f} sigma), {m} episodes certify less than half of even a")
    print(f"perfect return; with {10 * m} episodes this would be about radius {more * sigma:.4g} ({more:.2f} sigma)")
    for target, radius in certificate["targets"].items():
        print(
            f"Return {target}: "
            + ("not certified at any radius" if radius is None else f"certified up to radius {radius:.6g}")
        )


def _ceiling_of_more(more: int, m: int, certificate: dict[str, Any]) -> float:
    alpha, method = certificate["alpha"], certificate["method"]
    if method == "berk-jones":
        # The exact level of so many episodes takes long, and hardly differs
        return largest_ratio(more, berk_jones_level(m, alpha), "clopper-pearson", 1)
    support = certificate["support"]
    n_thresholds = None if support is None else max(1, sum(value > certificate["min_return"] for value in support))
    return largest_ratio(more, alpha, method, n_thresholds)


def main(argv: Sequence[str] | None = None) -> int:
    """
    :param argv: the command line, by default that of the process
    :return: exit status: 0, 2 for input that cannot be used, 130 if interrupted
    """
    args = _parser().parse_args(argv)
    return exit_status("certify", lambda: _certify(args))


if __name__ == "__main__":
    sys.exit(main())
