"""The configuration of a start. What must hold:

1. Flag, variable and key of the file give the same value.
2. The command line overrides the environment, that the file, that the default; for every option.
3. The default file may be absent; a named one may not.
4. An unknown or forbidden key, a wrong type or a wrong value in the file is rejected, naming key and file.
5. Production without a key, a short key, TLS options without TLS, an unusable folder are rejected.
6. Every rejection is one line, and none repeats a secret.
7. An empty variable counts as not set, unless it is a value of its kind.
8. A list may be given in several flags, and as an array in the file.
9. Variables without effect are named, with the right hint or none; options that would only tune the reference engine are accepted.
10. A variable of the reference engine (MEILI_*) counts where svcd's own is not given (test_foreign_variables.py).
"""
from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from svcd.cli import config as configuration, options
from svcd.cli.config import COMMAND_LINE, DEFAULT, ENVIRONMENT, FILE, Config, ConfigError, load, warnings
from svcd.cli.options import BY_NAME, OPTIONS, Option
from tests.support.option_samples import OTHER, USABLE, WRONG, companions, other

KEY = "a-master-key-of-some-length"
in_file = pytest.mark.parametrize(
    "option", [option for option in USABLE if option.is_in_file and option.works_in_file],
    ids=lambda option: option.name)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / OTHER["master_key_file"]).write_text(f"{KEY}\n")


def file_with(path: str = "svcd.toml", **keys: Any) -> str:
    """A TOML file with these keys; its path."""
    Path(path).write_text(tomli_w.dumps(keys))
    return path


def refusal(flags: dict[str, Any] | None = None, environ: dict[str, str] | None = None) -> str:
    """The words of a refused start."""
    with pytest.raises(ConfigError) as refused:
        load(flags or {}, environ or {})
    words = str(refused.value)
    assert "\n" not in words
    return words


def toml_value(option: Option, text: str) -> Any:
    """The text in the type that the file takes."""
    if bool in option.kind.toml:
        return option.kind.parse(text)
    return int(text) if int in option.kind.toml and text.isdigit() else text


@in_file
def test_flag_variable_and_key_agree(option: Option) -> None:
    needed = companions(option)
    text = other(option)
    by_flag = load({**needed, option.name: True if option.is_switch else text}, {})
    by_variable = load(needed, {option.variable: text})
    keys = {**needed, option.name: toml_value(option, text)}
    by_file = load({"config_file_path": file_with(**keys)}, {})
    values = [getattr(config, option.name) for config in (by_flag, by_variable, by_file)]
    assert values[0] == values[1] == values[2] == option.kind.parse(text)
    assert [config.source(option.name) for config in (by_flag, by_variable)] == [COMMAND_LINE, ENVIRONMENT]
    assert by_file.source(option.name) == FILE


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_an_option_that_is_not_given_has_its_default(option: Option) -> None:
    config = load({}, {})
    assert config.source(option.name) == DEFAULT
    if not option.derived:
        assert getattr(config, option.name) == (option.kind.parse(option.default) if option.default is not None else None)


@in_file
def test_the_command_line_wins_over_the_environment_over_the_file(option: Option) -> None:
    needed = companions(option)
    rights = [other(option), option.default or other(option)]
    if option.is_switch:
        path = file_with(**{option.name: True})
        off = load({**needed, "config_file_path": path}, {option.variable: "off"})
        on = load({**needed, "config_file_path": path, option.name: True}, {option.variable: "off"})
        assert (getattr(off, option.name), getattr(on, option.name)) == (False, True)
        return
    path = file_with(**{option.name: toml_value(option, rights[1])})
    environ = {"SVC_CONFIG_FILE_PATH": path, option.variable: rights[0]}
    assert load(needed, environ).source(option.name) == ENVIRONMENT
    assert getattr(load(needed, environ), option.name) == option.kind.parse(rights[0])
    last = load({**needed, option.name: rights[1]}, environ)
    assert last.source(option.name) == COMMAND_LINE
    assert getattr(last, option.name) == option.kind.parse(rights[1])


@given(st.sets(st.sampled_from([COMMAND_LINE, ENVIRONMENT, FILE])))
def test_the_first_way_that_gives_a_value_decides(ways: set[str]) -> None:
    values = {COMMAND_LINE: "1", ENVIRONMENT: "2", FILE: "3"}
    name = "experimental_search_queue_size"
    file_with("config.toml", **({name: 3} if FILE in ways else {}))
    config = load(
        {name: values[COMMAND_LINE]} if COMMAND_LINE in ways else {},
        {BY_NAME[name].variable: values[ENVIRONMENT]} if ENVIRONMENT in ways else {},
    )
    winner = next((way for way in (COMMAND_LINE, ENVIRONMENT, FILE) if way in ways), DEFAULT)
    assert config.source(name) == winner
    assert getattr(config, name) == int(values.get(winner, "1000"))


