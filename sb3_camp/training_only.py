"""Members of a checkpoint that only training needs."""

from typing import Any

# Members of a checkpoint that no action depends on, and what to put in their place. They are not unpickled: schedules are
# pickled code that another Python version may fail (or crash) to read, and classes of buffers may not be importable here.
TRAINING_ONLY: dict[str, Any] = {
    "learning_rate": 0.0,
    "lr_schedule": None,
    "exploration_schedule": None,
    "clip_range": 0.0,
    "clip_range_vf": None,
    "delta_std_schedule": None,
    "camp_lambda": 0.0,
    "camp_lambda_schedule": None,
    "action_noise": None,
    "train_freq": 1,
    "replay_buffer_class": None,
    "replay_buffer_kwargs": {},
    "rollout_buffer_class": None,
    "rollout_buffer_kwargs": {},
    "ep_info_buffer": None,
    "ep_success_buffer": None,
    "_last_obs": None,
    "_last_dones": None,
    "_last_original_obs": None,
    "_last_episode_starts": None,
    "_last_lstm_states": None,
}
