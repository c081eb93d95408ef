"""Environment variables that every command, test and deployment runs under.

Knows: names and values. Does not know: what runs under them. A variable that is set already wins.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

PARENT_TASK = "SELVERIFY_PARENT_TASK_RUN"
"""Prefect's task run that a stage is started by, so that its flow run stands below it."""
TRACKING_URI = "MLFLOW_TRACKING_URI"
TRACKING_DIRECTORY = ".mlflow"
PREFECT_DIRECTORY = ".prefect"

# PyTorch picks its kernels by processor, and each sums in another order. A training turns another
# last digit into other weights, so its stages use AVX2 everywhere, and the kernels of MKL that
# every x86 processor has. These have a quarter of the speed, so most products of a training are
# oneDNN's (``selverify.training.reproducible``). Each can be set otherwise in the environment.
TRAININGS = frozenset({"verifier", "residual"})
KERNELS = {
    "MKL_CBWR": "COMPATIBLE",
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
}


def settings(root: Path) -> dict[str, str]:
    """The variables for the project at ``root``, with absolute paths."""
    home = root.resolve()
    return {
        "PREFECT_HOME": str(home / PREFECT_DIRECTORY),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "true",
        # Eight to twelve seconds on an idle machine; a busy one needs far more than the default.
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
        # Progress comes from our own loggers; Prefect adds only what went wrong.
        "PREFECT_LOGGING_LEVEL": "WARNING",
        "PREFECT_LOGGING_EXTRA_LOGGERS": "selverify,tasks,flows",
        "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        # A server that does not answer costs seconds, and not minutes, a stage.
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        TRACKING_URI: f"sqlite:///{home / TRACKING_DIRECTORY / 'mlflow.db'}",
        "DVC_NO_ANALYTICS": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        # A stage's own lines are its progress; loading bars would drown them.
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        # Threads that spin for long starve each other as soon as anything else uses a core, and
        # threads that do not spin at all take twice as long for the small products of this project.
        "OMP_WAIT_POLICY": "PASSIVE",
        "GOMP_SPINCOUNT": "20000",
        # Bytes: glibc keeps the blocks of one step of decoding for the next. Where it gives them
        # back, the system clears their pages anew, which is a tenth of the time of sampling.
        "MALLOC_MMAP_THRESHOLD_": str(1 << 28),
        "MALLOC_TRIM_THRESHOLD_": str(1 << 29),
    }


def load(root: Path) -> None:
    """Set what is not set yet; let ``python`` be this interpreter, and find the project's code."""
    if not os.environ.get(TRACKING_URI):  # an empty one would be a file in the root
        os.environ.pop(TRACKING_URI, None)
    for name, value in settings(root).items():
        os.environ.setdefault(name, value)
    programs = str(Path(sys.executable).parent)
    # Scripts of the project import its stages, which are not installed.
    first = {"PATH": (programs, os.defpath), "PYTHONPATH": (str(root.resolve()), "")}
    for name, (folder, default) in first.items():
        others = os.environ.get(name, default).split(os.pathsep)
        if folder not in others:
            os.environ[name] = os.pathsep.join((folder, *filter(None, others)))


def fix_kernels(task: str, *, trained_here: bool) -> None:
    """Where ``task`` is a training, set what makes it the same on every processor.

    To be called before PyTorch is imported. A variable that is set already wins. Not for a
    generator that was not ``trained_here``: it is read in bfloat16, for which AVX2 has no products.
    """
    if task in TRAININGS and trained_here:
        for name, value in KERNELS.items():
            os.environ.setdefault(name, value)
