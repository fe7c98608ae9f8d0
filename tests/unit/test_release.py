"""The Release: what a file may hold, what is refused and in which words, and which releases go together."""

import copy
import json
import math
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from noisewise.column import Column
from noisewise.errors import MismatchError, OutputError, ReleaseError
from noisewise.gram import Layout
from noisewise.privacy.calibration import plan_noise
from noisewise.release import Release, _digest, check_same_study
from noisewise.study import Study

STUDY = Study(
    features=(Column("age", 18, 100), Column.categorical("ward", ["a", "b"])),
    target=Column("pressure", 70, 220),
    epsilon=1.0,
    delta=1e-6,
)
UNIT = 1 << 32


def release(study: Study = STUDY, holder: str = "clinic", **options: Any) -> Release:
    entries = len(Layout.of(study).pairs)
    noisy = np.arange(50, 50 + entries, dtype=np.int64) * UNIT + 12345
    return Release.from_plan(study, noisy, plan_noise(study), holder=holder, **options)


RELEASE = release()


def body(**changes: Any) -> dict[str, Any]:
    """The content of a file, changed, under a digest that fits it: what a careful forger writes."""
    raw = {**json.loads(json.dumps(RELEASE.to_dict())), **copy.deepcopy(changes)}
    raw["digest"] = _digest(raw)
    return raw


def refused(raw: Any) -> str:
    with pytest.raises(ReleaseError) as caught:
        Release.from_dict(raw, "r.json")
    return str(caught.value)


def statistics(**changes: Any) -> Release:
    given: dict[str, Any] = {"S": [[4.0, 1.0], [1.0, 3.0]], "z": [1.0, 2.0], "n": 10, "sd_S": 0.5, "sd_z": 0.25}
    return Release.from_statistics(**{**given, **changes})


class TestFromPlan:
    def test_statistics_are_in_scaled_units(self) -> None:
        got = RELEASE.sufficient
        fraction = 12345 / UNIT
        assert got.n == RELEASE.n == 50 + fraction
        assert got.S[0].tolist() == [50 + fraction, 51 + fraction, 52 + fraction]
        assert got.z.tolist() == [53 + fraction, 56 + fraction, 58 + fraction]
        assert got.u == 59 + fraction
        plan = plan_noise(STUDY)
        assert got.sd_n == 0.0
        assert got.sd_u == plan.scales[-1]
        assert got.sd_S[1, 1] == pytest.approx(got.sd_u)
        assert got.sd_S[0, 1] == pytest.approx(got.sd_u / math.sqrt(2))

    def test_laplace_scales_become_standard_deviations(self) -> None:
        study = Study(STUDY.features, STUDY.target, epsilon=1.0, mechanism="laplace")
        made = release(study)
        assert made.law == "laplace"
        assert made.sufficient.sd_u == made.scales[-1] * math.sqrt(2)

    def test_it_says_what_was_promised(self) -> None:
        assert RELEASE.guarantee is not None
        assert (RELEASE.guarantee.epsilon, RELEASE.guarantee.delta) == (1.0, 1e-6)
        assert RELEASE.guarantee.sensitivity == plan_noise(STUDY).sensitivity.value
        assert "epsilon 1, delta 1e-06: replacing one row by any other" in RELEASE.privacy_statement()

    def test_each_adjacency_and_mechanism_in_words(self) -> None:
        hidden = Study(STUDY.features, STUDY.target, epsilon=2.0, mechanism="laplace", adjacency="add-remove")
        statement = release(hidden).privacy_statement()
        assert "epsilon 2 (pure): adding or removing one row" in statement
        assert "taken as public" not in statement
        public = Study(STUDY.features, STUDY.target, epsilon=2.0, delta=1e-6, adjacency="add-remove", public_n=True)
        assert "the number of rows is taken as public" in release(public).privacy_statement()

    def test_an_insecure_one_says_so_first(self) -> None:
        assert release(insecure="simulated noise").privacy_statement() == "simulated noise"

    def test_exact_statistics_have_no_noise_and_no_guarantee(self) -> None:
        made = release(exact=True, insecure="exact")
        assert made.law == "none"
        assert set(made.scales) == {0.0}
        assert made.guarantee is None

    def test_every_release_has_an_identity_and_a_time(self) -> None:
        assert RELEASE.identity != release().identity
        assert len(RELEASE.identity) == 32
        assert RELEASE.created.endswith("+00:00")

    def test_repr_tells_who_and_what(self) -> None:
        assert repr(RELEASE).startswith(
            "<Release by 'clinic': n 50, 2 features, gaussian noise; epsilon 1, delta 1e-06"
        )
        assert repr(statistics()).startswith("<Release: n 10, 2 features, gaussian noise; made elsewhere: no guarantee")


