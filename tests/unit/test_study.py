"""The study: what it refuses and in which words, its canonical form and digest, its file."""

import dataclasses
import hashlib
import json
import math
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noisewise.column import Column, Feature
from noisewise.errors import OutputError, StudyError
from noisewise.study import Study

AGE = Column("age", 18, 100)
BMI = Column("bmi", 12, 60)
PRESSURE = Column("pressure", 70, 220)
WARD = Column.categorical("ward", ["a", "b", "c"], baseline="b")


def study(**changes: Any) -> Study:
    given: dict[str, Any] = {"features": (AGE, BMI), "target": PRESSURE, "epsilon": 1.0, "delta": 1e-6}
    return Study(**{**given, **changes})


class TestColumn:
    def test_bounds_give_centre_and_half_width(self) -> None:
        assert (AGE.centre, AGE.half_width) == (59.0, 41.0)
        assert Column("x", -1, 3) == Column("x", lower=-1.0, upper=3.0, kind="numeric")

    def test_numbers_of_numpy_are_numbers(self) -> None:
        column = Column("x", np.int64(0), np.float32(2))
        assert column == Column("x", 0.0, 2.0)
        assert [type(column.lower), type(column.upper)] == [float, float]

    def test_boolean_is_zero_to_one(self) -> None:
        smoker = Column.boolean("smoker")
        assert (smoker.kind, smoker.lower, smoker.upper) == ("boolean", 0.0, 1.0)

    def test_the_first_level_is_the_baseline_unless_told(self) -> None:
        assert Column.categorical("ward", ["a", "b"]).baseline == "a"
        assert WARD.baseline == "b"
        assert WARD.levels == ("a", "b", "c")

    def test_one_field_can_be_replaced(self) -> None:
        for column in (AGE, Column.boolean("smoker"), WARD):
            assert dataclasses.replace(column, name="other").to_dict() == {**column.to_dict(), "name": "other"}

    @pytest.mark.parametrize("column", [AGE, Column.boolean("smoker"), WARD], ids=lambda column: column.kind)
    def test_dictionary_round_trip(self, column: Column) -> None:
        assert Column.from_dict(json.loads(json.dumps(column.to_dict())), "here") == column

    def test_levels_alone_say_categorical(self) -> None:
        assert Column.from_dict({"name": "ward", "levels": ["a", "b"]}, "here") == Column.categorical(
            "ward", ["a", "b"]
        )

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (("",), "a name"),
            ((" \t",), "a name"),
            ((5, 0, 1), "a name"),
            (("a\ud800", 0, 1), "that a file can hold"),
            (("x",), "lower bound nan is not a finite number; give public bounds"),
            (("x", 0), "upper bound nan is not a finite number"),
            (("x", 0, math.inf), "upper bound inf is not a finite number"),
            (("x", None, 1), "lower bound None is not a finite number"),
            (("x", "0", 1), "lower bound '0' is not a finite number"),
            (("x", False, 1), "lower bound False is not a finite number"),
            (("x", 0, 10**400), "is not a finite number"),
            (("x", 1, 1), "lower bound 1 is not below upper bound 1; swap them or widen them"),
            (("x", 2, 1), "lower bound 2 is not below upper bound 1"),
            (("x", -1e308, 1e308), "too far apart or too close"),
            (("x", 0, 5e-324), "too far apart or too close"),
            (("x", 0, 1, "integer"), "kind 'integer' is not known; use one of numeric, boolean, categorical"),
            (("x", 0, 1, "numeric", ("a", "b")), "levels and baseline belong to categorical columns only"),
            (("x", 0, 1, "numeric", (), "a"), "levels and baseline belong to categorical columns only"),
            (("x", 3, 5, "boolean"), "bounds belong to numeric columns only; it is boolean"),
            (("x", 3, 5, "categorical", ("a", "b"), "a"), "bounds belong to numeric columns only"),
        ],
    )
    def test_a_bad_column_is_refused(self, arguments: tuple[Any, ...], words: str) -> None:
        with pytest.raises(StudyError) as caught:
            Column(*arguments)
        assert words in str(caught.value)

    @pytest.mark.parametrize(
        ("levels", "baseline", "words"),
        [
            (["a"], "a", "at least two different levels; got ['a']"),
            ([], None, "at least two different levels"),
            (["a", "b", "a"], "a", "at least two different levels"),
            (["a", "b"], "c", "baseline 'c' is not one of its levels ['a', 'b']"),
            (["a", 1], "a", "levels are texts; write numbers in quotes"),
            (["a", "\udfff"], "a", "levels are texts"),
            ("abc", None, "levels are a list of texts; got 'abc'"),
        ],
    )
    def test_bad_levels_are_refused(self, levels: Any, baseline: str | None, words: str) -> None:
        with pytest.raises(StudyError) as caught:
            Column.categorical("ward", levels, baseline)
        assert str(caught.value).startswith("Column 'ward': ")
        assert words in str(caught.value)

    @pytest.mark.parametrize(
        ("raw", "words"),
        [
            (["age", 0, 1], "s.toml: a column is a table of name, lower, upper"),
            (
                {"name": "age", "lower": 0, "upper": 1, "unit": "y"},
                "s.toml: unknown key 'unit'; a column has baseline",
            ),
            ({"lower": 0, "upper": 1}, "a name"),
            ({"name": "ward", "levels": 5}, "levels are a list of texts; got 5"),
            ({"name": "ward", "levels": "abc"}, "levels are a list of texts"),
            ({"name": "ward", "levels": []}, "at least two different levels"),
            ({"name": "ward", "kind": "categorical"}, "at least two different levels"),
        ],
    )
    def test_a_bad_dictionary_is_refused(self, raw: Any, words: str) -> None:
        with pytest.raises(StudyError) as caught:
            Column.from_dict(raw, "s.toml")
        assert words in str(caught.value)


