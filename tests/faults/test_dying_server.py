"""Every stage over a server that fails: the bytes and the bill of a run over one that does not."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path

import pipelines
import proxy
import pytest
import stand_in
from proxy import Fault, Proxy, rewrites, says, status
from small_pipeline import run_stages, set_params

from flows.preflight import name_sources
from flows.stages import Stage, load_stages
from selverify.errors import ProtocolError
from selverify.params import Params, load_params
from selverify.storage import digest

ROOT = Path(__file__).parents[2]
SEED, MOMENTS = 9, 4
SECONDS = 3.0
ASKING = ("exploration", "residual", "evaluation")
CACHE = Path(".cache")
PAID = ("/v1/chat/completions", "/v1/completions")
"""What the reply cache keeps; embeddings are asked for again by a stage that begins again."""


def duplicated(reply: proxy.Reply) -> proxy.Reply:
    """Each choice is the first; where there is one only, none."""
    if "choices" not in reply:
        return {}
    choices = reply["choices"]
    return {**reply, "choices": choices[:1] * len(choices) * (len(choices) > 1)}


FAULTS: dict[str, Fault] = {
    "429": status(429, retry_after="0.02"),
    "500": status(500),
    "dropped": proxy.drops,
    "reset": proxy.resets,
    "truncated": proxy.truncates,
    "malformed JSON": says(b'{"choices": [{"text": '),
    "HTML": says(b"<html>Bad gateway</html>"),
    "no choices": rewrites(lambda reply: {name: [] for name in reply}),
    "too few choices": rewrites(lambda reply: {"choices": reply.get("choices", [])[:-1]}),
    "duplicate choices": rewrites(duplicated),
    "hangs": proxy.hangs,
}


RARE = ("too few choices", "duplicate choices", "hangs")


@dataclass(frozen=True)
class Pipeline:
    """The stages in a folder of their own, and the server that they ask."""

    folder: Path
    params: Params
    stages: tuple[Stage, ...]
    server: Proxy

    def run(self, names: Sequence[str]) -> None:
        """The stages of these names, in order."""
        run_stages(self.params, names)

    def forget(self, names: Sequence[str]) -> None:
        """As if they had never run."""
        shutil.rmtree(CACHE, ignore_errors=True)
        for path in self.outputs(names):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def outputs(self, names: Sequence[str]) -> list[Path]:
        """Where they write."""
        return [path for one in self.stages if one.task in names for path in one.outputs.values()]

    def state(self) -> dict[str, str]:
        """The digests of all outputs."""
        return {str(path): digest(path) for path in self.outputs(ASKING)}

    def asked(self) -> Counter[str]:
        """What was asked of the server and is paid for."""
        paid = (one for one in self.server.seen if one.path in PAID)
        return Counter(json.dumps([one.path, one.body], sort_keys=True) for one in paid)

    def answered(self) -> Counter[str]:
        """What was answered well and is paid for."""
        paid = (one for one in self.server.answered if "input" not in one)
        return Counter(json.dumps(one, sort_keys=True) for one in paid)


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """Up to the exploration, which is the first to ask the verifier."""
    folder = tmp_path_factory.mktemp("served")
    with pytest.MonkeyPatch.context() as patch, Proxy(stand_in.answer) as server:
        patch.chdir(folder)
        patch.setenv(pipelines.SECRET, pipelines.KEY)
        patch.setattr("selverify.models.generators.client.FIRST_PAUSE", 0.01)
        shutil.copy(ROOT / "params.yaml", folder)
        pipelines.write_benchmarks(folder)
        told = pipelines.served_params(server.url)
        methods = ["cot", "majority", "best_of_n", "beam_keep_b", "full"]
        served = "generator.math.served"
        servers = (served, f"{served}.embeddings", "verifier.source.math")
        short = {f"{one}.timeout_seconds": SECONDS for one in servers}
        set_params(folder, {**told, "evaluation.methods": methods, **short})
        params = load_params(folder / "params.yaml")
        stages = load_stages(params, ROOT / "dvc.yaml")
        name_sources(params, stages)
        made = Pipeline(folder, params, tuple(stages.values()), server)
        made.run(("benchmark", "rollouts", "verifier"))
        yield made


@pytest.fixture(scope="module")
def undisturbed(pipeline: Pipeline) -> tuple[dict[str, str], Counter[str], Counter[str]]:
    """What the stages write, ask and are answered over a healthy server."""
    pipeline.forget(ASKING)
    pipeline.server.play([])
    pipeline.run(ASKING)
    return pipeline.state(), pipeline.asked(), pipeline.answered()


@pytest.mark.soak
def test_stages_over_a_faulty_server_write_the_same_bytes(
    pipeline: Pipeline, undisturbed, record
) -> None:
    """Faults of every kind, at random requests; each is asked again, and nothing else."""
    state, _, answered = undisturbed
    rng = random.Random(SEED)
    # A server that says too little twice in a row is taken for one that gives one choice at most.
    kinds = [kind for kind in FAULTS if kind not in RARE]
    script = [FAULTS[rng.choice(kinds)] if rng.random() < 0.2 else None for _ in range(400)]
    for number, kind in enumerate(RARE * 2):
        script[30 + 60 * number] = FAULTS[kind]
    pipeline.forget(ASKING)
    pipeline.server.play(script, most=2)
    pipeline.run(ASKING)
    assert pipeline.state() == state
    assert pipeline.answered() == answered
    met = pipeline.server.faults_met
    assert met > 20
    record(
        "a model server that answers 429 and 500, hangs, breaks off, sends HTML, broken JSON and "
        "no, too few or equal choices",
        f"exploration, residual and evaluation over it: {met} faults among "
        f"{len(pipeline.server.seen)} requests",
        moments=met,
        held=f"outputs as undisturbed; {answered.total()} paid answers, each once, as undisturbed",
    )


@pytest.mark.soak
def test_a_stage_whose_server_dies_goes_on_where_it_was(
    pipeline: Pipeline, undisturbed, record
) -> None:
    """Dead from a random request on: one sentence and no output; alive again: the rest is asked."""
    state, asked, _ = undisturbed
    total = asked.total()
    rng = random.Random(SEED)
    again = []
    for _ in range(MOMENTS):
        alive = rng.randrange(1, total)
        pipeline.forget(ASKING)
        pipeline.server.play(chain(repeat(None, alive), repeat(proxy.drops)))
        with pytest.raises(ProtocolError, match="expected a reply after 4 retries") as caught:
            pipeline.run(ASKING)
        assert "\n" not in str(caught.value) and pipelines.KEY not in str(caught.value)
        done = [stage for stage in ASKING if all(p.exists() for p in pipeline.outputs([stage]))]
        left = [stage for stage in ASKING if stage not in done]
        assert not any(path.exists() for path in pipeline.outputs(left))
        assert not list(pipeline.folder.rglob("*.tmp-*"))
        first = pipeline.answered()
        pipeline.server.play([])
        pipeline.run(left)
        assert pipeline.state() == state
        both = first + pipeline.answered()
        again.append((both - undisturbed[2]).total())
        assert both.keys() == undisturbed[2].keys()
        assert again[-1] < total / 4  # a batch is one round of all problems, and there are many
    record(
        "a model server that dies in the middle of a stage",
        f"dead from a random one of {total} paid requests on, alive again for the next run",
        moments=MOMENTS,
        held="one sentence and no output; then outputs as undisturbed; "
        f"at most {max(again)} answers paid for twice, of the batch in flight",
    )
