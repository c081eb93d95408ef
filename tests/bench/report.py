"""``make bench``: ``docs/performance.md``, measured on this machine.

Each figure is the median of its repeats, and what is compared was measured side by side. Other work
on the machine shows in them, so nothing else should run.
"""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import accelerator
import grading
import growth
import hub
import learning
import overhead
import rows
import scale
import served
import size
import torch
from rows import Row

from selverify.report.pages import write_text

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"
HEAD = """# Performance

Written by `make bench`, or section by section by `make bench ONLY=grading` and the like. What is
compared ran side by side.
"""
ORIGIN = "Commit {commit}, {machine}; {runs}."
ONCE = "size", "scale"
"""Sections whose measurements take minutes each."""
ACCELERATOR = f"""## A model on an accelerator

Random weights in the shape of Llama 3.2 1B in bfloat16, a token a byte: {accelerator.PROMPTS}
prompts with an example of `math_steps`, samples of {accelerator.TOKENS} tokens. `generate` is that
of transformers. The matrix products alone are those of our layers. At the rate of a copy one could
read the weights, the keys and values that prompts and rows share, and the rows' own, once a token.
Step scores are of {accelerator.SIBLINGS} next steps of each question."""
"""Measured where ``--device`` is one, and nothing else then."""
SECTIONS: Mapping[str, tuple[str, Callable[[int], list[Row]]]] = {
    "served": (
        f"""## Searches over a server

{served.PROBLEMS} beam searches on sums of {served.DIGITS} digits over a writer and a judge, each at
most {served.CONCURRENCY} requests at once, on the loopback address. A reply takes a lognormal time
with a median of {served.MEDIAN} s, and one in a hundred {served.STRAGGLES:g} s; divided by
{served.FASTER:g} where two ways are compared. The searches end the same both ways. The bound is the
largest of: all requests of the writer over its concurrency, the same of the judge, the longest
chain of one search.""",
        served.measure,
    ),
    "plans": (
        """## A plan of a ranker of one's own

Processor time on one thread, with the default encoder, beside any model.""",
        overhead.plans,
    ),
    "proxy": (
        """## The proxy

`selverify serve` in front of functions that reply at once, one request after the other, and the
same searches by a call.""",
        overhead.served,
    ),
    "hub": (
        f"""## A pretrained model on this processor

SmolLM2-135M, {hub.PROMPTS} prompts with the examples of `math_steps`, {hub.SAMPLES} samples each
of {hub.TOKENS} tokens. `generate` is that of transformers, in float32; ours computes in int8;
llama.cpp's server has the package's own file and takes all prompts at once. The matrix products
alone are those of our layers, in int8, and of the output layer, in float32, for as many rows and
tokens.""",
        hub.measure,
    ),
    "scores": (
        f"""## Step scores

A head on the same model, {hub.SIBLINGS} next steps of {hub.PROMPTS} questions, nothing read before;
the matrix products alone are those of every token that is read once and of the output layer for the
steps. Then the new steps of a beam search of {hub.ROUNDS} rounds at N = {hub.BEAM}: each step
scored once, and by a verifier that remembers nothing of the rounds before.""",
        hub.scores,
    ),
    "grading": (
        f"""## Grading

On {grading.WORKERS} processes. Math-Verify alone parses and compares with its own time limits.""",
        grading.measure,
    ),
    "training": (
        f"""## Training

Each epoch counted, width {learning.WIDTH}: all parts of a ranker, two at a time and each on one
thread, and on one thread a reward model's head that learns from steps whose hidden states were kept
with their samples. Then a whole training of the word problems' reward model: the backbone tuned
three times, on all solutions and on each half, two at a time, and its head.""",
        learning.training,
    ),
    "logs": (
        """## Event logs

Parquet with checksums.""",
        learning.logs,
    ),
    "size": (
        f"""## At size

Each in a process of its own: a log of {size.SEARCHES * learning.ROUNDS:,} events, a ranker on
{size.LISTS * learning.MOVES:,} candidates of width {learning.WIDTH} that come list by list, and
{size.AT_ONCE:,} beam searches that one driver has under way over a server on the loopback address,
which is a Python process of its own and sets their pace.""",
        size.measure,
    ),
    "scale": (
        f"""## Larger than a machine

What {scale.QUESTIONS} questions of MATH-500 take with N = {scale.N}, a generator of 1B and a
verifier of 8B. Both models use all accelerators one after the other, which are as fast as the one
below was when this was computed: the generator as measured there, the verifier as the one there
that reads step tokens, slower
by its parameters. Solutions are as long as those recorded of Llama 3.2 1B, in tokens of SmolLM2. A
beam search asks a server for {scale.WIDTH} steps of a state at once. A driver takes the processor
time a request that it took above; several drivers share the questions. Each request has a reply in
the cache and an event in the log, at the rates of the simulation below. "{scale.FEW} of {scale.N}"
is what is verified where a selection comes first, as in ranked vote and selective vote.

The simulation has {scale.SEARCHES:,} beam searches under way. Each accelerator answers
{scale.AT_ONCE} requests of each model at once (all states, or all steps, of one round of a search:
larger ones than those computed above) after a lognormal time with a median of {scale.MEDIAN} s,
each reply goes into an SQLite cache before it is used, and the events are
written. Nothing is computed, and there is no network. A driver has a thread for each request in
flight; where these are thousands it makes fewer requests a second, and needs more drivers than its
processor time says.""",
        scale.measure,
    ),
    "growth": (
        f"""## Growth

Time of the searches without models, as a power of what grows, with the 95 % interval of the slope
over all runs; the others are {growth.PROBLEMS} problems, N = {growth.N}, {growth.DEPTH} moves.""",
        growth.measure,
    ),
}


