"""The reward model's token log probabilities and the product of its factors, by hand."""

import math

import torch

from selverify.models.verifiers.reward import SCALE, SEEN, WINDOW, TokenLogprobHead, token_logprobs

END = 2


def seen(words: list[int], chances: list[list[float]]) -> torch.Tensor:
    tokens = torch.tensor(words)
    return token_logprobs(torch.tensor(chances).log(), tokens, tokens == END)


def test_evidence_is_of_one_move_newest_word_first():
    """Log probability, its distance from the best word's, and 1; nothing of the move before."""
    found = seen([0, END, 1, END], [[0.5, 0.25, 0.25], [0.2, 0.2, 0.6], [0.6, 0.3, 0.1], [0, 0, 1]])
    assert found.shape == (4, SEEN)
    said, behind, inside = found[3].split(WINDOW)
    logs = [0.0, math.log(0.3)]
    torch.testing.assert_close(said[:2], SCALE * torch.tensor(logs))
    torch.testing.assert_close(behind[:2], SCALE * torch.tensor([0.0, math.log(0.3 / 0.6)]))
    assert inside.tolist() == [1.0, 1.0] + [0.0] * (WINDOW - 2)
    assert not said[2:].any()
    assert not behind[2:].any()


def test_evidence_of_a_move_does_not_depend_on_what_came_before_it():
    """A window that opens with the move equals one that opens long before it."""
    rows = torch.rand(9, 3).softmax(-1).tolist()
    words = [0, 1, 0, END, 1, 1, END, 0, END]
    torch.testing.assert_close(seen(words, rows)[8], seen(words[7:], rows[7:])[1])


def test_the_value_is_a_product_and_the_rest_sees_no_evidence():
    """log V = sum of log right so far + log rest; a worse second move lowers V from there on."""
    torch.manual_seed(1)
    head = TokenLogprobHead(4, 8)
    moves, before = torch.rand(3, SEEN), torch.rand(3, 4)
    value = head(moves, before)
    right = head.log_right(moves)
    rest = value - right.cumsum(-1)
    other = head(torch.cat((moves[:1], -moves[1:])), before)
    torch.testing.assert_close(
        other - head.log_right(torch.cat((moves[:1], -moves[1:]))).cumsum(-1), rest
    )
    assert (rest < 0).all()
    assert (right < 0).all()
