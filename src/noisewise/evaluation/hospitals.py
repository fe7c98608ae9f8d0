"""The demonstrations' data: hospitals of different sizes and populations that obey one regression.

Systolic blood pressure on age, body mass index, sex and smoking. The numbers are made up, of the size that such studies
report; no real person is in them. The hospitals differ in whom they treat, not in the regression.
"""

from typing import NamedTuple

import numpy as np

from noisewise.column import Column
from noisewise.evaluation.simulate import Parameters, Table
from noisewise.study import Study

SMOKING = ("never", "former", "current")

# mmHg; coefficients in the order of the study's encoded features: age, bmi, female, smoking[former], smoking[current]
TRUTH = Parameters(intercept=78.0, coef=np.array([0.50, 0.90, -4.0, 1.5, 5.0]), sigma=12.0)


class Hospital(NamedTuple):
    """Whom a hospital treats."""

    name: str
    rows: int
    age: tuple[float, float]
    bmi: tuple[float, float]
    female: float
    smoking: tuple[float, float, float]


HOSPITALS = (
    Hospital("city", 6000, age=(52.0, 16.0), bmi=(26.5, 4.5), female=0.52, smoking=(0.50, 0.25, 0.25)),
    Hospital("coast", 2500, age=(64.0, 13.0), bmi=(28.0, 5.0), female=0.58, smoking=(0.45, 0.40, 0.15)),
    Hospital("valley", 900, age=(43.0, 14.0), bmi=(30.0, 5.5), female=0.45, smoking=(0.40, 0.20, 0.40)),
)


# For the secure sum: many small houses, each of which alone would be drowned by the noise of its release.
CLINICS = tuple(
    HOSPITALS[position % 3]._replace(name=name, rows=rows)
    for position, (name, rows) in enumerate(
        (
            ("birch", 2100),
            ("cedar", 1300),
            ("elm", 1800),
            ("hazel", 2400),
            ("larch", 1100),
            ("maple", 1500),
            ("oak", 1900),
            ("willow", 1700),
        )
    )
)


def hypertension_study(epsilon: float = 1.0, delta: float = 1e-6) -> Study:
    """The contract that the three hospitals agree on. Its bounds are common knowledge, not read off the tables."""
    return Study(
        features=(
            Column("age", 18, 90),
            Column("bmi", 15, 50),
            Column.boolean("female"),
            Column.categorical("smoking", SMOKING, baseline="never"),
        ),
        target=Column("systolic", 80, 200),
        epsilon=epsilon,
        delta=delta,
        name="hypertension",
    )


def draw_hospital(hospital: Hospital, rng: np.random.Generator) -> Table:
    """A hospital's table, in everyday units and with everyday rounding."""
    n = hospital.rows
    age = np.clip(np.rint(rng.normal(*hospital.age, n)), 18, 100)
    bmi = np.clip(np.round(rng.normal(*hospital.bmi, n), 1), 14, 60)
    female = rng.random(n) < hospital.female
    level = rng.choice(len(SMOKING), n, p=hospital.smoking)
    effects = np.column_stack([age, bmi, female, level == 1, level == 2]) @ TRUTH.coef
    systolic = np.rint(TRUTH.intercept + effects + rng.normal(0.0, TRUTH.sigma, n))
    return {
        "age": age.astype(int),
        "bmi": bmi,
        "female": female,
        "smoking": np.array(SMOKING)[level],
        "systolic": systolic.astype(int),
    }
