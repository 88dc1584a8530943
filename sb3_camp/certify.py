"""
``python -m sb3_camp.certify``: from the log of an evaluation to a certificate.

How much expected return a policy keeps under any attack on its observations, as a function of the l2 norm of the attack over
an episode. The policy must act on observations with Gaussian noise, and its episodes must be logged by ``sb3_camp.evaluate``,
the zoo's ``enjoy --reward-log`` or SB3's ``EvalCallback``.
"""

import argparse
import math
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from sb3_camp.certification.bands import METHODS
from sb3_camp.certification.build import build_certificate
from sb3_camp.certification.certificate import Source, read_certificate
from sb3_camp.certification.certificate_files import write_certificate
from sb3_camp.certification.episode_logs import EpisodeLog
from sb3_camp.certification.pooling import read_logs
from sb3_camp.certification.printed_report import print_report
from sb3_camp.certification.rounded_text import exact
from sb3_camp.command_line import exit_status
from sb3_camp.errors import InputError
from sb3_camp.files import read_bytes, sha256
from sb3_camp.runs.run_folder import RunFolder
from sb3_camp.tasks import TASKS
from sb3_camp.tasks.returns import lowest_return

MONITOR_WARNING = (
    "a monitor log lacks the episode that the step limit of enjoy (-n) cut off, with several envs short episodes are "
    "over-represented, it does not tell whether actions were greedy or --env-kwargs changed the noise, and it must not be the "
    "log of a training: python -m sb3_camp.evaluate has none of these faults"
)

# Beyond, every certified return is the lowest return
_MOST_SIGMAS = 1e6
_MOST_RETURNS = 10_000_000


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
        "--sigma", type=float, help="the noise that was on the observations, where neither the log nor its run folder tells"
    )
    parser.add_argument("--alpha", type=float, default=0.05, help="The certificate is wrong with at most this probability")
    parser.add_argument("--method", choices=METHODS, default="berk-jones", help="Confidence band on the law of the return")
    parser.add_argument(
        "--min-return",
        type=float,
        help="Lowest return that any episode can have (default: that of the task if it is one of ours, otherwise 0)",
    )
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
    sigma, sigma_assumed = _find_sigma(logs[0], run, args.sigma)
    clean_keys = _find_clean_keys(logs[0], run)
    min_return = _find_min_return(logs, run, args.min_return)
    support = _find_support(args, logs, run)
    folder = args.output or (logs[0].path.parent if run is None else run.path / "certification")
    if args.output is None:
        _keep_other_certificate(folder, logs)
    certificate = build_certificate(
        logs,
        sigma,
        _find_radii(args.radii, sigma),
        alpha=args.alpha,
        method=args.method,
        min_return=min_return,
        support=support,
        targets=args.targets,
        sigma_assumed=sigma_assumed,
    )
    certificate = replace(certificate, clean_keys=clean_keys)
    if run is not None:
        certificate = replace(certificate, env_id=certificate.env_id or run.env_id, algo=run.algo)
    files = write_certificate(certificate, folder)
    for warning in _warnings(logs, run, min_return_given=args.min_return is not None):
        print(f"certify: warning: {warning}", file=sys.stderr)
    print_report(certificate, every=10 if args.radii is None else 1)
    print("Written: " + ", ".join(str(file) for file in files))


def _keep_other_certificate(folder: Path, logs: list[EpisodeLog]) -> None:
    """Refuse to replace, unasked, a certificate that was made from other logs than these, or from their like elsewhere."""
    file = folder / "certificate.json"
    if not file.exists():
        return
    way_out = f"give another folder with -o, or replace it with -o {shlex.quote(str(folder))}"
    try:
        sources = read_certificate(file).sources
    except InputError as error:
        raise InputError(f"{error}: {way_out}") from None
    same = len(sources) == len(logs) and all(any(_is_source(log, source) for source in sources) for log in logs)
    if not same:
        names = ", ".join(source.path for source in sources)
        raise InputError(f"{file}: a certificate from other logs ({names}): {way_out}")