class TestFile:
    @pytest.mark.parametrize(
        "made",
        [
            RELEASE,
            release(holder='Klinik "Süd" \\ 東\n\x7f\ud800', ledger_entry="ab" * 32),
            release(exact=True, insecure="exact"),
            release(Study(STUDY.features, STUDY.target, epsilon=0.1, mechanism="laplace", adjacency="add-remove")),
            statistics(u=5.0, sd_u=1.0, holder="elsewhere"),
            statistics(noise="laplace"),
        ],
        ids=range(6),
    )
    def test_round_trip(self, made: Release, tmp_path: Path) -> None:
        made.save(tmp_path / "release.json")
        loaded = Release.load(tmp_path / "release.json")
        assert loaded == made
        assert loaded.digest == made.digest
        assert loaded.to_dict() == made.to_dict()
        for mine, theirs in zip(made.sufficient, loaded.sufficient, strict=True):
            assert np.array_equal(mine, theirs)
        assert [path.name for path in tmp_path.iterdir()] == ["release.json"]

    def test_a_file_of_version_1_loads(self) -> None:
        # A file as the first version wrote it, with all that it may hold; it must load for ever.
        raw = {
            "format": "noisewise-release",
            "version": 1,
            "identity": "0" * 32,
            "holder": "elsewhere",
            "created": "2024-05-01T12:00:00+00:00",
            "study_digest": None,
            "study": None,
            "privacy": None,
            "insecure": "",
            "ledger_entry": None,
            "round": None,
            "layout": {
                **{"d": 1, "intercept": False, "release_yy": True, "statistics": "gram", "average_rows": 1},
                **{"fourth_moments": 0.0, "smallest_eigenvalue": 0.0},
            },
            "unit": 0,
            "values": [10.0, 4.0, 1.5, 2.0],
            "noise": {"law": "gaussian", "scales": [0.0, 0.5, 0.25, 1.0]},
            "digest": "38a4f6cbdec365e7789f9b88590918520a4e2a67fd2b880b676117073fdb7b1b",
        }
        loaded = Release.from_dict(raw)
        assert (loaded.n, loaded.sufficient.u, loaded.sufficient.sd_z.tolist()) == (10.0, 2.0, [0.25])

    def test_a_file_is_replaced_whole(self, tmp_path: Path) -> None:
        path = tmp_path / "release.json"
        path.write_text("something older and much longer" * 1000)
        RELEASE.save(path)
        assert Release.load(path) == RELEASE

    def test_nothing_else_of_the_holder_is_in_it(self) -> None:
        assert set(RELEASE.to_dict()) == {
            *("format", "version", "identity", "holder", "created", "study_digest", "study", "privacy"),
            *("insecure", "ledger_entry", "round", "layout", "unit", "values", "noise", "digest"),
        }

    def test_digest_feels_every_part(self) -> None:
        raw = RELEASE.to_dict()
        digests = {raw["digest"]}
        for key in raw.keys() - {"digest"}:
            digests.add(_digest({**raw, key: "changed"}))
        assert len(digests) == len(raw)

    @pytest.mark.parametrize("place", ["nowhere/release.json", "file/release.json", ".", "a" * 250])
    def test_a_place_that_can_not_be_written(self, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        Path("file").write_text("a file and no folder")
        with pytest.raises(OutputError, match=f"^{place}: (can't be written .*; choose another|this is a folder)"):
            RELEASE.save(place)
        assert [path.name for path in tmp_path.iterdir()] == ["file"]

    def test_a_folder_can_not_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "folder").mkdir()
        with pytest.raises(OutputError, match="folder: can't be written"):
            RELEASE.save(tmp_path / "folder")
        assert [path.name for path in tmp_path.iterdir()] == ["folder"]

    @pytest.mark.parametrize("name", ["none.json", ""])
    def test_a_file_that_can_not_be_read(self, name: str, tmp_path: Path) -> None:
        with pytest.raises(ReleaseError, match="can't be read"):
            Release.load(tmp_path / name)

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"\xff\xfe\xfa",
            b"age,bmi\n40,25\n",
            b"[" * 100_000,
            b'{"values": [' + b"1" * 5000 + b"]}",
            json.dumps(RELEASE.to_dict()).encode()[:-20],
        ],
        ids=["empty", "binary", "csv", "deep", "long number", "cut off"],
    )
    def test_what_is_no_json(self, content: bytes, tmp_path: Path) -> None:
        path = tmp_path / "release.json"
        path.write_bytes(content)
        with pytest.raises(ReleaseError, match="not a JSON file, or cut off before its end; ask its holder"):
            Release.load(path)

    @pytest.mark.parametrize("raw", [None, 5, "x", [], {}, {"format": "geojson"}, STUDY.to_dict()], ids=range(7))
    def test_foreign_json(self, raw: Any) -> None:
        assert "r.json: this is not a noisewise release (format 'noisewise-release' is missing)" in refused(raw)

    @pytest.mark.parametrize("version", [0, 2, "1", None])
    def test_another_version(self, version: Any) -> None:
        assert f"version {version!r} is not known here; this package reads 1" in refused(body(version=version))

    @pytest.mark.parametrize("key", sorted(RELEASE.to_dict().keys() - {"format", "version"}))
    def test_a_missing_key(self, key: str) -> None:
        raw = RELEASE.to_dict()
        del raw[key]
        assert refused(raw) == f"r.json: {key!r} is missing; the file is incomplete."

    def test_an_unknown_key(self) -> None:
        assert "r.json: unknown key 'rows_clipped'; the file was made by another program" in refused(
            body(rows_clipped=3)
        )

    @pytest.mark.parametrize("key", sorted(RELEASE.to_dict().keys() - {"format", "version", "digest"}))
    @pytest.mark.parametrize("value", [True, 1.5, ["x"]], ids=repr)
    def test_a_wrong_type(self, key: str, value: Any) -> None:
        if key == "values" and isinstance(value, list):
            assert "the layout does not fit 1 values" in refused(body(values=value))
        else:
            assert f"r.json: {key!r} has the wrong type ({type(value).__name__})" in refused(body(**{key: value}))

    @pytest.mark.parametrize("key", sorted(RELEASE.to_dict().keys() - {"format", "version", "digest"}))
    def test_a_changed_value(self, key: str) -> None:
        raw = RELEASE.to_dict()
        old = raw[key]
        if isinstance(old, str):
            raw[key] = old + "1"
        elif isinstance(old, int):
            raw[key] = old + 1
        elif isinstance(old, list):
            raw[key] = [old[0] + 1, *old[1:]]
        else:
            raw[key] = None if old else {} if key == "round" else "1"
            if key in ("layout", "noise"):
                raw[key] = {**old, "extra": 1}
        assert "the content does not match its digest; the file was changed or damaged after" in refused(raw)

    @pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
    def test_numbers_that_are_none(self, number: float, tmp_path: Path) -> None:
        raw = RELEASE.to_dict()
        for changed in (
            {**raw, "values": [number, *raw["values"][1:]]},
            {**raw, "noise": {**raw["noise"], "scales": [number, *raw["noise"]["scales"][1:]]}},
        ):
            path = tmp_path / "r.json"
            path.write_text(json.dumps(changed))
            with pytest.raises(ReleaseError, match=r"r.json: .*not a finite number"):
                Release.load(path)