@pytest.mark.parametrize("option", [option for option in OPTIONS if not option.works_in_file],
                         ids=lambda option: option.name)
def test_an_import_in_the_file_has_no_effect_and_is_warned_of(option: Option) -> None:
    file_with("config.toml", **{option.name: True if option.is_switch else "there.dump"})
    config = load({"master_key": KEY}, {})
    assert (config.source(option.name), getattr(config, option.name)) == (DEFAULT, False if option.is_switch else None)
    assert list(warnings(config, {})) == [f"`{option.name}` in config.toml: cannot be set in a file; use {option.flag} or {option.variable}"]
    file_with("config.toml", **{option.name: 7})
    assert refusal().startswith(f"`{option.name}` in config.toml: expected ")


def test_a_wrong_value_that_loses_does_not_matter() -> None:
    assert load({"log_level": "WARN"}, {"SVC_LOG_LEVEL": "LOUD"}).log_level == "WARN"


def test_the_default_file_is_read_when_it_exists() -> None:
    assert load({}, {}).log_level == "INFO"
    file_with("config.toml", log_level="warn")
    assert load({}, {}).log_level == "WARN"


@pytest.mark.parametrize("given_by", ["flag", "variable"])
def test_a_named_file_must_exist(given_by: str) -> None:
    named = ({"config_file_path": "no.toml"}, {}) if given_by == "flag" else ({}, {"SVC_CONFIG_FILE_PATH": "no.toml"})
    assert re.match(r"(--config-file-path|SVC_CONFIG_FILE_PATH): file no\.toml does not exist", refusal(*named))


@pytest.mark.parametrize(("content", "reason"), [
    (b"= 3", "not valid TOML"), (b"\xff", "not UTF-8"), (b"log_level = 'a'\nlog_level = 'b'", "not valid TOML"),
    (b"a = " + b"[" * 10_000, "not valid TOML"), (b"log_level = " + b"9" * 100_000, "not valid TOML"),
    (b"max_indexing_threads = 0x" + b"f" * 10_000, "too large"),
])
def test_a_file_that_cannot_be_read_is_refused(content: bytes, reason: str) -> None:
    Path("config.toml").write_bytes(content)
    assert reason in refusal()


def test_a_folder_is_no_config_file() -> None:
    Path("config.toml").mkdir()
    assert "cannot read config.toml" in refusal()


def test_an_unknown_key_is_refused_with_the_nearest() -> None:
    file_with("config.toml", **{"db-pth": "x"})
    assert refusal() == "config.toml: unknown key `db-pth`; did you mean `db_path`?"
    file_with("config.toml", zzz=1)
    assert refusal() == "config.toml: unknown key `zzz`; `svcd --help` lists all options"


def test_the_file_cannot_name_a_file() -> None:
    file_with("config.toml", config_file_path="other.toml")
    assert "config.toml: `config_file_path` is not allowed in the file" in refusal()


@pytest.mark.parametrize(("key", "value", "found"), [
    ("log_level", 3, "an integer"), ("no_analytics", "true", "a string"), ("db_path", ["x"], "an array"),
    ("experimental_search_queue_size", True, "a boolean"), ("experimental_search_queue_size", 1.5, "a float"),
    ("http_addr", {"host": "x"}, "a table"), ("master_key", 1234567890123456, "an integer"),
])
def test_a_wrong_type_in_the_file_is_refused(key: str, value: Any, found: str) -> None:
    file_with("config.toml", **{key: value})
    words = refusal()
    assert words.startswith(f"`{key}` in config.toml: expected ")
    assert words.endswith(f"found {found}")


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_refused_where_it_was_given(name: str) -> None:
    option, text = BY_NAME[name], WRONG[name]
    assert refusal({name: text}).startswith(f"{option.flag}: ")
    if text:
        assert refusal({}, {option.variable: text}).startswith(f"{option.variable}: ")
    if option.is_in_file and option.works_in_file and str in option.kind.toml:
        file_with("config.toml", **{name: text})
        assert refusal().startswith(f"`{name}` in config.toml: ")


def test_a_hostile_value_stays_on_one_line_and_short() -> None:
    assert len(refusal({"log_level": "\x1b[2J\n" + "x" * 10_000})) < 300


