"""A generator that is any causal language model, decoding many problems together.

Knows: how prompts become samples, when a move ends, which hidden states stand for what
(``models.heuristic.embedding``). Does not know: calls, budgets, searches, how a ranker is trained.
Randomness: an item's seed follows from (run seed, problem, derivation, index) alone; temperature 0
needs none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from selverify.domains.base import Domain, close_move, split_moves
from selverify.errors import ParamsError
from selverify.models.generators.decoding import Closed, Decoding, Drawn, Words
from selverify.models.generators.pretrained import HubModel
from selverify.models.generators.reading import Group, batches_of_groups, reading_order
from selverify.models.generators.sampling import (
    Item,
    Replies,
    SamplingGenerator,
    in_batches,
    item_seeds,
    parts_of,
)
from selverify.models.generators.shared_attention import NONE
from selverify.models.generators.shared_prefix import SharedPrefixes
from selverify.models.heuristic.embedding import (
    Embeddings,
    MoveKey,
    concatenate,
    embeddings_of,
    move_keys,
)
from selverify.models.heuristic.kept import KeptEmbeddings
from selverify.models.parameter_count import parameters_of
from selverify.models.prompting import (
    NEXT_QUESTION,
    Prompt,
    before_next_question,
    disarmed,
    finished_part,
)
from selverify.models.verifiers.reward import SCALE, SEEN, WINDOW
from selverify.params import Sampling
from selverify.search.backend import NOTHING
from selverify.search.requests import RankItem
from selverify.types import Move, Sample, State

_log = logging.getLogger(__name__)
TAIL = 8
"""Last tokens of a row that are looked through for the end of a move."""

LOGITS_AT_ONCE = 100_000_000
"""Moves are embedded in batches with at most so many logits: a vocabulary has 128,000 words."""
TOKENS_AT_ONCE = 2_048
"""And so many tokens."""
ON_ACCELERATOR = 4
"""So many times both limits on an accelerator, where small batches take as long as large ones."""
BEFORE = "0"
NEVER = -30.0
"""The log probability, in nats, of a word that is not sampled."""
GOALS_AT_ONCE = 32
BATCHES_KEPT = 4
"""Batches at least whose prompts are kept: many states of few samples are cut by their tokens."""
_REMEMBERED_GOALS = 200_000
_REMEMBERED_COUNTS = 200_000


class CausalModel(SamplingGenerator):
    """Satisfies ``Proposer``, and embeds moves; see the module's text."""

    def __init__(
        self,
        pretrained: HubModel,
        *,
        kept_tokens: int,
        depth: float,
        domain: Domain,
        exact_values: bool,
        alphabet: str | None = None,
        prompting: Callable[[State], Prompt],
        prompting_id: str,
        sampling: Sampling,
        seed: int,
        kept_moves: int,
        few_shot: bool = False,
    ) -> None:
        """``prompting_id`` identifies what ``prompting`` shows beside the state; ``kept_tokens``
        bounds the cache of prefixes; ``depth`` as for ``SharedPrefixes``. ``exact_values``: what
        ``domain.forced`` knows is not sampled. ``alphabet``: the characters of the words that are
        sampled; the model, which is changed in place, computes logits of these alone. None: of all.
        ``kept_moves``: of so many sampled moves the embeddings are kept until ``embed``.
        ``few_shot``: prompts are examples as plain text, so samples end before the next question.

        Raises:
            ParamsError: as ``SharedPrefixes``; exact values of a domain that computes none; an
                alphabet without what ends a move.
        """
        super().__init__(sampling)
        self._pretrained = pretrained
        self._batch_rows = sampling.batch_rows
        self._batches = 1 if pretrained.model.device.type == "cpu" else ON_ACCELERATOR
        self._parameters = parameters_of(pretrained.model)
        self._kept = KeptEmbeddings(kept_moves)
        self._goals: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}
        self._end = domain.end_of_move
        self._domain = domain
        if exact_values and not domain.computed_after:
            raise ParamsError(
                f"generator.{domain.name}: given exact_values true, expected false: the domain "
                "computes no values of a move"
            )
        self._mark = domain.computed_after if exact_values else ""
        self._words = _words(pretrained, alphabet, domain, self._mark)
        self._prefixes = SharedPrefixes(pretrained, capacity=kept_tokens, depth=depth)
        self._prompting = prompting
        self._seed = seed
        self._few_shot = few_shot
        marks = self._end[-1] + self._mark[-1:] + (NEXT_QUESTION[-1] if few_shot else "")
        self._watched = _watched(pretrained, marks, self._words)
        sampled = sampling.model_dump_json(exclude={"max_moves", "batch_rows"})
        exact = " exact values" if exact_values else ""
        exact += "" if alphabet is None else f" of {alphabet!r}"
        exact += " up to the next question" if few_shot else ""
        exact += " whole steps" if self._end.isspace() else ""
        self._identity = f"{pretrained.digest} {prompting_id} {sampled} {seed}{exact}"

    def identity(self) -> str:
        """Of the weights, the prompts, the sampling and the seed."""
        return self._identity

    def tokens(self, text: str) -> int:
        """The tokenizer's count, without what a template puts around a text."""
        if len(self._counts) > _REMEMBERED_COUNTS:
            self._counts.clear()
        if text not in self._counts:
            self._counts[text] = len(self._pretrained.encode_text(disarmed(text)))
        return self._counts[text]

    def parameters(self) -> int:
        """Of the model; output weights that are tied to its embeddings count once."""
        return self._parameters

    def embed(self, items: Sequence[RankItem]) -> list[Embeddings]:
        """Embeddings of every item's moves at its state; on the CPU, in float32.

        Of moves that were sampled here they are there already; the others are read.
        """
        return self._kept.complete(items, self._read_items)

    def _read_items(self, items: Sequence[RankItem]) -> list[Embeddings]:
        try:
            return self._read_in_batches(items)
        except (MemoryError, RuntimeError) as error:
            if self._batches == 1 or not is_out_of_memory(error):
                raise
        self._batches = 1
        self._prefixes.forget_recordings()
        _log.warning("embedding: no memory for large batches, going on with smaller ones")
        return self._read_in_batches(items)

    def _read_in_batches(self, items: Sequence[RankItem]) -> list[Embeddings]:
        self._read_goals({item.state.problem.goal for item in items})
        prompts = self._encoded([item.state for item in items])
        moves = self._encoded_moves(items, prompts)
        self._prefixes.check(prompts)
        words = max(len(self._words.ids), LOGITS_AT_ONCE // TOKENS_AT_ONCE)
        found: list[dict[int, Embeddings]] = [{} for _ in items]
        for groups in batches_of_groups(
            prompts,
            moves,
            most_tokens=self._batches * LOGITS_AT_ONCE // words,
            kept_tokens=self._prefixes.capacity,
        ):
            spans = [span for group in groups for span in group.spans]
            goals = [self._goals[items[span.item].state.problem.goal] for span in spans]
            for span, row in zip(spans, self._read(groups, torch.stack(goals)).each(), strict=True):
                found[span.item][span.move] = row
        return [concatenate([rows[place] for place in range(len(rows))]) for rows in found]

    def _read(self, groups: Sequence[Group], goals: Tensor) -> Embeddings:
        """One row a span of each group, group after group. ``goals`` [rows, D] are the hidden
        states of their goals."""
        past = self._prefixes.read([group.prompt for group in groups])
        device, width = past.logits.device, max(len(group.rows) for group in groups)
        counts, own = torch.tensor([len(group.rows) for group in groups]), torch.arange(len(groups))
        grid = own[:, None].expand(-1, width)
        own = own.repeat_interleave(counts).to(device)
        state, first = past.hidden[own], past.logits[own]
        past.take(grid.where(torch.arange(width) < counts[:, None], NONE))
        said = [torch.tensor(row) for group in groups for row in group.rows]
        tokens = pad_sequence(said, batch_first=True).to(device)
        logits, hidden = self._prefixes.extend(past, tokens)
        logits = torch.cat((first[:, None], logits[:, :-1]), 1)
        known = self._words.places[tokens]
        chosen = known.clamp(min=0)[..., None]
        logprobs = logits.log_softmax(-1).gather(-1, chosen).squeeze(-1)
        logprobs = logprobs.where(known != NONE, NEVER)
        behind = logits.gather(-1, chosen).squeeze(-1) - logits.amax(-1)
        behind = behind.where(known != NONE, NEVER)
        begins = [0, *accumulate(len(group.rows) for group in groups)]
        rows, starts, stops = torch.tensor(
            [
                (begin + span.row, span.start, span.stop)
                for begin, group in zip(begins, groups, strict=False)
                for span in group.spans
            ],
            device=device,
        ).T
        lengths = stops - starts
        inside = torch.arange(int(lengths.max()), device=device)
        at = rows[:, None], (starts[:, None] + inside).clamp(max=tokens.shape[1] - 1)
        mask = inside < lengths[:, None]
        before = torch.cat((state[:, None], hidden), 1)
        return embeddings_of(
            state=before[rows, starts],
            goal=goals.to(device),
            hidden=hidden[at],
            said=logprobs[at],
            seen=least_probable(logprobs[at], behind[at], mask),
            lengths=lengths,
        ).cpu()

    def _encoded(self, states: Sequence[State]) -> list[tuple[int, ...]]:
        """The prompt of each state; of several that are the same it is encoded once."""
        said = [self._prompting(state) for state in states]
        different = list(dict.fromkeys(said))
        tokens = dict(zip(different, self._pretrained.encode_each(different), strict=True))
        return [tokens[one] for one in said]

    def _encoded_moves(
        self, items: Sequence[RankItem], prompts: Sequence[tuple[int, ...]]
    ) -> list[list[tuple[int, ...]]]:
        """The tokens of every item's moves behind its prompt."""
        longer = iter(self._encoded([_after(item.state, m) for item in items for m in item.moves]))
        return [
            [self._tokens(move.text, before, next(longer)) for move in item.moves]
            for item, before in zip(items, prompts, strict=True)
        ]

    def _tokens(
        self, text: str, before: tuple[int, ...], after: tuple[int, ...]
    ) -> tuple[int, ...]:
        """A move's tokens, the end of the move among them, between two states' prompts.

        What stands between prompt and move, such as a blank, is part of them. Where the longer
        prompt does not go on from the shorter one, they are those of the move's text alone.
        """
        if after[: len(before)] == before:
            return after[len(before) :]
        end = "" if self._end.strip() else self._end
        return self._pretrained.encode_text(disarmed(text) + end)

    def _read_goals(self, goals: set[str]) -> None:
        """Bring the goals' hidden states into ``_goals``."""
        if len(self._goals) > _REMEMBERED_GOALS:
            self._goals.clear()
        fresh = sorted(goals - self._goals.keys())
        for start in range(0, len(fresh), GOALS_AT_ONCE):
            texts = fresh[start : start + GOALS_AT_ONCE]
            prompts = [self._pretrained.encode(Prompt((), disarmed(text))) for text in texts]
            self._goals.update(zip(texts, self._prefixes.read(prompts).hidden.cpu(), strict=True))

    def _sample(
        self, items: Sequence[Item], *, one_move: bool, limit: int, temperature: float
    ) -> Replies:
        """As declared; an item of more samples than a batch has rows is sampled in parts."""
        parts = [parts_of(item, self._batch_rows) for item in items]
        drawn = iter(
            self._sample_parts(
                [part for own in parts for part in own],
                one_move=one_move,
                limit=limit,
                temperature=temperature,
            )
        )
        return tuple(tuple(sample for _ in own for sample in next(drawn)) for own in parts)

    def _sample_parts(
        self, items: Sequence[Item], *, one_move: bool, limit: int, temperature: float
    ) -> Replies:
        prompts = self._encoded([item.state for item in items])
        room = self._pretrained.positions
        replies = [(NOTHING,) * item.count for item in items]
        fitting = [place for place, prompt in enumerate(prompts) if len(prompt) < room]
        parts = reading_order(prompts, kept_tokens=self._prefixes.capacity)
        first = list(zip(parts, self._prefixes.reading_turns(prompts), strict=True))
        order = sorted(
            fitting, key=lambda place: (first[place], items[place].count, len(prompts[place]))
        )

        def rows(batch: Sequence[int]) -> int:
            return len(batch) * max(items[place].count for place in batch)

        def fits(batch: Sequence[int]) -> bool:
            # So that a prompt is in no batch with what it begins with, which is read before.
            return (
                rows(batch) <= self._batch_rows
                and first[batch[0]] == first[batch[-1]]
                and sum(len(prompts[place]) for place in batch) * BATCHES_KEPT
                <= self._prefixes.capacity
            )

        told: dict[str, Any]
        told = {"one_move": one_move, "limit": limit, "temperature": temperature}
        while order:
            chosen = next(in_batches(order, fits))
            some = [items[place] for place in chosen]
            if rows(chosen) > self._batch_rows:  # one item, cut when batches had more rows
                drawn: Replies | None = self._sample(some, **told)
            else:
                own = [prompts[place] for place in chosen]
                drawn = self._drawn_if_it_fits(some, own, **told)
            if drawn is None:
                self._halve_batches(rows(chosen))
                continue
            order = order[len(chosen) :]
            for place, samples in zip(chosen, drawn, strict=True):
                replies[place] = samples
        return tuple(replies)

    def _halve_batches(self, rows: int) -> None:
        self._batch_rows = rows // 2
        self._prefixes.forget_recordings()
        _log.warning(
            "sampling: no memory for %d rows together, going on with %d (sampling.%s.batch_rows)",
            rows,
            self._batch_rows,
            self._domain.name,
        )

    def _drawn_if_it_fits(
        self, items: Sequence[Item], prompts: Sequence[tuple[int, ...]], **told: Any
    ) -> Replies | None:
        """As ``_drawn``; None where there is no memory for so many rows.

        Raises:
            ParamsError: there is none for one row.
        """
        try:
            return self._drawn(items, prompts, **told)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            if sum(item.count for item in items) == 1:
                raise ParamsError(
                    f"generator.{self._domain.name}: given a prompt of {len(prompts[0])} tokens "
                    f"and a sample of at most {told['limit']}, expected memory for them: a smaller "
                    "model, fewer kept_tokens, or another device"
                ) from error
        return None

    def _drawn(
        self,
        items: Sequence[Item],
        prompts: Sequence[tuple[int, ...]],
        *,
        one_move: bool,
        limit: int,
        temperature: float,
    ) -> Replies:
        """The samples of a batch of items; a group of rows each, as wide as the widest."""
        past = self._prefixes.read(prompts)
        counts = np.array([item.count for item in items])
        width = int(counts.max())
        seeds = np.zeros((len(items), width), np.uint64)
        for own, item in zip(seeds, items, strict=True):
            own[: item.count] = self._seeds(item)
        room = np.array([min(limit, self._pretrained.positions - len(one)) for one in prompts])
        most = np.where(np.arange(width) < counts[:, None], room[:, None], 0)
        drawn = Decoding(
            self._prefixes,
            past,
            _Ends(
                self._pretrained,
                self._domain,
                self._watched,
                self._words,
                states=[item.state for item in items for _ in range(width)],
                one_move=one_move,
                mark=self._mark,
                few_shot=self._few_shot,
            ),
            self._words,
            seeds=seeds,
            most=most,
            temperature=temperature,
            keep=self._kept.capacity > 0,
        ).run()
        replies = tuple(
            tuple(
                self._finished(drawn, place * width + index, limit=room[place], one_move=one_move)
                for index in range(item.count)
            )
            for place, item in enumerate(items)
        )
        if drawn.moves is not None:
            self._keep(items, prompts, drawn, drawn.moves)
        return replies

    def _keep(
        self, items: Sequence[Item], prompts: Sequence[tuple[int, ...]], drawn: Drawn, moves: Closed
    ) -> None:
        """Keep the embeddings of moves that would be read of their texts as they were drawn."""
        width = len(drawn.tokens) // len(items)
        states = {(place, ()): item.state for place, item in enumerate(items)}
        new: dict[MoveKey, tuple[int, str]] = {}
        for at, (row, start, stop) in enumerate(
            zip(moves.rows, moves.starts, moves.stops, strict=True)
        ):
            place, tokens = row // width, tuple(drawn.tokens[row, :stop].tolist())
            state = states.get((place, tokens[:start]))
            move = None if state is None else self._said(tokens[start:])
            if state is None or move is None:
                continue
            after, before = _after(state, move), (*prompts[place], *tokens[:start])
            whole = self._pretrained.encode(self._prompting(after))
            if self._tokens(move.text, before, whole) != tokens[start:]:
                continue
            (key,) = move_keys(state, [move.text])
            if key not in self._kept and key not in new:
                new[key] = at, state.problem.goal
            if whole == (*before, *tokens[start:]):
                states[place, tokens] = after
        if not new:
            return
        self._read_goals({goal for _, goal in new.values()})
        chosen = torch.tensor([at for at, _ in new.values()])
        rows, starts, stops = (
            torch.from_numpy(part)[chosen] for part in (moves.rows, moves.starts, moves.stops)
        )
        inside = torch.arange(int((stops - starts).max()))
        mask = inside < (stops - starts)[:, None]
        places = rows[:, None], (starts[:, None] + inside).clamp(max=drawn.said.shape[1] - 1)
        said, behind = drawn.said[places], drawn.behind[places]
        known_moves = Embeddings(
            state=moves.before[chosen],
            move=moves.mean[chosen],
            after=moves.after[chosen],
            goal=torch.stack([self._goals[goal] for _, goal in new.values()]),
            token_logprobs=least_probable(said, behind, mask),
            logprob=(said * mask).sum(1),
        )
        self._kept.add(list(new), known_moves)

    def _said(self, tokens: tuple[int, ...]) -> Move | None:
        """The one move that these tokens say, if it is one."""
        texts = list(split_moves(self._pretrained.decode(list(tokens)), self._end))
        move = self._domain.parse(texts[0]) if len(texts) == 1 else None
        return move if isinstance(move, Move) else None

    def _seeds(self, item: Item) -> list[int]:
        said = "\x1f".join(item.state.said)
        return item_seeds(f"{self._seed}|{item.state.problem.problem_id}|{said}", item)

    def _finished(self, drawn: Drawn, row: int, *, limit: int, one_move: bool) -> Sample:
        tokens = drawn.tokens[row, : drawn.lengths[row]].tolist()
        text = said = self._pretrained.decode(tokens)
        if self._few_shot:
            text = before_next_question(said)
        whole = text != said or len(tokens) < limit or tokens[-1] in self._pretrained.ends()
        if not whole and self._end.isspace():
            text = finished_part(text, self._end)
        if one_move:
            before, end, _ = text.lstrip().partition(self._end)
            text = close_move(before, self._end) if end else text.strip()
        return Sample(text, len(tokens), float(drawn.logprobs[row]))


class _Ends:
    """Satisfies ``Rules``: samples end with the text's end, or with a move's.

    After ``mark`` the domain says what it knows of a row's text; empty: it is not asked. ``states``
    are those that the rows continue. With ``few_shot`` they also end with the next question's mark.
    """

    def __init__(
        self,
        pretrained: HubModel,
        domain: Domain,
        watched: Tensor,
        words: Words,
        *,
        states: Sequence[State],
        one_move: bool,
        mark: str,
        few_shot: bool,
    ) -> None:
        self._pretrained = pretrained
        self._domain = domain
        self._end = domain.end_of_move
        self._ends = pretrained.ends()
        self._states = states
        self._one_move = one_move
        self._mark = mark
        self._few_shot = few_shot
        self._words = words
        self.watched = watched

    def closed(self, tokens: list[int]) -> bool:
        if self._end[-1] not in self._pretrained.decode(tokens[-1:]):
            return False
        tail = tokens[-TAIL:]
        before, after = self._pretrained.decode(tail[:-1]), self._pretrained.decode(tail)
        return after.count(self._end) > before.count(self._end)

    def ended(self, row: int, tokens: list[int]) -> bool:
        if tokens[-1] in self._ends:
            return True
        if self._few_shot and self._asks(tokens):
            return True
        if not self._one_move or self._end not in self._pretrained.decode(tokens[-TAIL:]):
            return False
        # What is blank so far has not begun.
        return not self._end.isspace() or self._end in self._pretrained.decode(tokens).lstrip()

    def _asks(self, tokens: list[int]) -> bool:
        """Whether the next question has begun."""
        if NEXT_QUESTION.strip() not in self._pretrained.decode(tokens[-TAIL:]):
            return False
        text = self._pretrained.decode(tokens)
        return before_next_question(text) != text

    def forced(self, row: int, tokens: list[int]) -> list[int]:
        if not self._mark or self._mark not in self._pretrained.decode(tokens[-1:]):
            return []
        state, begun = self._reached(self._states[row], self._pretrained.decode(tokens))
        known = None if state is None else self._domain.forced(state, begun)
        if known is None:
            return []
        said = self._pretrained.encode_behind(known)
        return said if bool((self._words.places[said] != NONE).all()) else []

    def _reached(self, state: State, text: str) -> tuple[State | None, str]:
        """The state after the moves of ``text``, and the move that has begun; None: there is one
        that is none."""
        *said, begun = text.split(self._end)
        for candidate in map(self._domain.parse, filter(str.strip, said)):
            if not isinstance(candidate, Move):
                return None, begun
            state = self._domain.apply(state, candidate)
        return state, begun


def _after(state: State, move: Move) -> State:
    """The state that the move's prompt is of; its context, which no prompt shows, is the old one.

    Moves are read that no gate has passed.
    """
    return replace(state, derivation=(*state.derivation, move))


def is_out_of_memory(error: Exception) -> bool:
    """On a processor, and in cuBLAS, PyTorch raises an error of no kind of its own."""
    kinds = (MemoryError, torch.OutOfMemoryError)
    said = ("can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED")
    return isinstance(error, kinds) or any(one in str(error) for one in said)


def _texts_behind(pretrained: HubModel) -> list[str]:
    """The text of each of the tokenizer's words behind another one: some tokenizers take the blank
    off that a text begins with."""
    (first, *_) = pretrained.tokenizer.encode(BEFORE, add_special_tokens=False)
    words = [[first, token] for token in range(len(pretrained.tokenizer))]
    size = len(pretrained.tokenizer.decode([first]))
    return [text[size:] for text in pretrained.tokenizer.batch_decode(words)]


def _watched(pretrained: HubModel, characters: str, words: Words) -> Tensor:
    """Which tokens [V] end a text, or hold one of these characters."""
    tokenizer = pretrained.tokenizer
    texts = tokenizer.batch_decode([[token] for token in range(len(tokenizer))])
    watched = torch.zeros(len(words.places), dtype=torch.bool)
    watched[: len(texts)] = torch.tensor([any(one in text for one in characters) for text in texts])
    watched[list(pretrained.ends())] = True
    return watched


def _words(pretrained: HubModel, alphabet: str | None, domain: Domain, mark: str) -> Words:
    """What the model computes logits of: those words of ``alphabet`` and those that end a text."""
    head = pretrained.model.get_output_embeddings()
    device, size = head.weight.device, max(len(head.weight), len(pretrained.tokenizer))
    if alphabet is None:
        ids = torch.arange(len(head.weight), device=device)
    else:
        if not set(domain.end_of_move + mark) <= set(alphabet):
            raise ParamsError(
                f"generator.{domain.name}: given alphabet {alphabet!r}, expected the characters of "
                f"{domain.end_of_move + mark!r} among them, without which no move ends, and no "
                "value is computed"
            )
        texts, allowed = _texts_behind(pretrained), set(alphabet)
        fitting = {at for at, text in enumerate(texts) if text and set(text) <= allowed}
        ids = torch.tensor(sorted(fitting | pretrained.ends()), device=device)
        smaller = torch.nn.Linear(1, 1, bias=head.bias is not None)
        smaller.weight = torch.nn.Parameter(head.weight[ids], requires_grad=False)
        if head.bias is not None:
            smaller.bias = torch.nn.Parameter(head.bias[ids], requires_grad=False)
        pretrained.model.set_output_embeddings(smaller)
    places = torch.full((size,), NONE, device=device)
    places[ids] = torch.arange(len(ids), device=device)
    return Words(ids, places)


def least_probable(said: Tensor, behind: Tensor, mask: Tensor) -> Tensor:
    """What the generator held least probable of each move, the least probable token first.

    A step of text has more tokens than a head can see, and where it may be wrong, some of them
    surprise.

    Args:
        said: log probabilities of the tokens [B, T], in nats.
        behind: their distance from the most probable token's.
        mask: which places are tokens.

    Returns:
        [B, SEEN]: of WINDOW tokens ``SCALE`` times both, and 1 where there is a token.
    """
    padding = (0, max(0, WINDOW - said.shape[1]))
    ordered = said.masked_fill(~mask, torch.inf).argsort(dim=1, stable=True)[:, :WINDOW]
    inside = mask.gather(1, ordered).to(said.dtype)
    parts = [SCALE * values.gather(1, ordered) * inside for values in (said, behind)]
    seen = torch.cat([torch.nn.functional.pad(part, padding) for part in (*parts, inside)], 1)
    return seen.view(len(said), SEEN)