SCALES = list(RELEASE.scales)
PRIVACY = cast(dict[str, Any], RELEASE.to_dict()["privacy"])
LAYOUT = {"d": 2, "intercept": True, "release_yy": True}


class TestForgedFiles:
    """Digests fit here; what is wrong is the content."""

    def test_the_unchanged_file_is_fine(self) -> None:
        assert Release.from_dict(body()) == RELEASE

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"values": [1] * 9}, "9 values and 10 noise scales, where 10 entries are released"),
            ({"noise": {"law": "gaussian", "scales": SCALES[:9]}}, "10 values and 9 noise scales"),
            ({"noise": {"law": "cauchy", "scales": SCALES}}, "noise law 'cauchy' is not known; it is one of"),
            ({"noise": {"law": ["gaussian"], "scales": SCALES}}, "is not known"),
            ({"noise": {"law": "gaussian"}}, "the file is malformed (KeyError"),
            ({"noise": {"law": "gaussian", "scales": 5}}, "the file is malformed (TypeError"),
            ({"noise": {"law": "gaussian", "scales": [-1.0] * 10}}, "a noise scale is negative or not a finite number"),
            ({"noise": {"law": "gaussian", "scales": ["1"] * 10}}, "a noise scale is negative or not a finite number"),
            ({"noise": {"law": "none", "scales": SCALES}}, "noise law 'none' has scale 0 everywhere"),
            ({"noise": {"law": "none", "scales": [0.0] * 10}}, "a guarantee is stated and an entry has no noise"),
            ({"noise": {"law": "laplace", "scales": SCALES}}, "laplace noise, where its study says gaussian"),
            ({"noise": {"law": "gaussian", "scales": [*SCALES[:9], 0.0]}}, "an entry has no noise"),
            ({"noise": {"law": "gaussian", "scales": [1.0, *SCALES[1:]]}}, "an entry has no noise"),
            ({"noise": {"law": "gaussian", "scales": SCALES, "seed": 5}}, "holds other things than a release does"),
            ({"values": ["1"] * 10}, "a released value is not a finite number"),
            ({"values": [True] * 10}, "a released value is not a finite number"),
            ({"values": [10**400] * 10}, "a released value is not a finite number"),
            ({"layout": {**LAYOUT, "d": 1}}, "where 6 entries are released"),
            ({"layout": {**LAYOUT, "d": 1000}}, "the layout does not fit 10 values"),
            ({"layout": {**LAYOUT, "d": "2"}}, "the layout does not fit 10 values"),
            ({"layout": {**LAYOUT, "d": 0}}, "the layout does not fit 10 values"),
            ({"layout": {**LAYOUT, "d": 2.0}}, "the file is malformed (TypeError"),
            ({"layout": {"d": 2}}, "the file is malformed (TypeError"),
            ({"layout": {**LAYOUT, "e": 2}}, "the file is malformed (TypeError"),
            ({"unit": 65}, "unit 65 is out of range; it is a number of bits, 0 to 64"),
            ({"unit": -1}, "unit -1 is out of range"),
            ({"study_digest": "0" * 64}, "the study inside is not the one that its study_digest names"),
            ({"study_digest": None}, "the study inside is not the one that its study_digest names"),
            ({"study": {**STUDY.to_dict(), "epsilon": 0}}, "epsilon 0 is out of range"),
            ({"study": {**STUDY.to_dict(), "intercept": False}}, "the entries are not those that its study releases"),
            (
                {"study": {**STUDY.to_dict(), "name": "x"}},
                "the study inside is not the one that its study_digest names",
            ),
            ({"study": {}}, "this is not a study"),
            ({"privacy": {**PRIVACY, "epsilon": 0.1}}, "the privacy statement has epsilon 0.1, its study 1.0"),
            ({"privacy": {**PRIVACY, "delta": 1e-9}}, "the privacy statement has delta 1e-09, its study 1e-06"),
            ({"privacy": {**PRIVACY, "adjacency": "add-remove"}}, "the privacy statement has adjacency 'add-remove'"),
            ({"privacy": {**PRIVACY, "mechanism": "laplace"}}, "the privacy statement has mechanism 'laplace'"),
            ({"privacy": {**PRIVACY, "public_n": False}}, "the privacy statement has public_n False, its study True"),
            ({"privacy": {**PRIVACY, "epsilon": "1"}}, "statement's epsilon is not a number of at least 0"),
            ({"privacy": {**PRIVACY, "blocks": [["gram", 1.0, -1]]}}, "statement's sensitivity is not a number of at"),
            (
                {"privacy": {**PRIVACY, "blocks": [["gram", "1", 1.0]]}},
                "statement's share is not a number of at least 0",
            ),
            ({"privacy": {**PRIVACY, "blocks": []}}, "statement's share is not a number of at least 0"),
            ({"privacy": {**PRIVACY, "blocks": [["gram", 0.5, 1.0]]}}, "splits the budget otherwise than its study"),
            ({"privacy": {**PRIVACY, "blocks": [["gram", 1.0]]}}, "the file is malformed (TypeError"),
            (
                {"layout": {**LAYOUT, "statistics": "all"}},
                "the file is malformed (ValueError: no layout has statistics",
            ),
            ({"layout": {**LAYOUT, "average_rows": 0}}, "no layout has statistics 'gram' and average_rows 0"),
            (
                {"layout": {**LAYOUT, "fourth_moments": 1.5}},
                "shares of the budget (1.5, 0.0) are not numbers from 0 to",
            ),
            ({"layout": {**LAYOUT, "fourth_moments": 0.5}}, "values and"),
            ({"layout": {**LAYOUT, "average_rows": 2}}, "the entries are not those that its study releases"),
            ({"privacy": {**PRIVACY, "adjacency": []}}, "statement's adjacency is not a text"),
            ({"privacy": {}}, "the file is malformed (TypeError"),
            ({"version": 1.0}, "holds other things than a release does"),
            ({"version": True}, "holds other things than a release does"),
        ],
    )
    def test_a_forged_field(self, changes: dict[str, Any], words: str) -> None:
        message = refused(body(**changes))
        assert message.startswith("r.json: ")
        assert words in message

    def test_without_a_study(self) -> None:
        raw = json.loads(json.dumps(statistics().to_dict()))
        forged = {**raw, "study_digest": STUDY.digest}
        forged["digest"] = _digest(forged)
        assert "the study inside is not the one that its study_digest names" in refused(forged)

    def test_nesting_of_any_depth(self, tmp_path: Path) -> None:
        text = json.dumps({**RELEASE.to_dict(), "privacy": "@"})
        path = tmp_path / "r.json"
        # around the interpreter's limit reading succeeds where writing fails, a few levels deep
        for depth in [*range(900, 1010, 2), 100_000]:
            path.write_text(text.replace('"@"', '{"a":' * depth + "1" + "}" * depth))
            with pytest.raises(ReleaseError):
                Release.load(path)


