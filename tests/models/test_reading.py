"""Which tokens are read together: every move once, prompts before those that go on from them."""

import random

from selverify.models.generators.reading import batches_of_groups, reading_order


def read(prompts, moves, *, most_tokens=1000, kept_tokens=10_000):
    return list(batches_of_groups(prompts, moves, most_tokens=most_tokens, kept_tokens=kept_tokens))


def test_the_steps_of_a_derivation_are_one_row() -> None:
    prompts = [(1, 2), (1, 2, 3, 4), (1, 2, 3, 4, 5)]
    ((group,),) = read(prompts, [[(3, 4)], [(5,)], [(6, 7)]])
    assert (group.prompt, group.rows) == ((1, 2), ((3, 4, 5, 6, 7),))
    assert [
        (one.item, one.start, one.stop) for one in sorted(group.spans, key=lambda s: s.item)
    ] == [
        (0, 0, 2),
        (1, 2, 3),
        (2, 3, 5),
    ]


def test_several_moves_of_a_state_follow_its_own_prompt_after_the_one_it_begins_with() -> None:
    prompts = [(1, 2, 3, 4), (1, 2)]
    first, second = read(prompts, [[(5,), (6,)], [(3,), (7,)]])
    assert [group.prompt for group in (*first, *second)] == [(1, 2), (1, 2, 3, 4)]
    assert second[0].depth == 1


def test_every_move_is_read_once_where_it_stands() -> None:
    rng = random.Random(1)
    for _ in range(200):
        prompts = [tuple(rng.choices((1, 2), k=rng.randint(1, 6))) for _ in range(8)]
        moves = [
            [tuple(rng.choices((1, 2), k=rng.randint(1, 3))) for _ in range(rng.randint(0, 3))]
            for _ in prompts
        ]
        batches = read(prompts, moves, most_tokens=rng.choice((4, 20)), kept_tokens=1000)
        check_order(batches)
        found = {}
        for group in (group for batch in batches for group in batch):
            for span in group.spans:
                text = group.prompt + group.rows[span.row][: span.stop]
                assert (span.item, span.move) not in found
                found[span.item, span.move] = text, len(group.prompt) + span.start
        assert found == {
            (item, place): ((*prompt, *move), len(prompt))
            for item, (prompt, own) in enumerate(zip(prompts, moves, strict=True))
            for place, move in enumerate(own)
        }


def check_order(batches) -> None:
    """A prompt that begins with others is read after them."""
    done: set[tuple[int, ...]] = set()
    every = {group.prompt for batch in batches for group in batch}
    for batch in batches:
        for group in batch:
            own = group.prompt
            above = {one for one in every if one != own and own[: len(one)] == one}
            assert len(above) == group.depth and above <= done
        done |= {group.prompt for group in batch}


def test_no_more_prompts_are_read_ahead_than_are_kept() -> None:
    """Of ten families with a prompt of 10 tokens and one of 11, two fit in half of 100 tokens."""
    prompts = [(n, *range(100, 109)) for n in range(10)]
    prompts += [(*prompt, 7) for prompt in prompts]
    batches = read(prompts, [[(1,), (2,)] for _ in prompts], kept_tokens=100)
    assert [len(batch) for batch in batches] == [2, 2] * 5


def test_prompts_are_read_after_those_they_begin_with_while_these_are_kept() -> None:
    """Three problems with a question of 10 tokens and states of 12 and 14; one of these twice."""
    questions = [(n, *range(100, 109)) for n in range(3)]
    prompts = [one + more for one in questions for more in ((), (7, 7), (7, 7, 8, 8), (7, 7))]
    depths = [0, 1, 2, 1]
    assert reading_order(prompts, kept_tokens=1000) == [(0, one) for one in depths * 3]
    # 10 + 2 + 4 + 2 tokens a problem.
    assert [part for part, _ in reading_order(prompts, kept_tokens=72)] == [0] * 8 + [1] * 4
    assert [part for part, _ in reading_order(prompts, kept_tokens=1)] == [0] * 4 + [1] * 4 + [
        2
    ] * 4
    assert reading_order(questions, kept_tokens=1) == [(0, 0)] * 3, "nothing is read twice"
    assert reading_order([], kept_tokens=1) == []
