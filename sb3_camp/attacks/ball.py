"""Which perturbations a row may receive: those inside its ball, and of images those that are images again."""

import math
from collections.abc import Callable

import torch as th

from sb3_camp.errors import InputError

# sums of squares in another order give another last digit: a float norm stays below the budget by this factor
_SUMMATION = 1 - 1e-11
# the largest part of a ball that is left unused for the rounding of frames
_MARGIN = 1e-3
_HALVINGS = 8


class PerRow:
    """Holds tensors, or others like it, whose first dimension runs over the same rows."""

    def keep(self, rows: th.Tensor) -> None:
        """
        :param rows: positions of the rows that stay, int64
        """
        for name, value in vars(self).items():
            if isinstance(value, th.Tensor):
                setattr(self, name, value[rows])
            elif isinstance(value, PerRow):
                value.keep(rows)


class Ball(PerRow):
    """
    The l2 balls around clean frames, cut to the valid range 0..255 if they are images.

    Perturbations are float64 and continuous, in units of ``scale``; :meth:`received` makes them what the policy's side gets.

    :param clean: Clean frames, flattened, (N, D), float32 or uint8
    :param radius: (N,) float64, in units of ``scale``
    :param scale: What each entry of a perturbation is divided by in its norm, float64 (D,), the sigma of each sensor; where it
        is 0, nothing may move. Of images one positive number, (1,). None for 1
    """

    def __init__(self, clean: th.Tensor, radius: th.Tensor, scale: th.Tensor | None = None) -> None:
        self._images = clean.dtype == th.uint8
        self._clean = clean.double()
        self._given = self._radius = radius[:, None]
        # Not tensors among the attributes, for they have no rows
        self._scale = _no_rows(scale)
        if self._images and scale is not None:
            self._radius = self._radius * scale * _SUMMATION  # in pixels
        self._inner = self._radius
        self._may_leave = False
        if not self._images:
            self._make_room()

    def _make_room(self) -> None:
        """Let perturbations end before the border, by as much as the rounding of frames can move them."""
        self._radius = self._radius * _SUMMATION
        size = th.linalg.vector_norm(self._in_units(self._clean), dim=1, keepdim=True)
        # rounding moves a frame by at most this
        rounding = 1.001 * 2.0**-24 * (size + self._radius) + 1e-40
        self._inner = self._radius - th.minimum(rounding, _MARGIN * self._radius)
        self._may_leave = bool((rounding > _MARGIN * self._radius).any())

    def steepest(self, gradient: th.Tensor) -> th.Tensor:
        """
        :param gradient: with respect to the frames, (N, D) float64
        :return: the perturbations of norm 1 that gain most by it, (N, D); zero where it is zero
        :raises InputError: if it is not finite
        """
        scale = self._scale()
        if scale is not None and not self._images:
            gradient = gradient * scale
        norm = th.linalg.vector_norm(gradient, dim=1, keepdim=True)
        if not math.isfinite(norm.sum().item()):
            raise InputError("the gradients of the policy's action scores are not finite numbers")
        direction = gradient / norm.clamp_(min=1e-300)
        return direction * scale if scale is not None and self._images else direction

    def random(self, normals: th.Tensor) -> th.Tensor:
        """
        :param normals: Standard normal numbers, (N, D) float64
        :return: perturbations that are uniform on the sphere around the clean frame (l2) or in the box (l-infinity)
        """
        movable = self._movable(normals)
        return self.project(movable * (self._inner / th.linalg.vector_norm(movable, dim=1, keepdim=True).clamp_(min=1e-300)))

    def project(self, delta: th.Tensor) -> th.Tensor:
        """
        :param delta: (N, D) float64
        :return: its projection on the ball, then on the valid range
        """
        delta = self._movable(delta)
        norm = th.linalg.vector_norm(delta, dim=1, keepdim=True)
        return self._valid(delta * (self._inner / norm).clamp_(max=1))  # 0 / 0 cannot be: a radius is positive

    def received(self, delta: th.Tensor, norm: th.Tensor | None = None) -> th.Tensor:
        """
        :param delta: Perturbations that :meth:`project` returned, (N, D) float64
        :param norm: Norms that images come close to without exceeding them, (N,) (default: those of ``delta``)
        :return: the frames that the policy's side gets, float32 (N, D), inside the ball
        """
        if self._images:
            # A norm of 2 may have come out just below
            norm = th.linalg.vector_norm(delta, dim=1) * (1 + 1e-9) if norm is None else self._moved(norm)
            limit = th.minimum(norm[:, None], self._radius)
            room = th.where(delta > 0, 255 - self._clean, self._clean)
            return self._clean.add(delta.sign().mul_(whole_pixels(delta.abs(), limit, room))).float()
        moved = self._moved(delta)
        frames = (self._clean + moved).float()
        if self._may_leave:
            # where the nearest floats leave the ball, take those toward the clean frame: no entry moves by more than delta
            toward = _toward(self._clean, frames, (frames.double() - self._clean).abs() > moved.abs())
            frames = th.where(self.spent(frames)[:, None] > self._radius, toward, frames)
        return frames

    def spent(self, frames: th.Tensor) -> th.Tensor:
        """
        :param frames: (N, D)
        :return: how far they are from the clean ones, in the norm of the ball, float64 (N,)
        """
        return self._norm(self._in_units(frames.double() - self._clean))

    def _norm(self, delta: th.Tensor) -> th.Tensor:
        return th.linalg.vector_norm(delta, dim=1)

    def _in_units(self, difference: th.Tensor) -> th.Tensor:
        scale = self._scale()
        return difference if scale is None else th.where(scale > 0, difference / scale, 0.0)

    def _moved(self, delta: th.Tensor) -> th.Tensor:
        scale = self._scale()
        return delta if scale is None else delta * scale

    def _movable(self, delta: th.Tensor) -> th.Tensor:
        scale = self._scale()
        return delta if scale is None or self._images else th.where(scale > 0, delta, 0.0)

    def _valid(self, delta: th.Tensor) -> th.Tensor:
        if not self._images:
            return delta
        return th.maximum(th.minimum(delta, 255 - self._clean), -self._clean)


