"""``noisewise study new | check | show | radius``: write, plan and read the public contract. No data is needed.

Two more of its commands, ``spread`` and ``project``, are in project.py.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noisewise.cli.show import Json, budget, count, note, number, out, plain, print_facts, print_json, print_table, say

if TYPE_CHECKING:
    from noisewise.column import Column
    from noisewise.evaluation.planning import Expectation
    from noisewise.privacy.calibration import NoisePlan
    from noisewise.study import Study

app = typer.Typer(
    no_args_is_help=True,
    help="Write, plan and read a study: the public contract of a regression. No data is needed.\n\n"
    "\b\nExample:\n  noisewise study new study.toml\n  noisewise study check study.toml --n 2000",
)

StudyPath = Annotated[Path, typer.Argument(metavar="PATH", help="The study's TOML file.", show_default=False)]
ResidualSd = Annotated[
    float | None,
    typer.Option(help="Residual standard deviation, in the target's units; by default 0.24 of its half-width."),
]
MISSING = {"refuse": "refused", "centre": "set to the centre of the bounds", "drop": "row dropped"}
# a smaller radius is suggested where it saves at least this share of the error
WORTHWHILE = 0.02
_AVERAGED = "groups of {0} rows, in the order of the table; what is released is sums over groups, times {0} squared"
DEFAULT_SIZES = (1_000, 10_000, 100_000)


@app.command()
def new(path: StudyPath) -> None:
    """Write a commented study to start from; an existing file is left alone.

    \b
    Example:
      noisewise study new study.toml
    """
    from importlib.resources import files

    from noisewise.errors import OutputError

    text = files("noisewise.cli").joinpath("study_template.toml").read_text(encoding="utf-8")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text.replace("THIS_FILE", str(path)))
    except FileExistsError:
        raise OutputError(f"{path}: exists and was left alone; choose another name, or delete it first.") from None
    except OSError as error:
        raise OutputError(f"{path}: can't be written ({error.strerror}); choose another place.") from None
    out().print(f"wrote {path}: edit the columns and bounds, then run 'noisewise study check {path}'", soft_wrap=True)


@app.command()
def check(
    path: StudyPath,
    n: Annotated[
        list[int] | None,
        typer.Option("--n", metavar="N", help="Rows at each holder, to plan for; may be repeated.", min=1),
    ] = None,
    holders: Annotated[int, typer.Option(help="How many holders with n rows each.", min=1)] = 1,
    residual_sd: ResidualSd = None,
    interval: Annotated[float, typer.Option(help="Probability that a posterior interval holds.")] = 0.9,
    entries: Annotated[bool, typer.Option("--entries", help="List the noise on every entry, not by block.")] = False,
    as_json: Json = False,
) -> None:
    """Check a study and show what it costs: sensitivity, noise, and how wide posteriors to expect.

    \b
    Example:
      noisewise study check study.toml --n 2000 --holders 3
    """
    from noisewise.evaluation.planning import expected_widths
    from noisewise.gram import Layout
    from noisewise.privacy.calibration import plan_noise
    from noisewise.study import Study

    study = Study.load(path)
    plan = plan_noise(study)
    sizes = n or [size for size in DEFAULT_SIZES if size >= study.min_rows] or [study.min_rows]
    expected = [
        expected_widths(study, size, holders=holders, residual_sd=residual_sd, interval=interval, plan=plan)
        for size in (sizes if study.statistics == "gram" else [])
    ]
    names = Layout.of(study).entry_names(tuple(feature.name for feature in study.encoded), study.target.name)
    if as_json:
        print_json(_check_as_dict(study, plan, names, expected))
        return
    _print_guarantee(study, plan)
    if entries:
        print_table(
            ["entry", "noise"],
            ([name, number(scale) if scale else "exact"] for name, scale in zip(names, plan.scales, strict=True)),
            title=f"Noise on each released entry ({_scale_word(plan)}, scaled units)",
        )
    else:
        _print_blocks(study, plan)
    if expected:
        _print_expected(study, expected)


def _check_as_dict(
    study: "Study", plan: "NoisePlan", names: tuple[str, ...], expected: list["Expectation"]
) -> dict[str, Any]:
    return {
        "name": study.name,
        "digest": study.digest,
        "adjacency": study.adjacency,
        "mechanism": study.mechanism,
        "epsilon": study.epsilon,
        "delta": study.delta,
        "public_n": study.public_n,
        "radius": study.radius,
        "full_radius": study.full_radius,
        "sensitivity": plan.sensitivity.value,
        "norm": plan.sensitivity.norm,
        "tight": plan.sensitivity.tight,
        "sigma": plan.blocks[0].sigma,
        "blocks": [
            {"name": block.name, "share": block.share, "sensitivity": block.sensitivity.value, "sigma": block.sigma}
            for block in plan.blocks
        ],
        "entries": [{"name": name, "scale": scale} for name, scale in zip(names, plan.scales, strict=True)],
        "expected": [expectation.to_dict() for expectation in expected],
    }


def _scale_word(plan: "NoisePlan") -> str:
    return "standard deviation" if plan.law == "gaussian" else "Laplace scale"


def _print_guarantee(study: "Study", plan: "NoisePlan") -> None:
    protects = (
        "replacing one row by any other; n is public"
        if study.adjacency == "replace-one"
        else "adding or removing one row; n is " + ("taken as public" if study.public_n else "noised too")
    )
    shrunk = (
        f"{number(study.radius or 0)} of at most {number(study.full_radius)} (scaled units): longer rows are shrunk"
        if study.shrinks
        else f"{plain(study.full_radius)}, the largest norm that a row can have: no row is shrunk"
    )
    print_facts(
        [
            ("study", f"{study.name} ({count(study.d, 'feature')}{' and an intercept' if study.intercept else ''})"),
            ("digest", study.digest),
            ("guarantee", f"{budget(study.epsilon, study.delta or 0.0)}, {study.mechanism} noise"),
            ("adjacency", f"{study.adjacency}: {protects}"),
            ("radius", shrunk),
            *([("averaged", _AVERAGED.format(study.average_rows))] if study.average_rows > 1 else []),
            *_block_facts(plan),
        ]
    )


def _block_facts(plan: "NoisePlan") -> list[tuple[str, str]]:
    """Sensitivity and noise of every block, and its share of the budget where there are several."""
    from noisewise.layout import BLOCK_WORDS

    facts = []
    for block in plan.blocks:
        bound = block.sensitivity
        reach = "attained by some pair of tables" if bound.tight else "an upper bound"
        of = f" of {BLOCK_WORDS[block.name]}" if len(plan.blocks) > 1 else ""
        facts += [("share", f"{block.share:.0%} of the budget to {BLOCK_WORDS[block.name]}")] if of else []
        facts += [
            ("sensitivity", f"{number(bound.value)} ({bound.norm}, {reach}){of}"),
            ("sigma", f"{number(block.sigma)} ({_scale_word(plan)} on an entry of weight 1, scaled units)"),
        ]
    return facts


def _print_blocks(study: "Study", plan: "NoisePlan") -> None:
    """The noise by kind of entry: entries of one kind share one scale."""
    from noisewise.layout import Layout

    kinds: dict[tuple[str, float], int] = {}
    for entry, scale in zip(Layout.of(study).entries, plan.scales, strict=True):
        kind = (_kind(entry, study.d + 1), scale)
        kinds[kind] = kinds.get(kind, 0) + 1
    print_table(
        ["released, summed over rows", "entries", "noise on each"],
        ([what, str(count), number(scale) if scale else "exact"] for (what, scale), count in kinds.items()),
        title=f"What is released ({_scale_word(plan)} in scaled units, where columns run from -1 to 1)",
    )


def _kind(entry: tuple[int, ...], y: int) -> str:
    """An entry of the released vector in words; y is the target's index."""
    if not entry:
        return "smallest eigenvalue of X'X"
    factors = [i for i in entry if i]
    if len(factors) > 2:
        return f"products of {('three', 'four')[len(factors) - 3]} features"
    if not factors:
        return "n, the number of rows"
    if len(factors) == 1:
        return "sum of the target" if y in factors else "sums of features"
    if factors == [y, y]:
        return "square of the target"
    if y in factors:
        return "products with the target"
    return "squares of features" if factors[0] == factors[1] else "products of two features"


