"""
The highway of highway-env as a vector environment: the traffic of all envs moves as arrays.

The numbers are those of ``HighwayEnvFast`` of highway-env 1.12, operation by operation and draw by draw. What is written
here are its rules for one straight road: IDM and MOBIL for the traffic, the discrete meta-actions for the own vehicle,
collisions of the own vehicle with others, and the kinematics of the nearest vehicles as the observation.

Arrays have the shape (vehicles, envs), the own vehicle in row 0.
"""

import importlib.metadata
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from sb3_camp.errors import InputError
from sb3_camp.tasks.highway_collisions import collisions

_VERSION = "1.12"
# highway_env.vehicle: kinematics, controller and behavior
_LENGTH, _MAX_SPEED = 5.0, 40.0
_KP_ACC, _KP_HEADING, _KP_LATERAL = 1 / 0.6, 1 / 0.2, 1 / 0.6
_MAX_STEERING = np.pi / 3
_TARGET_SPEEDS = np.linspace(20, 30, 3)
_ACC_MAX, _COMFORT_ACC, _JAM_DISTANCE, _TIME_GAP = 6.0, 3.0, 10.0, 1.5
_SPEED_SCALE = 2 * np.sqrt(15.0)  # 2 sqrt(comfortable acceleration x braking)
_LANE_CHANGE_DELAY, _MIN_ACC_GAIN, _MAX_BRAKING_IMPOSED = 1.0, 0.2, 2.0
# highway_env.road: straight_road_network, and the distance up to which vehicles are observed
_LANE_WIDTH, _ROAD_LENGTH, _SPEED_LIMIT = 4.0, 10000.0, 30.0
_PERCEPTION = 5.0 * _MAX_SPEED
_OWN_SPEED = 25.0  # at the start, one of the target speeds
_LANE_LEFT, _LANE_RIGHT, _FASTER, _SLOWER = 0, 2, 3, 4


