"""Datasets and checkpoints through a DVC remote: a fresh clone has the results without the work."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from checkouts import checkout, commit, git
from conftest import clean_environment

from flows.stages import PARAMS_FILE, PIPELINE_FILE, load_stages
from selverify.params import load_params
from selverify.storage import digest

BUCKET = "selverify"
KINDS = ("folder", "s3")
KEYS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",  # nothing but the server on this machine is asked
}
# As long as every stage takes on a machine that is at work on something else.
PATIENCE = 1500
WEIGHTS = "model.safetensors"
OUTPUTS = ("data/numbers", "models/tiny", "results/report.md")
DVC_YAML = """
stages:
  dataset:
    cmd: python stage.py dataset
    deps: [stage.py]
    outs: [data/numbers]
  training:
    cmd: python stage.py training
    deps: [stage.py, data/numbers]
    outs: [models/tiny]
  report:
    cmd: python stage.py report
    deps: [stage.py, data/numbers, models/tiny]
    outs: [results/report.md]
"""
STAGE = """
import json, sys
from pathlib import Path
import numpy as np
from safetensors.numpy import load_file, save_file

data, model, report = Path("data/numbers"), Path("models/tiny"), Path("results/report.md")
with open("ran.txt", "a") as ran:
    print(sys.argv[1], file=ran)
for folder in (data, model, report.parent):
    folder.mkdir(parents=True, exist_ok=True)
if sys.argv[1] == "dataset":
    for split in ("train", "test"):
        (data / f"{split}.csv").write_text("".join(f"{n},{2 * n}\\n" for n in range(100)))
elif sys.argv[1] == "training":
    x, y = np.loadtxt(data / "train.csv", delimiter=",").T
    save_file({"weight": np.array([x @ y / (x @ x)])}, model / "model.safetensors")
    (model / "config.json").write_text(json.dumps({"parameters": 1}))
else:
    weight = load_file(model / "model.safetensors")["weight"][0]
    x, y = np.loadtxt(data / "test.csv", delimiter=",").T
    report.write_text(f"mean error {abs(weight * x - y).mean():.3f}\\n")
"""


@dataclass(frozen=True)
class Store:
    """A place for a DVC remote: its settings, and its objects for a test to lose or spoil."""

    url: str
    settings: dict[str, str]
    objects: Callable[[], list[str]]
    write: Callable[[str, bytes], None]
    remove: Callable[[str], None]


@dataclass(frozen=True)
class Clone:
    """A clone of a repository, and how to run DVC in it."""

    root: Path

    def dvc(self, *arguments: str, code: int = 0) -> str:
        """What a DVC command prints; it has to end with ``code``."""
        return self.flows("exec", sys.executable, "-m", "dvc", *arguments, code=code)

    def flows(self, *arguments: str, code: int = 0) -> str:
        """What a command of the project prints; it has to end with ``code``."""
        done = subprocess.run(
            [sys.executable, "-m", "flows", *arguments],
            cwd=self.root,
            env={**clean_environment(self.root), **KEYS},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def name_remote(self, store: Store) -> None:
        """Name ``store`` as the remote in the settings that are kept in git."""
        self.dvc("remote", "add", "--force", "--default", "store", store.url)
        self.dvc("remote", "modify", "store", "verify", "true")

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

    @property
    def ran(self) -> list[str]:
        """The stages of the small pipeline that were executed here."""
        path = self.root / "ran.txt"
        return path.read_text().split() if path.exists() else []

    def digests(self) -> dict[str, str]:
        return {name: digest(self.root / name) for name in OUTPUTS}


def folder_store(folder: Path) -> Store:
    def objects() -> list[str]:
        return [p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()]

    def write(name: str, content: bytes) -> None:
        (folder / name).chmod(0o644)
        (folder / name).write_bytes(content)

    return Store(str(folder), {}, objects, write, lambda name: (folder / name).unlink())


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


def s3_store(address: str, client: Any, bucket: str) -> Store:
    client.create_bucket(Bucket=bucket)

    def objects() -> list[str]:
        found = client.list_objects_v2(Bucket=bucket).get("Contents", [])
        return [one["Key"] for one in found]

    return Store(
        f"s3://{bucket}",
        {"endpointurl": address},
        objects,
        lambda name, content: client.put_object(Bucket=bucket, Key=name, Body=content),
        lambda name: client.delete_object(Bucket=bucket, Key=name),
    )


@dataclass(frozen=True)
class Pushed:
    """A finished pipeline, the store it was pushed to, and the digests of its outputs."""

    source: Clone
    store: Store
    digests: dict[str, str]


@pytest.fixture(scope="module", params=KINDS)
def pushed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pushed:
    """The small pipeline, run, committed and pushed to each kind of store."""
    folder = tmp_path_factory.mktemp(request.param)
    store = make_store(request, folder / "store", "tiny")
    source = Clone(folder / "source")
    (source.root / ".dvc").mkdir(parents=True)
    (source.root / ".dvc" / "config").write_text("[core]\n    analytics = false\n")
    (source.root / "dvc.yaml").write_text(DVC_YAML)
    (source.root / "stage.py").write_text(STAGE)
    ignored = ("/data/", "/models/", "/results/", "/ran.txt", "/.dvc/config.local", "/.dvc/cache")
    (source.root / ".gitignore").write_text("\n".join((*ignored, "/.dvc/tmp", "")))
    git(source.root, "init", "--quiet")
    source.name_remote(store)
    source.set_up(store)
    source.dvc("repro")
    commit(source.root)
    source.dvc("push")
    return Pushed(source, store, source.digests())


def make_store(request: pytest.FixtureRequest, folder: Path, name: str) -> Store:
    """A store of the kind that the fixture's parameter names."""
    if request.param == "folder":
        folder.mkdir()
        return folder_store(folder)
    return s3_store(*request.getfixturevalue("s3"), f"{BUCKET}-{name}")


