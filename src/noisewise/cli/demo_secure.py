"""``noisewise demo --secure``: eight clinics, three compute nodes, one pooled release, all in one process."""

import json
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from noisewise.cli.demo import INTERVAL, Line, compare, prepare, tell_posteriors
from noisewise.cli.show import budget, err, number, out, print_facts, print_json, print_table, say

if TYPE_CHECKING:
    from noisewise.analyst.posterior import Posterior
    from noisewise.compute.coordinator import Standing
    from noisewise.evaluation.hospitals import Hospital
    from noisewise.protocol.pooled import Evidence
    from noisewise.release import Release
    from noisewise.study import Study

METHOD = "exact"
WAYS = ("non-private", "secure sum", "separate")
ABSENT = "willow"
MAY_DROP, MAY_COLLUDE = 1, 1


class _Played(NamedTuple):
    pooled: "Release"
    evidence: "Evidence"
    before: "Standing"
    separate: "list[Release]"
    exact: "list[Release]"
    spent: dict[str, float]


def play(output: Path, seed: int, epsilon: float, as_json: bool) -> None:
    from noisewise.evaluation.hospitals import hypertension_study

    study = hypertension_study(epsilon)
    prepare(output)
    study.save(output / "study.toml")
    with err().status("Eight clinics enrol, pay, seal and send."):
        played = _play_round(study, seed, output)
    with err().status("Fitting. The first fit by exact on a machine compiles for about 15 seconds."):
        posteriors = _fit(played, seed)
    lines = compare(study, posteriors)
    results = _as_dict(study, seed, played, lines)
    (output / "results.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    _plot(lines, output)
    if as_json:
        print_json(results)
        return
    _tell_round(study, played)
    tell_posteriors(lines, WAYS, "clinics that came")
    _tell_reading(played, lines, output)


def _play_round(study: "Study", seed: int, output: Path) -> _Played:
    """A whole round with real keys, ledgers, seals and databases; one clinic enrols and never sends."""
    import numpy as np

    from noisewise.evaluation.hospitals import CLINICS, draw_hospital
    from noisewise.evaluation.local import Local
    from noisewise.holder.publish import Holder, exact_release
    from noisewise.protocol.pooled import verify

    separate, exact, spent = [], [], {}
    with Local(output) as parties:
        members = {clinic.name: parties.enrol(clinic.name) for clinic in CLINICS}
        task = parties.open(study, may_drop=MAY_DROP, may_collude=MAY_COLLUDE)
        for position, clinic in enumerate(CLINICS):
            if clinic.name == ABSENT:
                continue
            table = draw_hospital(clinic, np.random.default_rng([seed, position]))
            ledger = _ledger(study, members[clinic.name].folder / "patients.ledger", clinic)
            holder = Holder(study, ledger=ledger, name=clinic.name)
            members[clinic.name].contribute(task, holder, table)
            spent[clinic.name] = ledger.summary().spent_epsilon
            # for comparison only: what each clinic would publish alone, and what no clinic may publish
            alone = Holder(
                study, ledger=_ledger(study, output / f"alone-{clinic.name}.ledger", clinic), name=clinic.name
            )
            separate.append(alone.release(table))
            exact.append(exact_release(study, table))
        before = parties.coordinator.standing(task.id)
        pooled = parties.coordinator.collect(task.id, early=True)
    pooled.save(output / "pooled.json")
    return _Played(pooled, verify(pooled), before, separate, exact, spent)


def _ledger(study: "Study", path: Path, clinic: "Hospital") -> Any:
    from noisewise.privacy.ledger import Ledger

    return Ledger.create(path, dataset=f"{clinic.name} patients", epsilon=study.epsilon, delta=study.delta or 0.0)


def _fit(played: _Played, seed: int) -> "dict[str, Posterior]":
    from noisewise.analyst.fitting import fit

    return {
        "non-private": fit(played.exact, "non-private", seed=seed),
        "secure sum": fit([played.pooled], METHOD, seed=seed),
        "separate": fit(played.separate, METHOD, seed=seed),
    }


def _plot(lines: list[Line], output: Path) -> None:
    from noisewise.cli.demo_figure import comparison
    from noisewise.cli.fit import save_figures

    save_figures({"comparison.png": comparison(lines, WAYS, INTERVAL)}, output)


def _noise(played: _Played) -> tuple[float, float]:
    """The standard deviation of the noise in the sum of all clinics, y'y for one: by the secure sum, by adding up."""
    together = played.pooled.sufficient.sd_u
    apart = sum(release.sufficient.sd_u**2 for release in played.separate) ** 0.5
    return together, apart


def _as_dict(study: "Study", seed: int, played: _Played, lines: list[Line]) -> dict[str, Any]:
    together, apart = _noise(played)
    return {
        "epsilon": study.epsilon,
        "delta": study.delta,
        "seed": seed,
        "interval": INTERVAL,
        "round": played.evidence.task.id,
        "holders": list(played.evidence.holders),
        "missing": list(played.evidence.missing),
        "spent_epsilon": played.spent,
        "noise_sd": {"secure sum": together, "separate": apart},
        "parameters": [
            {"name": line.name, "truth": line.truth, **{way: line.by[way]._asdict() for way in WAYS}} for line in lines
        ],
    }


def _tell_round(study: "Study", played: _Played) -> None:
    task, evidence = played.evidence.task, played.evidence
    say(
        f"Eight small clinics want one regression at {budget(study.epsilon, study.delta or 0.0)} each, and trust "
        "neither one another nor anyone in the middle. Each adds a part of the noise, splits its sums into three "
        "shares of pure randomness, seals each share for one of three compute nodes, and writes the sealed bytes down "
        "before it sends them."
    )
    out().print()
    print_facts(
        [
            ("round", f"{task.id[:16]}..., named by the hash of its signed task"),
            ("before collecting", played.before.in_words()),
            ("missing", f"{', '.join(m.name for m in played.before.missing)}: enrolled and never sent"),
            ("summed", f"{len(evidence.holders)} clinics, by all {len(task.nodes)} nodes, once"),
            ("verified", "every signature, the set of clinics, the sum, the noise"),
        ]
    )
    print_table(
        ["who", "sees"],
        [
            ["a clinic", "its own rows, and the pooled release"],
            ["a node", "one share of each clinic: random numbers that mean nothing alone"],
            ["the coordinator", "who takes part, who came, and the pooled release"],
            ["everyone", "the pooled release with its evidence"],
        ],
        align="ll",
    )
    out().print()


def _tell_reading(played: _Played, lines: list[Line], output: Path) -> None:
    together, apart = _noise(played)
    ratio = median(line.by["separate"].width / line.by["secure sum"].width for line in lines)
    price = median(line.by["secure sum"].width / line.by["non-private"].width for line in lines)
    held = {way: sum(line.by[way].holds for line in lines) for way in WAYS}
    say(
        f"- One noise serves all: in the sum of all clinics it has standard deviation {number(together, 3)} (scaled "
        f"units) by the secure sum, and {number(apart, 3)} if {len(played.separate)} clinics release one by one. Every "
        "clinic spent the same in both."
    )
    say(
        f"- So intervals of separate releases are {number(ratio, 2)} times as wide (median over {len(lines)} "
        f"parameters) as those of the secure sum, which are {number(price, 2)} times as wide as without any privacy."
    )
    say(
        f"- Of {len(lines)} intervals at {INTERVAL:.0%} these hold the truth: "
        + ", ".join(f"{way} {held[way]}" for way in WAYS)
        + f". About {INTERVAL * len(lines):.1f} are expected; one run is one draw of the noise."
    )
    out().print(
        f"""
Files are in {output}; look at comparison.png first. Try next:
  noisewise round verify {output / "pooled.json"}
  noisewise round status {output / "coordinator"}
  noisewise ledger show {output / "holder-birch" / "patients.ledger"}
  noisewise fit {output / "pooled.json"}""",
        soft_wrap=True,
    )
