"""Certificates: lower bounds on the return, and on all that follows from it, under l2-bounded attacks on the observations."""

from typing import TYPE_CHECKING

from sb3_camp.certification.band_registry import Band, register_band
from sb3_camp.certification.bounds import certified_radius, certified_return
from sb3_camp.certification.frontier import Frontier, certified_frontier
from sb3_camp.certification.planning import Look, Plan, plan_episodes, planned_looks
from sb3_camp.certification.quantities import certified_cost, certified_cvar, certified_probability, certified_quantile
from sb3_camp.certification.radii import local_radius, soft_radius, substitute_radius
from sb3_camp.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from sb3_camp.certification.certificate import Certificate, read_certificate
    from sb3_camp.certification.frontier_files import CertifiedFrontier, read_frontier
    from sb3_camp.certification.logged import log_certificate

__all__ = [
    "Band",
    "Certificate",
    "CertifiedFrontier",
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
    "log_certificate",
    "plan_episodes",
    "planned_looks",
    "read_certificate",
    "read_frontier",
    "register_band",
    "soft_radius",
    "substitute_radius",
]

# Those that read files load on first use
_HOME_OF = {
    "Certificate": "sb3_camp.certification.certificate",
    "CertifiedFrontier": "sb3_camp.certification.frontier_files",
    "log_certificate": "sb3_camp.certification.logged",
    "read_certificate": "sb3_camp.certification.certificate",
    "read_frontier": "sb3_camp.certification.frontier_files",
}

__getattr__ = lazy_imports(globals(), _HOME_OF)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