def everything(made: Release) -> None:
    """All that a release offers: none of it may fail once a file has been accepted."""
    repr(made)
    made.privacy_statement()
    made.to_dict()
    assert np.isfinite(made.sufficient.S).all()
    check_same_study([made])


TEXT = json.dumps(RELEASE.to_dict(), indent=1).encode()


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """The file with some bytes changed, lost, doubled or moved."""
    content = bytearray(TEXT)
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(content) - 1))
        stop = min(len(content), start + draw(st.integers(1, 8)))
        kind = draw(st.sampled_from(["change", "lose", "double", "cut", "swap"]))
        if kind == "change":
            content[start] = draw(st.integers(0, 255))
        elif kind == "lose":
            del content[start:stop]
        elif kind == "double":
            content[start:start] = content[start:stop]
        elif kind == "cut":
            del content[start:]
        else:
            content[start:stop] = content[start:stop][::-1]
        if not content:
            break
    return bytes(content)


@given(damaged())
def test_a_damaged_file_is_refused_or_means_the_same(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.json"
    path.write_bytes(content)
    try:
        loaded = Release.load(path)
    except ReleaseError:
        return
    assert loaded == RELEASE


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)


@st.composite
def forged(draw: st.DrawFn) -> dict[str, Any]:
    """The content with one node anywhere in the tree replaced, removed or joined by another, under a fitting digest."""
    raw = copy.deepcopy(RELEASE.to_dict())
    node: Any = raw
    while True:
        places = list(node) if isinstance(node, dict) else list(range(len(node)))
        place = draw(st.sampled_from(places))
        inner = node[place]
        if not isinstance(inner, dict | list) or not inner or draw(st.booleans()):
            break
        node = inner
    kind = draw(st.sampled_from(["replace", "number", "remove", "add"]))
    if kind == "replace":
        node[place] = draw(values)
    elif kind == "number":
        node[place] = draw(st.sampled_from([0, -1, 1.0, 2**63, 10**400, 1e308, True]))
    elif kind == "remove":
        del node[place]
    elif isinstance(node, dict):
        node[draw(st.text(max_size=5))] = draw(values)
    else:
        node.append(draw(values))
    assume("digest" in raw)
    raw["digest"] = _digest(raw)
    return raw