def _print_expected(study: "Study", expected: list["Expectation"]) -> None:
    first = expected[0]
    share = f"{first.interval:.0%}"
    columns = ["parameter"]
    for expectation in expected:
        columns += [f"n {expectation.n:,}", "without\nnoise"]
    rows = []
    for position, row in enumerate(first.widths):
        cells = [row.name]
        for expectation in expected:
            width = expectation.widths[position]
            cells += [number(width.width, 3), number(width.width_without_noise, 3)]
        rows.append(cells)
    whom = "one holder" if first.holders == 1 else f"{first.holders} holders with n rows each"
    print_table(columns, rows, title=f"Expected width of a {share} interval (your units), {whom}, by fixed-s")
    say(
        "\nAssumed: features independent and uniform over their bounds or levels, residual sd "
        f"{number(first.residual_sd, 3)} ({study.target.name}).\n"
        "Real columns are narrower than their bounds, so real intervals are wider."
        + (" Laplace noise is counted by its variance." if study.mechanism == "laplace" else "")
    )
    if weak := [f"{expectation.n:,}" for expectation in expected if expectation.strength < 3.0]:
        note(
            f"note: at n = {', '.join(weak)} the noise on the features' products is not small beside the products "
            "themselves. Real errors will be larger than these widths; plan for more rows, fewer features or a larger "
            "epsilon."
        )


