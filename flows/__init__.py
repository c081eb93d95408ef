"""Prefect flows, MLflow tracking and the command line around them; the DAG is ``dvc.yaml``.

Importing the package loads the project's environment variables, so that no tool of the pipeline
is imported before its telemetry is off and its home is the project.
"""

from pathlib import Path

from flows import environment

environment.load(Path.cwd())