@given(forged())
def test_a_forged_file_is_refused_or_a_sound_release(raw: dict[str, Any]) -> None:
    try:
        loaded = Release.from_dict(json.loads(json.dumps(raw)))
    except ReleaseError:
        return
    everything(loaded)
    assert loaded.digest == raw["digest"]


class TestFromStatistics:
    def test_the_blocks_come_back(self) -> None:
        made = statistics(sd_S=[[1.0, 2.0], [2.0, 3.0]], sd_z=[4.0, 5.0], u=6.0, sd_u=7.0)
        got = made.sufficient
        assert (got.n, got.sd_n, got.u, got.sd_u) == (10.0, 0.0, 6.0, 7.0)
        assert got.S.tolist() == [[4.0, 1.0], [1.0, 3.0]]
        assert got.z.tolist() == [1.0, 2.0]
        assert got.sd_S.tolist() == [[1.0, 2.0], [2.0, 3.0]]
        assert got.sd_z.tolist() == [4.0, 5.0]
        assert (made.study, made.guarantee, made.insecure, made.unit) == (None, None, "", 0)

    def test_u_may_be_left_out_or_zero(self) -> None:
        assert statistics().sufficient.u is None
        assert statistics(u=0, sd_u=0).sufficient.u == 0.0

    def test_sds_of_laplace_noise_are_standard_deviations_too(self) -> None:
        made = statistics(noise="laplace", sd_z=[4.0, 5.0])
        assert made.scales[3] == pytest.approx(4.0 / math.sqrt(2))
        assert made.sufficient.sd_z == pytest.approx([4.0, 5.0])

    def test_numbers_of_numpy_are_numbers(self) -> None:
        made = statistics(n=np.int64(10), u=np.float32(2), sd_u=np.int32(1))
        assert (made.n, made.sufficient.u) == (10.0, 2.0)
        assert all(type(value) is float for value in made.values)

    def test_rounding_alone_does_not_make_it_asymmetric(self) -> None:
        assert statistics(S=[[4.0, 1.0], [1.0 + 1e-12, 3.0]]).sufficient.S.tolist() == [[4.0, 1.0], [1.0, 3.0]]

    def test_exact_statistics(self) -> None:
        assert statistics(noise="none", sd_S=0, sd_z=0).law == "none"

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"S": [[1.0]]}, "S of shape (1, 1) and z of shape (2,) don't match; they are (d, d) and (d,)"),
            ({"S": [4.0, 3.0]}, "S of shape (2,) and z of shape (2,) don't match"),
            ({"z": [[1.0], [2.0]]}, "z of shape (2, 1) don't match"),
            ({"z": 1.0, "S": [[1.0]]}, "z of shape () don't match"),
            ({"z": [], "S": np.empty((0, 0))}, "don't match"),
            ({"S": [[4.0, 1.0], [1.0]]}, "S is not an array of numbers"),
            ({"z": ["a", "b"]}, "z is not an array of numbers"),
            ({"S": [[4.0, 1.0], [2.0, 3.0]]}, "S is not symmetric; give (S + S') / 2"),
            ({"S": [[math.nan, 1.0], [1.0, 3.0]]}, "not a finite number"),
            ({"S": [[math.inf, 1.0], [1.0, 3.0]]}, "not a finite number"),
            ({"z": [math.inf, 1.0]}, "not a finite number"),
            ({"n": 0}, "n is 0; it is the number of rows, at least 1"),
            ({"n": math.nan}, "n is nan; it is the number of rows"),
            ({"n": "10"}, "n is '10'; it is the number of rows"),
            ({"n": True}, "n is True; it is the number of rows"),
            ({"sd_S": [1.0, 2.0, 3.0]}, "sd_S and sd_z are one number each, or of shapes (2, 2) and (2,)"),
            ({"sd_z": [1.0, 2.0, 3.0]}, "sd_S and sd_z are one number each"),
            ({"sd_S": "x"}, "sd_S is not an array of numbers"),
            ({"sd_S": [[1.0, 2.0], [3.0, 4.0]]}, "sd_S is not symmetric; an entry of S and its mirror image are one"),
            ({"sd_S": -1.0}, "a noise scale is negative or not a finite number"),
            ({"sd_z": math.inf}, "a noise scale is negative or not a finite number"),
            ({"u": 1.0}, "Give u and sd_u together, or neither"),
            ({"sd_u": 1.0}, "Give u and sd_u together, or neither"),
            ({"u": math.nan, "sd_u": 1.0}, "u is nan; it is one finite number"),
            ({"u": "1", "sd_u": 1.0}, "u is '1'; it is one finite number"),
            ({"u": 1.0, "sd_u": -1.0}, "a noise scale is negative"),
            ({"noise": "cauchy"}, "noise law 'cauchy' is not known"),
            ({"noise": "none"}, "noise law 'none' has scale 0 everywhere"),
        ],
    )
    def test_bad_statistics_are_refused(self, changes: dict[str, Any], words: str) -> None:
        with pytest.raises(ReleaseError) as caught:
            statistics(**changes)
        assert words in str(caught.value)