@app.command()
def radius(
    path: StudyPath,
    n: Annotated[int, typer.Option("--n", metavar="N", help="Rows at each holder.", min=1, show_default=False)],
    holders: Annotated[int, typer.Option(help="How many holders with n rows each.", min=1)] = 1,
    residual_sd: ResidualSd = None,
    replications: Annotated[int, typer.Option(help="Simulated data sets for each radius.", min=2)] = 200,
    seed: Annotated[int, typer.Option(help="Seed of the simulation.", min=0)] = 0,
    as_json: Json = False,
) -> None:
    """Simulate which clip radius gives the smallest error; reads no data and costs no budget.

    \b
    Example:
      noisewise study radius study.toml --n 2000
    """
    from noisewise.evaluation.planning import suggest_radius
    from noisewise.study import Study

    choice = suggest_radius(
        Study.load(path), n, holders=holders, residual_sd=residual_sd, replications=replications, seed=seed
    )
    if as_json:
        print_json(
            {
                "best": choice.best,
                "n": choice.n,
                "holders": choice.holders,
                "replications": choice.replications,
                "table": [row._asdict() for row in choice.table],
            }
        )
        return
    out().print(str(choice), soft_wrap=True)
    saved = 1.0 - min(row.error for row in choice.table) / choice.full.error
    if saved >= WORTHWHILE:
        out().print(
            f"\nTo use it, write 'radius = {choice.best:.4g}' in {path}: {saved:.0%} less error.", soft_wrap=True
        )
    else:
        out().print("\nLeave radius out: the largest is the best here, or as good.", soft_wrap=True)


@app.command()
def show(path: StudyPath, as_json: Json = False) -> None:
    """Show the columns, what the regression will see, and the digest that all parties compare.

    \b
    Example:
      noisewise study show study.toml
    """
    from noisewise.study import Study

    study = Study.load(path)
    if as_json:
        features = [feature._asdict() for feature in study.encoded]
        print_json({**study.to_dict(), "digest": study.digest, "encoded": features})
        return
    print_facts(
        [
            ("study", study.name),
            ("digest", study.digest),
            ("guarantee", f"{budget(study.epsilon, study.delta or 0.0)}, {study.adjacency}, {study.mechanism} noise"),
            ("intercept", "yes" if study.intercept else "no"),
            ("missing", MISSING[study.missing]),
            ("min rows", f"{study.min_rows:,}"),
            ("radius", f"{plain(study.radius or 0)} of at most {plain(study.full_radius)}"),
            ("bits", str(study.bits)),
            ("released", _released(study)),
        ]
    )
    print_table(
        ["column", "role", "kind", "allowed"],
        [
            *([column.name, "feature", column.kind, _allowed(column)] for column in study.features),
            [study.target.name, "target", study.target.kind, _allowed(study.target)],
        ],
        title="Columns of every holder's table",
        align="llll",
    )
    print_table(
        ["feature", "0 in scaled units", "1 scaled unit"],
        ([feature.name, plain(feature.centre), plain(feature.half_width)] for feature in study.encoded),
        title="Features of the regression",
    )


def _released(study: "Study") -> str:
    from noisewise.layout import BLOCK_WORDS, Layout

    blocks = Layout.of(study).blocks
    shares = [f"{BLOCK_WORDS[block.name]} ({block.share:.0%} of the budget)" for block in blocks]
    averaged = f", of averages of {study.average_rows} rows" if study.average_rows > 1 else ""
    return (", ".join(shares) if len(blocks) > 1 else BLOCK_WORDS[blocks[0].name]) + averaged


def _allowed(column: "Column") -> str:
    if column.kind == "categorical":
        return ", ".join(level + (" (baseline)" if level == column.baseline else "") for level in column.levels)
    if column.kind == "boolean":
        return "true/false or 0/1"
    return f"{column.lower:g} to {column.upper:g}"