class LinfBall(Ball):
    """The same in the l-infinity norm: no entry moves by more than the radius."""

    def _make_room(self) -> None:
        self._radius = self._inner = self._radius * _SUMMATION

    def steepest(self, gradient: th.Tensor) -> th.Tensor:
        super().steepest(gradient)  # whether it is finite
        scale = self._scale()
        return gradient.sign() if scale is None else gradient.sign() * (scale if self._images else scale.sign())

    def project(self, delta: th.Tensor) -> th.Tensor:
        return self._valid(th.maximum(th.minimum(self._movable(delta), self._inner), -self._inner))

    def random(self, normals: th.Tensor) -> th.Tensor:
        return self.project(self._inner * th.erf(normals / math.sqrt(2)))

    def received(self, delta: th.Tensor, norm: th.Tensor | None = None) -> th.Tensor:
        if self._images:
            # A radius that came out just below a whole number may be that number
            largest = (self._radius * (1 + 1e-9)).floor()
            largest = largest - (self._in_units(largest) > self._given).double()
            return self._clean.add(self._valid(th.maximum(th.minimum(delta.round(), largest), -largest))).float()
        frames = (self._clean + self._moved(delta)).float()
        return _toward(self._clean, frames, self._in_units(frames.double() - self._clean).abs() > self._radius)

    def _norm(self, delta: th.Tensor) -> th.Tensor:
        return delta.abs().amax(dim=1)


def _no_rows(scale: th.Tensor | None) -> Callable[[], th.Tensor | None]:
    return lambda: scale


def _toward(clean: th.Tensor, frames: th.Tensor, where: th.Tensor) -> th.Tensor:
    """Where it is said, the floats next to the frames on the side of the clean ones."""
    return th.where(where, th.nextafter(frames, clean.float()), frames)


def whole_pixels(size: th.Tensor, limit: th.Tensor, room: th.Tensor) -> th.Tensor:
    """
    Round the sizes of a perturbation to whole numbers, so that it keeps its norm and, as well as it can, its direction.

    Nearest rounding would make a perturbation that is spread over many pixels vanish, or carry it out of the ball. So the
    sizes are scaled before: among whole vectors no longer than ``limit``, nearest rounding of ``s * size`` with the largest
    fitting ``s`` has the largest inner product with ``size`` for the norm that it spends. Of the entries that are next to
    grow, as many do as fit.

    :param size: At least 0, (N, D) float64, no norm above ``limit``
    :param limit: Largest norms, (N, 1)
    :param room: Largest sizes, whole numbers, (N, D)
    :return: whole numbers of at most ``room``, (N, D) float64, no norm above ``limit``
    """

    def rounded(scale: th.Tensor) -> th.Tensor:
        pixels = size * scale
        return th.minimum(pixels.round_(), room, out=pixels)

    def squares(pixels: th.Tensor) -> th.Tensor:
        return th.linalg.vecdot(pixels, pixels).unsqueeze(1)

    # at 1/2 no entry grows, at the other end the largest one alone is too long
    low = th.full_like(limit, 0.5)
    high = (limit + 1) / size.amax(dim=1, keepdim=True).clamp_(min=1e-300)
    for _ in range(_HALVINGS):
        middle = (low * high).sqrt_()
        fits = squares(rounded(middle)).sqrt_() <= limit
        low, high = th.where(fits, middle, low), th.where(fits, high, middle)
    pixels = rounded(low)
    grows = rounded(high) > pixels
    growth = grows * (2 * pixels + 1)  # of the square of the norm
    return pixels + (grows & ((squares(pixels) + growth.cumsum(dim=1)).sqrt_() <= limit))