class TestWhatAStudyRefuses:
    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"features": ()}, "at least one feature column"),
            ({"features": None}, "features is a list of Columns; got None"),
            ({"features": ("age",)}, "Features and target are Columns; got 'age'"),
            ({"target": "pressure"}, "Features and target are Columns; got 'pressure'"),
            ({"features": (AGE, BMI, AGE)}, "Column 'age' is named more than once"),
            ({"target": Column("age", 0, 1)}, "Column 'age' is named more than once; every column has one role"),
            ({"target": Column.boolean("ill")}, "Target 'ill' is boolean; a linear regression needs a numeric target"),
            ({"target": WARD}, "Target 'ward' is categorical"),
            ({"features": (WARD, Column("ward[a]", 0, 1))}, "would both be called 'ward[a]'; rename"),
            ({"adjacency": "remove"}, "adjacency 'remove' is not known; use one of replace-one, add-remove"),
            ({"mechanism": "normal"}, "mechanism 'normal' is not known; use one of gaussian, laplace"),
            ({"missing": "mean"}, "missing 'mean' is not known; use one of refuse, centre, drop"),
            ({"intercept": 1}, "intercept is true or false; got 1"),
            ({"release_yy": "yes"}, "release_yy is true or false; got 'yes'"),
            ({"missing": "drop"}, "missing = 'drop' needs adjacency 'add-remove'"),
            ({"missing": "drop", "adjacency": "add-remove", "public_n": True}, "so n can't be public"),
            ({"public_n": False}, "n is public by definition; leave public_n out"),
            ({"public_n": "no"}, "public_n is true or false; got 'no'"),
            ({"name": 5}, "name is a text; got 5"),
            ({"name": {}}, "name is a text"),
            ({"statistics": "all"}, "statistics 'all' is not known; use one of gram, spread"),
            ({"fourth_moments": 0.95}, "fourth_moments 0.95 is out of range; it is the share of the budget"),
            ({"fourth_moments": -0.1}, "0.01 to 0.9, or 0 to leave them out"),
            ({"smallest_eigenvalue": True}, "smallest_eigenvalue True is out of range"),
            ({"smallest_eigenvalue": math.nan}, "smallest_eigenvalue nan is out of range"),
            (
                {"fourth_moments": 0.5, "smallest_eigenvalue": 0.5},
                "fourth_moments 0.5 and smallest_eigenvalue 0.5 leave the Gram matrix less than 0.1 of the budget",
            ),
            (
                {"statistics": "spread", "fourth_moments": 0.5},
                "statistics = 'spread' releases sums and squares of each column alone; leave fourth_moments out",
            ),
            (
                {"fourth_moments": 0.5, "features": tuple(Column(f"x{i}", 0, 1) for i in range(31))},
                "fourth_moments with 31 encoded features is too much; it takes at most 30",
            ),
            (
                {"smallest_eigenvalue": 0.5, "features": tuple(Column(f"x{i}", 0, 1) for i in range(101))},
                "smallest_eigenvalue with 101 encoded features is too much; it takes at most 100",
            ),
            ({"average_rows": 0}, "average_rows 0 is out of range; it is a whole number, 1 to average nothing"),
            ({"average_rows": 2.0}, "average_rows 2.0 is out of range"),
            (
                {"average_rows": 2, "adjacency": "add-remove"},
                "average_rows needs adjacency 'replace-one': a row that is added or removed would move all rows after",
            ),
            (
                {"average_rows": 2, "fourth_moments": 0.5},
                "average_rows goes with the Gram matrix alone; leave fourth_moments, smallest_eigenvalue and",
            ),
            ({"average_rows": 2, "statistics": "spread"}, "average_rows goes with the Gram matrix alone"),
            (
                {"average_rows": 65},
                "average_rows 65 at 16 bits a value is too many for exact sums; it is at most 64. Lower 'bits'",
            ),
        ],
    )
    def test_columns_and_choices(self, changes: dict[str, Any], words: str) -> None:
        with pytest.raises(StudyError) as caught:
            study(**changes)
        assert words in str(caught.value)

    @pytest.mark.parametrize("epsilon", [0, -1, 100.5, math.nan, math.inf, "1", None, True, 10**400])
    def test_epsilon_out_of_range(self, epsilon: Any) -> None:
        with pytest.raises(StudyError, match=r"^epsilon .* is out of range; it is above 0 and at most 100"):
            study(epsilon=epsilon)

    @pytest.mark.parametrize("delta", [0, -1e-6, 9e-13, 0.5, 1, math.nan, "1e-6", True])
    def test_delta_out_of_range(self, delta: Any) -> None:
        with pytest.raises(StudyError, match=r"^delta .* is out of range; it is at least 1e-12 and below 0.5"):
            study(delta=delta)

    def test_gaussian_without_delta(self) -> None:
        with pytest.raises(StudyError, match="Gaussian mechanism needs a delta; a common choice"):
            study(delta=None)

    def test_laplace_with_delta(self) -> None:
        with pytest.raises(StudyError, match=r"Laplace mechanism has no delta .* got delta 1e-06. Leave delta out"):
            study(mechanism="laplace", delta=1e-6)

    @pytest.mark.parametrize("radius", [0, -1, math.sqrt(2) * 1.001, math.nan, "1", True])
    def test_radius_out_of_range(self, radius: Any) -> None:
        with pytest.raises(StudyError, match=r"^radius .* is out of range; it is above 0 and at most 1\.41421, the"):
            study(radius=radius)

    @pytest.mark.parametrize("bits", [7, 21, 16.0, "16", True])
    def test_bits_out_of_range(self, bits: Any) -> None:
        with pytest.raises(StudyError, match=r"^bits .* is out of range; values keep 8 to 20 bits"):
            study(bits=bits)

    @pytest.mark.parametrize("rows", [0, -5, 10.0, "10", True])
    def test_min_rows_out_of_range(self, rows: Any) -> None:
        with pytest.raises(StudyError, match=r"^min_rows .* is out of range; it is a whole number of at least 1"):
            study(min_rows=rows)

    def test_the_edges_are_allowed(self) -> None:
        for changes in (
            {"epsilon": 100},
            {"epsilon": 1e-9},
            {"delta": 1e-12},
            {"delta": 0.499},
            {"radius": math.sqrt(2)},
            {"radius": 1e-3},
            {"bits": 8},
            {"bits": 20},
            {"min_rows": 1},
        ):
            study(**changes)