def test_a_fresh_clone_has_everything_after_a_pull(pushed: Pushed, tmp_path: Path) -> None:
    """Dataset, checkpoint and report are byte-identical, and there is nothing to run."""
    clone = pushed.source.cloned(pushed.store, tmp_path / "clone")
    assert not (clone.root / "models").exists()
    clone.dvc("pull")
    assert clone.digests() == pushed.digests
    assert "up to date" in clone.dvc("repro")
    assert clone.ran == []


def test_a_repro_may_do_the_pulling(pushed: Pushed, tmp_path: Path) -> None:
    """``dvc repro --pull`` in a clone without any output takes what it needs and runs nothing."""
    clone = pushed.source.cloned(pushed.store, tmp_path / "clone")
    clone.dvc("repro", "--pull")
    assert clone.digests() == pushed.digests
    assert clone.ran == []


def test_only_what_the_remote_lacks_is_run(pushed: Pushed, tmp_path: Path) -> None:
    """A report that was never pushed is made again from the pulled checkpoint, to the byte."""
    clone = pushed.source.cloned(pushed.store, tmp_path / "clone")
    clone.dvc("pull", "dataset", "training")
    clone.dvc("repro")
    assert clone.digests() == pushed.digests
    assert clone.ran == ["report"]


def test_a_spoilt_object_is_refused(pushed: Pushed, tmp_path: Path) -> None:
    """Its checksum is not its name: nothing of it reaches the clone.

    A push mends it once the object and its folder's list are gone: what a list names is taken to
    be there.
    """
    folder = pushed.source.root / "models" / "tiny"
    spoilt, listed = (object_of(pushed.store, digest(one)) for one in (folder / WEIGHTS, folder))
    pushed.store.write(spoilt, b"of somebody else")
    clone = pushed.source.cloned(pushed.store, tmp_path / "clone")
    try:
        clone.dvc("pull", code=1)
        assert not (clone.root / "models" / "tiny" / WEIGHTS).exists()
    finally:
        pushed.store.remove(spoilt)
        pushed.store.remove(listed)
        pushed.source.dvc("push")
    clone.dvc("pull")
    assert clone.digests() == pushed.digests


def object_of(store: Store, md5: str) -> str:
    """The name of the object with this checksum."""
    (name,) = (one for one in store.objects() if one.endswith(f"{md5[:2]}/{md5[2:]}"))
    return name


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """The project itself after a run on a handful of problems."""
    source = Clone(checkout(tmp_path_factory.mktemp("real") / "source"))
    source.flows("run", "health")
    return source


@pytest.fixture(params=KINDS)
def real_store(request: pytest.FixtureRequest, real: Clone, tmp_path: Path) -> Store:
    """A store of each kind, to which the project was pushed; the repository names it."""
    store = make_store(request, tmp_path / "store", "real")
    real.name_remote(store)
    real.set_up(store)
    commit(real.root)
    real.dvc("push")
    return store


@pytest.mark.soak  # some minutes: every stage of the real pipeline
def test_a_fresh_clone_reproduces_the_report_without_training(
    real: Clone, real_store: Store, tmp_path: Path
) -> None:
    """After a pull there is nothing to do; without the report only that is made, to the byte."""
    whole = real.cloned(real_store, tmp_path / "whole")
    whole.dvc("pull")
    assert whole.flows("run").startswith("Nothing to do")
    assert stages_run(whole.dvc("repro")) == []

    lacking = real.cloned(real_store, tmp_path / "lacking")
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
