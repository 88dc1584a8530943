"""Collisions of the own vehicle with others in the vector environment of Highway: rectangles that meet, now or in a frame."""

from typing import NamedTuple

import numpy as np

_LENGTH, _WIDTH = 5.0, 2.0
_DIAGONAL = np.sqrt(_LENGTH**2 + _WIDTH**2)
_CORNERS = np.array([[-1, -1], [-1, 1], [1, 1], [1, -1]]) * np.array([_LENGTH / 2, _WIDTH / 2])


class Collisions(NamedTuple):
    """
    Pairs of the own vehicle and another that are close to each other. All arrays have the shape (pairs,).

    :param others: Rows of the others, ascending
    :param envs: The envs
    :param touches: Whether they touch now
    :param will_touch: Whether they would within the next frame
    :param push: x and y of the way by which they are then pushed apart
    """

    others: np.ndarray
    envs: np.ndarray
    touches: np.ndarray
    will_touch: np.ndarray
    push: tuple[np.ndarray, np.ndarray]


def collisions(x: np.ndarray, y: np.ndarray, heading: np.ndarray, speed: np.ndarray, dt: float) -> Collisions | None:
    """
    The rules of highway-env (``RoadObject.handle_collisions``), for the vehicle in row 0 with each of the others.

    :param x: Positions in m, shape (vehicles, envs), as all that follow
    :param y: Positions in m
    :param heading: In radians
    :param speed: In m/s
    :param dt: Duration of a frame, in seconds
    :return: the pairs that are close to each other, None if there are none
    """
    dx, dy = x[1:] - x[0], y[1:] - y[0]
    near = np.sqrt(dx * dx + dy * dy) <= (_DIAGONAL + _DIAGONAL) / 2 + speed[0] * dt
    others, envs = np.nonzero(near)
    if not others.size:
        return None
    others = others + 1
    own_corners, own_way = _polygon(x[0, envs], y[0, envs], heading[0, envs], speed[0, envs], dt)
    at = (others, envs)
    other_corners, other_way = _polygon(x[at], y[at], heading[at], speed[at], dt)
    touches, will_touch, push = _meet(own_corners, other_corners, own_way - other_way)
    return Collisions(others, envs, touches, will_touch, push)


def _polygon(x: np.ndarray, y: np.ndarray, heading: np.ndarray, speed: np.ndarray, dt: float) -> tuple[np.ndarray, np.ndarray]:
    """The corners, shape (2, 4, pairs), and the way within a frame, shape (2, pairs)."""
    cos, sin = np.cos(heading), np.sin(heading)
    along, across = _CORNERS.T[:, :, np.newaxis]
    corners = np.stack([cos * along - sin * across + x, sin * along + cos * across + y])
    return corners, np.stack([speed * cos * dt, speed * sin * dt])


def _meet(a: np.ndarray, b: np.ndarray, way: np.ndarray) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Separating axes: whether the rectangles meet, whether they will after ``a`` has gone the way, and by how much."""
    touches, will_touch = np.ones(a.shape[-1], dtype=bool), np.ones(a.shape[-1], dtype=bool)
    least = np.full(a.shape[-1], np.inf)
    axis_x, axis_y = np.zeros_like(least), np.zeros_like(least)
    between = _centre(a) - _centre(b)
    for polygon in (a, b):
        for one, other in ((0, 1), (1, 2), (2, 3), (3, 0)):
            normal_x = -polygon[1, other] + polygon[1, one]
            normal_y = polygon[0, other] - polygon[0, one]
            norm = np.sqrt(normal_x * normal_x + normal_y * normal_y)
            normal_x, normal_y = normal_x / norm, normal_y / norm
            low, high = _projection(a, normal_x, normal_y)
            other_low, other_high = _projection(b, normal_x, normal_y)
            touches &= ~(_distance(low, high, other_low, other_high) > 0)
            forward = normal_x * way[0] + normal_y * way[1]
            low, high = np.where(forward < 0, low + forward, low), np.where(forward < 0, high, high + forward)
            distance = _distance(low, high, other_low, other_high)
            will_touch &= ~(distance > 0)
            closer = np.abs(distance) < least
            least = np.where(closer, np.abs(distance), least)
            away = between[0] * normal_x + between[1] * normal_y > 0
            axis_x = np.where(closer, np.where(away, normal_x, -normal_x), axis_x)
            axis_y = np.where(closer, np.where(away, normal_y, -normal_y), axis_y)
    return touches, will_touch, (least * axis_x, least * axis_y)


def _centre(corners: np.ndarray) -> np.ndarray:
    return (corners[:, 0] + corners[:, 1] + corners[:, 2] + corners[:, 3]) / 4


def _projection(corners: np.ndarray, normal_x: np.ndarray, normal_y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    projected = corners[0] * normal_x + corners[1] * normal_y
    return projected.min(axis=0), projected.max(axis=0)


def _distance(low: np.ndarray, high: np.ndarray, other_low: np.ndarray, other_high: np.ndarray) -> np.ndarray:
    return np.where(low < other_low, other_low - high, low - other_high)