class TestTogether:
    def test_releases_of_one_study_go_together(self) -> None:
        check_same_study([RELEASE, release(holder="other"), release()])
        check_same_study([statistics(), statistics(n=20)])

    def test_the_same_one_twice_is_refused(self, tmp_path: Path) -> None:
        RELEASE.save(tmp_path / "copy.json")
        again = Release.load(tmp_path / "copy.json")
        with pytest.raises(MismatchError, match=r"Release 3 is release 1 again \(identity .*\); each may be"):
            check_same_study([RELEASE, release(), again])

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"epsilon": 2.0}, "They differ in epsilon: 1.0 against 2.0."),
            ({"radius": 1.0}, "They differ in radius: 1.41421"),
            ({"bits": 15, "delta": 1e-5}, "They differ in delta: 1e-06 against 1e-05; bits: 16 against 15."),
            ({"target": Column("pressure", 70, 230)}, "They differ in target: "),
            ({"features": (Column("age", 0, 100), STUDY.features[1])}, "They differ in feature 'age': "),
            ({"name": "other"}, "They differ in name: 'study' against 'other'"),
        ],
    )
    def test_the_field_that_differs_is_named(self, changes: dict[str, Any], words: str) -> None:
        given = {key: value for key, value in vars(STUDY).items() if key in STUDY.__dataclass_fields__}
        other = Study(**{**given, **changes})
        with pytest.raises(MismatchError) as caught:
            check_same_study([RELEASE, release(other, holder="south")])
        assert str(caught.value).startswith("Release 2 (south) is of another study than the first.")
        assert words in str(caught.value)

    def test_with_and_without_a_study(self) -> None:
        with pytest.raises(MismatchError, match="Release 2: some releases carry a study and some don't; fit"):
            check_same_study([RELEASE, statistics()])

    def test_other_entries(self) -> None:
        with pytest.raises(MismatchError, match="Release 2 has other statistics than the first"):
            check_same_study([statistics(), statistics(u=1.0, sd_u=1.0)])
