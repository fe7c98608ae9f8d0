"""The holder's act: spend the budget, draw the noise, publish.

The order is the safety. Everything that can fail for a reason of the table, the study or the output fails first, when
nothing has been spent. Then the ledger reserves the cost, durably; only then is noise drawn. Whatever happens after
that, the reservation stays: nobody can know whether a release got out, so it counts as spent.
"""

import logging
import secrets
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np

from noisewise.errors import DataError, LedgerError, OutputError, RoundError, StudyError, UnrecordedSpendWarning
from noisewise.gram import Gram, Integers, Layout
from noisewise.holder.columns import ExtraColumns
from noisewise.holder.encode import RowReport
from noisewise.holder.statistics import gram_of
from noisewise.privacy.accounting import Event
from noisewise.privacy.calibration import NoisePlan, plan_noise
from noisewise.privacy.ledger import Ledger, Quote
from noisewise.privacy.noise import Noise, NoNoise, SecureNoise
from noisewise.release import Release
from noisewise.study import Adjacency, Mechanism, Study

_LOG = logging.getLogger("noisewise")
_SECURE = SecureNoise()


@dataclass(frozen=True)
class DryRun:
    """What a release would cost and how noisy it would be; nothing was spent or written.

    ``entries`` and ``scales`` name the released numbers and their noise (standard deviation, or the Laplace law's
    scale) in scaled units; 0 is published exactly. What concerns the ledger is None where there is none.
    ``rows`` is for the holder alone.
    """

    epsilon: float
    delta: float
    adjacency: Adjacency
    law: Mechanism
    sensitivity: float
    norm: str
    multiplier: float
    entries: tuple[str, ...]
    scales: tuple[float, ...]
    fits: bool
    creates_ledger: bool
    spent_before: float | None = None
    spent_after: float | None = None
    left_after: float | None = None
    total_epsilon: float | None = None
    total_delta: float | None = None
    rows: RowReport | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Paid:
    """Sums with noise that were paid for. A part of a secure sum has too little noise to be shown alone."""

    values: Integers
    ledger: Ledger | None
    entry: str | None

    def confirm(self, digest: str) -> None:
        """Record what became of the reservation."""
        if self.ledger is not None and self.entry is not None:
            self.ledger.confirm(self.entry, release_digest=digest)

    def __repr__(self) -> str:
        return "<Paid: secret>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("Sums whose noise may be a part only are secret and are not pickled.")