class TestWhatAStudySettles:
    def test_defaults_are_resolved(self) -> None:
        made = study()
        assert (made.intercept, made.release_yy, made.missing, made.min_rows, made.bits) == (
            True,
            True,
            "refuse",
            10,
            16,
        )
        assert (made.adjacency, made.mechanism, made.public_n) == ("replace-one", "gaussian", True)
        assert made.radius == made.full_radius == math.sqrt(2)
        assert not made.shrinks
        assert study(radius=1).shrinks

    def test_n_is_hidden_under_add_remove_unless_called_public(self) -> None:
        assert study(adjacency="add-remove").public_n is False
        assert study(adjacency="add-remove", public_n=True).public_n is True
        assert study(adjacency="add-remove", missing="drop").public_n is False

    def test_laplace_has_delta_zero(self) -> None:
        assert study(mechanism="laplace", delta=None).delta == 0.0
        assert study(mechanism="laplace", delta=None) == study(mechanism="laplace", delta=0)

    def test_a_radius_beyond_by_rounding_alone_is_the_full_one(self) -> None:
        assert study(radius=math.sqrt(2) * (1 + 1e-13)) == study()

    def test_whole_numbers_are_the_same_as_floats(self) -> None:
        assert study(epsilon=1).digest == study(epsilon=1.0).digest == study(epsilon=np.float64(1)).digest
        assert type(study(epsilon=1).epsilon) is float

    def test_a_column_alone_is_a_list_of_one(self) -> None:
        assert study(features=AGE) == study(features=[AGE]) == study(features=(column for column in [AGE]))

    def test_it_is_frozen(self) -> None:
        with pytest.raises(dataclasses.FrozenInstanceError):
            study().epsilon = 2.0  # type: ignore[misc]  # that it is refused is the point

    def test_encoded_features(self) -> None:
        made = study(features=(AGE, WARD, Column.boolean("smoker")))
        assert made.encoded == (
            Feature("age", "age", None, 59.0, 41.0, -1.0),
            Feature("ward[a]", "ward", "a", 0.0, 1.0, 0.0),
            Feature("ward[c]", "ward", "c", 0.0, 1.0, 0.0),
            Feature("smoker", "smoker", None, 0.5, 0.5, -1.0),
        )
        assert made.d == 4
        # a row has one level of a column, so the column adds one to the square norm however many levels it has
        assert made.full_radius == math.sqrt(3)