def main() -> None:
    """Measure, and write each section as soon as it is."""
    read = argparse.ArgumentParser(description=__doc__)
    read.add_argument("--repeats", type=int, default=5)
    read.add_argument("--only", choices=sorted(SECTIONS))
    read.add_argument("--device", default="cpu", help="cuda: a model on an accelerator, no more")
    given = read.parse_args()
    if given.only and given.device != "cpu":
        read.error("--only: given with --device, expected one of them")
    # Before a page is written, which is a change.
    at = {"commit": rows.commit(), "machine": machine(given.device)}
    sections: Mapping[str, tuple[str, Callable[[int], list[Row]]]] = SECTIONS
    if given.device != "cpu":
        sections = {given.device: (ACCELERATOR, partial(accelerator.measure, given.device))}
    for name in [given.only] if given.only else sections:
        text, measure = sections[name]
        usual = f"medians of {given.repeats} runs"
        runs = {**dict.fromkeys(ONCE, "each once"), "growth": f"a fit over {given.repeats} runs"}
        origin = ORIGIN.format(**at, runs=runs.get(name, usual))
        found = measure(given.repeats)
        if not found:
            print(f"{PAGE.name}: {name} left as it was", flush=True)
            continue
        lines = (text, "", origin, "", *table(found), "")
        write_text(with_section(PAGE.read_text(encoding="utf-8"), "\n".join(lines)), PAGE)
        print(f"{PAGE.name}: {name} written", flush=True)


def with_section(page: str, section: str) -> str:
    """The page with a section in its place; sections that are measured no more go."""
    told = {f"## {one.strip()}" for one in page.split("\n## ")[1:]}
    by_title = {one.partition("\n")[0]: f"{one}\n" for one in (*told, section.strip())}
    titles = [text.partition("\n")[0] for text in (*(t for t, _ in SECTIONS.values()), ACCELERATOR)]
    return "\n".join((HEAD, *(by_title[title] for title in titles if title in by_title)))


def table(measured: list[Row]) -> list[str]:
    """The lines of a table."""
    lines = ["| What | Value | Unit | Ratio |", "| --- | ---: | --- | ---: |"]
    for one in measured:
        ratio = "" if one.ratio is None else f"{one.ratio:.2f}"
        lines.append(f"| {one.what} | {one.value:.4g} | {one.unit} | {ratio} |")
    return lines


def machine(device: str) -> str:
    """Processor, cores, accelerator and Python, without a name."""
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    cores = len(os.sched_getaffinity(0))
    beside = "" if device == "cpu" else f" and one {torch.cuda.get_device_name(device)}"
    return f"{cores} cores ({models[0]}){beside}, Python {platform.python_version()}"


if __name__ == "__main__":
    main()
