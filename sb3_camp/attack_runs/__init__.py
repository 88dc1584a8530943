"""Playing episodes under attack, and their results: the rooms of ``python -m sb3_camp.attack``."""

from sb3_camp.attack_runs.attack_result import read_attack

__all__ = ["read_attack"]
