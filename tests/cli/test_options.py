"""The table of options. What must hold for every row:

1. Flag, `SVC_*` variable, key and default are those of the reference engine (tests/contract).
2. Every default and every example is valid.
3. A value written as text parses to the same value.
4. A wrong value raises ValueError with one line.
5. The help shows every flag, variable and default.
"""
from __future__ import annotations

import re
from typing import Any

import pytest
from click.testing import CliRunner

from svcd.cli import options
from svcd.cli.main import COMMAND, help_row
from svcd.cli.options import BY_NAME, OPTIONS, Option
from tests.support.contract import table
from tests.support.option_samples import OTHER, USABLE, WRONG, other

# Options that the reference engine does not have.
OWN = {"analytics_url", "changes_keep", "cluster", "error_docs_url", "exit_when_idle", "experimental_mcp",
       "experimental_rename_by_patch", "master_key_file", "mcp_calls_per_minute", "mcp_write", "models_dir",
       "node_name", "node_url", "parallel_batches_after", "query_log", "query_log_days", "query_log_hashes", "search_memory", "search_workers"}
every_option = pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)


def test_names_are_derived_from_the_flag() -> None:
    option = BY_NAME["experimental_logs_mode"]
    assert (option.flag, option.variable) == ("--experimental-logs-mode", "SVC_EXPERIMENTAL_LOGS_MODE")


def test_no_name_stands_twice() -> None:
    assert len(BY_NAME) == len(OPTIONS)


def _reference_options() -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in table("options")["options"]}


def test_no_option_of_the_reference_engine_is_unknown() -> None:
    renamed = {"experimental_dumpless_upgrade"}
    assert set(_reference_options()) == set(BY_NAME) - OWN | set(options.UNSUPPORTED) - renamed
    assert set(table("options")["variables_alone"]) - options.OTHER_VARIABLES == options.VARIABLES_WITHOUT_EFFECT
    assert not options.OTHER_VARIABLES & options.VARIABLES_WITHOUT_EFFECT
    assert not set(BY_NAME) & set(options.UNSUPPORTED)


def test_an_option_may_have_a_variable_of_another_name() -> None:
    assert BY_NAME["experimental_legacy_search_default"].variable == "SVC_EXPERIMENTAL_LEGACY_SEARCH"


def test_a_list_that_is_given_again_adds_up() -> None:
    arguments = ["--experimental-allowed-ip-networks", "10.0.0.0/8", "--experimental-allowed-ip-networks=fd00::/8"]
    given = COMMAND.make_context("svcd", arguments).params["experimental_allowed_ip_networks"]
    assert given == ("10.0.0.0/8", "fd00::/8")


@pytest.mark.parametrize("option", [option for option in OPTIONS if option.name not in OWN],
                         ids=lambda option: option.name)
def test_each_row_agrees_with_the_reference_engine(option: Option) -> None:
    row = _reference_options()[option.name]
    assert (option.flag, option.variable) == (row["flag"], row["env"])
    assert option.is_in_file == (row["toml"] is not None)
    assert option.works_in_file == row.get("toml_effective", True)
    assert option.is_switch == (row["type"] == "boolean flag")
    assert option.is_secret == row.get("secret", False)
    if isinstance(row["default"], (int, bool)):
        assert option.kind.parse(option.default or "") == row["default"]
    elif option.default and row["default"]:
        assert option.default == row["default"]


@every_option
def test_default_and_example_can_be_read(option: Option) -> None:
    for text in filter(None, (option.default, option.example)):
        option.kind.parse(text)
    if option.derived:
        option.derived({"max_indexing_memory": None})
        assert option.default_description


@pytest.mark.parametrize("option", USABLE, ids=lambda option: option.name)
def test_a_written_value_reads_back(option: Option) -> None:
    value = option.kind.parse(other(option))
    assert option.kind.parse(option.kind.to_text(value)) == value


def test_every_option_with_a_value_has_samples() -> None:
    assert set(OTHER) == {option.name for option in USABLE if not option.is_switch}
    assert set(WRONG) == {option.name for option in OPTIONS if not option.is_switch}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_rejected_with_one_line(name: str) -> None:
    with pytest.raises(ValueError) as refused:
        BY_NAME[name].kind.parse(WRONG[name])
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) > 10


@pytest.mark.parametrize("text", ["", "0", "n", "no", "f", "false", "off", "N", "No", "FALSE", "Off"])
def test_these_words_mean_false(text: str) -> None:
    assert BY_NAME["no_analytics"].kind.parse(text) is False


@pytest.mark.parametrize("text", ["1", "y", "yes", "true", "on", "anything", "00"])
def test_any_other_word_means_true(text: str) -> None:
    assert BY_NAME["no_analytics"].kind.parse(text) is True


@every_option
def test_help_names_each_option(option: Option) -> None:
    shown = " ".join(CliRunner().invoke(COMMAND, ["--help"]).output.split())
    for part in help_row(option):
        assert " ".join(part.split()) in shown


def test_choices_take_any_letter_case() -> None:
    assert BY_NAME["log_level"].kind.parse("debug") == "DEBUG"
    assert BY_NAME["experimental_logs_mode"].kind.parse("Json") == "JSON"


def test_a_proposed_key_is_32_fresh_bytes() -> None:
    keys = set()
    for _ in range(2):
        with pytest.raises(ValueError) as refused:
            BY_NAME["master_key"].kind.parse("x")
        found = re.search(r">> --master-key ([A-Za-z0-9_-]{43}) <<$", str(refused.value))
        assert found
        keys.add(found[1])
        assert BY_NAME["master_key"].kind.parse(found[1]) == found[1]
    assert len(keys) == 2


def test_a_master_key_counts_bytes_not_characters() -> None:
    parse = BY_NAME["master_key"].kind.parse
    assert parse("é" * 8) == "é" * 8
    with pytest.raises(ValueError, match="has 15 bytes"):
        parse("a" * 15)


@pytest.mark.parametrize("text", ["a-key-of-16-bytes-with\nnewline", "not-utf-8-but-long-enough-\udcff"])
def test_a_master_key_that_no_request_could_send_is_refused(text: str) -> None:
    with pytest.raises(ValueError) as refused:
        BY_NAME["master_key"].kind.parse(text)
    assert text not in str(refused.value)


@pytest.mark.parametrize("text, seconds", [("true", 86_400), ("FALSE", None), ("", None), ("5", 5)])
def test_an_interval_is_said_or_numbered(text: str, seconds: int | None) -> None:
    assert BY_NAME["schedule_snapshot"].kind.parse(text) == seconds


@pytest.mark.parametrize("arguments, given", [
    (["--schedule-snapshot"], "true"), (["--schedule-snapshot", "5"], "5"), (["--schedule-snapshot=5"], "5"),
    (["--schedule-snapshot", "--upgrade-db"], "true"), ([], None),
])
def test_an_interval_may_be_a_flag_alone(arguments: list[str], given: str | None) -> None:
    assert COMMAND.make_context("svcd", arguments).params["schedule_snapshot"] == given