def test_production_needs_a_key() -> None:
    words = refusal({"env": "production"})
    assert words.startswith("--env: production requires a master key")
    assert re.search(r">> --master-key [\w-]{43} <<", words)
    assert load({"env": "production"}, {"SVC_MASTER_KEY": KEY}).master_key == KEY


@pytest.mark.parametrize("env", ["development", "production"])
@pytest.mark.parametrize("key", ["k", "fifteen--bytes-"])
def test_a_short_key_is_refused_in_every_env(env: str, key: str) -> None:
    words = refusal({"env": env}, {"SVC_MASTER_KEY": key})
    assert words.startswith(f"SVC_MASTER_KEY: the key has {len(key)} bytes, and at least 16 are needed")
    assert re.search(r">> --master-key [\w-]{43} <<", words)
    assert key == "k" or key not in words


def test_tls_options_need_certificate_and_key() -> None:
    assert refusal({"ssl_cert_path": "c.pem"}) == "--ssl-cert-path: has no effect without TLS; set --ssl-key-path as well"
    assert "set --ssl-cert-path and --ssl-key-path as well" in refusal({"ssl_tickets": True})


def test_required_client_certificates_need_authorities() -> None:
    words = refusal({"ssl_cert_path": "c", "ssl_key_path": "k"}, {"SVC_SSL_REQUIRE_AUTH": "1"})
    assert words.startswith("SVC_SSL_REQUIRE_AUTH: ")
    assert "--ssl-auth-path" in words


@pytest.mark.parametrize("name", ["db_path", "dump_dir", "snapshot_dir"])
def test_a_file_in_the_place_of_a_folder_is_refused(name: str) -> None:
    Path("taken").touch()
    assert "taken is not a folder" in refusal({name: "taken"})
    assert "taken is not a folder" in refusal({name: "taken/deeper/still"})
    assert refusal({name: "x" * 5000}).startswith(BY_NAME[name].flag)


@pytest.mark.parametrize("name", ["db_path", "dump_dir", "snapshot_dir"])
def test_a_folder_that_cannot_be_written_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configuration.os, "access", lambda *_: False)
    defaults = {"db_path": "ok"} if name != "db_path" else {}
    assert "is not writable" in refusal({**defaults, name: "sealed"})


def test_folders_are_checked_without_being_made(tmp_path: Path) -> None:
    load({"db_path": "a/b", "dump_dir": "c", "snapshot_dir": "d"}, {})
    assert [path.name for path in tmp_path.iterdir()] == [OTHER["master_key_file"]]


def test_the_size_of_batches_follows_the_indexing_memory() -> None:
    assert load({"max_indexing_memory": "1 GiB"}, {}).experimental_limit_batched_tasks_total_size == 1 << 29
    assert load({"max_indexing_memory": "1 TiB"}, {}).experimental_limit_batched_tasks_total_size == 10 << 30


def test_an_empty_variable_removes_the_bound_of_threads() -> None:
    assert load({}, {"SVC_MAX_INDEXING_THREADS": ""}).max_indexing_threads is None


@pytest.mark.parametrize("option", [option for option in OPTIONS if not option.kind.accepts_empty],
                         ids=lambda option: option.name)
def test_an_empty_variable_counts_as_not_given(option: Option) -> None:
    config = load({}, {option.variable: ""})
    assert config.source(option.name) == DEFAULT
    assert getattr(config, option.name) == getattr(load({}, {}), option.name)


def test_an_empty_variable_leaves_the_file_its_value() -> None:
    file_with("config.toml", master_key=KEY, no_analytics=True, schedule_snapshot=5)
    config = load({}, {"SVC_MASTER_KEY": "", "SVC_NO_ANALYTICS": "", "SVC_CONFIG_FILE_PATH": "",
                       "SVC_SCHEDULE_SNAPSHOT": ""})
    assert (config.master_key, config.no_analytics, config.schedule_snapshot) == (KEY, True, None)


def networks(config: Config) -> list[str]:
    return [str(network) for network in config.experimental_allowed_ip_networks]


