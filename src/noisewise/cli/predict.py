"""``noisewise predict``: predictions for new rows from a saved posterior."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from noisewise.cli.show import Json, beside, note, print_json, print_table

if TYPE_CHECKING:
    from noisewise.analyst.posterior import Prediction
    from noisewise.study import Study

SHOWN = 20
PARTS = ("mean", "sd", "lower", "upper")


def predict(
    posterior: Annotated[
        Path, typer.Argument(metavar="POSTERIOR", help="A posterior saved by fit --output.", show_default=False)
    ],
    table: Annotated[
        Path,
        typer.Argument(metavar="TABLE", help="New rows: CSV or Parquet with the study's features.", show_default=False),
    ],
    kind: Annotated[
        Literal["mean", "new"],
        typer.Option(help="Of the regression line (mean), or of a new observation (new), which adds the residual."),
    ] = "mean",
    interval: Annotated[float, typer.Option(help="Probability that an interval holds.")] = 0.9,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the rows with their predictions here (CSV).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Predict the target for new rows, with intervals that count the privacy noise.

    \b
    Example:
      noisewise predict posterior.nc people.csv --kind new --output predicted.csv
    """
    from noisewise.analyst.posterior import Posterior

    fitted = Posterior.load(posterior)
    rows = _read(table, fitted.study)
    prediction = fitted.predict(rows, interval=interval, kind=kind)
    if output is not None:
        _write(rows, prediction, output)
        note(f"wrote {output}: {rows.num_rows:,} rows")
    if as_json:
        parts = {part: [float(value) for value in getattr(prediction, part)] for part in PARTS}
        print_json({"kind": kind, "interval": interval, "rows": rows.num_rows, **parts})
    elif output is None:
        _print(prediction, interval, kind)


def _print(prediction: "Prediction", interval: float, kind: str) -> None:
    total = len(prediction.mean)
    share = f"{100 * interval:g}%"
    print_table(
        ["row", "mean", "sd", f"{share} from", "to"],
        (
            [str(row + 1), *beside(sd, mean, sd, lower, upper)]
            for row, (mean, sd, lower, upper) in enumerate(zip(*prediction, strict=True))
            if row < SHOWN
        ),
        title="The regression line" if kind == "mean" else "A new observation",
    )
    if total > SHOWN:
        note(f"{total - SHOWN:,} more rows; --output FILE.csv or --json gives all of them")


def _read(path: Path, study: "Study | None") -> Any:
    """The table as Arrow, categories as texts. The rows are the analyst's own; no privacy is at stake."""
    import pyarrow as pa

    from noisewise.errors import DataError

    try:
        if path.suffix == ".parquet":
            from pyarrow import parquet

            return parquet.read_table(path)
        from pyarrow import csv

        categories = [column.name for column in study.features if column.kind == "categorical"] if study else []
        texts = csv.ConvertOptions(column_types=dict.fromkeys(categories, pa.string()))
        return csv.read_csv(path, convert_options=texts)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; give a CSV or Parquet file with the study's features.") from None
    except (OSError, pa.ArrowInvalid):
        raise DataError(f"{path}: can't be read as a table; give a CSV file with a header, or Parquet.") from None


def _write(rows: Any, prediction: "Prediction", path: Path) -> None:
    import pyarrow as pa
    from pyarrow import csv

    from noisewise.errors import OutputError

    for part in PARTS:
        name = f"predicted_{part}"
        if name in rows.schema.names:  # a second run over its own output replaces the columns
            rows = rows.drop_columns([name])
        rows = rows.append_column(name, pa.array(getattr(prediction, part)))
    try:
        csv.write_csv(rows, path)
    except OSError:
        raise OutputError(f"{path}: can't be written; choose another place.") from None
