"""``noisewise study spread | project``: two studies in place of one, the second with narrower bounds. No data here."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from noisewise.cli.show import Json, budget, note, number, out, plain, print_facts, print_json, print_table

if TYPE_CHECKING:
    from noisewise.evaluation.projection import Projected

StudyPath = Annotated[
    Path, typer.Argument(metavar="STUDY", help="The TOML file of the study that you want.", show_default=False)
]
Share = Annotated[float, typer.Option(help="The first release's share of the study's budget; the same in both steps.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="Write the new study here.", show_default=False)]


def spread(path: StudyPath, output: Output, share: Share = 0.1, as_json: Json = False) -> None:
    """Step 1 of a projection: write the study of a small first release, the columns' means and spreads.

    Every holder releases it as any other study, alone or in a secure sum; 'noisewise study project' then narrows the
    bounds with what was released.

    \b
    Example:
      noisewise study spread study.toml --output spread.toml
      noisewise release patients.csv --study spread.toml --ledger city.ledger --output city-spread.json
      noisewise study project study.toml city-spread.json --output projected.toml
    """
    from noisewise.evaluation.projection import Projection
    from noisewise.study import Study

    plan = Projection(Study.load(path), share)
    _refuse_existing(output)
    plan.spread_study.save(output)
    study, delta = plan.study, plan.study.delta or 0.0
    if as_json:
        first, second = plan.spread_study, plan.remaining_epsilon
        body = {"output": str(output), "digest": first.digest, "first_epsilon": first.epsilon, "second_epsilon": second}
        print_json({**body, "epsilon": study.epsilon, "delta": delta, "share": share})
        return
    print_facts(
        [
            ("wrote", str(output)),
            ("first release", budget(plan.spread_study.epsilon, delta)),
            ("second release", budget(plan.remaining_epsilon, delta)),
            ("together", f"{budget(study.epsilon, delta)}: what a ledger has to have left"),
        ]
    )


def project(
    path: StudyPath,
    releases: Annotated[
        list[Path],
        typer.Argument(metavar="RELEASE...", help="All releases of the spread study.", show_default=False),
    ],
    output: Output,
    share: Share = 0.1,
    seed: Annotated[int, typer.Option(help="Seed of the simulation.", min=0)] = 0,
    repeats: Annotated[int, typer.Option(help="Simulated tables.", min=1)] = 40,
    as_json: Json = False,
) -> None:
    """Step 2 of a projection: write the study of the second release, its bounds narrowed to mean +- t sd.

    The multiples t, one for all features and one for the target, are chosen on simulated rows. No data is read, and
    who has the same files gets the same study: compare digests.

    \b
    Example:
      noisewise study project study.toml city-spread.json coast-spread.json --output projected.toml
    """
    from noisewise.evaluation.projection import Projection
    from noisewise.release import Release
    from noisewise.study import Study

    plan = Projection(Study.load(path), share)
    _refuse_existing(output)
    projected = plan.project([Release.load(release) for release in releases], seed=seed, repeats=repeats)
    projected.save(output)
    if as_json:
        print_json(_as_dict(projected, output))
    else:
        _print(projected, output)
    if projected.unsure:
        note(
            f"note: the noise drowned the spread of {', '.join(projected.unsure)}; their bounds are as wide as the "
            "noise leaves open. A larger share, or more rows, would narrow them."
        )


def _refuse_existing(output: Path) -> None:
    from noisewise.errors import OutputError

    if output.exists():
        raise OutputError(f"{output}: exists and was left alone; choose another name, or delete it first.")


def _as_dict(projected: "Projected", output: Path) -> dict[str, object]:
    thresholds = projected.thresholds
    return {
        "output": str(output),
        "digest": projected.study.digest,
        "epsilon": projected.study.epsilon,
        "delta": projected.study.delta,
        "features_threshold": thresholds.features,
        "target_threshold": thresholds.target,
        "expected_error": thresholds.error,
        "expected_error_uncut": thresholds.error_uncut,
        "unsure": list(projected.unsure),
        "provenance": list(projected.provenance),
        "study": projected.study.to_dict(),
    }


def _print(projected: "Projected", output: Path) -> None:
    study, thresholds = projected.study, projected.thresholds
    print_facts(
        [
            ("wrote", str(output)),
            ("digest", study.digest),
            ("guarantee", budget(study.epsilon, study.delta or 0.0)),
            ("features", f"cut at {_multiple(thresholds.features)}"),
            ("target", f"cut at {_multiple(thresholds.target)}"),
            (
                "simulated error",
                f"{number(thresholds.error, 3)} of the target's sd; {number(thresholds.error_uncut, 3)} with the "
                "original bounds and as much budget",
            ),
        ]
    )
    before = {column.name: column for column in (*projected.plan.study.features, projected.plan.study.target)}
    rows = [
        [
            column.name,
            *(f"{plain(side.lower, 6)} to {plain(side.upper, 6)}" for side in (before[column.name], column)),
        ]
        for column in (*study.features, study.target)
        if column.kind == "numeric"
    ]
    print_table(["column", "bounds before", "bounds now"], rows, title="Numeric columns")
    out().print("\nOther columns stay as they are.", soft_wrap=True)


def _multiple(threshold: float) -> str:
    return f"mean +- {threshold:g} sd" if threshold != float("inf") else "the original bounds"