def test_networks_add_up_on_the_command_line_and_in_an_array() -> None:
    named = ["10.0.0.0/8", "192.168.0.0/16", "fd00::/8"]
    assert networks(load({"experimental_allowed_ip_networks": ("10.0.0.0/8,192.168.0.0/16", "fd00::/8")}, {})) == named
    for value in (named, ["10.0.0.0/8, 192.168.0.0/16", "fd00::/8", ""], ", ".join(named)):
        file_with("config.toml", experimental_allowed_ip_networks=value)
        assert networks(load({}, {})) == named
        assert networks(load({"experimental_allowed_ip_networks": ()}, {})) == named
    file_with("config.toml", experimental_allowed_ip_networks=[])
    assert networks(load({}, {})) == []
    file_with("config.toml", experimental_allowed_ip_networks=["10.0.0.0/8", 9])
    assert refusal().endswith("or an array of such strings, found an integer in the array")
    file_with("config.toml", experimental_allowed_ip_networks=["10.0.0.0/8", "home"])
    assert "`home` is not a network" in refusal()


@in_file
def test_the_variable_of_an_option_is_a_key_of_the_file(option: Option) -> None:
    keys = {**companions(option), option.variable: toml_value(option, other(option))}
    config = load({"config_file_path": file_with(**keys)}, {})
    assert getattr(config, option.name) == option.kind.parse(other(option))
    assert config.where(option.name) == f"`{option.variable}` in svcd.toml"


def test_one_option_has_one_key() -> None:
    file_with("config.toml", task_webhook_url="http://a.test", SVC_TASK_WEBHOOK_URL="http://b.test")
    assert refusal() == ("config.toml: `task_webhook_url` and `SVC_TASK_WEBHOOK_URL` are the same option; "
                         "remove one")
    file_with("config.toml", SVC_CONFIG_FILE_PATH="other.toml")
    assert "`SVC_CONFIG_FILE_PATH` is not allowed in the file" in refusal()


def test_a_config_does_not_change() -> None:
    with pytest.raises(AttributeError):
        load({}, {}).env = "production"
    with pytest.raises(AttributeError):
        load({}, {}).no_such_option  # noqa: B018


def test_secrets_are_not_shown() -> None:
    secrets = {"master_key": KEY, "task_webhook_authorization_header": "Bearer some-secret"}
    shown = {name: text for name, text, _source in load(secrets, {}).described()}
    assert {shown[name] for name in secrets} == {"***"}
    assert set(shown) == set(BY_NAME)
    assert shown["http_payload_size_limit"] == "100 MB"


def test_an_open_daemon_is_warned_of_with_a_key() -> None:
    [words] = warnings(load({}, {}), {})
    assert "no master key" in words
    assert re.search(r">> --master-key [\w-]{43} <<", words)
    assert list(warnings(load({"master_key": KEY}, {}), {})) == []


def test_a_variable_that_comes_near_an_option_is_warned_of() -> None:
    config: Config = load({"master_key": KEY}, {})
    environ = {"SVC_MASTERKEY": "secret", "SVC_PORT_80_TCP": "x", "HOME": "/"}
    [words] = warnings(config, environ)
    assert "SVC_MASTERKEY" in words and "did you mean SVC_MASTER_KEY?" in words and "secret" not in words


def warned_of(environ: dict[str, str]) -> list[str]:
    return list(warnings(load({"master_key": KEY}, environ), environ))


def test_an_unknown_variable_is_named_in_a_warning() -> None:
    assert warned_of({"SVC_NO_SUCH_THING": "secret"}) == ["the variable SVC_NO_SUCH_THING is not an option and is ignored"]
    assert warned_of({"SVC_EXPERIMENTAL_SUCH_THINGS": "1"}) == [
        "the variable SVC_EXPERIMENTAL_SUCH_THINGS is not an option and is ignored"]
    assert warned_of({"SVC_NO_SUCH_THING": "", "SVC_S3_BUCKET_URL": "", "SVC_SERVER_PROVIDER": "here"}) == []


@pytest.mark.parametrize(("variable", "meant"), [
    ("SVC_LOGLEVEL", "SVC_LOG_LEVEL"), ("SVC_ALLOWED_IP_NETWORKS", "SVC_EXPERIMENTAL_ALLOWED_IP_NETWORKS"),
    ("SVC_EXPERIMENTAL_LEGACY_SEARCH_DEFAULT", "SVC_EXPERIMENTAL_LEGACY_SEARCH"),
])
def test_a_hint_is_the_right_one(variable: str, meant: str) -> None:
    assert warned_of({variable: "1"}) == [f"the variable {variable} is not an option and is ignored; did you mean {meant}?"]


@pytest.mark.parametrize("name", options.UNSUPPORTED)
def test_an_unsupported_option_is_warned_of_as_variable_and_rejected_elsewhere(name: str) -> None:
    variable = f"SVC_{name.upper()}"
    assert warned_of({variable: "secret"}) == [
        f"the variable {variable} is not supported and is ignored: {options.UNSUPPORTED[name]}"]
    for key in (name, variable):
        file_with("config.toml", **{key: "secret"})
        assert refusal() == f"config.toml: `{key}` is not supported: {options.UNSUPPORTED[name]}; remove it"


