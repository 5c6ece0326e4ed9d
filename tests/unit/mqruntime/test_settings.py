from __future__ import annotations

import enum
from pathlib import Path

import pytest
from pydantic import Field

from mqruntime.settings import Settings, SettingsError


class Flush(enum.Enum):
    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


class DemoSettings(Settings):
    IGNORED = frozenset({"rocketmqHome"})
    WITHOUT_EFFECT = {"fileReservedTime": "has no effect: the log is kept whole"}

    broker_name: str = Field("broker-a", alias="brokerName")
    listen_port: int = Field(10911, alias="listenPort", ge=0, le=65535)
    flush: Flush = Field(Flush.ASYNC_FLUSH, alias="flushDiskType")
    all_ack: bool = Field(True, alias="allAckInSyncStateSet")
    directory: Path = Field(Path("store"), alias="storePathRootDir")


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    return tmp_path / "broker.conf"


def test_defaults_then_file_then_overrides(conf: Path) -> None:
    conf.write_text("brokerName = one\nlistenPort=1\nallAckInSyncStateSet=FALSE\nstorePathRootDir=/data\n")
    settings = DemoSettings.load(conf, ["listenPort=2"])
    assert (settings.broker_name, settings.listen_port, settings.all_ack) == ("one", 2, False)
    assert settings.flush is Flush.ASYNC_FLUSH and settings.directory == Path("/data")
    assert settings.warnings == []


def test_no_file_is_all_defaults() -> None:
    assert DemoSettings.load(None).listen_port == 10911


def test_an_unknown_key_is_warned_of_with_the_nearest_name(conf: Path) -> None:
    conf.write_text("# x\nlistenprot=1\nrocketmqHome=/opt\nqwertz=1\n")
    settings = DemoSettings.load(conf)
    assert settings.warnings == [
        f"{conf}:2: listenprot: unknown setting; did you mean listenPort?",
        f"{conf}:4: qwertz: unknown setting, ignored",
    ]


def test_a_known_key_without_effect_is_warned_of(conf: Path) -> None:
    conf.write_text("rocketmqHome=/opt\nfileReservedTime=48\n")
    expected = f"{conf}:2: fileReservedTime: has no effect: the log is kept whole"
    assert DemoSettings.load(conf).warnings == [expected]


@pytest.mark.parametrize("text", ["", " "])
def test_an_empty_path_is_refused_instead_of_meaning_the_folder_of_the_start(text: str) -> None:
    with pytest.raises(SettingsError, match="storePathRootDir=: must name a file or a folder"):
        DemoSettings.load(None, [f"storePathRootDir={text}"])


def test_a_tilde_in_a_path_is_the_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/mq")
    assert DemoSettings.load(None, ["storePathRootDir=~/store"]).directory == Path("/home/mq/store")


@pytest.mark.parametrize("text", ["listenprot=1", "listenPort=1 ", "fileReservedTime=48"])
def test_strict_refuses_settings_that_would_be_warned_of(conf: Path, text: str) -> None:
    conf.write_text(text)
    with pytest.raises(SettingsError):
        DemoSettings.load(conf, strict=True)


@pytest.mark.parametrize(
    "text", ["listenPort=many", "listenPort=70000", "flushDiskType=LATER", "allAckInSyncStateSet=7"]
)
def test_a_bad_value_names_key_value_file_and_line(conf: Path, text: str) -> None:
    conf.write_text(f"brokerName=x\n{text}\n")
    with pytest.raises(SettingsError) as caught:
        DemoSettings.load(conf)
    error = caught.value
    assert f"{error.key}={error.value}" == text
    assert (error.file, error.line) == (str(conf), 2)
    assert str(error).startswith(f"{conf}:2: {text}: ")
    assert "\n" not in str(error)


def test_a_bad_override_points_at_the_command_line() -> None:
    with pytest.raises(SettingsError, match="^command line: listenPort=x: "):
        DemoSettings.load(None, ["listenPort=x"])
    with pytest.raises(SettingsError, match="'listenPort' is not KEY=VALUE"):
        DemoSettings.load(None, ["listenPort"])


def test_a_file_that_cannot_be_read_is_a_settings_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        DemoSettings.load(tmp_path / "absent.conf")
    (tmp_path / "bad.conf").write_text("a=\\uXYZ0")
    with pytest.raises(SettingsError, match="bad.conf:1: "):
        DemoSettings.load(tmp_path / "bad.conf")


