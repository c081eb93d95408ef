"""Datasets and checkpoints through a DVC remote: a fresh clone has the results without the work."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from checkouts import checkout, commit, git
from conftest import Project

from flows.stages import PARAMS_FILE, PIPELINE_FILE, load_stages
from selverify.params import load_params
from selverify.storage import digest

pytestmark = pytest.mark.soak  # each command of DVC takes a second or more
KEYS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",  # nothing but the server on this machine is asked
}
# As long as every stage takes on a machine that is at work on something else.
PATIENCE = 1500
WEIGHTS = Path("models/tiny/model.bin")
OUTPUTS = ("data/numbers", "models/tiny", "results/report.md")
DVC_YAML = """
stages:
  dataset:
    cmd: python stage.py data/numbers/train.csv data/numbers/test.csv
    deps: [stage.py]
    outs: [data/numbers]
  training:
    cmd: python stage.py models/tiny/model.bin
    deps: [stage.py, data/numbers]
    outs: [models/tiny]
  report:
    cmd: python stage.py results/report.md
    deps: [stage.py, data/numbers, models/tiny]
    outs: [results/report.md]
"""
STAGE = """
import sys
from pathlib import Path
for path in map(Path, sys.argv[1:]):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"what {path.name} holds")
"""
IGNORED = "/data/\n/models/\n/results/\n/.dvc/config.local\n/.dvc/cache\n/.dvc/tmp\n"


@dataclass(frozen=True)
class Store:
    """A place for a DVC remote, and the settings that are one machine's."""

    url: str
    settings: dict[str, str]


@dataclass(frozen=True)
class Clone(Project):
    """A clone of a repository, and how to run DVC in it."""

    def dvc(self, *arguments: str, code: int = 0) -> str:
        """What a DVC command prints; it has to end with ``code``."""
        return self.prints("exec", sys.executable, "-m", "dvc", *arguments, code=code)

    def prints(self, *arguments: str, code: int = 0) -> str:
        """What a command of the project prints; it has to end with ``code``."""
        done = self.flows(*arguments, timeout=PATIENCE, **KEYS)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def push_to(self, store: Store) -> None:
        """Name ``store`` as the remote in the settings that are kept in git, and push to it."""
        (self.root / ".dvc" / "config.local").unlink(missing_ok=True)  # of another kind of store
        self.dvc("remote", "add", "--force", "--default", "store", store.url)
        self.dvc("remote", "modify", "store", "verify", "true")
        self.set_up(store)
        commit(self.root)
        self.dvc("push")

    def cloned(self, store: Store, root: Path) -> Clone:
        """A fresh clone, which has no outputs, with the settings that are not kept in git."""
        git(self.root, "clone", "--quiet", str(self.root), str(root))
        clone = Clone(root)
        clone.set_up(store)
        return clone

    def set_up(self, store: Store) -> None:
        """Write what ``dvc remote modify --local`` writes, a second sooner."""
        lines = (f"    {name} = {value}" for name, value in store.settings.items())
        text = "\n".join(("['remote \"store\"']", *lines, ""))
        (self.root / ".dvc" / "config.local").write_text(text)

    def digests(self) -> dict[str, str]:
        return {name: digest(self.root / name) for name in OUTPUTS}


@pytest.fixture(scope="session")
def s3() -> Iterator[Any]:
    """The address of an S3-compatible server on the loopback address, and a client of it."""
    reason = "S3 needs dvc-s3 and moto (pip install -e '.[dev]')"
    pytest.importorskip("dvc_s3", reason=reason)
    moto = pytest.importorskip("moto.server", reason=reason)
    boto3 = pytest.importorskip("boto3", reason=reason)
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        address = "http://{}:{}".format(*server.get_host_and_port())
        with pytest.MonkeyPatch.context() as patch:
            for name, value in KEYS.items():
                patch.setenv(name, value)
            yield address, boto3.client("s3", endpoint_url=address)
    finally:
        server.stop()


