"""The strategy language: canonical round trip, aliases, and errors that say where and what instead."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replaybench.replay.strategies.actor_critic import LA3P
from replaybench.replay.strategies.attentive import AER
from replaybench.replay.strategies.coverage import Cover
from replaybench.replay.strategies.entry import Drop, Synth
from replaybench.replay.strategies.geometric import TruncGeo
from replaybench.replay.strategies.mixed import Mix
from replaybench.replay.strategies.notation import ENTRIES, OF_BATCHES, REFER, RETENTIONS, SAMPLINGS, WEIGHTINGS, parse
from replaybench.replay.strategies.prioritised import LAP, PAL, PER, PERprop
from replaybench.replay.strategies.recent import ERE, EREPER
from replaybench.replay.strategies.reliable import ReaPER
from replaybench.replay.strategies.retention import FIFO, FULL, TDE, Expl, FarPol, Resv
from replaybench.replay.strategies.strategy import Newest, ReFER, ReFER1, ReFER2, Strategy
from replaybench.replay.strategies.uniform import Annealed, Uniform
from replaybench.replay.strategies.weighting import FIS, IS
from replaybench.runtime.errors import UserError

probabilities = st.floats(0, 1) | st.integers(0, 1)
exponents = st.floats(0, 1e6) | st.integers(0, 5)
positive = st.floats(0, 1e6, exclude_min=True)
capacities = st.none() | st.integers(1, 10**9)
segments = st.none() | st.just("authors") | st.integers(1, 10**6)
proportional = st.builds(PERprop, exponents, positive)
eta = st.floats(0, 1, exclude_min=True)
recent = (eta, st.none() | st.integers(1, 10**6), eta, st.none() | st.integers(2, 10**6))
shares = st.tuples(st.floats(0, 0.5), st.floats(0, 0.5), probabilities).filter(lambda s: s[0] + s[1] > 0)

bound = positive, st.floats(0, 1e6)
kl = st.sampled_from(["mu_pi", "pi_mu"])
penalty = (st.floats(0, 1, exclude_min=True, exclude_max=True), st.floats(0, 1), st.none() | st.floats(0, 1), kl)

PARTS: dict[type, st.SearchStrategy[Any]] = {
    FIFO: st.builds(FIFO, capacity=capacities),
    FULL: st.builds(FULL),
    Resv: st.builds(Resv, capacity=capacities),
    TDE: st.builds(TDE, exponents, segments, capacity=capacities),
    Expl: st.builds(Expl, exponents, segments, capacity=capacities),
    FarPol: st.builds(FarPol, capacity=capacities),
    Cover: st.builds(Cover, st.integers(2, 10_000), capacity=capacities),
    Uniform: st.builds(Uniform),
    PER: st.builds(PER, exponents),
    PERprop: proportional,
    LAP: st.builds(LAP, exponents),
    PAL: st.builds(PAL, exponents),
    TruncGeo: st.builds(TruncGeo, st.floats(0.001, 0.5)),
    LA3P: st.builds(LA3P, st.floats(0, 1, exclude_min=True), exponents),
    ReaPER: st.builds(ReaPER, st.floats(0, 4) | st.integers(0, 4), st.floats(0, 4)),
    Annealed: st.builds(Annealed, st.floats(1, 1000), st.floats(0, 1, exclude_min=True)),
    AER: st.builds(AER, st.floats(1, 1000) | st.integers(1, 9), st.floats(0, 1, exclude_min=True)),
    ERE: st.builds(ERE, *recent, st.booleans()),
    EREPER: st.builds(EREPER, *recent, st.booleans(), proportional),
    IS: st.builds(IS, probabilities, probabilities, st.booleans(), st.booleans()),
    FIS: st.builds(FIS, probabilities),
    Drop: st.builds(Drop, st.just("rate") | st.floats(0, 1, exclude_max=True)),
    Synth: shares.map(lambda s: Synth(*s)),
    Mix: st.builds(Mix, st.sampled_from([Path("a.h5"), Path("../My runs/B.h5")]), eta, st.none() | eta),
    Newest: st.builds(Newest),
    ReFER: st.builds(ReFER, *bound, *penalty),
    ReFER1: st.builds(ReFER1, *bound),
    ReFER2: st.builds(ReFER2, *bound, *penalty),
}
"""All values that each part takes."""


def test_every_part_has_a_round_trip() -> None:
    registries = (RETENTIONS, SAMPLINGS, WEIGHTINGS, ENTRIES, OF_BATCHES, REFER)
    assert set(PARTS) == {part for registry in registries for part in registry.values()}


@st.composite
def strategies(draw: st.DrawFn) -> Strategy:
    retention = draw(st.one_of([PARTS[kind] for kind in RETENTIONS.values()]))
    sampling = draw(st.one_of([PARTS[kind] for kind in SAMPLINGS.values()]))
    weighting = draw(st.none() | PARTS[FIS] | (st.none() if sampling.importance_undefined else PARTS[IS]))
    refer = draw(st.one_of(st.none(), *(PARTS[kind] for kind in REFER.values())))
    entries = draw(st.none() | PARTS[Drop]), draw(st.none() | PARTS[Synth])
    mix = draw(st.none() if sampling.critic_loss.separate else st.none() | PARTS[Mix])
    return Strategy(retention, sampling, weighting, *entries, refer, draw(st.none() | PARTS[Newest]), mix)


@given(strategies())
@settings(max_examples=150, deadline=None)
def test_canonical_text_parses_to_the_same_strategy(strategy: Strategy) -> None:
    assert parse(str(strategy)) == strategy
    assert str(parse(str(strategy))) == str(strategy)
    assert str(strategy).isascii()


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        (" fifo [ uniform ] ", "FIFO[Uniform]"), ("FULL DB[PER]", "FULL[PER]"), ("full_db[PER]", "FULL[PER]"),
        ("resv[PER_0.7]", "Resv[PER]"), ("reservoir[PER_0.5]", "Resv[PER(0.5)]"),
        ("expl_1.2[Uniform]", "Expl(1.2)[Uniform]"), ("tde_1.2[PER_0.7]", "TDE(1.2)[PER]"),
        ("TDE(1.0)[Uniform]", "TDE[Uniform]"),
        ("Expl(1.2, segments=none)[Uniform]", "Expl(alpha=1.2, segments=none)[Uniform]"),
        ("Expl(1.2, authors)[Uniform]", "Expl(1.2)[Uniform]"), ("FULL[PER(alpha=0.5)]", "FULL[PER(0.5)]"),
        ("FULL[PER(1)]", "FULL[PER(1.0)]"), ("FULL[PER+IS(0.4→1)]", "FULL[PER+IS(0.4)]"),
        ("FULL[PER+IS(0.4->0.9)]", "FULL[PER+IS(first=0.4, last=0.9)]"),
        ("FULL[PER+IS(last=0.9)]", "FULL[PER+IS(last=0.9)]"),
        ("FULL[PER+IS(normalise=true)]", "FULL[PER+IS(normalise=true)]"), ("FIFO[uniform+fis]", "FIFO[Uniform+FIS]"),
        ("FIFO[aer]", "FIFO[AER]"), ("FIFO[AER(4, alpha=1)]", "FIFO[AER(first=4.0, alpha=1.0)]"),
        ("FIFO[ERE+PERprop(0.9)]", "FIFO[ERE+PER(0.9)]"),
        ("FIFO[ERE(0.99, c_min=100)+PER+FIS]", "FIFO[ERE(eta=0.99, c_min=100)+PER+FIS]"),
        ("Drop*FIFO[Uniform]", "Drop(rate)*FIFO[Uniform]"),
        ("Drop(0.5)·Synth(action=0.2)·FIFO[Uniform]", "Drop(0.5)*Synth(action=0.2)*FIFO[Uniform]"),
        ("Synth(state=0.1)*Drop(0.5)*FIFO[Uniform]", "Drop(0.5)*Synth(state=0.1)*FIFO[Uniform]"),
        ("FIFO[Uniform+ReF-ER]", "FIFO[Uniform+ReFER]"), ("fifo[uniform+refer]", "FIFO[Uniform+ReFER]"),
        ("FIFO[Uniform+ReFER1]", "FIFO[Uniform+ReFER-1]"), ("FIFO[Uniform+ReF-ER-1]", "FIFO[Uniform+ReFER-1]"),
        ("FIFO[ Uniform + refer-2 ]", "FIFO[Uniform+ReFER-2]"), ("FIFO[PER+ReFER+IS]", "FIFO[PER+IS+ReFER]"),
        ("FIFO[PER+IS+newest]", "FIFO[PER+Newest+IS]"), ("cover(4)[truncgeo]", "Cover(4)[TruncGeo]"),
        ("FIFO[ERE+ReFER+PER]", "FIFO[ERE+PER+ReFER]"), ("FIFO[Uniform+ReFER(4)]", "FIFO[Uniform+ReFER]"),
        ("FIFO[Uniform+ReF-ER-1(2, 0)]", "FIFO[Uniform+ReFER-1(c=2.0, anneal=0.0)]"),
        ("FIFO[Uniform+ReFER(far=0.2, beta_rate=1e-4)]", "FIFO[Uniform+ReFER(far=0.2, beta_rate=0.0001)]"),
        ("FIFO[Uniform+ReFER-2(kl=PI_MU, beta_rate=none)]", "FIFO[Uniform+ReFER-2(kl=pi_mu)]"),
    ],
)  # fmt: skip
def test_every_spelling_is_read_as_the_canonical_one(text: str, canonical: str) -> None:
    assert str(parse(text)) == canonical


def test_parts_and_their_parameters_become_a_strategy() -> None:
    assert parse("FULL[PER(0.5)+IS]") == Strategy(FULL(), PER(0.5), IS())
    assert parse("expl_1.2[PER]") == Strategy(Expl(1.2), PER(0.7))
    assert parse("FIFO[ERE+PER]").sampling == EREPER(priorities=PERprop())
    assert parse("FIFO[ERE+PER]").weights == IS(0.6, 0.6, normalise=True, all_networks=True)
    assert parse("FIFO[ERE]").weights is None
    assert str(Strategy(TDE(1), PER(1))) == "TDE[PER(1.0)]"
    assert parse("Drop(0.5)*Synth(0.1, 0.2, 0.3)*FIFO[Uniform]") == Strategy(
        FIFO(), Uniform(), None, Drop(0.5), Synth(0.1, 0.2, 0.3)
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("FIFO", "Retention[Sampling]"),
        ("FIFO[Uniform", "Retention[Sampling], e.g. FIFO[Uniform]"),
        ("PER", "Retention[Sampling], e.g. FIFO[PER]"),
        ("TDE(1.2)", "Retention[Sampling], e.g. TDE[Uniform]"),
        ("IS", "Retention[Sampling], e.g. FIFO[PER+IS]"),
        ("ReF-ER", "Retention[Sampling], e.g. FIFO[Uniform+ReFER]"),
        ("FILO[Uniform]", "did you mean FIFO"),
        ("FIFO[Unifrm]", "did you mean Uniform"),
        ("FIFO[PER+SI]", "did you mean IS"),
        ("Dorp*FIFO[PER]", "did you mean Drop"),
        ("mine.py:Thin*FIFO[PER]", "unknown modifier of entry 'mine.py:Thin'; valid: Drop, Mix, Synth"),
        ("FIFO[PER(x)]", "must be a number"),
        ("TDE(segments=x)[PER]", "must be a whole number or authors or none"),
        ("Drop(x)*FIFO[PER]", "must be a number or rate"),
        ("FIFO[PER(beta=1)]", "unknown parameter of PER"),
        ("FIFO[PER(0.7, 2)]", "takes 1 parameter"),
        ("FIFO[PER(0.7, alpha=0.7)]", "alpha twice"),
        ("FIFO[Uniform(3)]", "takes no parameter"),
        ("FULL(100)[PER]", "keeps everything and has no capacity"),
        ("FIFO[Uniform+IS]", "its draws have equal chances, so all weights would be 1"),
        ("FIFO[AER+IS]", "the chances of its draws are not known"),
        ("FIFO[PER+IS+IS]", "IS twice"),
        ("FIFO[PER+FIS+IS+FIS]", "FIS twice"),
        ("FIFO[ERE+PER+PER]", "PER twice"),
        ("Drop*Drop(0.5)*FIFO[PER]", "Drop twice"),
        ("FIFO[PER+PER]", "has two samplings"),
        ("FIFO[PER+ERE]", "has two samplings; name one of them, or ERE+PER"),
        ("FIFO[PER+IS(normalise=1)]", "true or false"),
        ("FIFO[?]", "at character 6"),
        ("FIFO[]", "a name is missing"),
        ("FIFO[+IS]", "a name is missing; write Retention[Sampling]"),
        ("FIFO[Uniform+ReFER+ReFER]", "has ReFER twice"),
        ("FIFO[Uniform+ReFER-1+ReFER-2]", "has ReFER twice"),
        ("FIFO[Uniform+ReFER-3]", "did you mean ReFER"),
        ("FIFO[Uniform+ReFER_1]", "write ReFER-1 for Rule 1 alone"),
        *((f"FIFO[Uniform+ReFER{c}]", "c must be a finite number > 0") for c in ("(0)", "-1(inf)")),
        ("FIFO[Uniform+ReFER(anneal=-1)]", "anneal must be a finite number ≥ 0"),
        *((f"FIFO[Uniform+{far}]", "in (0, 1)") for far in ("ReFER-2(far=0)", "ReFER(far=1)")),
        *((f"FIFO[Uniform+ReFER(beta={wrong})]", "beta must lie in [0, 1]") for wrong in ("1.5", "nan")),
        ("FIFO[Uniform+ReFER(beta_rate=-1)]", "beta_rate must lie in [0, 1] or be none"),
        *(
            (f"FIFO[Uniform+ReFER(kl={wrong})]", f"kl of ReFER must be mu_pi or pi_mu, not '{wrong}'")
            for wrong in ("both", 1)
        ),
        ("FIFO[Uniform+ReFER-1(beta=1)]", "unknown parameter of ReFER-1"),
        ("FIFO[Uniform+ReFER-1(1, 2, 3)]", "takes 2 parameter"),
        *((f"FIFO[ERE({wrong})]", "ERE") for wrong in ("0.0", "1.1", "nan", "last=0.0", "c_min=0", "phase=1")),
        *((f"FIFO[AER({wrong})]", "AER") for wrong in ("0.5", "inf", "alpha=0.0", "alpha=1.5")),
        *((f"FIFO[PER({wrong})]", "finite number ≥ 0") for wrong in ("-1", "nan", "inf")),
        *((f"FIFO[PERprop({wrong})]", "finite number") for wrong in ("-1", "nan")),
        ("FIFO[Annealed(0.5)]", "Annealed: λ₀ must be at least 1"),
        *((f"Drop({wrong})*FIFO[Uniform]", "[0, 1)") for wrong in ("1.0", "-0.1")),
        *((f"FIFO[PERprop(epsilon={wrong})]", "finite number above 0") for wrong in ("0.0", "inf")),
        *((f"{wrong})[Uniform]", "α must be") for wrong in ("TDE(-1", "TDE(nan", "Expl(inf")),
        *(
            (f"{wrong}[Uniform]", f"write {term}(alpha=1000) for the exponent or {term}(capacity=1000) for the")
            for term, wrong in (("TDE", "TDE(1000)"), ("TDE", "TDE_1000"), ("Expl", "Expl(1000, none)"))
        ),
        ("Cover(5000)[Uniform]", "write Cover(bins=5000) or Cover(capacity=5000) for the capacity"),
        *((f"FIFO[{wrong}]", f"{wrong[:3]}") for wrong in ("PER(11)", "PERprop(11)", "ERE+PER(11)")),
        *((f"FIFO[{name}(11)]", f"write {name}(alpha=11) for the exponent") for name in ("LAP", "PAL")),
        *((f"TDE(segments={wrong})[Uniform]", "segments") for wrong in ("0", "2.5", "all")),
        *((f"FIFO[PER+{wrong})]", "[0, 1]") for wrong in ("IS(1.2", "IS(0.5, -0.1", "FIS(2.0")),
        ("Synth*FIFO[Uniform]", "e.g. Synth(state=0.1)"),
        ("Mix*FIFO[Uniform]", "Mix needs a buffer file, e.g. Mix(path/to/buffer.h5)"),
        ("Mix(a.h5, share=0)*FIFO[Uniform]", "share must lie in (0, 1], not 0"),
        ("Mix(a.h5, share=1.1)*FIFO[Uniform]", "share must lie in (0, 1], not 1.1"),
        ("Mix(a.h5, anneal=0)*FIFO[Uniform]", "anneal is a fraction of the run"),
        ("Mix('a.h5')*FIFO[Uniform]", "contains '; rename the file or folder"),
        ("Mix(a.h5)*FIFO[LA3P]", "Mix makes no sense with LA3P"),
        ("Mix(a.h5)*Mix(b.h5)*FIFO[Uniform]", "has Mix twice"),
        ("Synth(state=1.5)*FIFO[Uniform]", "probability"),
        ("Synth(state=0.6, action=0.6)*FIFO[Uniform]", "sum lies in (0, 1]"),
        ("Synth(state=0.6, refresh=2)*FIFO[Uniform]", "refresh is a probability"),
    ],
)
def test_errors_are_one_line_with_the_remedy(text: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        parse(text)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_large_exponent_is_written_with_its_name() -> None:
    assert str(parse("TDE(alpha=1000)[PER(10)]")) == "TDE(alpha=1000.0)[PER(10.0)]"
    assert parse("TDE(alpha=1000)[Uniform]").retention == TDE(1000.0)


def test_a_bounded_retention_may_name_its_capacity() -> None:
    assert parse("FIFO(5000)[Uniform]").capacity_or(10_000) == 5000
    assert parse("FIFO[Uniform]").capacity_or(10_000) == 10_000
    assert parse("TDE(1.2, capacity=300)[PER]").retention == TDE(1.2, capacity=300)
    assert str(parse("FIFO(capacity=5000)[Uniform]")) == "FIFO(5000)[Uniform]"
    for wrong in ("FIFO(0)[Uniform]", "Expl(1.2, capacity=-3)[Uniform]", f"FIFO(1{20 * '0'})[Uniform]"):
        with pytest.raises(UserError, match="capacity must be a whole number from 1 to 1000000000, not"):
            parse(wrong)
    with pytest.raises(UserError, match="λ₀ must be at least 1 and at most 1000, not"):
        parse("FIFO[AER(1e300)]")
    with pytest.raises(UserError, match="FULL keeps everything"):
        parse("FULL(500)[Uniform]")
    with pytest.raises(UserError, match="FULL: capacity must be left out"):
        FULL(capacity=500)
    with pytest.raises(UserError, match="kl is mu_pi or pi_mu, not reverse"):
        ReFER(kl="reverse")  # type: ignore[arg-type]


def test_the_defaults_are_those_of_the_paper() -> None:
    refer = parse("FIFO[Uniform+ReFER]").refer
    assert refer == ReFER(c=4.0, anneal=5e-7, far=0.1, beta=1.0, beta_rate=None, kl="mu_pi")
    parsed = {name: parse(f"FIFO[Uniform+{name}]").refer for name in REFER}
    rules = {name: refer.rules for name, refer in parsed.items() if refer is not None}
    assert rules == {"ReFER": (1, 2), "ReFER-1": (1,), "ReFER-2": (2,)}
    assert parse("FIFO[Uniform]").refer is None