def _is_source(log: EpisodeLog, source: Source) -> bool:
    """Whether a source is this log, or an older state of it; its path may be relative to another working folder."""
    parts = tuple(part for part in Path(source.path).parts if part != "..")
    return source.sha256 == log.sha256 or log.path.resolve().parts[-len(parts) :] == parts or log.path == Path(source.path)


def _find_run(logs: list[EpisodeLog]) -> RunFolder | None:
    """The run folder that all the logs lie in, if they lie in one."""
    runs = [RunFolder.containing(log.path) for log in logs]
    for log, run in zip(logs, runs, strict=True):
        if (run and run.path) != (runs[0] and runs[0].path):
            raise InputError(f"{log.path}: not in the same run folder as {logs[0].path}")
        if run is None:
            continue
        logged_in = log.trained_env_id or log.env_id
        for name, logged, configured in (("env_id", logged_in, run.env_id), ("algo", log.algo, run.algo)):
            if logged is not None and logged != configured:
                raise InputError(f"{log.path}: its {name} is {logged}, but it lies in the folder of a run of {configured}")
    return runs[0]


def _find_sigma(log: EpisodeLog, run: RunFolder | None, given: float | None) -> tuple[float, bool]:
    """The noise that the episodes were played with, and whether only the user says so; all that tell of it must agree."""
    sources: list[tuple[str, float]] = []
    if log.sigma is not None:
        sources.append((str(log.path), log.sigma))
    if run is not None:
        if log.env_kwargs is not None:  # may set another sigma than the training had
            run = replace(run, args={**run.args, "env_kwargs": log.env_kwargs})
        noise = run.smoothing_noise(not log.is_monitor and not log.is_evaluation, unknown_were_checked=log.is_evaluation)
        configured = 0.0 if noise is None else noise.sigma
        # A model that was trained without noise may be evaluated with it: then the log says so
        if configured > 0 or log.sigma is None:
            sources.append((str(run.config_file), configured))
    if given is not None:
        if not (math.isfinite(given) and given >= 0):
            raise InputError(f"--sigma must be a finite number that is at least 0, not {given}")
        sources.append(("--sigma", given))
    if not sources:
        raise InputError(
            f"{log.path}: nothing tells the noise that was on the observations: if there was noise, say its sigma with --sigma"
        )
    where, sigma = sources[0]
    if sigma == 0:
        advice = ""
        if run is not None:
            foreign = run.foreign_noise()
            advice = f": {foreign} is not of this package, so nothing is known of it" if foreign is not None else ""
            advice += f": run {run.evaluate_command()}"
        raise InputError(
            f"{where}: no smoothing noise on the observations, so there is nothing to certify (log: {log.path}){advice}"
        )
    for other, value in sources[1:]:
        if not math.isclose(value, sigma, rel_tol=1e-6):
            raise InputError(f"{log.path}: {where} says sigma {sigma:g}, but {other} says {value:g}")
    return sigma, where == "--sigma"


def _find_clean_keys(log: EpisodeLog, run: RunFolder | None) -> list[str] | None:
    """The entries of the observation that have no noise; None if nothing tells."""
    noise = None if run is None else run.smoothing_noise(unknown_were_checked=True)
    configured = None if noise is None else sorted(noise.clean_keys)
    if log.clean_keys is not None and configured is not None and log.clean_keys != configured:
        assert run is not None
        raise InputError(
            f"{log.path}: its clean_keys are {log.clean_keys}, but {run.config_file} says {configured}: evaluate again"
        )
    return configured if log.clean_keys is None else log.clean_keys


def _find_min_return(logs: list[EpisodeLog], run: RunFolder | None, given: float | None) -> float:
    """The lowest possible return: as given, or what is known of the task, or 0."""
    env_id = _played_in(logs[0], run)
    env_kwargs = _given_env_kwargs(logs[0], run)
    known = lowest_return(env_id, env_kwargs)
    if given is not None:
        if known is not None and given > known:
            raise InputError(f"--min-return {given:g}: an episode of {env_id} can return {known:g}: leave it out")
        return given
    if known is not None:
        return known
    if env_id in TASKS:
        raise InputError(
            f"{logs[0].path}: settings of {env_id} were changed ({', '.join(env_kwargs)}), so that its lowest return is not "
            "known: pass --min-return, the lowest return that any episode can have"
        )
    for log in logs:
        if log.min_reward is not None and log.min_reward < 0:
            raise InputError(
                f"{log.path}: a step with reward {exact(log.min_reward)} was seen: pass --min-return, the lowest return that "
                "any episode can have"
            )
    return 0.0


