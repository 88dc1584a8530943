"""Certificates: lower bounds on the expected return under l2-bounded attacks on the observations."""

from sb3_camp.certification.bounds import certified_radius, certified_return
from sb3_camp.certification.radii import local_radius, soft_radius, substitute_radius

__all__ = ["certified_radius", "certified_return", "local_radius", "soft_radius", "substitute_radius"]
