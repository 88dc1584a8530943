"""Certificates: lower bounds on the return, and on all that follows from it, under l2-bounded attacks on the observations."""

from sb3_camp.certification.band_registry import Band, register_band
from sb3_camp.certification.bounds import certified_radius, certified_return
from sb3_camp.certification.frontier import Frontier, certified_frontier
from sb3_camp.certification.planning import Look, Plan, plan_episodes, planned_looks
from sb3_camp.certification.quantities import certified_cost, certified_cvar, certified_probability, certified_quantile
from sb3_camp.certification.radii import local_radius, soft_radius, substitute_radius

__all__ = [
    "Band",
    "Frontier",
    "Look",
    "Plan",
    "certified_cost",
    "certified_cvar",
    "certified_frontier",
    "certified_probability",
    "certified_quantile",
    "certified_radius",
    "certified_return",
    "local_radius",
    "plan_episodes",
    "planned_looks",
    "register_band",
    "soft_radius",
    "substitute_radius",
]