def _played_in(log: EpisodeLog, run: RunFolder | None) -> str:
    """Id of the environment of the episodes, empty if nothing tells."""
    return log.env_id or (run.env_id if run is not None else "")


def _given_env_kwargs(log: EpisodeLog, run: RunFolder | None) -> dict[str, Any]:
    """What the log says, or all that the zoo may have given to the environment that it was played in."""
    if log.env_kwargs is not None or run is None:
        return dict(log.env_kwargs or {})
    given = (run.config.get("env_kwargs"), run.args.get("env_kwargs"), run.args.get("eval_env_kwargs"))
    return {name: value for kwargs in given for name, value in (kwargs or {}).items()}


def _find_radii(given: list[float] | None, sigma: float) -> np.ndarray:
    if given is None:
        # Without the last digits, which are those of rounding: 0.225, not 0.22499999999999998
        return np.array([float(f"{radius:.12g}") for radius in sigma * np.linspace(0, 3, 121)])
    radii = np.unique(given)
    if not np.all(np.isfinite(radii)) or np.any(radii < 0):
        raise InputError("--radii must be finite numbers that are at least 0")
    if radii[-1] > _MOST_SIGMAS * sigma:
        raise InputError(f"--radii: nothing can be certified at {radii[-1]:g}, with noise of sigma {sigma:g}")
    return radii


def _find_support(args: argparse.Namespace, logs: list[EpisodeLog], run: RunFolder | None) -> list[float] | None:
    """The possible returns: as given, or 1 to the step limit where each step is worth 1."""
    if args.support is not None:
        if args.method != "clopper-pearson":
            raise InputError(f"--support is for the method clopper-pearson, not for {args.method}")
        return _parse_support(args.support)
    if args.method != "clopper-pearson":
        return None
    spec = gym.registry.get(_played_in(logs[0], run))
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
                if last - first >= _MOST_RETURNS:
                    raise InputError(f"--support: {word} holds more than {_MOST_RETURNS} returns: use berk-jones")
                values += map(float, range(first, last + 1))
            else:
                values.append(float(word))
        except InputError:
            raise
        except (ValueError, OverflowError):
            raise InputError(f"--support: {word!r} is neither a number nor a range of whole numbers like 1:200") from None
    if not values or not np.all(np.isfinite(values)):
        raise InputError("--support must hold at least one return, and only finite ones")
    return sorted(set(values))


def _warnings(logs: list[EpisodeLog], run: RunFolder | None, *, min_return_given: bool) -> Iterator[str]:
    if logs[0].is_monitor:
        yield MONITOR_WARNING
    if not min_return_given and any(log.min_reward is None for log in logs):
        yield "the log does not tell whether there are negative rewards: if there are, pass --min-return"
    for log in logs:
        partial = log.path.with_name("evaluations.partial.npz")
        if log.is_evaluation and partial.is_file():
            yield f"{partial}: an interrupted evaluation, not part of this certificate: finish it with evaluate --resume"
    if run is not None and logs[0].is_evaluation:  # all of one model
        models = run.path.glob("*.zip")
        if not any(sha256(read_bytes(model)) == logs[0].model_sha256 for model in models):
            yield f"{logs[0].path}: its model is none of the *.zip files in {run.path} (any more)"


def main(argv: Sequence[str] | None = None) -> int:
    """
    :param argv: the command line, by default that of the process
    :return: exit status: 0, 2 for input that cannot be used, 130 if interrupted
    """
    args = _parser().parse_args(argv)
    return exit_status("certify", lambda: _certify(args))


if __name__ == "__main__":
    sys.exit(main())
