"""Playing episodes under attack, and their results, for ``python -m sb3_camp.attack``."""

from sb3_camp.attack_runs.attack_files import read_attack
from sb3_camp.attack_runs.attack_result import AttackResult, AttackSettings, BudgetResult

__all__ = ["AttackResult", "AttackSettings", "BudgetResult", "read_attack"]