def test_a_missing_setting_is_reported_for_the_file_if_there_is_one(tmp_path: Path) -> None:
    class Strict(Settings):
        peers: str = Field(alias="controllerDLegerPeers")

    file = tmp_path / "broker.conf"
    file.write_text("")
    for overrides in ([], ["unknown=1"]):
        with pytest.raises(SettingsError, match=f"^{file}: controllerDLegerPeers=: must be set"):
            Strict.load(file, overrides)
    with pytest.raises(SettingsError, match="^command line: controllerDLegerPeers=: must be set"):
        Strict.load(None, [])
    assert Strict.load(file, ["controllerDLegerPeers=x"]).place == str(file)


def test_a_missing_required_key_is_named(conf: Path) -> None:
    class Strict(Settings):
        peers: str = Field(alias="controllerDLegerPeers")

    conf.write_text("")
    with pytest.raises(SettingsError, match="controllerDLegerPeers=: must be set"):
        Strict.load(conf)


def test_effective_lists_every_key_sorted() -> None:
    assert DemoSettings.load(None, ["brokerName=b"]).effective() == (
        "allAckInSyncStateSet=true\nbrokerName=b\nflushDiskType=ASYNC_FLUSH\nlistenPort=10911\nstorePathRootDir=store\n"
    )


def test_settings_are_made_by_field_name_too_and_checked_when_changed() -> None:
    settings = DemoSettings(listen_port=5)
    settings.listen_port = 6
    with pytest.raises(ValueError, match="65535"):
        settings.listen_port = 65536
    assert settings.listen_port == 6


def test_a_licence_in_xml_comments_is_ignored_except_keys_that_java_reads(conf: Path) -> None:
    """Upstream's sample files begin like this."""
    conf.write_text(
        "<!--\n  Licensed to\n  The ASF\n  The NOTICE\n-->\n#Broker config\nlistenPort = 1\n<!-- x -->\nq=1\n"
    )
    settings = DemoSettings.load(conf)
    assert settings.listen_port == 1
    assert settings.warnings == [f"{conf}:9: q: unknown setting, ignored"]
    conf.write_text("<!--\nlistenPort = 2\n-->\n")
    settings = DemoSettings.load(conf)
    assert settings.listen_port == 2
    assert settings.warnings == [
        f"{conf}:2: listenPort counts although it is inside <!-- -->; only # begins a comment"
    ]


class OtherSettings(Settings):
    IGNORED = frozenset({"listenPort"})
    WITHOUT_EFFECT = {"brokerName": "has no effect"}

    peers: str = Field("", alias="peers")
    directory: Path = Field(Path("other"), alias="storePathRootDir")


def test_servers_of_one_process_share_a_file_and_warn_of_the_same_unknown_keys(conf: Path) -> None:
    conf.write_text("brokerName=b\nlistenPort=3\npeers=n0\nstorePathRootDir=/d\npeer=n1\n")
    one = DemoSettings.load(conf, others=[OtherSettings])
    other = OtherSettings.load(conf, others=[DemoSettings])
    assert (one.broker_name, one.listen_port, other.peers) == ("b", 3, "n0")
    assert one.directory == other.directory == Path("/d")
    assert one.warnings == other.warnings == [f"{conf}:5: peer: unknown setting; did you mean peers?"]
    with pytest.raises(SettingsError, match="peer=n1: unknown setting"):
        DemoSettings.load(conf, strict=True, others=[OtherSettings])


class WithLimit(DemoSettings):
    limit: int | None = Field(None, alias="limit", ge=0)
    label: str | None = Field(None, alias="label")


def test_a_number_that_fits_no_message_is_refused(conf: Path) -> None:
    conf.write_text("limit=9223372036854775807\n")
    assert WithLimit.load(conf).limit == (1 << 63) - 1
    conf.write_text("limit=9223372036854775808\n")
    with pytest.raises(SettingsError, match="limit=9223372036854775808: is no number of 64 bits"):
        WithLimit.load(conf)


def test_an_absent_setting_is_dumped_and_read_back_as_absent(conf: Path) -> None:
    conf.write_text(WithLimit.load(None).effective())
    assert "limit=\n" in conf.read_text()
    assert WithLimit.load(conf).limit is WithLimit.load(conf).label is None
    assert WithLimit.load(conf, ["limit= "]).limit is None
    with pytest.raises(SettingsError, match="valid integer"):
        WithLimit.load(conf, ["listenPort="])
