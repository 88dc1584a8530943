"""Playing episodes under attack, and their results, for ``python -m sb3_camp.attack``."""

from typing import TYPE_CHECKING

from sb3_camp.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from sb3_camp.attack_runs.attack_files import read_attack
    from sb3_camp.attack_runs.attack_result import AttackResult, AttackSettings, BudgetResult
    from sb3_camp.attack_runs.verdict import Strongest, read_verdict

__all__ = ["AttackResult", "AttackSettings", "BudgetResult", "Strongest", "read_attack", "read_verdict"]

__getattr__ = lazy_imports(
    globals(),
    {
        "read_attack": "sb3_camp.attack_runs.attack_files",
        "AttackResult": "sb3_camp.attack_runs.attack_result",
        "AttackSettings": "sb3_camp.attack_runs.attack_result",
        "BudgetResult": "sb3_camp.attack_runs.attack_result",
        "Strongest": "sb3_camp.attack_runs.verdict",
        "read_verdict": "sb3_camp.attack_runs.verdict",
    },
)
