"""A cell of a study, where its results are, and the tables that hold the results of all cells."""

from dataclasses import astuple, dataclass

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
    :param sigma: Standard deviation of the noise
    :param algo: The zoo's name of the algorithm
    :param camp_lambda: CAMP's constant lambda, None for that of the hyper-parameters and for other algorithms
    :param variant: Name of a change of hyper-parameters, "default" for none
    :param seed: Seed of training, evaluation and attack
    """

    task: str
    sigma: float
    algo: str
    camp_lambda: float | None
    variant: str
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

    @property
    def texts(self) -> list[str]:
        """Its entries in a table."""
        return ["" if v is None else exact(v) if isinstance(v, float) else str(v) for v in astuple(self)]

    @property
    def order(self) -> tuple:
        """Where it stands among others."""
        first = -1.0 if self.camp_lambda is None else self.camp_lambda
        return self.task, self.sigma, self.algo, first, self.variant, self.seed

    @property
    def run(self) -> str:
        """The run folder of the zoo."""
        return f"cells/{self.name}/train/{self.algo}/{self.task.replace('/', '-')}_1"

    def model(self, checkpoint: str) -> str:
        """File of a checkpoint."""
        return f"{self.run}/{'best_model' if checkpoint == 'best' else self.task.replace('/', '-')}.zip"

    def shard(self, checkpoint: str, shard: int) -> str:
        """Folder of an evaluation, or of a part of it."""
        return f"cells/{self.name}/{checkpoint}/shard{shard}"

    def certificate(self, checkpoint: str, method: str) -> str:
        """Folder of a certificate."""
        return f"cells/{self.name}/{checkpoint}/certificates/{method}"

    def attack(self, checkpoint: str, name: str) -> str:
        """Folder of an attack."""
        return f"cells/{self.name}/{checkpoint}/attacks/{name}"


def gap_text(value: float) -> str:
    """
    :param value: A gap between Q-values
    :return: its first four digits, wherever they begin: the smallest gaps are far below 1e-4
    """
    return f"{value:.4g}"
