"""ReF-ER in the notation: spellings, parameters, refusals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replaybench.data.errors import UserError
from replaybench.replay.sb3.feedback import FEEDBACK, check_feedback
from replaybench.replay.strategies.notation import parse
from replaybench.replay.strategies.refer import ReFER, ReFER1, ReFER2
from replaybench.replay.strategies.registry import REFER
from replaybench.replay.strategies.retention.fifo import FIFO
from replaybench.replay.strategies.retention.reservoir import Resv
from replaybench.replay.strategies.sampling.attentive import AER
from replaybench.replay.strategies.sampling.rank_based import PER
from replaybench.replay.strategies.sampling.recent import ERE
from replaybench.replay.strategies.sampling.uniform import Uniform
from replaybench.replay.strategies.strategy import Strategy
from replaybench.replay.strategies.weighting.full_importance import FIS
from replaybench.replay.strategies.weighting.importance import IS

positive = st.floats(0, 1e6, exclude_min=True)
unit = st.floats(0, 1)
bound = positive, st.floats(0, 1e6)
penalty = (
    st.floats(0, 1, exclude_min=True, exclude_max=True),
    unit,
    st.none() | unit,
    st.sampled_from(["mu_pi", "pi_mu"]),
)
FORMS = {
    ReFER: st.builds(ReFER, *bound, *penalty),
    ReFER1: st.builds(ReFER1, *bound),
    ReFER2: st.builds(ReFER2, *bound, *penalty),
}


def test_every_form_has_a_round_trip() -> None:
    assert set(FORMS) == set(REFER.values())


@given(
    st.one_of(*FORMS.values()),
    st.sampled_from([FIFO(), Resv()]),
    st.sampled_from([(Uniform(), None), (PER(), IS()), (PER(), FIS()), (AER(), None), (ERE(), FIS())]),
)
def test_canonical_text_parses_to_the_same_strategy(
    refer: ReFER1, retention: FIFO | Resv, replayed: tuple[Uniform, IS | FIS | None]
) -> None:
    strategy = Strategy(retention, *replayed, refer=refer)
    assert parse(str(strategy)) == strategy
    assert str(parse(str(strategy))) == str(strategy)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("FIFO[Uniform+ReFER]", "FIFO[Uniform+ReFER]"),
        ("FIFO[Uniform+ReF-ER]", "FIFO[Uniform+ReFER]"),
        ("fifo[uniform+refer]", "FIFO[Uniform+ReFER]"),
        ("FIFO[Uniform+ReFER1]", "FIFO[Uniform+ReFER-1]"),
        ("FIFO[Uniform+ReF-ER-1]", "FIFO[Uniform+ReFER-1]"),
        ("FIFO[ Uniform + refer-2 ]", "FIFO[Uniform+ReFER-2]"),
        ("FIFO[PER+ReFER+IS]", "FIFO[PER+IS+ReFER]"),
        ("FIFO[ERE+ReFER+PER]", "FIFO[ERE+PER+ReFER]"),
        ("FIFO[Uniform+ReFER(4)]", "FIFO[Uniform+ReFER]"),
        ("FIFO[Uniform+ReFER(2)]", "FIFO[Uniform+ReFER(2.0)]"),
        ("FIFO[Uniform+ReF-ER-1(2, 0)]", "FIFO[Uniform+ReFER-1(c=2.0, anneal=0.0)]"),
        ("FIFO[Uniform+ReFER(far=0.2, beta_rate=1e-4)]", "FIFO[Uniform+ReFER(far=0.2, beta_rate=0.0001)]"),
        ("FIFO[Uniform+ReFER-2(kl=PI_MU, beta_rate=none)]", "FIFO[Uniform+ReFER-2(kl=pi_mu)]"),
        ("Drop(0.5)*FarPol[Uniform+ReFER]", "Drop(0.5)*FarPol[Uniform+ReFER]"),
    ],
)
def test_every_spelling_is_read_as_the_canonical_one(text: str, canonical: str) -> None:
    assert str(parse(text)) == canonical


def test_the_defaults_are_those_of_the_paper() -> None:
    refer = parse("FIFO[Uniform+ReFER]").refer
    assert refer == ReFER(c=4.0, anneal=5e-7, far=0.1, beta=1.0, beta_rate=None, kl="mu_pi")
    parsed = {name: parse(f"FIFO[Uniform+{name}]").refer for name in REFER}
    rules = {name: refer.rules for name, refer in parsed.items() if refer is not None}
    assert rules == {"ReFER": (1, 2), "ReFER-1": (1,), "ReFER-2": (2,)}
    assert parse("FIFO[Uniform]").refer is None


@pytest.mark.parametrize(
    ("term", "words"),
    [
        ("ReFER+ReFER", "has ReFER twice"),
        ("ReFER-1+ReFER-2", "has ReFER twice"),
        ("ReFER-3", "did you mean ReFER"),
        ("ReFER_1", "write ReFER-1 for Rule 1 alone"),
        ("ReFER(0)", "c must be a finite number > 0"),
        ("ReFER-1(inf)", "c must be a finite number > 0"),
        ("ReFER(anneal=-1)", "anneal must be a finite number ≥ 0"),
        ("ReFER-2(far=0)", "in (0, 1)"),
        ("ReFER(far=1)", "in (0, 1)"),
        ("ReFER(beta=1.5)", "beta must lie in [0, 1]"),
        ("ReFER(beta=nan)", "beta must lie in [0, 1]"),
        ("ReFER(beta_rate=-1)", "beta_rate must lie in [0, 1] or be none"),
        ("ReFER(kl=both)", "kl of ReFER must be mu_pi or pi_mu, not 'both'"),
        ("ReFER(kl=1)", "kl of ReFER must be mu_pi or pi_mu, not '1'"),
        ("ReFER-1(beta=1)", "unknown parameter of ReFER-1"),
        ("ReFER-1(1, 2, 3)", "takes 2 parameter"),
    ],
)
def test_errors_are_one_line_with_the_remedy(term: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        parse(f"FIFO[Uniform+{term}]")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_divergence_that_is_none_is_refused() -> None:
    with pytest.raises(UserError, match="kl is mu_pi or pi_mu, not reverse"):
        ReFER(kl="reverse")  # type: ignore[arg-type]


def test_stable_baselines_has_no_learner_for_it() -> None:
    with pytest.raises(UserError, match="ReFER changes the learner's gradients.*leave ReFER out"):
        check_feedback(parse("FIFO[Uniform+ReFER-1]"), FEEDBACK)