class HighwayVectorEnv(VectorEnv):
    """
    ``highway-fast-v0`` as one array, observations flattened, without noise.

    Env i with seed s plays the episodes that highway-env plays with ``reset(seed=s)``, the later ones included. A reset with
    one seed gives env i the seed plus i, as Gymnasium's vector environments do. It resets at the next step, and heeds
    ``reset_mask``.

    :param num_envs: Number of environments
    :param settings: Configuration of highway-env, complete
    :raises InputError: if it has settings other than those of traffic, time and rewards
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP, "render_modes": []}  # noqa: RUF012 as in Gymnasium

    def __init__(self, num_envs: int, settings: Mapping[str, Any]) -> None:
        self._n_observed = _checked(settings)
        self._settings = settings
        self.num_envs = num_envs
        self.render_mode = None
        self.single_observation_space = spaces.Box(-np.inf, np.inf, (5 * self._n_observed,), np.float32)
        self.single_action_space = spaces.Discrete(5)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._generators = [seeding.np_random()[0] for _ in range(num_envs)]
        self._frames = int(settings["simulation_frequency"] // settings["policy_frequency"])
        self._dt = 1 / settings["simulation_frequency"]
        self._lane_centres = _LANE_WIDTH * np.arange(settings["lanes_count"])
        shape = (1 + settings["vehicles_count"], num_envs)
        self._columns = np.arange(num_envs)
        self._is_own = np.arange(shape[0])[:, np.newaxis] == 0
        # Of each vehicle: position, speed, heading; what it heads for; exponent of its IDM, time since it thought of its lane
        self._x, self._y, self._speed, self._heading = (np.zeros(shape) for _ in range(4))
        self._target_speed, self._delta, self._timer = (np.zeros(shape) for _ in range(3))
        self._lane, self._target_lane = (np.zeros(shape, dtype=np.int64) for _ in range(2))
        self._crashed, self._is_hit = (np.zeros(shape, dtype=bool) for _ in range(2))
        self._impact = np.zeros((2, *shape))
        self._time = np.zeros(num_envs)
        self._ended = np.zeros(num_envs, dtype=bool)

    # Episodes

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """
        :param seed: Seed of env 0, that of env i is i more; or one for each env
        :param options: ``reset_mask``: which environments to reset; the others stay as they are
        """
        seeds = range(seed, seed + self.num_envs) if isinstance(seed, int) else seed
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, dtype=bool))
        if seeds is not None:
            for i, own in enumerate(seeds):
                if mask[i] and own is not None:
                    self._generators[i] = seeding.np_random(own)[0]
        self._begin(mask)
        return self._observations(), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        begins = self._ended
        self._time += 1 / self._settings["policy_frequency"]
        self._begin_action(np.asarray(actions))
        for _ in range(self._frames):
            self._act()
            self._move()
        on_road = self._on_road()
        rewards = np.where(begins, 0.0, self._rewards(on_road))
        terminations = (self._crashed[0] | (self._settings["offroad_terminal"] & ~on_road)) & ~begins
        truncations = (self._time >= self._settings["duration"]) & ~begins
        if begins.any():
            self._begin(begins)
        self._ended = terminations | truncations
        infos = {"crashed": self._crashed[0].copy(), "speed": self._speed[0].copy()}
        return self._observations(), rewards, terminations, truncations, infos

    def _begin(self, mask: np.ndarray) -> None:
        """New traffic for some of the envs."""
        for i in np.flatnonzero(mask).tolist():
            self._place_vehicles(i, self._generators[i])
        self._target_speed[:, mask] = self._speed[:, mask]
        self._y[:, mask] = self._lane_centres[self._lane[:, mask]]
        self._timer[:, mask] = ((self._x + self._y)[:, mask] * np.pi) % _LANE_CHANGE_DELAY
        self._target_lane[:, mask] = self._lane[:, mask]
        for values in (self._heading, self._crashed, self._is_hit, self._time, self._ended):
            values[..., mask] = 0

    def _place_vehicles(self, i: int, rng: np.random.Generator) -> None:
        """Draws in the order of highway-env: lane, speed, place, and the exponent of the IDM."""
        n_lanes = len(self._lane_centres)
        density = float(np.exp(-5 / 40 * n_lanes))
        spacing = 1 / self._settings["vehicles_density"]
        lane = self._settings["initial_lane_id"]
        lanes, speeds, deltas = [rng.integers(0, n_lanes) if lane is None else lane], [_OWN_SPEED], [0.0]
        offset = self._settings["ego_spacing"] * (12 + _OWN_SPEED) * density
        places = [3 * offset + offset * rng.uniform(0.9, 1.1)]
        for _ in range(len(self._x) - 1):
            lanes.append(rng.integers(0, n_lanes))
            speeds.append(rng.uniform(0.7 * _SPEED_LIMIT, 0.8 * _SPEED_LIMIT))
            places.append(places[-1] + spacing * (12 + speeds[-1]) * density * rng.uniform(0.9, 1.1))
            deltas.append(rng.uniform(3.5, 4.5))
        self._lane[:, i], self._speed[:, i], self._x[:, i], self._delta[:, i] = lanes, speeds, places, deltas

    # What the vehicles decide

    def _begin_action(self, actions: np.ndarray) -> None:
        """The own vehicle takes another lane or speed for its aim."""
        index = _speed_index(self._speed[0]) + np.where(actions == _FASTER, 1, -1)
        speed = _TARGET_SPEEDS[np.clip(index, 0, len(_TARGET_SPEEDS) - 1)]
        changes_speed = (actions == _FASTER) | (actions == _SLOWER)
        self._target_speed[0] = np.where(changes_speed, speed, self._target_speed[0])
        aside = np.where(actions == _LANE_RIGHT, 1, np.where(actions == _LANE_LEFT, -1, 0))
        lane = np.clip(self._target_lane[0] + aside, 0, len(self._lane_centres) - 1)
        reachable = self._is_reachable(lane, self._x[0], self._y[0])
        self._target_lane[0] = np.where(reachable, lane, self._target_lane[0])

    def _is_reachable(self, lane: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        near = np.abs(y - self._lane_centres[lane]) <= 2 * _LANE_WIDTH
        return near & (x >= 0) & (x < _ROAD_LENGTH + _LENGTH)

    def _act(self) -> None:
        """Steering and acceleration of all vehicles until the next frame."""
        self._cos, self._sin = np.cos(self._heading), np.sin(self._heading)
        self._vx, self._vy = self._speed * self._cos, self._speed * self._sin
        self._find_neighbours()
        everyone = np.arange(self._x.size).reshape(self._x.shape)
        own_acceleration = self._idm(everyone, self._front.reshape(-1)[self._lane * self._x.size + everyone], everyone)
        self._change_lanes(own_acceleration)
        self._steering = self._steer()
        changing = np.flatnonzero((self._lane != self._target_lane) & ~self._is_own)
        acceleration = own_acceleration.reshape(-1)
        targets = self._front.reshape(-1)[self._target_lane.reshape(-1)[changing] * self._x.size + changing]
        acceleration[changing] = np.minimum(acceleration[changing], self._idm(changing, targets, changing))
        self._acceleration = np.clip(acceleration, -_ACC_MAX, _ACC_MAX).reshape(self._x.shape)
        self._acceleration[0] = _KP_ACC * (self._target_speed[0] - self._speed[0])

    def _find_neighbours(self) -> None:
        """
        On each lane the next vehicle in front of each and behind it, as flat indices, -1 if there is none, shape (lanes,
        vehicles, envs).
        """
        n_vehicles, n_envs = self._x.shape
        order = np.argsort(self._x, axis=0, kind="stable") * n_envs + self._columns
        padded = np.concatenate([order, np.full((1, n_envs), -1)]).reshape(-1)
        places = np.arange(n_vehicles)[:, np.newaxis]
        on_road = (self._x >= -_LENGTH) & (self._x < _ROAD_LENGTH + _LENGTH)
        shape = (len(self._lane_centres), n_vehicles * n_envs)
        self._front, self._rear = np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.int64)
        first, last = np.full((1, n_envs), n_vehicles), np.full((1, n_envs), -1)
        for centre, front, rear in zip(self._lane_centres, self._front, self._rear, strict=True):
            on_lane = (on_road & (np.abs(self._y - centre) <= _LANE_WIDTH / 2 + 1)).reshape(-1)[order]
            following = np.minimum.accumulate(np.where(on_lane, places, n_vehicles)[::-1], axis=0)[::-1]
            leading = np.maximum.accumulate(np.where(on_lane, places, -1), axis=0)
            following, leading = np.concatenate([following[1:], first]), np.concatenate([last, leading[:-1]])
            front[order] = padded[following * n_envs + self._columns]
            rear[order] = padded[np.where(leading < 0, n_vehicles, leading) * n_envs + self._columns]

    def _change_lanes(self, own_acceleration: np.ndarray) -> None:
        """The lanes that the traffic heads for."""
        traffic = ~self._crashed & ~self._is_own
        before = self._target_lane
        changing = traffic & (self._lane != before)
        thinks = traffic & ~changing & (self._timer > _LANE_CHANGE_DELAY)
        self._timer[thinks] = 0
        target = self._target_lane = before.copy()
        who = np.flatnonzero(thinks & (np.abs(self._speed) >= 1))
        if who.size:
            lanes, accelerations = self._lane.reshape(-1)[who], own_acceleration.reshape(-1)[who]
            for aside in (-1, 1):  # to the right in spite of what was on the left
                new = lanes + aside
                exists = (new >= 0) & (new < len(self._lane_centres))
                gains = who[exists]
                takes = self._is_better(gains, new[exists], accelerations[exists])
                target.reshape(-1)[gains[takes]] = new[exists][takes]
        if changing.any():
            self._give_up(changing, before, target)

    def _is_better(self, who: np.ndarray, lane: np.ndarray, own_acceleration: np.ndarray) -> np.ndarray:
        """MOBIL: whether these vehicles gain by the lane, and leave the one behind enough room."""
        x, y = self._x.reshape(-1)[who], self._y.reshape(-1)[who]
        front, rear = self._front[lane, who], self._rear[lane, who]
        imposed = np.where(rear >= 0, self._idm(rear, who, who), 0.0)
        gain = self._idm(who, front, who) - own_acceleration
        return self._is_reachable(lane, x, y) & ~(imposed < -_MAX_BRAKING_IMPOSED) & ~(gain < _MIN_ACC_GAIN)

    def _give_up(self, changing: np.ndarray, before: np.ndarray, target: np.ndarray) -> None:
        """
        Who changes lanes gives up if somebody in front heads for the same lane. Vehicles decide one after the other, so this
        one sees what those of lower rows have just decided.
        """
        counts = [np.sum(((before == k) | (target == k)) & (self._lane != k), axis=0) for k in range(len(self._lane_centres))]
        contested = changing & (np.stack(counts)[before, self._columns] >= 2)
        for i in np.flatnonzero(contested.any(axis=1)):
            envs = np.flatnonzero(contested[i])
            own = before[i, envs]
            aims = np.concatenate([target[:i, envs], before[i:, envs]])
            distance = self._x[:, envs] - self._x[i, envs]
            rivals = (aims == own) & (self._lane[:, envs] != own) & (distance > 0)
            at = np.broadcast_to(i * len(self._columns) + envs, distance.shape)
            others = np.arange(len(aims))[:, np.newaxis] * len(self._columns) + envs
            gives_up = np.any(rivals & (distance < self._desired_gap(at, others)), axis=0)
            target[i, envs[gives_up]] = self._lane[i, envs[gives_up]]

    def _idm(self, who: np.ndarray, front: np.ndarray, judge: np.ndarray) -> np.ndarray:
        """
        The Intelligent Driver Model.

        :param who: Flat indices of the vehicles that accelerate
        :param front: Flat indices of those in front of them, -1 if there is none
        :param judge: Flat indices of those who reckon it, with an exponent of their own
        :return: acceleration, in m/s2
        """
        speed, limit = self._speed.reshape(-1)[who], np.clip(self._target_speed.reshape(-1)[who], 0, _SPEED_LIMIT)
        share = np.maximum(speed, 0) / np.abs(_not_zero(limit))
        free = _COMFORT_ACC * (1 - np.power(share, self._delta.reshape(-1)[judge]))
        distance = self._x.reshape(-1)[front] - self._x.reshape(-1)[who]
        closeness = self._desired_gap(who, front) / _not_zero(distance)
        return np.where(front >= 0, free - _COMFORT_ACC * (closeness * closeness), free)

    def _desired_gap(self, who: np.ndarray, front: np.ndarray) -> np.ndarray:
        speed, vx, vy = (values.reshape(-1)[who] for values in (self._speed, self._vx, self._vy))
        ahead_vx, ahead_vy = self._vx.reshape(-1)[front], self._vy.reshape(-1)[front]
        closing = (vx - ahead_vx) * self._cos.reshape(-1)[who] + (vy - ahead_vy) * self._sin.reshape(-1)[who]
        return _JAM_DISTANCE + speed * _TIME_GAP + speed * closing / _SPEED_SCALE

    def _steer(self) -> np.ndarray:
        speed = _not_zero(self._speed)
        sideways = -_KP_LATERAL * (self._y - self._lane_centres[self._target_lane])
        heading = np.clip(np.arcsin(np.clip(sideways / speed, -1, 1)), -np.pi / 4, np.pi / 4)
        rate = _KP_HEADING * _wrapped(heading - self._heading)
        slip = np.arcsin(np.clip(_LENGTH / 2 / speed * rate, -1, 1))
        return np.clip(np.arctan(2 * np.tan(slip)), -_MAX_STEERING, _MAX_STEERING)

    # How they move

    def _move(self) -> None:
        """One frame of the bicycle model, and the collisions at its end."""
        dt, speed = self._dt, self._speed
        steering = np.where(self._crashed, 0.0, self._steering)
        acceleration = np.where(self._crashed, -speed, self._acceleration)
        acceleration = np.where(speed > _MAX_SPEED, np.minimum(acceleration, _MAX_SPEED - speed), acceleration)
        acceleration = np.where(speed < -_MAX_SPEED, np.maximum(acceleration, -_MAX_SPEED - speed), acceleration)
        slip = np.arctan(0.5 * np.tan(steering))
        self._x += speed * np.cos(self._heading + slip) * dt
        self._y += speed * np.sin(self._heading + slip) * dt
        if self._is_hit.any():
            self._x += np.where(self._is_hit, self._impact[0], 0.0)
            self._y += np.where(self._is_hit, self._impact[1], 0.0)
            self._crashed |= self._is_hit
            self._is_hit[:] = False
        self._heading += speed * np.sin(slip) / (_LENGTH / 2) * dt
        self._speed = speed + acceleration * dt
        self._timer += dt
        self._lane = self._closest_lane()
        self._collide()

    def _closest_lane(self) -> np.ndarray:
        beyond = np.maximum(self._x - _ROAD_LENGTH, 0), np.maximum(0 - self._x, 0)
        angle = np.abs(_wrapped(self._heading))
        aside = np.abs(self._y - self._lane_centres[:, np.newaxis, np.newaxis])
        return np.argmin(aside + beyond[0] + beyond[1] + angle, axis=0)

    def _collide(self) -> None:
        """Collisions of the own vehicle with each of the others, in their order."""
        hit = collisions(self._x, self._y, self._heading, self._speed, self._dt)
        if hit is None:
            return
        others, envs, touches, will_touch, (push_x, push_y) = hit
        for sign, rows in ((1, np.zeros_like(others)), (-1, others)):
            self._crashed[rows[touches], envs[touches]] = True
            self._is_hit[rows[will_touch], envs[will_touch]] = True
            # Of several that touch the own vehicle the last one counts
            self._impact[0, rows[will_touch], envs[will_touch]] = sign * push_x[will_touch] / 2
            self._impact[1, rows[will_touch], envs[will_touch]] = sign * push_y[will_touch] / 2

    # What is told

    def _on_road(self) -> np.ndarray:
        aside = np.abs(self._y[0] - self._lane_centres[self._lane[0]])
        return (aside <= _LANE_WIDTH / 2) & (self._x[0] >= -_LENGTH) & (self._x[0] < _ROAD_LENGTH + _LENGTH)

    def _rewards(self, on_road: np.ndarray) -> np.ndarray:
        settings = self._settings
        slow, fast = settings["reward_speed_range"]
        scaled_speed = (self._speed[0] * np.cos(self._heading[0]) - slow) * (1 - 0) / (fast - slow)
        right = self._target_lane[0] / max(len(self._lane_centres) - 1, 1)
        rewards = settings["collision_reward"] * self._crashed[0] + settings["right_lane_reward"] * right
        rewards = rewards + settings["high_speed_reward"] * np.clip(scaled_speed, 0, 1)
        if settings["normalize_reward"]:
            least, most = settings["collision_reward"], settings["high_speed_reward"] + settings["right_lane_reward"]
            rewards = (rewards - least) * (1 - 0) / (most - least)
        return rewards * on_road

    def _observations(self) -> np.ndarray:
        """Presence, position and velocity of the own vehicle and, relative to it, of the nearest ones in front or beside."""
        vx, vy = self._speed * np.cos(self._heading), self._speed * np.sin(self._heading)
        features = np.stack([self._x, self._y, vx, vy])
        relative = features[:, 1:] - features[:, :1]
        ahead, aside = relative[:2]
        seen = (np.sqrt(ahead * ahead + aside * aside) < _PERCEPTION) & (ahead > -2 * _LENGTH)
        nearness = np.where(seen, np.abs(ahead), np.inf)
        nearest = np.argsort(nearness, axis=0, kind="stable")[: self._n_observed - 1]
        is_there = np.isfinite(nearness[nearest, self._columns])
        bounds = np.array([_PERCEPTION, _LANE_WIDTH * len(self._lane_centres), 2 * _MAX_SPEED, 2 * _MAX_SPEED])
        bounds = bounds[:, np.newaxis, np.newaxis]
        rows = np.concatenate([features[:, :1], relative[:, nearest, self._columns]], axis=1)
        rows = np.clip(-1 + (rows + bounds) * 2 / (bounds + bounds), -1, 1)
        observations = np.zeros((self.num_envs, self._n_observed, 5))
        observations[:, 0, 0] = 1
        observations[:, 0, 1:] = rows[:, 0].T
        n_seen = len(nearest)
        observations[:, 1 : 1 + n_seen, 0] = is_there.T
        observations[:, 1 : 1 + n_seen, 1:] = np.where(is_there, rows[:, 1:], 0).transpose(2, 1, 0)
        return observations.astype(np.float32).reshape(self.num_envs, -1)


def _not_zero(values: np.ndarray) -> np.ndarray:
    return np.where(np.abs(values) > 1e-2, values, np.where(values >= 0, 1e-2, -1e-2))


def _wrapped(angle: np.ndarray) -> np.ndarray:
    return ((angle + np.pi) % (2 * np.pi)) - np.pi


def _speed_index(speed: np.ndarray) -> np.ndarray:
    share = (speed - _TARGET_SPEEDS[0]) / (_TARGET_SPEEDS[-1] - _TARGET_SPEEDS[0])
    last = len(_TARGET_SPEEDS) - 1
    return np.clip(np.round(share * last), 0, last).astype(np.int64)


def _checked(settings: Mapping[str, Any]) -> int:
    """
    :param settings: Configuration of highway-env
    :return: how many vehicles are observed, the own one included
    :raises InputError: if the vector environment has no such settings, or follows another version of highway-env
    """
    installed = importlib.metadata.version("highway-env")
    if not installed.startswith(f"{_VERSION}."):
        raise InputError(f"the vector environment of Highway follows highway-env {_VERSION}, installed is {installed}")
    observation = dict(settings["observation"])
    n_observed = observation.pop("vehicles_count", 5)
    if observation != {"type": "Kinematics"} or settings["action"] != {"type": "DiscreteMetaAction"}:
        raise InputError("the vector environment of Highway has the default observation and action of highway-env only")
    if n_observed < 2:
        raise InputError("the vector environment of Highway observes at least two vehicles (vehicles_count)")
    for name, expected in (
        ("other_vehicles_type", "highway_env.vehicle.behavior.IDMVehicle"),
        ("controlled_vehicles", 1),
        ("manual_control", False),
    ):
        if settings[name] != expected:
            raise InputError(f"the vector environment of Highway has {name}={expected!r} only")
    return n_observed