# Each of these differs from study() in one field.
OTHERS = {
    "features": {"features": (BMI, AGE)},
    "target": {"target": Column("pressure", 70, 221)},
    "epsilon": {"epsilon": 1.0000001},
    "delta": {"delta": 2e-6},
    "adjacency": {"adjacency": "add-remove", "public_n": True},
    "mechanism": {"mechanism": "laplace", "delta": None},
    "intercept": {"intercept": False},
    "radius": {"radius": 1.0},
    "release_yy": {"release_yy": False},
    "missing": {"missing": "centre"},
    "min_rows": {"min_rows": 11},
    "public_n": {"public_n": False, "adjacency": "add-remove"},
    "bits": {"bits": 15},
    "name": {"name": "other"},
    "statistics": {"statistics": "spread"},
    "fourth_moments": {"fourth_moments": 0.3},
    "smallest_eigenvalue": {"smallest_eigenvalue": 0.3},
    "average_rows": {"average_rows": 2},
}


class TestDigest:
    def test_it_is_what_it_always_was(self) -> None:
        # Releases carry it for ever: if this fails, files that people have no longer match their studies.
        expected = "3776d33bec55d5ac6f97508eb5039790ca317e1de617b0fd7be233e6f6c9d77c"
        assert study(features=(AGE, WARD, Column.boolean("smoker"))).digest == expected

    def test_it_is_the_hash_of_the_canonical_form(self) -> None:
        text = json.dumps(study().to_dict(), sort_keys=True, separators=(",", ":"))
        assert study().digest == hashlib.sha256(text.encode()).hexdigest()

    def test_the_canonical_form_has_every_choice_resolved(self) -> None:
        form = study().to_dict()
        assert set(form) == {"format", "version", *(field.name for field in dataclasses.fields(Study))}
        assert None not in form.values()
        assert (form["format"], form["version"]) == ("noisewise-study", 1)
        assert form["features"][0] == {"name": "age", "lower": 18.0, "upper": 100.0}
        assert study(radius=math.sqrt(2), public_n=True, bits=16).to_dict() == form

    def test_the_table_of_others_covers_every_field(self) -> None:
        assert set(OTHERS) == {field.name for field in dataclasses.fields(Study)}

    @pytest.mark.parametrize("field", OTHERS)
    def test_it_feels_every_field(self, field: str) -> None:
        other = study(**OTHERS[field])
        assert other.digest != study().digest
        assert other != study()
        word = "the order of the features" if field == "features" else f"{field}: "
        assert any(phrase.startswith(word) for phrase in study().difference(other))

    @pytest.mark.parametrize(
        "column",
        [
            Column("wards", 0, 1),
            Column.boolean("ward"),
            Column.categorical("ward", ["a", "b", "d"], baseline="b"),
            Column.categorical("ward", ["b", "a", "c"], baseline="b"),
            Column.categorical("ward", ["a", "b", "c"], baseline="a"),
        ],
        ids=repr,
    )
    def test_it_feels_every_part_of_a_column(self, column: Column) -> None:
        assert study(features=(column,)).digest != study(features=(WARD,)).digest

    def test_equal_studies_have_equal_digests(self) -> None:
        # 0.0 == -0.0, and they print differently
        one, other = (study(features=(Column("x", zero, 1),)) for zero in (0.0, -0.0))
        assert one == other
        assert one.digest == other.digest

    def test_difference_names_both_values(self) -> None:
        assert study().difference(study(epsilon=2)) == ["epsilon: 1.0 against 2.0"]
        assert study().difference(study()) == []

    def test_difference_names_the_columns_and_no_others(self) -> None:
        swapped = study(features=study().features[::-1])
        assert study().difference(swapped) == ["the order of the features"]
        fewer = study(features=(AGE,), radius=1.0)
        assert [phrase.split(":")[0] for phrase in study(radius=1.0).difference(fewer)] == ["feature 'bmi'"]


