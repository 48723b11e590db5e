"""helpers.recordings: stamped, whole, and never shown as live."""

from __future__ import annotations

import json

import pytest

from helpers import recordings
from helpers.origin import Origin
from helpers.recordings import RecordingError, load, save, stamp

LIVE = Origin("live", "NVIDIA Test", "2.11.0", "2026-01-02")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(recordings, "recordings_folder", lambda: tmp_path / "recordings")
    return tmp_path / "recordings"


def test_what_was_saved_comes_back_as_recorded(folder):
    data = {"samples_ms": [1.5, 2.5], "label": "ü"}
    path = save("vit_b", data, LIVE)
    assert path == folder / "vit_b.json"
    found = load("vit_b")
    assert found.data == data and found.stamp == stamp()
    assert found.origin.kind == "recorded" and found.origin.device == "NVIDIA Test"
    assert found.origin.torch == stamp()["torch"] and found.origin.date == stamp()["date"]
    assert "made earlier" in str(found) and "vit_b" in repr(found)


def test_the_stamp_names_machine_versions_and_day():
    made = stamp()
    assert set(made) == set(recordings.STAMP_FIELDS)
    assert all(isinstance(value, str) and value for value in made.values())


def test_driver_and_triton_stand_in_the_origin(folder):
    save("x", 1, LIVE)
    content = json.loads((folder / "x.json").read_text())
    content["stamp"] |= {"driver": "580.1", "triton": "3.6.0"}
    (folder / "x.json").write_text(json.dumps(content))
    assert "driver 580.1, triton 3.6.0" in load("x").origin.text()


@pytest.mark.parametrize("field", recordings.STAMP_FIELDS)
def test_a_file_without_a_full_stamp_is_refused(folder, field):
    save("x", 1, LIVE)
    content = json.loads((folder / "x.json").read_text())
    del content["stamp"][field]
    (folder / "x.json").write_text(json.dumps(content))
    with pytest.raises(RecordingError, match=f"no stamp of {field},") as caught:
        load("x")
    assert str(caught.value).count("\n") == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"data": 1}', "no stamp"),
        ("[1, 2]", "no stamp"),
        ('{"half', "not whole JSON"),
        ("\udcff", "not whole JSON"),
    ],
)
def test_damaged_and_foreign_files_are_refused(folder, text, message):
    folder.mkdir()
    (folder / "x.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(RecordingError, match=message):
        load("x")


def test_another_schema_is_refused(folder):
    save("x", 1, LIVE)
    content = json.loads((folder / "x.json").read_text())
    (folder / "x.json").write_text(json.dumps({**content, "schema": 99}))
    with pytest.raises(RecordingError, match="schema 99"):
        load("x")


def test_a_missing_recording_names_those_there_are():
    with pytest.raises(RecordingError, match="none yet"):
        load("x")
    save("one", 1, LIVE)
    with pytest.raises(RecordingError, match="there are: one"):
        load("two")


@pytest.mark.parametrize("name", ["", "../x", "a/b", "a.b", "a b", "ä", "x\n", 3])
def test_names_have_word_characters_only(name):
    for use in (load, lambda name: save(name, 1, LIVE)):
        with pytest.raises(RecordingError, match="letters, digits and underscores"):
            use(name)


@pytest.mark.parametrize("kind", ["recorded", "cross-target", "predicted", "published"])
def test_only_live_results_are_recorded(folder, kind):
    with pytest.raises(RecordingError, match="Only live results"):
        save("x", 1, Origin(kind, "NVIDIA Test"))
    assert not folder.exists()


@pytest.mark.parametrize("data", [object(), float("nan"), {"a": [float("inf")]}, {1, 2}])
def test_what_json_cannot_keep_is_refused_and_the_old_file_stays(data):
    save("x", "old", LIVE)
    with pytest.raises(RecordingError, match="JSON cannot keep"):
        save("x", data, LIVE)
    assert load("x").data == "old"


def test_a_full_disk_leaves_the_old_recording(folder, monkeypatch):
    save("x", "old", LIVE)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="No space left"):
        save("x", "new", LIVE)
    monkeypatch.undo()
    assert json.loads((folder / "x.json").read_text())["data"] == "old"
    assert [file.name for file in folder.iterdir()] == ["x.json"]
