"""Keys of tools: their places, the first of which counts, and what is an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqruntime.toolcredentials import AccessKeys, CredentialsUnusable, keys_of_environment


def named(folder: Path, text: str) -> dict[str, str]:
    file = folder / "keys.yml"
    file.write_text(text)
    return {"MQ_CREDENTIALS_FILE": str(file)}


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("accessKey: rocketmq\nsecretKey: 12345678\n", ("rocketmq", "12345678")),
        (
            "# a comment\naccessKey: 'it''s'\nsecretKey: \"a \\\"b\\\" # c\" # the key\n",
            ("it's", 'a "b" # c'),
        ),
        ("accessKey:   a b   # c\nother: x\nsecretKey: d#e\n", ("a b", "d#e")),
        ("accessKey: änne\r\nsecretKey: geheim\r\n", ("änne", "geheim")),
    ],
)
def test_a_file_has_the_form_of_upstreams_tools(tmp_path: Path, text: str, keys: tuple[str, str]) -> None:
    assert keys_of_environment(named(tmp_path, text)) == AccessKeys(*keys)


def test_the_first_place_that_has_keys_counts(tmp_path: Path) -> None:
    assert keys_of_environment({}) is None
    (tmp_path / "conf").mkdir()
    shared = {"ROCKETMQ_HOME": str(tmp_path)}
    assert keys_of_environment(shared) is None
    (tmp_path / "conf" / "tools.yml").write_text("accessKey:\nsecretKey: ''\n")
    assert keys_of_environment(shared) is None
    (tmp_path / "conf" / "tools.yml").write_text("accessKey: shared\nsecretKey: s\n")
    assert keys_of_environment(shared) == AccessKeys("shared", "s")
    own = shared | {"MQ_ACCESS_KEY": "own", "MQ_SECRET_KEY": "o"}
    assert keys_of_environment(own) == AccessKeys("own", "o")
    assert keys_of_environment(own | named(tmp_path, "accessKey: n\nsecretKey: m\n")) == AccessKeys("n", "m")


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"MQ_ACCESS_KEY": "geheim"}, "one of MQ_ACCESS_KEY and MQ_SECRET_KEY is not set"),
        ({"MQ_SECRET_KEY": "geheim"}, "one of MQ_ACCESS_KEY and MQ_SECRET_KEY is not set"),
        ({"MQ_CREDENTIALS_FILE": "/nowhere/keys.yml"}, "/nowhere/keys.yml cannot be read: No such file"),
        ("accessKey: geheim\n", "one of accessKey and secretKey is missing"),
        ("secretKey: geheim\n", "one of accessKey and secretKey is missing"),
        ("", "accessKey and secretKey are missing"),
        ('accessKey: a\nsecretKey: "geheim\n', "keys.yml:2: the quotation is not ended"),
        ('accessKey: a\nsecretKey: "geheim" x\n', "keys.yml:2: the quotation is not ended"),
    ],
)
def test_what_cannot_be_used_is_an_error_without_the_secret(
    tmp_path: Path, environment: dict[str, str] | str, message: str
) -> None:
    asked = named(tmp_path, environment) if isinstance(environment, str) else environment
    with pytest.raises(CredentialsUnusable) as caught:
        keys_of_environment(asked)
    assert message in str(caught.value) and "geheim" not in str(caught.value)


def test_keys_are_shown_without_the_secret() -> None:
    assert "user" in repr(AccessKeys("user", "geheim")) and "geheim" not in f"{AccessKeys('user', 'geheim')}"


def test_a_file_that_is_no_text_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "keys.yml").write_bytes(b"\xff\xfe")
    with pytest.raises(CredentialsUnusable, match="it is not UTF-8"):
        keys_of_environment({"MQ_CREDENTIALS_FILE": str(tmp_path / "keys.yml")})