class TestFile:
    @pytest.mark.parametrize("changes", [{}, *OTHERS.values(), {"features": (WARD, Column.boolean("smoker"))}], ids=str)
    def test_round_trip(self, changes: dict[str, Any], tmp_path: Path) -> None:
        made = study(**changes)
        made.save(tmp_path / "study.toml")
        loaded = Study.load(tmp_path / "study.toml")
        assert loaded == made
        assert loaded.digest == made.digest

    def test_a_person_can_leave_out_what_has_a_default(self, tmp_path: Path) -> None:
        path = tmp_path / "study.toml"
        path.write_text(
            """
            format = "noisewise-study"
            version = 1
            epsilon = 1
            delta = 1e-6
            target = {name = "pressure", lower = 70, upper = 220}
            features = [{name = "age", lower = 18, upper = 100}, {name = "bmi", lower = 12, upper = 60}]
            """
        )
        assert Study.load(path) == study()

    def test_an_editors_mark_in_front_does_no_harm(self, tmp_path: Path) -> None:
        (tmp_path / "study.toml").write_text(study().to_toml(), encoding="utf-8-sig")
        assert Study.load(tmp_path / "study.toml") == study()

    def test_dictionary_round_trip_through_json(self) -> None:
        assert Study.from_dict(json.loads(json.dumps(study().to_dict()))) == study()

    def test_no_such_file(self, tmp_path: Path) -> None:
        with pytest.raises(StudyError, match=r"none.toml: no such file; 'noisewise study new .*none.toml' writes one"):
            Study.load(tmp_path / "none.toml")

    def test_a_folder(self, tmp_path: Path) -> None:
        with pytest.raises(StudyError, match="can't be read"):
            Study.load(tmp_path)

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (b"", "this is not a study (format = 'noisewise-study' is missing)"),
            (b"a = ", "not a TOML file"),
            (b"\xff\xfe", "can't be read"),
            (b"a = " + b"1" * 5000, "not a TOML file"),
            (b"a = " + b"[" * 5000 + b"]" * 5000, "not a TOML file"),
            (b'format = "noisewise-release"', "this is not a study"),
            (b'format = "noisewise-study"', "version None is not known here; this package reads 1"),
            (b'format = "noisewise-study"\nversion = 2', "version 2 is not known here"),
            (b'format = "noisewise-study"\nversion = 1', "features is missing"),
        ],
        ids=range(9),
    )
    def test_a_bad_file_is_refused(self, content: bytes, words: str, tmp_path: Path) -> None:
        path = tmp_path / "study.toml"
        path.write_bytes(content)
        with pytest.raises(StudyError) as caught:
            Study.load(path)
        assert str(path) in str(caught.value)
        assert words in str(caught.value)

    @pytest.mark.parametrize("key", ["features", "target", "epsilon"])
    def test_a_missing_key(self, key: str) -> None:
        raw = study().to_dict()
        del raw[key]
        with pytest.raises(StudyError, match=f"s.toml: {key} is missing"):
            Study.from_dict(raw, "s.toml")

    def test_an_unknown_key(self) -> None:
        with pytest.raises(StudyError, match=r"s\.toml: unknown key 'epsilom'; a study has adjacency, average_rows, "):
            Study.from_dict({**study().to_dict(), "epsilom": 1}, "s.toml")

    @pytest.mark.parametrize("features", [5, {"name": "age"}, "age"])
    def test_features_that_are_no_list(self, features: Any) -> None:
        with pytest.raises(StudyError, match=r"s\.toml: features is a list of columns"):
            Study.from_dict({**study().to_dict(), "features": features}, "s.toml")

    def test_a_dictionary_that_is_none(self) -> None:
        with pytest.raises(StudyError, match="this is not a study"):
            Study.from_dict([study().to_dict()])

    def test_a_place_that_can_not_be_written(self, tmp_path: Path) -> None:
        with pytest.raises(OutputError, match=r"study.toml: can't be written \(No such file or directory\)"):
            study().save(tmp_path / "nowhere" / "study.toml")


