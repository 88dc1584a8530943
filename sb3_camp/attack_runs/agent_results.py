"""What there is on one agent: its certificate, the attacks on it that the certificate speaks of, a frontier that it is in."""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sb3_camp.attack_runs.attack_files import read_attack
from sb3_camp.attack_runs.attack_result import AttackResult
from sb3_camp.attack_runs.consistency import Comparison, check_agreement, compare, evaluated_returns, incomparable
from sb3_camp.certification.certificate import CERTIFICATE_FORMAT, Certificate, read_certificate
from sb3_camp.certification.frontier_files import FRONTIER_FORMAT, CertifiedFrontier, read_frontier
from sb3_camp.command_line import spelled
from sb3_camp.errors import InputError
from sb3_camp.files import read_json
from sb3_camp.text import printable

_NO_ATTACKS = (CERTIFICATE_FORMAT, FRONTIER_FORMAT)


@dataclass(frozen=True, eq=False)
class ComparedAttack:
    """
    :param file: Where it was read
    :param content: The attack
    :param comparison: What came of its comparison with the certificate
    """

    file: Path
    content: AttackResult
    comparison: Comparison


@dataclass(frozen=True, eq=False)
class FoundFrontier:
    """
    :param file: Where it was read
    :param content: The frontier
    """

    file: Path
    content: CertifiedFrontier


@dataclass(frozen=True, eq=False)
class AgentResults:
    """
    :param file: The ``certificate.json``
    :param certificate: Its content
    :param attacks: The attacks that it speaks of
    :param left_out: In words, which attacks it does not speak of and which frontiers the agent is not in, and why
    :param frontier: A frontier that has an evaluation of the agent, None without one
    """

    file: Path
    certificate: Certificate
    attacks: list[ComparedAttack]
    left_out: list[str]
    frontier: FoundFrontier | None = None

    @property
    def contents(self) -> list[AttackResult]:
        """The attacks."""
        return [attack.content for attack in self.attacks]

    @property
    def comparisons(self) -> list[Comparison]:
        """What came of the comparison of each attack."""
        return [attack.comparison for attack in self.attacks]


def add_result_paths(parser: argparse.ArgumentParser) -> None:
    """
    :param parser: Parser of a command that :func:`find_results` serves; it gets the argument ``paths``
    """
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="+",
        type=Path,
        help="run folder, or a certificate.json and, if you like, some attack.json and a frontier.json (or folders that hold "
        "them)",
    )


def find_results(paths: Sequence[Path]) -> AgentResults:
    """
    :param paths: A run folder, or other folders and files that hold one ``certificate.json`` and perhaps some ``attack.json``
        and a ``frontier.json``
    :return: what they hold. Of the attacks in a folder those that the certificate does not speak of are left out: the folder
        of a run may hold attacks on other checkpoints, or without noise. So are frontiers without the agent
    :raises InputError: if there is not just one certificate, a file cannot be read, or what was named does not belong to the
        certificate
    """
    certificate_file = _certificate_file(paths)
    certificate = read_certificate(certificate_file)
    evaluated = evaluated_returns(certificate, certificate_file)
    attacks, left_out = [], []
    frontier: FoundFrontier | None = None
    for path in paths:
        for file in _frontier_files(path):
            content = read_frontier(file)
            reason = _unfit_frontier(content, certificate)
            if reason is not None and path.is_dir():
                left_out.append(f"{file}: {reason}")
            elif reason is not None:
                raise InputError(f"{file}: {reason}")
            elif frontier is not None:
                raise InputError(f"{file}: a second frontier beside {frontier.file}: give one")
            else:
                frontier = FoundFrontier(file, content)
        for file in attack_files(path) if path.is_dir() else [path] if _format(path) not in _NO_ATTACKS else []:
            attack = read_attack(file)
            reason = incomparable(attack, certificate)
            if reason is None:
                attacks.append(ComparedAttack(file, attack, compare(attack, certificate, evaluated)))
            elif path.is_dir():
                left_out.append(f"{file}: {reason}")
            else:
                raise InputError(f"{file}: not comparable with {certificate_file}: {reason}")
    return AgentResults(certificate_file, certificate, attacks, left_out, frontier)


def print_verdict(results: AgentResults) -> None:
    """
    Print what came of the comparisons.

    :param results: What is known of an agent
    :raises CertificateViolation: if attacked episodes contradict the certificate
    """
    for attack in results.attacks:
        for note in attack.comparison.notes():
            print(f"{printable(str(attack.file))}: {note}")
    check_agreement((str(attack.file), attack.comparison) for attack in results.attacks)
    if any(comparison.budgets for comparison in results.comparisons):
        print("No attack contradicts the certificate")


def attack_files(folder: Path) -> list[Path]:
    """
    :param folder: A folder with results, one that holds such folders, or that of a run
    :return: the ``attack.json`` in it
    """
    patterns = ("attack.json", "*/attack.json", "attacks/*/attack.json")
    return sorted({file for pattern in patterns for file in folder.glob(pattern) if file.is_file()})


def _certificate_file(paths: Sequence[Path]) -> Path:
    files = [file for path in paths for file in _certificate_files(path)]
    if len(files) != 1:
        found = "none" if not files else f"{len(files)} ({', '.join(map(str, files))})"
        raise InputError(
            f"one certificate.json is needed, {found} found: give one run folder, certified with {spelled('certify')}, "
            "or the files"
        )
    return files[0]


def _certificate_files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        candidates = (path / "certification" / "certificate.json", path / "certificate.json")
        yield from [file for file in candidates if file.is_file()][:1]
        return
    if _format(path) == CERTIFICATE_FORMAT:
        yield path


def _frontier_files(path: Path) -> list[Path]:
    if path.is_dir():
        candidates = (path / "frontier.json", path / "frontier" / "frontier.json", path / "certification" / "frontier.json")
        return [file for file in candidates if file.is_file()]
    return [path] if _format(path) == FRONTIER_FORMAT else []


def _format(path: Path) -> str | None:
    content = read_json(path)
    return content.get("format") if isinstance(content, dict) else None


def _unfit_frontier(frontier: CertifiedFrontier, certificate: Certificate) -> str | None:
    """Why a frontier is not about the agent of a certificate, in words; None where it is."""
    if frontier.certificates[0].env_id != certificate.env_id:
        return f"a frontier in {frontier.certificates[0].env_id}, the certificate is for {certificate.env_id}"
    agents = [one.model_sha256 for one in frontier.certificates]
    if certificate.model_sha256 is None or certificate.model_sha256 not in agents:
        return "a frontier without the agent of the certificate"
    return None
