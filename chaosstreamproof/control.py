"""The control for experiments: publishes their fault windows to the faults topic."""

from faults.chaostoolkit.control import (
    after_activity_control,
    after_experiment_control,
    after_method_control,
    after_rollback_control,
    before_activity_control,
    before_experiment_control,
    before_method_control,
    before_rollback_control,
)

__all__ = [
    "after_activity_control",
    "after_experiment_control",
    "after_method_control",
    "after_rollback_control",
    "before_activity_control",
    "before_experiment_control",
    "before_method_control",
    "before_rollback_control",
]
