"""The strategy language: canonical round trip, aliases, and errors that say where and what instead."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replaybench.data.errors import UserError
from replaybench.replay.notation import Strategy, parse
from replaybench.replay.retention import FIFO, FULL, RETENTIONS, Resv
from replaybench.replay.sampling import IS, PER, Uniform

exponents = st.floats(0, 1)
importances = st.none() | st.builds(IS, exponents, exponents, st.booleans())
samplings = st.builds(Uniform, importances) | st.builds(PER, st.floats(0, 5), importances)
retentions = st.sampled_from([kind() for kind in RETENTIONS.values()])


@given(st.builds(Strategy, retentions, samplings))
def test_canonical_text_parses_to_the_same_strategy(strategy: Strategy) -> None:
    assert parse(str(strategy)) == strategy
    assert str(parse(str(strategy))) == str(strategy)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("FIFO[Uniform]", "FIFO[Uniform]"),
        (" fifo [ uniform ] ", "FIFO[Uniform]"),
        ("FULL DB[PER]", "FULL[PER]"),
        ("resv[PER_0.7]", "Resv[PER]"),
        ("FULL[PER(0.5)+IS]", "FULL[PER(0.5)+IS]"),
        ("FULL[PER(alpha=0.5)]", "FULL[PER(0.5)]"),
        ("FULL[PER+IS(0.4→1)]", "FULL[PER+IS(first=0.4)]"),
        ("FULL[PER+IS(0.4->0.9)]", "FULL[PER+IS(first=0.4, last=0.9)]"),
        ("FULL[PER+IS(normalise=true)]", "FULL[PER+IS(normalise=true)]"),
    ],
)
def test_spellings(text: str, canonical: str) -> None:
    assert str(parse(text)) == canonical


def test_parts() -> None:
    assert parse("FULL[PER(0.5)+IS]") == Strategy(FULL(), PER(0.5, IS()))
    assert parse("Resv[Uniform]") == Strategy(Resv(), Uniform())
    assert parse("FIFO[Uniform]").retention == FIFO()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("FIFO", "Retention[Sampling]"),
        ("FILO[Uniform]", "did you mean FIFO"),
        ("FIFO[Unifrm]", "did you mean Uniform"),
        ("FIFO[PER+SI]", "did you mean IS"),
        ("FIFO[PER(x)]", "must be a number"),
        ("FIFO[PER(beta=1)]", "unknown parameter of PER"),
        ("FIFO[PER(0.7, 2)]", "takes 1 parameter"),
        ("FIFO(3)[PER]", "takes no parameter"),
        ("FIFO[PER+IS+IS]", "twice"),
        ("FIFO[PER(-1)]", "finite number ≥ 0"),
        ("FIFO[PER(nan)]", "finite number ≥ 0"),
        ("FIFO[PER+IS(2)]", "[0, 1]"),
        ("FIFO[?]", "at character 6"),
        ("FIFO[]", "cannot read"),
    ],
)
def test_errors_are_one_line_with_the_remedy(text: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        parse(text)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