class Holder:
    """One holder of rows, its study and its ledger.

    ``ledger`` is a path, a Ledger, or None (then the spending is recorded nowhere, and a warning says so). A path where
    there is no ledger yet gets one whose total is just enough for this study; ``create_ledger=False`` refuses instead.
    ``name`` is public: it stands in the Release. ``dataset`` names the data set in the ledger. ``progress`` is called
    with the number of rows read so far.
    """

    def __init__(
        self,
        study: Study,
        *,
        ledger: str | Path | Ledger | None,
        name: str = "",
        dataset: str | None = None,
        extra_columns: ExtraColumns = "refuse",
        noise: Noise = _SECURE,
        progress: Callable[[int], None] | None = None,
        create_ledger: bool = True,
    ) -> None:
        if not isinstance(study, Study):
            raise StudyError(f"A holder needs a Study; got {type(study).__name__}. Read one with Study.load(path).")
        self.study = study
        self.name = name
        self._ledger = ledger
        self._dataset = dataset
        self._extra_columns = extra_columns
        self._noise = noise
        self._progress = progress
        self._create_ledger = create_ledger
        self._rows: RowReport | None = None
        self._unsaved: Release | None = None

    def release(self, table: object, output: str | Path | None = None) -> Release:
        """Read the table, spend the study's budget, and publish: return the Release, and write it to ``output``."""
        plan = plan_noise(self.study)
        event = Event.of(self.study, plan)
        self._check_output(output)
        paid = self.spend(table, plan, event, lambda rows: self._check_output(output))
        release = self._publish(paid, plan)
        self._unsaved = release
        if output is not None:
            self._save(release, Path(output), paid.entry)
        paid.confirm(release.digest)
        self._unsaved = None
        return release

    def spend(
        self,
        table: object,
        plan: NoisePlan,
        event: Event,
        check: Callable[[int], None],
        *,
        round: str = "",
        again: bool = False,
    ) -> "Paid":
        """What a release alone and a part of a secure sum have in common: read, reserve, and only then draw noise.

        ``check`` is given the number of rows and may still refuse: nothing is spent before it returns.
        """
        if round and self._noise.insecure:
            raise RoundError(
                "Noise for simulations can't go into a secure sum: the pooled release could not tell that it protects "
                "nobody. Nothing was spent."
            )
        self._noise.prepare()
        ledger = self.open_ledger()
        if ledger is not None:
            ledger.would_cost(event, adjacency=self.study.adjacency)  # refuses another adjacency, before a long read
            if round and not again:
                ledger.check_first(round)
        gram = self._read(table)
        check(gram.rows)
        ledger, entry = self._reserve(ledger, event, round, again)
        # From here on the budget is spent, come what may.
        noise = self._noise.draw(plan.law, plan.grid_scales)
        return Paid(_add(gram.entries(Layout.of(self.study)), noise), ledger, entry)

    def dry_run(self, table: object = None) -> DryRun:
        """Cost and noise of a release, and with a table whether it fits the study. Spends and writes nothing."""
        plan = plan_noise(self.study)
        event = Event.of(self.study, plan)
        ledger = self.open_ledger()
        rows = None
        if table is not None:
            self._read(table)
            rows = self.rows_
        names = tuple(feature.name for feature in self.study.encoded)
        creates = ledger is None and self._ledger is not None
        quote = None
        if ledger is not None:
            quote = ledger.would_cost(event, adjacency=self.study.adjacency)
        elif creates:
            quote = Quote(0.0, event.epsilon, 0.0, True, event.epsilon, event.delta)
        return DryRun(
            epsilon=event.epsilon,
            delta=event.delta,
            adjacency=self.study.adjacency,
            law=plan.law,
            sensitivity=plan.sensitivity.value,
            norm=plan.sensitivity.norm,
            multiplier=plan.multiplier,
            entries=Layout.of(self.study).entry_names(names, self.study.target.name),
            scales=tuple(float(scale) for scale in plan.scales),
            fits=quote.fits if quote else True,
            creates_ledger=creates,
            spent_before=quote.spent_before if quote else None,
            spent_after=quote.spent_after if quote else None,
            left_after=quote.left_after if quote else None,
            total_epsilon=quote.total_epsilon if quote else None,
            total_delta=quote.total_delta if quote else None,
            rows=rows,
        )

    @property
    def rows_(self) -> RowReport:
        """What was done to the rows of the last table: for the holder alone, in no Release."""
        if self._rows is None:
            raise AttributeError("rows_ is there after release(table) or dry_run(table) has read a table.")
        return self._rows

    @property
    def unsaved_(self) -> Release:
        """The last release if it was paid for and could not be written, or not confirmed in the ledger."""
        if self._unsaved is None:
            raise AttributeError("unsaved_ is there only after a release could not be written or confirmed.")
        return self._unsaved

    def _read(self, table: object) -> Gram:
        self._rows = None
        gram, rows = gram_of(self.study, table, self._progress, extra_columns=self._extra_columns)
        if gram.rows < self.study.min_rows:
            raise DataError(
                f"The table has {gram.rows} rows to release (of {rows.read} read); the study asks for at least "
                f"{self.study.min_rows}. Nothing was spent. Wait for more rows, or agree on a study with a smaller "
                "min_rows."
            )
        self._rows = rows
        return gram

    def open_ledger(self) -> Ledger | None:
        """The ledger if there is one; None if there is to be none, or one is still to be made."""
        if self._ledger is None:
            return None
        if isinstance(self._ledger, Ledger):
            if self._dataset is not None and self._dataset != self._ledger.dataset:
                raise LedgerError(
                    f"{self._ledger.path}: this is the ledger of data set {self._ledger.dataset!r}, not of "
                    f"{self._dataset!r}; give the ledger that belongs to it."
                )
            return self._ledger
        if self._create_ledger and not Path(self._ledger).exists():
            return None
        return Ledger.open(self._ledger, self._dataset)

    def _reserve(
        self, ledger: Ledger | None, event: Event, round: str, again: bool
    ) -> tuple[Ledger | None, str | None]:
        if self._ledger is None:
            warnings.warn(
                f"No ledger: epsilon {event.epsilon:g}, delta {event.delta:g} is spent and recorded nowhere, so "
                "nothing stops the next release from spending it again. Give ledger=PATH.",
                UnrecordedSpendWarning,
                stacklevel=4,
            )
            return None, None
        ledger = ledger or self._new_ledger(event)
        entry = ledger.reserve(
            event,
            adjacency=self.study.adjacency,
            study_digest=self.study.digest,
            study_name=self.study.name,
            holder=self.name,
            round=round,
            again=again,
        )
        return ledger, entry

    def _new_ledger(self, event: Event) -> Ledger:
        if self._ledger is None or isinstance(self._ledger, Ledger):
            raise AssertionError("a ledger is made only at a path")
        dataset = self._dataset or self.name or "unnamed"
        ledger = Ledger.create(
            self._ledger,
            dataset=dataset,
            epsilon=event.epsilon,
            delta=event.delta,
            adjacency=self.study.adjacency,
        )
        _LOG.warning(
            "Made the ledger %s of data set %r with a total of epsilon %g, delta %g: this release fits, no other will. "
            "'noisewise ledger raise' sets a larger total.",
            self._ledger,
            dataset,
            event.epsilon,
            event.delta,
        )
        return ledger

    def _publish(self, paid: "Paid", plan: NoisePlan) -> Release:
        return Release.from_plan(
            self.study,
            paid.values,
            plan,
            holder=self.name,
            insecure=self._noise.insecure,
            exact=isinstance(self._noise, NoNoise),
            ledger_entry=paid.entry,
        )

    def _save(self, release: Release, output: Path, entry: str | None) -> None:
        try:
            release.save(output)
        except OutputError as error:
            where = f"reservation {entry} stays in the ledger" if entry else "the budget is spent"
            raise OutputError(
                f"{error} The noise was drawn already, so {where}; holder.unsaved_.save(path) writes the release "
                "elsewhere at no further cost, as long as this process lives."
            ) from None

    @staticmethod
    def _check_output(output: str | Path | None) -> None:
        """Raise unless a new file can be written there."""
        if output is None:
            return
        path = Path(output)
        try:
            if path.is_dir():
                raise OutputError(f"{path}: this is a folder; name a file in it, such as {path / 'release.json'}.")
            if path.exists() or path.is_symlink():
                raise OutputError(
                    f"{path}: the file exists, and a release is not overwritten: it was paid for. Choose another name."
                )
            probe = path.with_name(f".{secrets.token_hex(8)}.probe")
            probe.touch(exist_ok=False)
            probe.unlink()
        except OutputError:
            raise
        except OSError as error:
            raise OutputError(
                f"{path}: can't be written ({error.strerror}); nothing was spent. Choose a folder that exists and that "
                "you may write to."
            ) from None


def exact_release(study: Study, table: object, *, holder: str = "", extra_columns: ExtraColumns = "refuse") -> Release:
    """The statistics with no noise at all, for simulations: such a Release says that it protects nobody."""
    gram, _ = gram_of(study, table, extra_columns=extra_columns)
    values = gram.entries(Layout.of(study))
    return Release.from_plan(study, values, plan_noise(study), holder=holder, insecure=NoNoise.insecure, exact=True)


def _add(exact: Integers, noise: Integers) -> Integers:
    total = [int(value) + int(draw) for value, draw in zip(exact, noise, strict=True)]
    limits = np.iinfo(np.int64)
    if min(total) < limits.min or max(total) > limits.max:
        raise DataError(
            "A noisy sum is beyond 64-bit integers, which the sizes allowed make all but impossible. The budget stays "
            "spent. Lower 'bits' in the study."
        )
    return np.array(total, dtype=np.int64)
