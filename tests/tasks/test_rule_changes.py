"""Tasks that change search rules. What must hold:

1. The first one makes the hidden index, with its key and settings; its file is like those of other indexes.
2. The updates of one batch are applied in their order, then written once; a rule keeps its docid.
3. A clear makes updates before it in vain, and counts the rules that were there.
4. After a crash between the two commits tasks end with the outcomes that the file holds.
"""
from __future__ import annotations

from typing import Any

from svcd.rules import stored
from svcd.rules.stored import INDEX_UID
from tests.tasks.conftest import TaskHarness


def update(harness: TaskHarness, uid: str, **change: Any) -> Any:
    return harness.do("dsrUpdate", INDEX_UID, {"rule": change, "updatedRules": 1}, uid=uid, update=change)


def clear(harness: TaskHarness) -> Any:
    return harness.do("dsrClear", INDEX_UID, {"deletedDocuments": None})


def rules(harness: TaskHarness) -> dict[str, tuple[int, dict[str, Any]]]:
    return {rule["uid"]: (docid, rule) for docid, rule in harness.documents(INDEX_UID).items()}


def test_the_first_rule_makes_the_hidden_index(harness: TaskHarness) -> None:
    update(harness, "a", precedence=3)
    harness.run()
    row = harness.instance.index(INDEX_UID)
    assert row is not None and (row.primary_key, row.stats["documents"]) == ("uid", 1)
    with harness.instance.read(INDEX_UID) as reader:
        assert {name: reader.stored_settings[name] for name in stored.SETTINGS} == dict(stored.SETTINGS)
        assert reader.terms.indexed_fields() == []
    assert harness.instance.list_indexes() == ([], 0)


def test_updates_of_a_batch_are_applied_in_their_order(harness: TaskHarness) -> None:
    update(harness, "a", description="one", active=False)
    update(harness, "b")
    harness.run()
    docid = rules(harness)["a"][0]
    update(harness, "a", description="two")
    harness.do("dsrUpdate", INDEX_UID, {"updatedRules": 1}, uid="b")
    last = update(harness, "a", active=None)
    harness.run()
    found = rules(harness)
    assert set(found) == {"a"} and found["a"][0] == docid
    assert (found["a"][1]["description"], found["a"][1]["active"]) == ("two", True)
    assert harness.task(last).batch_uid == 1


def test_a_deleted_rule_is_made_anew(harness: TaskHarness) -> None:
    update(harness, "a", description="one")
    harness.run()
    harness.do("dsrUpdate", INDEX_UID, {"updatedRules": 1}, uid="a")
    update(harness, "a", precedence=1)
    harness.run()
    rule = rules(harness)["a"][1]
    assert "description" not in rule and rule["precedence"] == 1


def test_values_are_counted_when_they_are_stored(harness: TaskHarness) -> None:
    update(harness, "a", conditions={"filter": {"values": {"k": [1, None, {"d": True}]}}})
    harness.run()
    assert rules(harness)["a"][1]["conditions"]["filter"]["nbConstraints"] == 2


def test_a_clear_counts_the_rules_that_were_there(harness: TaskHarness) -> None:
    update(harness, "a")
    harness.run()
    late, first, second, after = update(harness, "b"), clear(harness), clear(harness), update(harness, "c")
    harness.run()
    assert [harness.task(each).details for each in (first, second)] == [{"deletedDocuments": 1}, {"deletedDocuments": 0}]
    assert harness.task(late).batch_uid == harness.task(second).batch_uid != harness.task(after).batch_uid
    assert set(rules(harness)) == {"c"}


def test_after_a_crash_tasks_end_with_the_outcomes_of_the_file(harness: TaskHarness) -> None:
    update(harness, "a", description="one")
    cleared = clear(harness)
    ends = harness.runner._ends
    finish, ends.finish = ends.finish, _crash
    harness.runner.claim_next()
    harness.runner.run_claimed()
    ends.finish = finish
    assert harness.bugs
    harness.bugs.clear()
    harness.restart()
    harness.run()
    assert harness.task(cleared).details == {"deletedDocuments": 0} and harness.task(cleared).status == "succeeded"
    assert rules(harness) == {}


def _crash(*_: Any) -> None:
    raise RuntimeError("killed between the commits")
