"""Variables of the reference engine. What must hold:

1. MEILI_X is the value of each option whose variable is SVC_X; a variable, flag or key of svcd's own overrides it, except that an
   empty one counts as not given.
2. Variables that are not options reach all of svcd under its own name, unless that is set.
3. One line names the variables that are read and those without effect, never a value; it ignores those of Kubernetes.
4. A wrong value is rejected under the name that the user gave.
"""
from __future__ import annotations

from pathlib import Path

import pytest

from svcd.cli import foreign_variables
from svcd.cli.config import ENVIRONMENT, ConfigError, load
from svcd.cli.foreign_variables import adopt, name_of, report
from svcd.cli.options import OTHER_VARIABLES, Option
from tests.support.option_samples import OTHER, USABLE, companions, other

KEY = "a-master-key-of-some-length"


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / OTHER["master_key_file"]).write_text(f"{KEY}\n")
    (tmp_path / OTHER["config_file_path"]).touch()


@pytest.mark.parametrize("option", USABLE, ids=lambda option: option.name)
def test_the_variable_counts_where_ours_is_not_given(option: Option) -> None:
    variable = name_of(option.variable)
    assert variable == "MEILI_" + option.variable.removeprefix("SVC_")
    text = other(option)
    config = load(companions(option), {variable: text})
    assert getattr(config, option.name) == option.kind.parse(text) and config.source(option.name) == ENVIRONMENT
    assert config.where(option.name) == variable


def test_ours_overrides_it_unless_empty() -> None:
    both = {"MEILI_HTTP_ADDR": "0.0.0.0:7700", "MEILI_DB_PATH": "/meili_data/data.ms"}
    config = load({"db_path": "here"}, {**both, "SVC_HTTP_ADDR": "localhost:1"})
    assert str(config.http_addr) == "localhost:1" and config.db_path == Path("here")
    assert str(load({"db_path": "here"}, {**both, "SVC_HTTP_ADDR": ""}).http_addr) == "0.0.0.0:7700"
    assert report(config.where, {**both, "SVC_HTTP_ADDR": "localhost:1"}) == (
        "variables of the reference engine without effect: MEILI_DB_PATH, MEILI_HTTP_ADDR")


def test_other_variables_are_found_under_our_name() -> None:
    for variable in OTHER_VARIABLES:
        environ = {name_of(variable): "1"}
        adopt(environ)
        assert environ == {name_of(variable): "1", variable: "1"}
        environ = {name_of(variable): "1", variable: "2"}
        adopt(environ)
        assert environ[variable] == "2"


def test_one_line_names_what_is_read_and_what_is_not() -> None:
    environ = {"MEILI_ENV": "development", "MEILI_MASTER_KEY": KEY, "MEILI_OPENAI_API_KEY": "secret", "MEILI_ADDR": "secret",
               "MEILI_DB_PATH": "", "MEILI_PORT_7700_TCP_ADDR": "10.0.0.1", "MEILISEARCH_HOST": "http://search.test",
               "MEILI_EXPERIMENTAL_REDUCE_INDEXING_MEMORY_USAGE": "true"}
    adopt(environ)
    assert report(load({}, environ).where, environ) == (
        "variables of the reference engine read: MEILI_ENV, MEILI_MASTER_KEY, MEILI_OPENAI_API_KEY; "
        "without effect: MEILI_ADDR, MEILI_EXPERIMENTAL_REDUCE_INDEXING_MEMORY_USAGE")
    assert report(load({}, {}).where, {"SVC_ENV": "development"}) is None


def test_a_wrong_value_is_rejected_under_the_given_name() -> None:
    for variable, text in (("MEILI_MASTER_KEY", "short"), ("MEILI_HTTP_ADDR", "nowhere"), ("MEILI_ENV", "staging")):
        with pytest.raises(ConfigError, match=f"^{variable}: "):
            load({}, {variable: text})


def test_the_names_have_one_prefix() -> None:
    assert foreign_variables.PREFIX == "MEILI_" and all(variable.startswith("SVC_") for variable in OTHER_VARIABLES)
