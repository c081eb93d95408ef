"""What data names stays inside the data's folder, and a key stays in the environment."""

from __future__ import annotations

import ast
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from stand_in import NOWHERE

from flows.stages import load_stages, used_params
from selverify.domains.math_steps import MathSteps
from selverify.errors import ParamsError, SchemaError, SelverifyError
from selverify.models.generators.client import Client
from selverify.models.generators.served import ServedModel
from selverify.models.prompting import Prompt, load_prompt
from selverify.params import Params, Sampling, Server, check_params, load_params
from selverify.policy import load_policy
from selverify.storage import check_digests, write_digests

ROOT = Path(__file__).parents[2]
KEY = "sk-never-to-be-written-0123456789"
VARIABLE = "SELVERIFY_TEST_KEY"
OUTSIDE = ("../outside", "/etc", "..", ".", "a/../../b", "a\\b", "", "a\0b", "~root", "a b", "é")
# Each runs text as code, or loads a file that may.
FORBIDDEN = {
    "eval", "exec", "compile", "__import__", "sympify", "parse_expr", "parse_latex", "lambdify",
}  # fmt: skip
FORBIDDEN_OF_MODULES = {
    ("pickle", "load"), ("pickle", "loads"), ("torch", "load"), ("yaml", "load"),
    ("yaml", "unsafe_load"), ("os", "system"), ("os", "popen"), ("marshal", "loads"),
    ("joblib", "load"), ("shelve", "open"), ("numpy", "fromregex"),
}  # fmt: skip
FORBIDDEN_IMPORTS = {"pickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"}
FORBIDDEN_WORDS = {"shell": True, "allow_pickle": True, "trust_remote_code": True}


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for package in ("selverify", "flows", "tasks"):
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT), ast.parse(path.read_text(encoding="utf-8"))


def test_nothing_runs_text_as_code() -> None:
    """No ``eval``, no pickle, no sympy parser, no shell, no code of a repository."""
    found = [
        f"{path}:{getattr(node, 'lineno', 0)}: {what}"
        for path, tree in modules()
        for node in ast.walk(tree)
        for what in forbidden(node)
    ]
    assert found == []