def test_tuning_options_of_the_reference_engine_are_accepted_with_one_line() -> None:
    flags = {option.name: other(option) for option in OPTIONS if not option.has_effect}
    environ = dict.fromkeys(options.VARIABLES_WITHOUT_EFFECT, "secret")
    config = load({"master_key": KEY, **flags}, environ)
    [words] = warnings(config, environ)
    assert words.startswith("accepted but ignored") and "secret" not in words
    named = [BY_NAME[name].flag for name in flags] + sorted(environ)
    assert words.endswith(": " + ", ".join(named))
    assert warned_of({BY_NAME[name].variable: "0" for name in flags}) == []


def test_a_header_for_no_webhook_is_warned_of() -> None:
    header = {"task_webhook_authorization_header": "Bearer some-secret"}
    [words] = warnings(load({"master_key": KEY}, {BY_NAME[name].variable: text for name, text in header.items()}), {})
    assert words == "SVC_TASK_WEBHOOK_AUTHORIZATION_HEADER: has no effect without --task-webhook-url"
    assert list(warnings(load({"master_key": KEY, "task_webhook_url": "http://hook.test", **header}, {}), {})) == []


def test_a_header_that_cannot_be_sent_is_not_repeated() -> None:
    words = refusal({"task_webhook_authorization_header": "some-secret\n"})
    assert words.startswith("--task-webhook-authorization-header: the value cannot be sent") and "secret" not in words


def test_credentials_of_urls_are_hidden_in_described_options() -> None:
    secret = "https://someone:secret@hook.test/a"
    config = load({"task_webhook_url": secret}, {})
    assert config.task_webhook_url == secret
    assert {name: text for name, text, _ in config.described()}["task_webhook_url"] == "https://XXX...:XXX...@hook.test/a"
    with pytest.raises(ConfigError) as refused:
        load({"task_webhook_url": "ftp://someone:secret@hook.test"}, {})
    assert "secret" not in str(refused.value)


# -- The master key from a file ------------------------------------------------------------------------------


def key_file(content: str | bytes, path: str = "master-key") -> str:
    """A file with this content; its path."""
    Path(path).write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_the_master_key_may_be_the_line_of_a_file(end: str) -> None:
    config = load({"env": "production"}, {"SVC_MASTER_KEY_FILE": key_file(KEY + end)})
    assert (config.master_key, config.source("master_key")) == (KEY, ENVIRONMENT)
    assert KEY not in str(list(config.described()))


def test_the_credential_of_systemd_is_the_master_key_unless_another_is_given() -> None:
    key_file(f"{KEY}\n")
    environ = {"CREDENTIALS_DIRECTORY": str(Path.cwd())}
    assert load({}, environ).master_key == KEY
    assert load({"master_key": KEY[::-1]}, environ).master_key == KEY[::-1]
    assert load({"master_key_file": key_file(KEY.upper(), "other")}, environ).master_key == KEY.upper()
    assert load({}, {"CREDENTIALS_DIRECTORY": "/nowhere"}).master_key is None


def test_a_key_and_a_file_with_a_key_exclude_each_other() -> None:
    words = refusal({"master_key": KEY}, {"SVC_MASTER_KEY_FILE": key_file(KEY)})
    assert words == "SVC_MASTER_KEY_FILE: --master-key is given as well; remove one of them"


@pytest.mark.parametrize(("content", "words"), [
    ("", "has 0 lines"),
    ("short", "the key has 5 bytes"),
    (f"{KEY}\n{KEY}\n", "has 2 lines"),
    (KEY.encode() + b"\xff", "is not UTF-8 text: byte 27 is wrong"),
])
def test_a_file_without_a_usable_key_refuses_the_start(content: str | bytes, words: str) -> None:
    refused = refusal({"master_key_file": key_file(content)})
    assert refused.startswith("--master-key-file: ") and words in refused and KEY not in refused


def test_a_key_file_that_cannot_be_read_refuses_the_start() -> None:
    assert refusal({"master_key_file": "/nowhere/key"}) == "--master-key-file: cannot read /nowhere/key: No such file or directory"


def test_the_exit_when_idle_needs_search_workers_that_end() -> None:
    assert "--search-workers to auto or 0" in refusal({"exit_when_idle": "60", "search_workers": "1"})
    assert load({"exit_when_idle": "60", "search_workers": "0"}, {}).exit_when_idle == 60