@pytest.fixture(scope="module", params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """An empty store of each kind."""
    if request.param == "folder":
        return Store(str(tmp_path_factory.mktemp("store")), {})
    address, client = request.getfixturevalue("s3")
    client.create_bucket(Bucket="selverify")
    return Store("s3://selverify", {"endpointurl": address})


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """A small pipeline that has run; no stage of it knows Prefect."""
    source = Clone(tmp_path_factory.mktemp("tiny") / "source")
    (source.root / ".dvc").mkdir(parents=True)
    (source.root / ".dvc" / "config").write_text("[core]\n    analytics = false\n")
    (source.root / "dvc.yaml").write_text(DVC_YAML)
    (source.root / "stage.py").write_text(STAGE)
    (source.root / ".gitignore").write_text(IGNORED)
    git(source.root, "init", "--quiet")
    source.dvc("repro")
    return source


def test_a_fresh_clone_has_everything_after_a_pull(
    source: Clone, store: Store, tmp_path: Path
) -> None:
    """Byte for byte, with nothing to run; a ``repro`` may do the pulling, and runs what is lacking.

    Dataset, checkpoint and report are of one digest each, wherever they come from.
    """
    source.push_to(store)
    clone = source.cloned(store, tmp_path / "whole")
    assert not (clone.root / "models").exists()
    clone.dvc("pull")
    assert clone.digests() == source.digests()
    assert "up to date" in clone.dvc("repro")
    pulling = source.cloned(store, tmp_path / "pulling")
    assert stages_run(pulling.dvc("repro", "--pull")) == []
    lacking = source.cloned(store, tmp_path / "lacking")
    lacking.dvc("pull", "dataset", "training")
    assert stages_run(lacking.dvc("repro")) == ["report"]
    assert pulling.digests() == lacking.digests() == source.digests()


def test_a_spoilt_object_is_refused(source: Clone, tmp_path: Path) -> None:
    """Its checksum is not its name: nothing of it reaches the clone.

    A push mends it once the object and its folder's list are gone: what a list names is taken to
    be there.
    """
    store = Store(str(tmp_path / "store"), {})
    source.push_to(store)
    spoilt, listed = (
        next(Path(store.url).rglob(f"{md5[:2]}/{md5[2:]}*"))
        for md5 in (digest(source.root / one) for one in (WEIGHTS, WEIGHTS.parent))
    )
    spoilt.chmod(0o644)
    spoilt.write_bytes(b"of somebody else")
    clone = source.cloned(store, tmp_path / "clone")
    clone.dvc("pull", code=1)
    assert not (clone.root / WEIGHTS).exists()
    spoilt.unlink()
    listed.unlink()
    source.dvc("push")
    clone.dvc("pull")
    assert clone.digests() == source.digests()


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """The project itself after a run on a handful of problems."""
    source = Clone(checkout(tmp_path_factory.mktemp("real") / "source"))
    source.prints("run", "health")
    return source


def test_a_fresh_clone_reproduces_the_report_without_training(
    real: Clone, store: Store, tmp_path: Path
) -> None:
    """After a pull there is nothing to do; without the report only that is made, to the byte.

    Every stage of the real pipeline.
    """
    real.push_to(store)
    whole = real.cloned(store, tmp_path / "whole")
    whole.dvc("pull")
    assert whole.prints("run").startswith("Nothing to do")
    assert stages_run(whole.dvc("repro")) == []

    lacking = real.cloned(store, tmp_path / "lacking")
    stages = load_stages(load_params(lacking.root / PARAMS_FILE), lacking.root / PIPELINE_FILE)
    made = [name for name, one in stages.items() if not one.frozen and name != "report"]
    lacking.dvc("pull", *made)
    assert stages_run(lacking.dvc("repro")) == ["report"]
    for clone in (whole, lacking):
        for name in ("results/report", "results/metrics.json"):
            assert digest(clone.root / name) == digest(real.root / name)


def stages_run(printed: str) -> list[str]:
    """The stages that DVC says it executed."""
    return re.findall(r"^Running stage '([^']+)'", printed, flags=re.MULTILINE)
