"""A cell of a sweep, and how the tables are written."""

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sb3_camp.certification.rounded_text import exact

DEFAULT = "default"
"""Name of the variant that changes nothing."""

CELL_COLUMNS = ("task", "sigma", "algo", "camp_lambda", "variant", "seed")
RESULT_COLUMNS = (*CELL_COLUMNS, "checkpoint", "quantity", "method", "x", "value")
COST_COLUMNS = (*CELL_COLUMNS, "step", "wall_seconds", "cpu_seconds", "peak_memory_mib", "steps_per_second")


@dataclass(frozen=True)
class Cell:
    """
    One training, and all that is measured of it.

    :param task: Id of the environment
    :param algo: The zoo's name of the algorithm
    :param camp_lambda: CAMP's lambda, None for that of the hyper-parameters and for other algorithms
    :param variant: Name of a change of hyper-parameters, "default" for none
    :param sigma: Standard deviation of the noise
    :param seed: Seed of training, evaluation and attack
    """

    task: str
    algo: str
    camp_lambda: float | None
    variant: str
    sigma: float
    seed: int

    @property
    def name(self) -> str:
        """Name of its folder."""
        parts = [self.task.replace("/", "-"), self.algo]
        if self.camp_lambda is not None:
            parts.append(f"lambda{exact(self.camp_lambda)}")
        if self.variant != DEFAULT:
            parts.append(self.variant)
        return "_".join([*parts, f"sigma{exact(self.sigma)}", f"seed{self.seed}"])

    def run_folder(self, folder: Path) -> Path:
        """The run folder of the zoo, in the folder of the sweep."""
        return folder / self.name / self.algo / f"{self.task.replace('/', '-')}_1"

    def fields(self) -> dict[str, Any]:
        """Its fields, as JSON knows them."""
        return asdict(self)


def gap_text(value: float) -> str:
    """
    :param value: A gap between Q-values
    :return: its first four digits, wherever they begin: the smallest gaps are far below 1e-4
    """
    return f"{value:.4g}"


def write_atomically(file: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, file)
    finally:
        temporary.unlink(missing_ok=True)
