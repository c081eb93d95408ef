"""Questions that share a phrase with a held-out one."""

from __future__ import annotations

from selverify.data.near_duplicates import apart_from, shared_phrases
from selverify.data.text_benchmarks import Questions, TextQuestion

HELD_OUT = "Ann has 3 red pens and Bob\u2019s box holds 5 blue pens. How many pens are there?"


def questions(source: str, *texts: str) -> Questions:
    """Questions with ids ``source-0``, ``source-1`` and so on."""
    items = (
        TextQuestion(f"{source}-{number}", text, "1", None, None)
        for number, text in enumerate(texts)
    )
    return Questions(source, tuple(items))


def test_a_phrase_counts_without_case_and_punctuation() -> None:
    """Eight words in a row are shared by the first, seven by the second."""
    pool = questions(
        "pool",
        "Today, 3 RED pens and Bob's box holds 5: yes!",
        "Today, pens and Bob's box holds 5 blue pears.",
        "How many pens are there?",
        "",
    )
    held_out = questions("test", HELD_OUT)
    assert shared_phrases(pool, held_out) == {"pool-0"}
    assert shared_phrases(pool, held_out, words=7) == {"pool-0", "pool-1"}
    assert shared_phrases(pool, held_out, words=5) == {"pool-0", "pool-1", "pool-2"}


def test_a_pool_is_cleaned_of_equal_and_of_similar_questions() -> None:
    """An equal text is too short for a phrase and goes all the same."""
    pool = questions("pool", "How many?", f"Once {HELD_OUT}", "How many cats have 3 dogs?")
    kept = apart_from(pool, questions("test", "How  many?", HELD_OUT))
    assert [question.question_id for question in kept.items] == ["pool-2"]
    assert kept.source == "pool without test"