def forbidden(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (one.name for one in node.names if one.name in FORBIDDEN_IMPORTS)
    if isinstance(node, ast.ImportFrom) and node.module in FORBIDDEN_IMPORTS:
        yield str(node.module)
    if isinstance(node, ast.Call):
        called = node.func
        if isinstance(called, ast.Name) and called.id in FORBIDDEN:
            yield called.id
        if isinstance(called, ast.Attribute):
            of = called.value.id if isinstance(called.value, ast.Name) else ""
            parses = called.attr in {"sympify", "parse_expr", "parse_latex", "lambdify"}
            if (of, called.attr) in FORBIDDEN_OF_MODULES or parses:
                yield f"{of}.{called.attr}"
        for word in node.keywords:
            value = word.value.value if isinstance(word.value, ast.Constant) else None
            if word.arg in FORBIDDEN_WORDS and value is FORBIDDEN_WORDS[word.arg]:
                yield f"{word.arg}={value}"


@pytest.mark.parametrize(
    "text",
    ["eval('1')", "import pickle", "pickle.loads(b)", "sympy.sympify(t)", "run(c, shell=True)"],
)
def test_the_check_of_code_finds_what_it_looks_for(text: str) -> None:
    """A check that finds nothing could be one that looks at nothing."""
    assert [what for node in ast.walk(ast.parse(text)) for what in forbidden(node)] != []


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_policy_names_no_backbone_outside_its_folder(
    name: str, tiny_models: Path, tmp_path: Path
) -> None:
    """``solver.json`` may come from elsewhere; the backbone that it names stands beside it."""
    models = tmp_path / "models"
    shutil.copytree(tiny_models.parent, models)
    path = models / tiny_models.name / "solver.json"
    told = json.loads(path.read_text(encoding="utf-8"))
    told["data"]["backbone"] = name
    path.write_text(json.dumps(told), encoding="utf-8")
    with pytest.raises(SchemaError, match="backbone: given"):
        load_policy(path.parent)


def test_a_list_of_digests_names_no_file_outside_its_folder(tmp_path: Path) -> None:
    """A path in it is no file of the folder."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "weights").write_bytes(b"x")
    (tmp_path / "outside").write_bytes(b"y")
    write_digests(folder)
    path = folder / "digests.json"
    told = json.loads(path.read_text(encoding="utf-8"))
    told["data"] = {"../outside": told["data"]["weights"]}
    path.write_text(json.dumps(told), encoding="utf-8")
    with pytest.raises(SelverifyError, match=r"no file '\.\./outside'"):
        check_digests(folder)


@pytest.mark.parametrize("name", OUTSIDE)
def test_parameters_name_no_folder_outside_the_project(name: str) -> None:
    """Backbones, strengths and domains become paths in ``dvc.yaml``; prompts are listed files."""
    params = load_params(ROOT / "params.yaml")
    told = json.loads(params.model_dump_json())
    told["generator"][told["domain"]][name] = told["generator"][told["domain"]]["small"]
    for changed in ({"backbones": [name]}, {"strengths": [name]}, {"domain": name}):
        with pytest.raises(ParamsError):
            check_params({**told, **changed}, Path("params.yaml"))
    with pytest.raises(ParamsError, match="prompt: given"):
        load_prompt(name)


def test_every_path_of_the_pipeline_lies_in_the_project() -> None:
    """For every backbone, strength and domain that the parameters allow."""
    params = load_params(ROOT / "params.yaml")
    for domain in params.generator:
        changed = params.model_copy(
            update={
                "domain": domain,
                "backbones": tuple(params.generator[domain]),
                "strengths": ("strong", "weak"),
            }
        )
        for stage in load_stages(changed, ROOT / "dvc.yaml").values():
            for path in (*stage.inputs.values(), *stage.outputs.values(), *stage.sources):
                assert not path.is_absolute() and ".." not in path.parts


def test_a_key_is_no_part_of_parameters_identities_and_cache_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What MLflow, DVC and the reply cache are told follows from the variable's name at most."""
    server = Server.model_validate({**NOWHERE, "key_variable": VARIABLE})
    sampling = Sampling(
        temperature=1.0, max_move_tokens=9, max_solution_tokens=9, max_moves=2, batch_rows=1
    )
    found = []
    for key in (KEY, KEY[::-1]):
        monkeypatch.setenv(VARIABLE, key)
        model = ServedModel(
            Client(server),
            end_of_move=MathSteps.end_of_move,
            prompting=lambda state: Prompt((), ""),
            prompting_id="text",
            sampling=sampling,
            seed=1,
            api="completions",
        )
        found.append((model.identity(), repr(model), server.model_dump_json(), repr(server)))
    assert found[0][0] == found[1][0] and found[0][2:] == found[1][2:]
    assert not any(part in text for texts in found for text in texts for part in (KEY, KEY[::-1]))


def test_what_mlflow_is_told_of_a_served_run_holds_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parameters of every stage, with a key in the environment."""
    monkeypatch.setenv(VARIABLE, KEY)
    params = _served(load_params(ROOT / "params.yaml"))
    stages = load_stages(params, ROOT / "dvc.yaml")
    shown = json.dumps([used_params(stage, params) for stage in stages.values()], default=str)
    assert VARIABLE in shown and KEY not in shown


def _served(params: Params) -> Params:
    told = json.loads(params.model_dump_json())
    told["domain"], told["backbones"] = "math", ["served"]
    served = told["generator"]["math"]["served"]
    served["key_variable"] = served["embeddings"]["key_variable"] = VARIABLE
    told["evaluation"]["problems"] = 100
    told["evaluation"]["methods"] = ["cot", "majority", "full"]
    return check_params(told, Path("params.yaml"))