# Any text that a file can hold, with what is odd in TOML or JSON more often than chance would have it.
texts = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"]),
        st.sampled_from("\"'\\#=[]{}\n\r\t\x00\x1b\x7f\x85\u2028\ufeff"),
    ),
    min_size=1,
    max_size=12,
).filter(str.strip)
bounds = st.tuples(st.floats(-1e9, 1e9, allow_subnormal=False), st.floats(-1e9, 1e9, allow_subnormal=False)).filter(
    lambda pair: pair[1] - pair[0] > 1e-9
)


@st.composite
def studies(draw: st.DrawFn) -> Study:
    names = draw(st.lists(texts, min_size=2, max_size=5, unique=True))
    columns = []
    for name in names[1:]:
        kind = draw(st.sampled_from(["numeric", "boolean", "categorical"]))
        if kind == "numeric":
            columns.append(Column(name, *draw(bounds)))
        elif kind == "boolean":
            columns.append(Column.boolean(name))
        else:
            levels = draw(st.lists(texts, min_size=2, max_size=4, unique=True))
            columns.append(Column.categorical(name, levels, draw(st.sampled_from(levels))))
    laplace = draw(st.booleans())
    return Study(
        features=tuple(columns),
        target=Column(names[0], *draw(bounds)),
        epsilon=draw(st.floats(1e-6, 100)),
        delta=None if laplace else draw(st.floats(1e-12, 0.49)),
        mechanism="laplace" if laplace else "gaussian",
        adjacency=draw(st.sampled_from(["replace-one", "add-remove"])),
        radius=draw(st.none() | st.floats(1e-3, 1.0)),
        intercept=draw(st.booleans()),
        name=draw(texts),
    )


@given(studies())
def test_any_study_survives_its_file(made: Study) -> None:
    loaded = Study.from_dict(tomllib.loads(made.to_toml()))
    assert loaded == made
    assert loaded.digest == made.digest


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)


@given(
    st.dictionaries(st.sampled_from([*study().to_dict(), "other"]), values, max_size=3),
    st.dictionaries(st.sampled_from([*WARD.to_dict(), "lower", "upper", "other"]), values, max_size=3),
)
def test_whatever_a_file_says_it_is_a_study_or_a_study_error(changes: dict[str, Any], column: dict[str, Any]) -> None:
    raw = {**study(features=(AGE, WARD)).to_dict()}
    raw["features"] = [raw["features"][0], {**raw["features"][1], **column}]
    try:
        made = Study.from_dict({**raw, **changes})
    except StudyError:
        return
    assert Study.from_dict(made.to_dict()) == made
    assert Study.from_dict(tomllib.loads(made.to_toml())).digest == made.digest
